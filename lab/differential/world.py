"""The tables as the server describes them, and names as SQL writes them."""

from __future__ import annotations

from dataclasses import dataclass

Name = tuple[str, str]
"""Schema and table."""

MARK = "mark"
"""The table whose rows say how far a reader is; no statement of the script concerns it."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. kind: data_type of information_schema; definition: column_type; extra: in upper case."""

    name: str
    kind: str
    definition: str
    extra: str = ""
    key: bool = False
    nullable: bool = True

    @property
    def generated(self) -> bool:
        """Whether the server computes the value."""
        return any(word in self.extra for word in ("VIRTUAL GENERATED", "STORED GENERATED", "PERSISTENT"))

    @property
    def written(self) -> bool:
        """Whether an INSERT may have a value for it."""
        return not self.generated and "ROW START" not in self.extra and "ROW END" not in self.extra


@dataclass(frozen=True, slots=True)
class Table:
    """One table. versioned: MariaDB keeps old rows; hidden row_start and row_end are among the columns then."""

    name: Name
    columns: tuple[Column, ...]
    partitioned: bool = False
    versioned: bool = False

    @property
    def keys(self) -> tuple[Column, ...]:
        """The columns of the primary key."""
        return tuple(column for column in self.columns if column.key)


@dataclass(frozen=True, slots=True)
class World:
    """All tables, in the order of their names, and the schemas of the script: the first one is the default."""

    schemas: tuple[str, ...]
    tables: tuple[Table, ...] = ()

    def table(self, name: Name) -> Table | None:
        """Return a table; None if there is none."""
        return next((table for table in self.tables if table.name == name), None)


def quoted(name: str) -> str:
    """Return an identifier in back-quotes."""
    return "`" + name.replace("`", "``") + "`"


def full(name: Name) -> str:
    """Return `schema`.`table`."""
    return f"{quoted(name[0])}.{quoted(name[1])}"


def literal(text: str) -> str:
    """Return a string literal for the sql_mode without NO_BACKSLASH_ESCAPES."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
