"""What a statement did, and what a node must deliver for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.differential.world import Column, Name

At = tuple[str, int]
"""A journal and an offset. Journals have numbers of equal length, so tuples are in order."""

Values = tuple[tuple[str, Any], ...]
"""A row: names and values in the order of the columns."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a table at one moment, in any order."""

    columns: tuple[Column, ...] = ()
    values: tuple[Values, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One statement with its place in the binlog, and the rows before and after it of each table it may change.

    refused: the server's error, if it did not accept all of the statement.
    """

    number: int
    sql: tuple[str, ...]
    start: At
    end: At
    rows: Mapping[Name, tuple[Rows, Rows]] = field(default_factory=dict)
    refused: str = ""
