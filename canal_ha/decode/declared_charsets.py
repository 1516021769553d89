"""The charsets of a table's columns, as its CREATE TABLE statement declares them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.decode.ddl.tokens import Token, Unreadable, tokenize
from canal_ha.model.table import Column


def declared_charsets(columns: Sequence[Column], sql: str) -> dict[str, str]:
    """Return the charset of each column by its lower-case name; without those that the statement does not tell.

    columns: of the statement.
    sql: SHOW CREATE TABLE's text, or a statement.
    """
    default = default_charset(sql)
    found = {column.name.lower(): column.charset or default for column in columns}
    return {name: charset for name, charset in found.items() if charset}


def default_charset(sql: str) -> str:
    """Return the table's own charset; "" if the statement does not tell it."""
    try:
        tokens = tokenize(sql)
    except Unreadable:
        return ""
    charset = collation = ""
    options = _options(tokens)
    for at, token in enumerate(options):
        if token.word == "PARTITION":
            break
        if token.word == "CHARSET" or (token.word == "SET" and at and options[at - 1].word in ("CHARACTER", "CHAR")):
            charset = _value(options, at + 1)
        elif token.word == "COLLATE":
            collation = _value(options, at + 1)
    return charset or collation.partition("_")[0]


def _options(tokens: Sequence[Token]) -> list[Token]:
    """Return what stands behind the brackets around the columns, without what stands in other brackets."""
    depth = 0
    began = False
    found: list[Token] = []
    for token in tokens:
        if token.word == "(":
            depth += 1
            began = True
        elif token.word == ")":
            depth -= 1
        elif began and depth == 0:
            found.append(token)
    return found


def _value(options: Sequence[Token], at: int) -> str:
    if at < len(options) and options[at].word == "=":
        at += 1
    return options[at].value.lower() if at < len(options) else ""
