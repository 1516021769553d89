"""What is made for every transaction and never changed: values that type checkers, not the interpreter, keep frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def immutable(cls: type[T]) -> type[T]:
    """A dataclass with slots, equal and hashed by its fields, like `dataclass(frozen=True, slots=True)`.

    That one sets every field by a call of object.__setattr__: 2 us for a LogPosition, which is 0.4 us this way.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)
