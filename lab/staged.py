"""Staged: the parts of an experiment, which start together and end in the opposite order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Self


class Staged(ABC):
    """A context manager. If a part does not start, those before it end."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @abstractmethod
    def _start(self) -> None:
        """Start the parts on `_stack`."""
