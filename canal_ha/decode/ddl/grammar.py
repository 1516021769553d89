"""Parses the statements that change tables.

A statement of a binlog has succeeded on its source. So this grammar is lenient if leniency cannot change a column list
(options, attributes, index details) and strict elsewhere: `read` raises Unreadable, it does not guess.
"""

from __future__ import annotations

from dataclasses import replace

from canal_ha.decode.ddl.alter import read_alter
from canal_ha.decode.ddl.columns import Definition, Element, KeyDefinition, key_columns, read_element, with_default
from canal_ha.decode.ddl.options import CREATE_OPTIONS, table_name, take_option, waits
from canal_ha.decode.ddl.statements import (
    ChangeDatabase,
    ChangeIndex,
    CreateTable,
    DropTables,
    Name,
    RenameTables,
    SetPrimaryKey,
    SetUnique,
    Statement,
    TruncateTables,
)
from canal_ha.decode.ddl.tokens import TokenReader, tokenize
from canal_ha.model.entry import EventType
from canal_ha.model.table import Column

VERSION_COLUMNS = tuple(
    Column(name, "timestamp(6)", nullable=False, versioning=True) for name in ("row_start", "row_end")
)


def read(sql: str) -> Statement | None:
    """Parse a statement; return None if it changes no table. Raises Unreadable for a form that is unknown here."""
    return read_from(TokenReader(tokenize(sql)))


def read_from(reader: TokenReader) -> Statement | None:
    """Parse a statement from its beginning; see `read`."""
    reader.take_settings()
    verb = reader.take_any("CREATE", "ALTER", "DROP", "TRUNCATE", "RENAME")
    if verb == "CREATE":
        return _create(reader)
    if verb == "ALTER":
        return read_alter(reader)
    if verb == "DROP":
        return _drop(reader)
    if verb == "TRUNCATE":
        reader.take("TABLE")
        names = _names(reader)
        return TruncateTables(names, refused=waits(reader))
    if verb == "RENAME" and reader.take_any("TABLE", "TABLES"):
        return _rename(reader)
    return None


def _names(reader: TokenReader) -> tuple[Name, ...]:
    names = [table_name(reader)]
    while reader.take(","):
        names.append(table_name(reader))
    return tuple(names)


# ---- CREATE


def _create(reader: TokenReader) -> Statement | None:
    replaces = reader.take("OR", "REPLACE")
    temporary = reader.take("TEMPORARY")
    exists = reader.take("IF", "NOT", "EXISTS")  # an executable comment may stand before TABLE
    if reader.take("TABLE"):
        return _create_table(reader, replaces, temporary, exists)
    if reader.take_any("DATABASE", "SCHEMA"):
        reader.take("IF", "NOT", "EXISTS")
        return _database(reader, drops=replaces, refused=replaces)
    unique = reader.take_any("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR") == "UNIQUE"
    if not reader.take("INDEX"):
        return None
    refused = replaces or reader.take("IF", "NOT", "EXISTS")
    reader.name()
    while not reader.ends("ON"):
        refused |= reader.at("WAIT", "NOWAIT")
        reader.next()
    reader.expect("ON")
    name = table_name(reader)
    return ChangeIndex(EventType.CINDEX, name, (SetUnique(key_columns(reader)),) if unique else (), refused)


def _create_table(reader: TokenReader, replaces: bool, temporary: bool, exists: bool) -> CreateTable:
    reader.refused = replaces or (reader.at("IF") and reader.token is not None and reader.token.hidden)
    exists |= reader.take("IF", "NOT", "EXISTS")
    name = table_name(reader)
    if reader.take("LIKE"):
        like = table_name(reader)
        return CreateTable(name, like=like, if_not_exists=exists, temporary=temporary, refused=reader.refused)
    elements: list[Element] = []
    if reader.word == "(" and reader.ahead(1) == "LIKE":
        reader.expect("(", "LIKE")
        like = table_name(reader)
        return CreateTable(name, like=like, if_not_exists=exists, temporary=temporary, refused=reader.refused)
    if reader.word == "(" and reader.ahead(1) not in ("SELECT", "WITH", "VALUES", "TABLE", "("):
        reader.expect("(")
        elements.append(read_element(reader))
        while reader.take(","):
            elements.append(read_element(reader))
        reader.expect(")")
    versioned, selected, charset = _table_tail(reader)
    columns = tuple(with_default(column, charset) for column in _columns(elements))
    defined = [element for element in elements if isinstance(element, Definition)]
    versioned |= any(definition.versioned for definition in defined)
    if versioned and not any(definition.row_bound for definition in defined):
        columns += VERSION_COLUMNS
    return CreateTable(
        name,
        columns,
        charset,
        selected=selected or not columns,
        if_not_exists=exists,
        temporary=temporary,
        refused=reader.refused,
    )


def _columns(elements: list[Element]) -> tuple[Column, ...]:
    columns = [element.column for element in elements if isinstance(element, Definition)]
    for key in elements:
        if isinstance(key, KeyDefinition):
            wanted = {name.lower() for name in key.columns}
            for index, column in enumerate(columns):
                if column.name.lower() in wanted:
                    columns[index] = replace(column, key=True, nullable=False) if key.primary else _unique(column)
    return tuple(columns)


def _unique(column: Column) -> Column:
    return replace(column, unique=True)


def _table_tail(reader: TokenReader) -> tuple[bool, bool, str]:
    """Read options, partitions and query.

    Return whether there are hidden version columns, whether there is a query, and the charset; "" for the schema's.
    """
    versioned, charset = False, ""
    while not reader.done:
        if reader.at("SELECT", "AS", "VALUES", "TABLE", "IGNORE", "REPLACE", "(") or (
            reader.word == "WITH" and reader.ahead(1) != "SYSTEM"
        ):
            return versioned, True, charset
        if reader.take("WITH", "SYSTEM", "VERSIONING"):
            reader.refused = versioned = True
        elif reader.take("PARTITION", "BY"):
            reader.refused |= reader.word == "SYSTEM_TIME"
            while not reader.ends("SELECT", "AS", "WITH"):
                reader.refused |= reader.word == "INTERVAL"
                reader.skip_group() if reader.word == "(" else reader.next()
        elif not reader.take(","):
            charset = take_option(reader, CREATE_OPTIONS) or charset
    return versioned, False, charset


def _database(reader: TokenReader, *, drops: bool, refused: bool) -> ChangeDatabase:
    written = reader.token.text if reader.token else ""
    schema = reader.table_part()
    refused |= reader.at("ENCRYPTION", "COMMENT") or (reader.word == "DEFAULT" and reader.ahead(1) == "ENCRYPTION")
    return ChangeDatabase(schema, written, drops, refused)


# ---- DROP, RENAME


def _drop(reader: TokenReader) -> Statement | None:
    temporary = reader.take("TEMPORARY")
    if reader.take_any("TABLE", "TABLES"):
        reader.take("IF", "EXISTS")
        names = _names(reader)
        refused = waits(reader)
        return DropTables(names, temporary, refused)
    if reader.take_any("DATABASE", "SCHEMA"):
        reader.take("IF", "EXISTS")
        return _database(reader, drops=True, refused=False)
    if not reader.take("INDEX"):
        return None
    reader.take("IF", "EXISTS")
    changes = (SetPrimaryKey(()),) if reader.name().upper() == "PRIMARY" else ()
    refused = waits(reader)
    reader.expect("ON")
    return ChangeIndex(EventType.DINDEX, table_name(reader), changes, refused)


def _rename(reader: TokenReader) -> RenameTables:
    refused = reader.ahead(-1) == "TABLES"
    refused |= reader.take("IF", "EXISTS")
    pairs: list[tuple[Name, Name]] = []
    while True:
        old = table_name(reader)
        refused |= waits(reader)
        reader.expect("TO")
        pairs.append((old, table_name(reader)))
        if not reader.take(","):
            return RenameTables(tuple(pairs), refused)
