"""What statements may tell about protected columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import (
    AlterTable,
    CreateTable,
    Name,
    RenameColumn,
    RenameTables,
    SetColumn,
    Statement,
)
from canal_ha.decode.ddl.tokens import Token, TokenKind, Unreadable, tokenize
from canal_ha.decode.filters import TableFilter
from canal_ha.decode.privacy import Privacy

# Statements with these words can contain values of rows: queries, partitions by value, bodies of programs.
_WITH_VALUES = frozenset(["SELECT", "VALUES", "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE"])

# Words behind which a table can stand in another way than as `a.b`.
_RESERVED = frozenset(["UNION", "EXCEPT", "INTERSECT"])
# Columns can have these names too. See _has_other_places for what tells them apart.
_REMOTE = ["REMOTE_SERVER", "REMOTE_DATABASE", "REMOTE_TABLE"]
_OPTIONS = frozenset(["CONNECTION", "TABNAME", "DBNAME", "TABLE_LIST", "SRCDEF", "OPTION_LIST", *_REMOTE])
_SEQUENCES = frozenset(["NEXTVAL", "LASTVAL", "SETVAL", "CURRVAL"])

_NAMES = (TokenKind.WORD, TokenKind.QUOTED, TokenKind.TEXT)  # of options
_ASSIGNS = ("=", ":", ":=")

# Their tables are elsewhere, and the options or the comment say where.
_REMOTE_ENGINES = frozenset(["SPIDER", "FEDERATED", "CONNECT", "OQGRAPH", "SPHINX", "VP", "LAKEHOUSE"])
# These can be names of columns too, but not before a text.
_REMOTE_OPTIONS = frozenset(["DATA_TABLE", "HTTP", "URI", "ENGINE_ATTRIBUTE", "SECONDARY_ENGINE_ATTRIBUTE"])
# Spider reads lists as `table "pay", password "x"` from comments of tables and partitions. "The user's" is none.
_REMOTE_COMMENT = re.compile(
    r"\b(?:wrapper|srv|server|host|port|socket|user|password|database|table|tbl|table_name_list|tnl|driver|drv|dsn|filedsn"
    r"|fds|default_file|dff|default_group|dfg|sequence|sequence_name|sqn)(?:\s+[\"']|\"|'[^']*'\s*(?:,|\Z))",
    re.IGNORECASE,
)


def tells_nothing(sql: str, privacy: Privacy) -> bool:
    """Return whether the text of a DDL statement can be delivered: it names no protected column and holds no query."""
    try:
        tokens = tokenize(sql)
    except Unreadable:
        return False
    names = (
        token.value.lower() for token in tokens if token.kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.TEXT)
    )
    return privacy.columns.isdisjoint(names) and not any(token.word in _WITH_VALUES for token in tokens)


def names_only(sql: str, default_schema: str, own_schema: str, tables: TableFilter) -> bool:
    """Return whether a DDL statement names no table that is not accepted, in a place where it changes no table.

    Every `a.b` counts as a table, and so does what follows LIKE, REFERENCES and a second TABLE. Options and functions
    that name tables or servers in other ways count as such a name. Other comments and texts do not count.

    sql: the statement.
    default_schema: of the session.
    own_schema: of the table that the statement changes; REFERENCES means it.
    tables: those that may be named.
    """
    try:
        tokens = tokenize(sql)
    except Unreadable:
        return False
    if _has_other_places(tokens) or _is_remote(tokens):
        return False
    return all(tables.accepts(*name) for name in _named(tokens, default_schema, own_schema))


def _is_remote(tokens: Sequence[Token]) -> bool:
    """Return whether an engine, an option or a comment says that a table is elsewhere, perhaps with a password."""
    for at, token in enumerate(tokens):
        name, behind = token.value.upper(), tokens[at + 1 : at + 4]
        value = next((each for each in behind if each.word not in _ASSIGNS), None)
        if value is None or token.kind not in _NAMES:
            continue
        if name == "ENGINE" and value.value.upper() in _REMOTE_ENGINES:
            return True
        if name in _REMOTE_OPTIONS and (value.kind is TokenKind.TEXT or value is not behind[0]):
            return True
        if name == "COMMENT" and value.kind is TokenKind.TEXT and _REMOTE_COMMENT.search(value.value):
            return True
    return False


def _has_other_places(tokens: Sequence[Token]) -> bool:
    """Return whether an option, a query or a sequence may name a table; see names_only."""
    before = ""
    for token, after in pairwise([*tokens, Token(TokenKind.SIGN, ";", ";", ";")]):
        if token.word in _RESERVED:
            return True
        if token.word in ("NEXT", "PREVIOUS") and after.word == "VALUE":
            return True
        if token.word in _SEQUENCES and (after.word == "(" or before == "."):  # seq.NEXTVAL is Oracle's
            return True
        option = token.kind in _NAMES and token.value.upper() in _OPTIONS
        if option and (after.kind in (TokenKind.TEXT, TokenKind.VALUE) or after.word in _ASSIGNS):
            return True
        before = token.word
    return False


def _named(tokens: Sequence[Token], default_schema: str, own_schema: str) -> Iterator[tuple[str, str]]:
    """Yield schema and name of what may be a table; see names_only."""
    before_table = {"LIKE": default_schema, "REFERENCES": own_schema}
    for at, (token, after) in enumerate(pairwise(tokens)):
        if token.word == ".":
            yield tokens[at - 1].value, after.value
        elif token.word in before_table and [each.word for each in tokens[at + 2 : at + 3]] != ["."]:
            yield before_table[token.word], after.value
        if token.word == "TABLE":
            before_table["TABLE"] = default_schema  # the first one is that of the statement


def exposed(sql: str, default_schema: str, privacy: Privacy, tables: TableFilter) -> tuple[str, str] | None:
    """Return the old and the new name of a protected column that is less protected under the new one; None without one.

    The name is new because the statement renames the column or its table, moves rows into another table, or makes a
    table LIKE another one. Values that move count wherever they go: the table can come back under a third name, and
    nobody remembers then what it was called. A copy without rows counts only if the stream gets it.

    sql: the statement.
    default_schema: of the session.
    privacy: the rules.
    tables: what the stream gets.
    """
    try:
        statement = read(sql)
    except Unreadable:
        return None
    for old, new, columns in _renamed(statement, default_schema, tables):
        before = privacy.columns_of(old.schema or "", old.table)
        after = privacy.columns_of(new.schema or "", new.table)
        for column, protection in before.items():
            name = columns.get(column, column)
            if after.get(name, 0) < protection:
                return f"{old.table}.{column}", f"{new.table}.{name}"
    return None


Renamed = Iterator[tuple[Name, Name, Mapping[str, str]]]
"""Tables before and after a statement, with their schemas, and the renamed columns, in lower case."""


def _renamed(statement: Statement | None, default_schema: str, tables: TableFilter) -> Renamed:
    def full(name: Name) -> Name:
        return Name(name.schema or default_schema, name.table)

    match statement:
        case AlterTable():
            yield from _altered(statement, full)
        case RenameTables(pairs):
            origins: dict[Name, Name] = {}  # nobody sees the names between, because the statement is atomic
            for old, new in pairs:
                origins[full(new)] = origins.pop(full(old), full(old))
            for name, origin in origins.items():
                yield origin, name, {}
        case CreateTable(name=name, like=Name() as like):
            if tables.accepts(full(name).schema or "", name.table):
                yield full(like), full(name), {}


def _altered(statement: AlterTable, full: Callable[[Name], Name]) -> Renamed:
    columns: dict[str, str] = {}
    for change in statement.changes:
        if isinstance(change, RenameColumn):
            columns[change.old.lower()] = change.new.lower()
        elif isinstance(change, SetColumn) and change.old is not None:
            columns[change.old.lower()] = change.definition.column.name.lower()
    name = full(statement.name)
    yield name, full(statement.renamed or statement.name), columns
    for gets in (statement.split_off, statement.exchanged):
        if gets is not None:
            yield name, full(gets), {}
    for gives in (statement.absorbed, statement.exchanged):
        if gives is not None:
            yield full(gives), name, {}
