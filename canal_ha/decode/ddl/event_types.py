"""Classifies the binlog's statements as canal does: event type, schema, table (docs/protocol.md#statements)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from canal_ha.decode.ddl import other_statements, patterns
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.options import table_name
from canal_ha.decode.ddl.statements import (
    AlterTable,
    ChangeDatabase,
    ChangeIndex,
    CreateTable,
    DropTables,
    Name,
    RenameTables,
    Statement,
    TruncateTables,
)
from canal_ha.decode.ddl.tokens import Token, TokenReader, Unreadable, covered, leading
from canal_ha.model.entry import EventType


@dataclass(frozen=True, slots=True)
class DdlResult:
    """One effect of a statement. schema, table: None if the statement names none; origin_*: a RENAME's old name."""

    event_type: EventType
    schema: str | None
    table: str | None
    origin_schema: str | None = None
    origin_table: str | None = None


QUERY_ONLY = (DdlResult(EventType.QUERY, None, None),)
_ROW_VERBS = {
    "INSERT": EventType.INSERT,
    "REPLACE": EventType.INSERT,
    "UPDATE": EventType.UPDATE,
    "DELETE": EventType.DELETE,
}
_UNNAMED_ROWS = re.compile(  # of words
    r"(?:DROP|CREATE OR REPLACE) (?:DATABASE|SCHEMA) |ALTER .*\b(?:DROP|TRUNCATE) PARTITION "
)
_QUERY_VERBS = frozenset({"SELECT", "DO", "CALL", "VALUES", "WITH"})
_ROW_MODIFIERS = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "FROM")
_NAME = r"`(?:[^`]|``)++`|[\w$]++"
_ROW_HEAD = re.compile(
    rf"\s*(?P<verb>INSERT|REPLACE|UPDATE|DELETE)\s+(?:(?:{'|'.join(_ROW_MODIFIERS)})\s+)*+"
    rf"(?P<first>{_NAME})(?:\.(?P<second>{_NAME}))?(?=\s*(?:[^\s.,/#-]|\Z))",
    re.IGNORECASE,
)
_TABLE_VERBS = {
    "CREATE": EventType.CREATE,
    "ALTER": EventType.ALTER,
    "DROP": EventType.ERASE,
    "TRUNCATE": EventType.TRUNCATE,
}


def classify(sql: str, default_schema: str, *, sql_parser: bool = True) -> tuple[DdlResult, ...]:
    """Return the results of canal's parser for one statement; () means no entry. Results are filtered one by one.

    sql: the statement.
    default_schema: the session's.
    sql_parser: False selects canal's plain patterns (canal.instance.filter.druid.ddl).

    Never raises. A statement that canal's parser rejects is one QUERY without a table. A table statement that our
    grammar cannot read is classified by its first words. canal makes no entry of a statement that stands completely in
    executable comments; here that applies only if rows, column lists and table names stay the same.
    """
    if not sql_parser:
        event_type, table, origin = patterns.match(sql, default_schema)
        return (DdlResult(event_type, *table, *origin),)
    head = _ROW_HEAD.match(sql)
    if head:  # most statements that accompany rows; much cheaper than tokenizing
        return (_rows_at_once(head, default_schema),)
    tokens = _without_settings(leading(sql))
    if not tokens:
        return ()
    if tokens[0].word in _ROW_VERBS:
        return (_rows(tokens, default_schema),)
    if tokens[0].word == "WITH":
        return _with(tokens, default_schema)
    try:
        statement = read(sql)
    except Unreadable:
        return _by_first_words(tokens, default_schema)
    if covered(sql) and not _has_effect(statement) and not removes_unnamed_rows(sql):
        return ()
    if statement is not None:
        return QUERY_ONLY if statement.refused else _results(statement, default_schema)
    return () if other_statements.dropped(tokens) else QUERY_ONLY


def changed_rows(sql: str, default_schema: str) -> tuple[DdlResult, ...]:
    """Return which rows a statement changed if canal's parser does not tell, or not all of them; () otherwise.

    LOAD DATA and LOAD XML are an INSERT. A query is an UPDATE without a table: a binlog has it only if one of its
    functions changed rows, of tables that it does not name. An UPDATE or DELETE of several tables, or by an alias, has
    no table either.
    """
    reader = TokenReader(_without_settings(leading(sql)))
    if reader.take("ANALYZE") and reader.at(*_ROW_VERBS, *_QUERY_VERBS, "FORMAT"):  # MariaDB executes it
        return (DdlResult(EventType.UPDATE, None, None),)
    hidden = reader.word == "WITH"  # to canal's parser
    if hidden:
        try:
            reader.skip_to("SELECT", "UPDATE", "DELETE")
        except Unreadable:
            return (DdlResult(EventType.UPDATE, None, None),)
    word = reader.word
    if word in ("UPDATE", "DELETE"):
        name = _only_table(reader)
        if name is None:
            return (DdlResult(_ROW_VERBS[word], None, None),)
        return (DdlResult(_ROW_VERBS[word], name.schema or default_schema, name.table),)
    if hidden or word in _QUERY_VERBS:
        return (DdlResult(EventType.UPDATE, None, None),)
    if not reader.take("LOAD"):
        return ()
    try:
        reader.skip_to("INTO")
        reader.expect("INTO", "TABLE")
        name = table_name(reader)
    except Unreadable:
        return (DdlResult(EventType.INSERT, None, None),)
    return (DdlResult(EventType.INSERT, name.schema or default_schema, name.table),)


def _only_table(reader: TokenReader) -> Name | None:
    """Return the one table that an UPDATE or DELETE changes; None if there may be others, or if an alias comes first.

    `DELETE a FROM t AS a` and `DELETE FROM a USING t AS a` name an alias where other statements name a table.
    """
    verb = reader.next().word
    ends = ("SET",) if verb == "UPDATE" else ("WHERE", "ORDER", "LIMIT", "RETURNING", ";")
    while reader.take_any("LOW_PRIORITY", "QUICK", "IGNORE"):
        pass
    try:
        if verb == "DELETE":
            reader.expect("FROM")
        name = table_name(reader)
        if reader.take("PARTITION"):
            reader.skip_group()
        if not reader.at("FOR", "USING", ",", *ends) and not reader.done:
            reader.take("AS")
            reader.name()
        if reader.take("PARTITION"):
            reader.skip_group()
    except Unreadable:
        return None
    return name if reader.at("FOR", *ends) or (verb == "DELETE" and reader.done) else None


def _without_settings(tokens: list[Token]) -> list[Token]:
    """Return the tokens behind SET STATEMENT ... FOR; all of them if its end is not among them."""
    reader = TokenReader(tokens)
    try:
        reader.take_settings()
    except Unreadable:
        return tokens
    return reader.rest()


def removes_unnamed_rows(sql: str) -> bool:
    """Return whether a statement removes the rows of partitions or of a schema, without their tables' names or keys."""
    words = " ".join(token.word for token in _without_settings(leading(sql)))
    return _UNNAMED_ROWS.match(words) is not None


def _has_effect(statement: Statement | None) -> bool:
    """Return whether column lists, table names, or the rows of the tables that it names may differ afterwards."""
    match statement:
        case AlterTable():
            others = (statement.renamed, statement.split_off, statement.absorbed, statement.exchanged)
            return bool(statement.changes) or statement.imported or statement.discarded or any(others)
        case ChangeIndex(changes=()) | ChangeDatabase(drops=False) | None:
            return False
        case _:
            return True


def _results(statement: Statement, default_schema: str) -> tuple[DdlResult, ...]:
    def result(event_type: EventType, name: Name, origin: Name | None = None) -> DdlResult:
        found = DdlResult(event_type, name.schema or default_schema, name.table)
        if origin is None:
            return found
        return DdlResult(event_type, found.schema, found.table, origin.schema or default_schema, origin.table)

    match statement:
        case CreateTable(name):
            return (result(EventType.CREATE, name),)
        case AlterTable(name):
            new = statement.renamed
            return tuple(
                result(kind, new, name) if kind is EventType.RENAME and new else result(kind, name)
                for kind in statement.results
            )
        case DropTables(names):
            return tuple(result(EventType.ERASE, name) for name in names)
        case TruncateTables(names):
            return tuple(result(EventType.TRUNCATE, name) for name in names)
        case RenameTables(pairs):
            return tuple(result(EventType.RENAME, new, old) for old, new in pairs)
        case ChangeIndex(event_type, name):
            return (result(event_type, name),)
        case ChangeDatabase():
            return (DdlResult(EventType.QUERY, statement.written, None),)


def _rows_at_once(head: re.Match[str], default_schema: str) -> DdlResult:
    names = [
        name[1:-1].replace("``", "`") if name[0] == "`" else name for name in head.group("first", "second") if name
    ]
    schema = names[0] if len(names) > 1 else default_schema
    return DdlResult(_ROW_VERBS[head["verb"].upper()], schema, names[-1])


def _rows(tokens: list[Token], default_schema: str) -> DdlResult:
    """Classify INSERT, REPLACE, UPDATE or DELETE logged as a statement; a DELETE from several tables names none."""
    reader = TokenReader(tokens)
    event_type = _ROW_VERBS[reader.next().word]
    while reader.take_any(*_ROW_MODIFIERS):
        pass
    try:
        name = table_name(reader)
    except Unreadable:
        return DdlResult(event_type, default_schema, None)
    if event_type is EventType.DELETE and reader.take(","):
        return DdlResult(event_type, default_schema, None)
    return DdlResult(event_type, name.schema or default_schema, name.table)


def _with(tokens: list[Token], default_schema: str) -> tuple[DdlResult, ...]:
    """Classify a query or an UPDATE after WITH; canal's parser rejects a DELETE there."""
    reader = TokenReader(tokens)
    try:
        reader.skip_to("SELECT", "UPDATE", "DELETE")
    except Unreadable:
        return QUERY_ONLY
    if reader.word == "SELECT":
        return ()
    rest = reader.rest()
    return (_rows(rest, default_schema),) if reader.word == "UPDATE" else QUERY_ONLY


def _by_first_words(tokens: list[Token], default_schema: str) -> tuple[DdlResult, ...]:
    names = first_names(tokens)
    kind = _TABLE_VERBS.get(tokens[0].word)
    if kind is None or not names:
        return () if other_statements.dropped(tokens) else QUERY_ONLY
    return tuple(DdlResult(kind, name.schema or default_schema, name.table) for name in names)


def first_names(tokens: list[Token]) -> list[Name] | None:
    """Return the tables that CREATE, ALTER, DROP, TRUNCATE or RENAME TABLE names, as far as its first tokens show.

    Return None for every other statement.
    """
    reader = TokenReader(_without_settings(tokens))
    verb = reader.take_any(*_TABLE_VERBS, "RENAME")
    reader.take("OR", "REPLACE")
    while reader.take_any("TEMPORARY", "ONLINE", "OFFLINE", "IGNORE"):
        pass
    if not verb or (not reader.take_any("TABLE", "TABLES") and verb != "TRUNCATE"):
        return None
    if not reader.take("IF", "NOT", "EXISTS"):
        reader.take("IF", "EXISTS")
    names: list[Name] = []
    try:
        names.append(table_name(reader))
        while verb in ("DROP", "TRUNCATE", "RENAME") and reader.take_any(",", "TO"):
            names.append(table_name(reader))
    except Unreadable:
        pass
    return names
