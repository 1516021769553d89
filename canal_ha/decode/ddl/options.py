"""Reads the parts that CREATE TABLE and ALTER TABLE share: table names, options, waiting clauses."""

from __future__ import annotations

from canal_ha.decode.ddl.columns import take_charset
from canal_ha.decode.ddl.statements import Name
from canal_ha.decode.ddl.tokens import TokenReader

CREATE_OPTIONS = frozenset(
    [
        "ENGINE",
        "TYPE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHECKSUM",
        "COMMENT",
        "COMPRESSION",
        "CONNECTION",
        "DATA",
        "INDEX",
        "DELAY_KEY_WRITE",
        "ENCRYPTION",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "MAX_ROWS",
        "MIN_ROWS",
        "PACK_KEYS",
        "PASSWORD",
        "ROW_FORMAT",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "TABLESPACE",
        "UNION",
        "TRANSACTIONAL",
        "PAGE_CHECKSUM",
        "DEFAULT",
        "CHARSET",
        "CHARACTER",
        "COLLATE",
        "BLOCK_FORMAT",
        "START",
    ]
)
ALTER_OPTIONS = CREATE_OPTIONS - {"TYPE", "TRANSACTIONAL", "PAGE_CHECKSUM", "BLOCK_FORMAT", "CHARSET"}


def table_name(reader: TokenReader) -> Name:
    """Read `table` or `schema.table`; `.table` counts as `table`."""
    if reader.take("."):
        return Name(None, reader.table_part())
    first = reader.table_part()
    return Name(first, reader.table_part()) if reader.take(".") else Name(None, first)


def waits(reader: TokenReader) -> bool:
    """Take WAIT n or NOWAIT (MariaDB), which canal's parser rejects; return whether there was one."""
    if reader.take("WAIT"):
        reader.next()
        return True
    return reader.take("NOWAIT")


def take_option(reader: TokenReader, known: frozenset[str]) -> str | None:
    """Take one table option: words, `=`, value. Return a charset, "" for the schema's; None for other options."""
    token = reader.next()
    reader.refused |= token.word not in known and not token.hidden
    word = token.word
    if word == "DEFAULT":
        word = reader.next().word
        reader.refused |= word not in known
    if word in ("DATA", "INDEX", "CHARACTER", "CHAR", "START", "STORAGE"):
        reader.next()
    if word in ("START", "SYSTEM"):
        return None
    if reader.take("="):
        reader.refused |= word == "TABLESPACE"
    if word in ("CHARACTER", "CHAR", "CHARSET", "COLLATE") and not reader.ends(","):
        return take_charset(reader)
    if reader.word == "(":
        reader.skip_group()
    elif not reader.ends(","):
        reader.next()
    if word == "TABLESPACE" and reader.take("STORAGE"):
        reader.next()
    return None
