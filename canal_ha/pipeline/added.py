"""Finds the columns that an ALTER TABLE adds, and their values in existing rows. Pure.

MySQL does not log a change of existing rows, so a copy must derive the value: the constant DEFAULT, or the type's own
default if the column is NOT NULL. Computed values (an expression, CURRENT_TIMESTAMP, AUTO_INCREMENT) are unknown here
and stay NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from canal_ha.client.arrow_types import ColumnType, column_type
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable, SetColumn
from canal_ha.decode.ddl.tokens import Token, TokenKind, Unreadable, tokenize

_ZEROS = {
    "date": "0000-00-00",
    "datetime": "0000-00-00 00:00:00",
    "timestamp": "0000-00-00 00:00:00",
    "time": "00:00:00",
    "year": "0000",
    "enum": "1",
    "text": "",
    "json": "",
    "latin text": "",
}
_WORDS = {"TRUE": "1", "FALSE": "0"}
_COMPUTED = frozenset({"AS", "GENERATED", "AUTO_INCREMENT", "SERIAL"})
_SQL_TYPE_BLOB = 2004


@dataclass(frozen=True, slots=True)
class Added:
    """An added column.

    default: canal's text of its value in older rows; None for NULL.
    known: whether older rows have the default; otherwise the server computed their values.
    """

    name: str
    column: ColumnType
    default: str | None
    known: bool = True


def added_columns(sql: str) -> tuple[Added, ...]:
    """Return the added columns; empty for other statements and for invalid ones."""
    try:
        statement = read(sql)
        if not isinstance(statement, AlterTable):
            return ()
        tokens = tokenize(sql)
    except Unreadable:
        return ()
    found = []
    for change in statement.changes:
        if isinstance(change, SetColumn) and change.old is None:
            made = change.definition.column
            name = made.mysql_type.partition("(")[0].lower()
            binary = name.endswith(("blob", "binary"))
            column = column_type(made.mysql_type, _SQL_TYPE_BLOB if binary else 0)
            definition = _definition(tokens, made.name)
            known = not _is_computed(definition)
            default = _default(definition, column, nullable=made.nullable) if known else None
            found.append(Added(made.name, column, default, known))
    return tuple(found)


def _default(definition: Sequence[Token], column: ColumnType, *, nullable: bool) -> str | None:
    """Return the value of an added column in existing rows."""
    for at, token in enumerate(definition):
        if token.word == "DEFAULT":
            return _constant([following for following in definition[at + 1 :] if following.word != "("], column)
    not_null = any(token.word == "NOT" and following.word == "NULL" for token, following in pairwise(definition))
    if nullable and not not_null:
        return None
    return _ZEROS.get(column.name, "" if str(column.arrow) == "binary" else "0")


def _is_computed(definition: Sequence[Token]) -> bool:
    """Return whether the server computes the values: for a counter, or a default that is no constant."""
    words = [token.word for token in definition]
    if any(word in _COMPUTED for word in words[1:]):
        return True
    if "DEFAULT" not in words:
        return False
    value = list(definition[words.index("DEFAULT") + 1 :])
    if value and value[0].word == "(":
        value = value[1:]
        if ")" not in [token.word for token in value[1:3]]:
            return True
    if value and value[0].word in ("-", "+"):
        value = value[1:]
    if not value:
        return True
    return value[0].kind not in (TokenKind.TEXT, TokenKind.NUMBER) and value[0].word not in ("NULL", *_WORDS)


def _definition(tokens: Sequence[Token], name: str) -> Sequence[Token]:
    """Return the tokens of a column's definition, from its name to the next comma or bracket."""
    for at, token in enumerate(tokens[:-1]):
        named = token.kind in (TokenKind.WORD, TokenKind.QUOTED) and token.value.lower() == name.lower()
        if not named or not _is_added(tokens, at):
            continue
        depth = 0
        for end in range(at + 1, len(tokens)):
            word = tokens[end].word
            if depth == 0 and word in (",", ")"):
                return tokens[at + 1 : end]
            depth += (word == "(") - (word == ")")
        return tokens[at + 1 :]
    return ()


def _is_added(tokens: Sequence[Token], at: int) -> bool:
    """Return whether a name begins the definition of an added column, not an item of a DROP, CHANGE or index."""
    following = tokens[at + 1]
    if following.kind is not TokenKind.WORD or following.word in ("ASC", "DESC"):
        return False
    before = at - 1
    while before > 0 and tokens[before].word in ("IF", "NOT", "EXISTS", "COLUMN"):
        before -= 1
    return tokens[before].word in ("ADD", "(", ",")


def _constant(tokens: Sequence[Token], column: ColumnType) -> str | None:
    sign = ""
    if tokens and tokens[0].word in ("-", "+"):
        sign, tokens = tokens[0].word.replace("+", ""), tokens[1:]
    if not tokens:
        return None
    token = tokens[0]
    if token.kind not in (TokenKind.TEXT, TokenKind.NUMBER):
        return _WORDS.get(token.word)
    text = sign + token.value
    if column.name == "enum":
        return str(column.labels.index(text) + 1) if text in column.labels else None
    if column.name == "set":
        chosen = text.split(",") if text else []
        return str(sum(1 << at for at, label in enumerate(column.labels) if label in chosen))
    return text
