"""Definitions: CREATE TABLE statements without what does not concern columns, so that many tables share one.

A definition is parsed when somebody asks for its columns, not when a snapshot with thousands of them is loaded.
"""

from __future__ import annotations

import re
from functools import lru_cache

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import CreateTable
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.model.table import Column

_HEAD = re.compile(r"CREATE TABLE `((?:[^`]|``)+)` (?=\()")  # as SHOW CREATE TABLE prints it
_NEXT_NUMBER = re.compile(r" AUTO_INCREMENT=\d+\b")
_KEPT_CHARACTERS = 1 << 16  # of a definition whose columns are kept
_MOST_PARSED = 4096  # definitions whose columns are kept: some 6 KB each with 20 columns


def definition_of(sql: str) -> str:
    """Return the definition in a CREATE TABLE statement.

    It is a statement that creates a table with the same columns. The table's name and next AUTO_INCREMENT are left out.
    """
    head = _HEAD.match(sql)
    if head is None:
        return sql
    options_at = sql.rfind("\n)", head.end()) + 1 or len(sql)  # SHOW CREATE TABLE writes one element a line
    return "CREATE TABLE `t` " + sql[head.end() : options_at] + _NEXT_NUMBER.sub("", sql[options_at:])


def table_of(sql: str) -> str | None:
    """Return the table that a statement creates; None if it creates none."""
    head = _HEAD.match(sql)
    if head is not None:
        return head[1].replace("``", "`")
    try:
        statement = read(sql)
    except Unreadable:
        return None
    return statement.name.table if isinstance(statement, CreateTable) else None


def columns_of(definition: str) -> tuple[Column, ...]:
    """Return the columns of a definition, or of any CREATE TABLE statement; () if it is unreadable."""
    return parsed(definition)[0]


def charset_of(definition: str) -> str:
    """Return the charset of a table with this definition, which new texts get; "" for the schema's."""
    return parsed(definition)[1]


def parsed(definition: str) -> tuple[tuple[Column, ...], str]:
    """Return columns and charset of a definition."""
    return kept(definition) if len(definition) <= _KEPT_CHARACTERS else _parse(definition)


def _parse(definition: str) -> tuple[tuple[Column, ...], str]:
    try:
        statement = read(definition)
    except Unreadable:
        return (), ""
    return (statement.columns, statement.charset) if isinstance(statement, CreateTable) else ((), "")


kept = lru_cache(_MOST_PARSED)(_parse)
