"""Parsed statements that change tables: one frozen class for each kind of statement.

`refused`: the reference's parser rejects the statement, so its entry is a plain QUERY (docs/protocol.md#statements).
"""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.decode.ddl.columns import Definition
from canal_ha.model.entry import EventType
from canal_ha.model.table import Column


@dataclass(frozen=True, slots=True)
class Name:
    """A table as written. schema: None if the statement names none."""

    schema: str | None
    table: str


@dataclass(frozen=True, slots=True)
class CreateTable:
    """CREATE TABLE.

    columns: with keys and the table's charset applied.
    charset: the table's own; "" for the schema's.
    like: the table to copy.
    selected: unknown columns of a query follow.
    """

    name: Name
    columns: tuple[Column, ...] = ()
    charset: str = ""
    like: Name | None = None
    selected: bool = False
    if_not_exists: bool = False
    temporary: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class SetColumn:
    """A column added (old is None) or redefined. after: None leaves it in place or at the end, "" puts it first."""

    definition: Definition
    old: str | None = None
    after: str | None = None
    lenient: bool = False  # IF [NOT] EXISTS


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column dropped."""

    name: str
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """A column renamed in place."""

    old: str
    new: str
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class SetPrimaryKey:
    """The primary key added; () drops it."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetUnique:
    """Columns of a unique key added."""

    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetVisibility:
    """A column made visible or invisible."""

    name: str
    invisible: bool


@dataclass(frozen=True, slots=True)
class ConvertCharset:
    """All texts got this charset; "" for the schema's default."""

    charset: str


@dataclass(frozen=True, slots=True)
class DefaultCharset:
    """Texts added from now on have this charset; "" for the schema's default."""

    charset: str


@dataclass(frozen=True, slots=True)
class Versioning:
    """MariaDB's own row_start and row_end are added (True) or dropped. A definition AS ROW START replaces them."""

    on: bool


Change = (
    SetColumn
    | DropColumn
    | RenameColumn
    | SetVisibility
    | ConvertCharset
    | DefaultCharset
    | SetPrimaryKey
    | SetUnique
    | Versioning
)


@dataclass(frozen=True, slots=True)
class AlterTable:
    """ALTER TABLE.

    results: canal's results of the items, in its order.
    split_off: the table that a partition became.
    absorbed: the table that became a partition.
    exchanged: the table that changed its rows with a partition.
    imported: it took the rows of a file, or a partition did.
    discarded: it lost the file of its rows, or a partition did.
    """

    name: Name
    changes: tuple[Change, ...]
    results: tuple[EventType, ...]
    renamed: Name | None = None
    split_off: Name | None = None
    absorbed: Name | None = None
    exchanged: Name | None = None
    imported: bool = False
    discarded: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class DropTables:
    """DROP TABLE, one or several."""

    names: tuple[Name, ...]
    temporary: bool = False
    refused: bool = False


@dataclass(frozen=True, slots=True)
class TruncateTables:
    """TRUNCATE; the columns stay."""

    names: tuple[Name, ...]
    refused: bool = False


@dataclass(frozen=True, slots=True)
class RenameTables:
    """RENAME TABLE: (old, new) in order; each one sees the effect of those before it."""

    pairs: tuple[tuple[Name, Name], ...]
    refused: bool = False


@dataclass(frozen=True, slots=True)
class ChangeIndex:
    """CREATE INDEX or DROP INDEX. changes: what it does to keys; () for most."""

    event_type: EventType
    name: Name
    changes: tuple[SetPrimaryKey | SetUnique, ...] = ()
    refused: bool = False


@dataclass(frozen=True, slots=True)
class ChangeDatabase:
    """CREATE or DROP DATABASE.

    written: the name as the statement spells it, with back-quotes, as canal shows it.
    drops: the tables of the schema are gone; so they are after CREATE OR REPLACE.
    """

    schema: str
    written: str
    drops: bool
    refused: bool = False


Statement = CreateTable | AlterTable | DropTables | TruncateTables | RenameTables | ChangeIndex | ChangeDatabase
