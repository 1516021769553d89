"""Writes the names of tables and schemas as a server stores them that has lower_case_table_names = 1. Pure.

Its rows events have such names, and its statements have what was typed.
"""

from __future__ import annotations

from dataclasses import replace

from canal_ha.decode.ddl.event_types import DdlResult
from canal_ha.decode.ddl.grammar import read_from
from canal_ha.decode.ddl.tokens import TokenReader, Unreadable, tokenize


def lowered_text(sql: str) -> str:
    """Return a statement with these names in lower case; as it is if it cannot be read. Other names stay."""
    try:
        reader = TokenReader(tokenize(sql))
        read_from(reader)
    except Unreadable:
        return sql
    for token in reversed(reader.tables):
        sql = sql[: token.start] + token.text.lower() + sql[token.start + len(token.text) :]
    return sql


def lowered(result: DdlResult) -> DdlResult:
    """Return the table that a statement is about under its stored name."""
    return replace(result, schema=result.schema and result.schema.lower(), table=result.table and result.table.lower())
