"""TableSchema: the columns of one table as of one position."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Column:
    """One column as canal describes it.

    mysql_type: canal's text (`int(11) unsigned`, `varchar(64)`, `enum('a','b')`); "" if only table-map metadata is
    known.
    key: part of the primary key.
    nullable: as declared.
    charset: the column's own; "" when unknown.
    hidden: present in row events only and never shown to clients, such as MariaDB's hash of a long unique key.
    auto_increment, invisible: as declared. MySQL's generated primary key is recognised by them.
    versioning: row_start or row_end, which MariaDB adds to a system-versioned table. No statement names them; they stay
    last.
    """

    name: str
    mysql_type: str
    key: bool = False
    nullable: bool = True
    unsigned: bool = False
    charset: str = ""
    unique: bool = False
    hidden: bool = False
    auto_increment: bool = False
    invisible: bool = False
    versioning: bool = False


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table. columns: in ordinal order. version: changes whenever any other field changes."""

    schema: str
    name: str
    columns: tuple[Column, ...] = field(default=())
    version: int = 0
    certain: bool = True  # False after a statement that could not be parsed; the next table map decides
