"""Reads table definitions from an SQL script, as mysqldump --no-data writes it, for binlogs without a server."""

from __future__ import annotations

import re
from collections.abc import Iterator

from canal_ha.decode.ddl.apply import alter
from canal_ha.decode.ddl.create_table import create_table
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import (
    AlterTable,
    Change,
    ChangeIndex,
    CreateTable,
    DropTables,
    Name,
    RenameTables,
    Statement,
)
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.model.table import Column

# One step over a script: a quoted stretch, a comment, a DELIMITER line, plain words, or any one character.
_PIECE = re.compile(
    r"""'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` | /\*.*?\*/
    | (?P<comment> (?:\#|--(?=[\s\x00-\x1f]|\Z))[^\n]*)
    | (?P<delimiter> ^[ \t]*DELIMITER[ \t]+(?P<new>\S+)[^\n]*)
    | [\w ,()=.]+ | . """,
    re.DOTALL | re.MULTILINE | re.VERBOSE | re.IGNORECASE,
)
_USE = re.compile(r"USE\s+(?:`((?:[^`]|``)+)`|(\S+))\s*\Z", re.IGNORECASE)
_TABLE_STATEMENT = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b|ALTER\s+TABLE\b", re.IGNORECASE)

Key = tuple[str, str]


class Definitions:
    """The tables that a script leaves. Tables named without a schema, and outside any USE, count for every schema.

    CREATE TABLE, ALTER TABLE, CREATE INDEX, RENAME TABLE and DROP TABLE count; other statements are ignored.
    """

    def __init__(self, script: str) -> None:
        """Read the script. Raises ValueError with the first table statement that is unreadable."""
        self._columns: dict[Key, tuple[Column, ...]] = {}
        self._schema = ""
        for text in statements(script):
            use = _USE.match(text)
            if use is not None:
                self._schema = (use[1] or use[2]).replace("``", "`")
                continue
            try:
                self._take(read(text))
            except Unreadable as error:
                if _TABLE_STATEMENT.match(text):
                    raise ValueError(f"{text[:200]}: {error}") from error

    def __len__(self) -> int:
        return len(self._columns)

    def fetch(self, schema: str, table: str) -> str | None:
        """Return a CREATE TABLE statement, as SHOW CREATE TABLE prints it; None if the script has no such table."""
        columns = self._columns.get((schema, table)) or self._columns.get(("", table))
        if columns is None:
            return None
        return create_table(table, columns)

    def _take(self, statement: Statement | None) -> None:
        match statement:
            case CreateTable(name=name, like=None, selected=False, temporary=False):
                key = self._key(name)
                if not (statement.if_not_exists and key in self._columns):
                    self._columns[key] = statement.columns
            case CreateTable(name=name, like=Name() as like) if self._key(like) in self._columns:
                self._columns[self._key(name)] = self._columns[self._key(like)]
            case AlterTable(name=name, changes=changes) | ChangeIndex(name=name, changes=changes):
                self._change(self._key(name), changes)
            case DropTables(names=names):
                for name in names:
                    self._columns.pop(self._key(name), None)
            case RenameTables(pairs=pairs):
                for old, new in pairs:
                    if self._key(old) in self._columns:
                        self._columns[self._key(new)] = self._columns.pop(self._key(old))

    def _change(self, key: Key, changes: tuple[Change, ...]) -> None:
        if changes and key in self._columns:
            self._columns[key] = alter(self._columns[key], changes)

    def _key(self, name: Name) -> Key:
        return (name.schema or self._schema, name.table)


def statements(script: str) -> Iterator[str]:
    """Yield the statements of a script without their terminators and leading comments; DELIMITER is obeyed."""
    end = ";"
    text: list[str] = []
    at = 0
    while at < len(script):
        if script.startswith(end, at):
            at += len(end)
            yield from _whole(text)
            text = []
            continue
        piece = _PIECE.match(script, at)
        if piece is None:  # an unclosed quote: the rest is one statement, which is unreadable
            text.append(script[at:])
            break
        at = piece.end()
        if piece["delimiter"] and not "".join(text).strip():
            end = piece["new"]
        elif not piece["comment"] and not (piece[0].startswith("/*") and piece[0][2:3] not in ("!", "M")):
            text.append(piece[0])
    yield from _whole(text)


def _whole(text: list[str]) -> Iterator[str]:
    statement = "".join(text).strip()
    if statement:
        yield statement
