"""Rare entries: statements, XA, session variables. Turns event bodies into what the kernel needs for an entry."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import canal_ha.decode.kernel.primitives as p
from canal_ha.decode import java_text
from canal_ha.decode.charsets import codec_of
from canal_ha.decode.kernel.numbers import decimal_size, decimal_text, double_text
from canal_ha.decode.kernel.stream import NO_TABLE
from canal_ha.decode.plans import text_field
from canal_ha.model.entry import EntryType, EventType
from canal_ha.model.segment import EntryKind

_ROWS_TYPES = (EventType.INSERT, EventType.UPDATE, EventType.DELETE)
_XA_TYPES = (
    ("XA START", EntryType.TRANSACTIONBEGIN, None),
    ("XA END", EntryType.TRANSACTIONEND, None),
    ("XA COMMIT", EntryType.ROWDATA, EventType.XACOMMIT),
    ("XA ROLLBACK", EntryType.ROWDATA, EventType.XAROLLBACK),
)
_Q_SQL_MODE, _Q_CHARSET = 1, 4
# Status variables of a QUERY event around the charset -> size in bytes; 0 if the variable carries its length.
_STATUS_SIZES = {0: 4, _Q_SQL_MODE: 8, 3: 4, _Q_CHARSET: 6}
_STRING, _REAL, _INT, _ROW, _DECIMAL = range(5)  # Item_result, the type of a user variable


@dataclass(frozen=True, slots=True)
class Made:
    """One entry without its header.

    names, event_type: the header's fields, encoded.
    store: storeValue.
    with_gtid, shows: see EventStream.put_entry.
    """

    kind: EntryKind
    entry_type: EntryType
    names: bytes
    event_type: bytes
    store: bytes
    with_gtid: bool = True
    shows: bool = True


@dataclass(frozen=True, slots=True)
class Statement:
    """A QUERY event. thread_id, sql_mode: of the session; schema: its default database; sql: decoded."""

    thread_id: int
    schema: str
    sql: str
    sql_mode: int = 0


def statement_at(body: bytes) -> int:
    """Return where the statement begins in the body of a QUERY event: behind its variables and its schema."""
    return 14 + p.u16(body, 11) + body[8]


def parse_query(body: bytes) -> Statement:
    """Parse a QUERY event. Raises Broken. Source: MySQL libs/mysql/binlog/event/statement_events.h, Query_event."""
    if len(body) < 14:
        raise p.Broken("a query event without a header")
    status_at = 13
    schema_at = status_at + p.u16(body, 11)
    sql_at = statement_at(body)
    if sql_at > len(body):
        raise p.Broken("a query event that ends before its statement")
    schema = body[schema_at : sql_at - 1].decode("utf-8", "replace")
    sql_mode, codec = _session(body[status_at:schema_at])
    return Statement(p.u32(body, 0), schema, java_text.decode(body[sql_at:], codec), sql_mode)


def parse_load_query(body: bytes) -> Statement:
    """Parse an EXECUTE_LOAD_QUERY event, LOAD DATA logged as a statement. Raises Broken. Source: as `parse_query`."""
    file_at = 13  # the number of the file, two places in the statement, what to do with duplicates
    if len(body) < file_at + 13:
        raise p.Broken("a load query event without a header")
    return parse_query(body[:file_at] + body[file_at + 13 :])


def _session(status: bytes) -> tuple[int, str]:
    """Return the session's sql_mode and the codec of its charset. Few variables precede them."""
    pos = sql_mode = 0
    while pos < len(status):
        code = status[pos]
        if code == _Q_CHARSET:
            return sql_mode, codec_of(p.u16(status, pos + 1)) if pos + 3 <= len(status) else "latin-1"
        if code == _Q_SQL_MODE and pos + 9 <= len(status):
            sql_mode = p.u64(status, pos + 1)
        if code in _STATUS_SIZES:
            pos += 1 + _STATUS_SIZES[code]
        elif code == 6 and pos + 1 < len(status):  # catalog
            pos += 2 + status[pos + 1]
        elif code == 2 and pos + 1 < len(status):  # catalog of 5.0, with a closing zero
            pos += 3 + status[pos + 1]
        else:
            break
    return sql_mode, "latin-1"


def event_type_field(event_type: EventType | None) -> bytes:
    """Encode Header.eventType."""
    return b"" if event_type is None else bytes([0x58, event_type])


def _pair(tag: int, key: str, value: str) -> bytes:
    return text_field(tag, text_field(0x0A, key) + text_field(0x12, value))


def xa_entry(statement: Statement) -> Made | None:
    """Return the entry of an XA statement; None for any other statement."""
    upper = statement.sql[:12].upper()
    match = next((item for item in _XA_TYPES if upper.startswith(item[0])), None)
    if match is None:
        return None
    keyword, entry_type, event_type = match
    _, found, xid = statement.sql.partition(keyword)  # in upper case only, as canal does
    tag = 0x6A if event_type else 0x1A
    props = _pair(tag, "XA_TYPE", keyword) + _pair(tag, "XA_XID", xid if found else "")
    if entry_type is EntryType.TRANSACTIONBEGIN:
        store = props + b"\x20" + p.varint(statement.thread_id)
        return Made(EntryKind.BEGIN, entry_type, NO_TABLE, b"", store, shows=False)
    if entry_type is EntryType.TRANSACTIONEND:
        return Made(EntryKind.END, entry_type, NO_TABLE, b"", b"\x12\x010" + props)
    store = event_type_field(event_type).replace(b"\x58", b"\x10") + text_field(0x5A, statement.sql) + props
    return Made(EntryKind.QUERY, entry_type, NO_TABLE, event_type_field(event_type), store)


def commit_entry() -> Made:
    """Return the entry of COMMIT as a statement: the end of a transaction without an XID."""
    return Made(EntryKind.END, EntryType.TRANSACTIONEND, NO_TABLE, b"", b"\x12\x010")


def statement_entry(statement: Statement, event_type: EventType, names: bytes, *, ddl: bool) -> Made:
    """Return the entry of DDL, or of rows changed by a statement.

    statement: the QUERY event.
    event_type: canal's.
    names: the header's schema and table, encoded.
    ddl: whether canal delivers the type alone.
    """
    dml = event_type in _ROWS_TYPES
    store = bytes([0x10, event_type, 0x50, not dml]) + text_field(0x5A, statement.sql)
    if statement.schema:
        store += text_field(0x72, statement.schema)
    kind = EntryKind.DDL if ddl else EntryKind.QUERY
    return Made(kind, EntryType.ROWDATA, names, event_type_field(event_type), store, shows=not dml)


def accompanying_entry(sql: str, names: bytes = NO_TABLE, *, with_gtid: bool = True) -> Made:
    """Return the entry that precedes a change: its original statement, or a variable that it uses."""
    store = bytes([0x10, EventType.QUERY]) + text_field(0x5A, sql)
    return Made(EntryKind.QUERY, EntryType.ROWDATA, names, event_type_field(EventType.QUERY), store, with_gtid)


def intvar_sql(body: bytes) -> str:
    """Return the text of INTVAR. canal prints LAST_INSERT_ID as INSERT_ID, too."""
    if len(body) < 9:
        raise p.Broken("an INTVAR event without its number")
    return f"SET INSERT_ID = {p.u64(body, 1)}"


def rand_sql(body: bytes) -> str:
    """Return the text of RAND, with its two seeds."""
    if len(body) < 16:
        raise p.Broken("a RAND event without its seeds")
    return f"SET SESSION rand_seed1 = {p.u64(body, 0)} , rand_seed2 = {p.u64(body, 8)}"


def user_var_sql(body: bytes) -> str:
    """Return the text of USER_VAR. Raises Broken. Source: statement_events.h, User_var_event."""
    name_at = 4
    if len(body) < name_at + 1 or len(body) < name_at + p.u32(body, 0) + 1:
        raise p.Broken("a USER_VAR event without its name")
    null_at = name_at + p.u32(body, 0)
    name = body[name_at:null_at].decode("utf-8", "replace")
    return f"SET @{name} := {'NULL' if body[null_at] else _user_value(body, null_at + 1)}"


def _user_value(body: bytes, at: int) -> str:
    if len(body) < at + 9 or len(body) < at + 9 + p.u32(body, at + 5):
        raise p.Broken("a USER_VAR event without its value")
    kind = body[at]
    value = body[at + 9 : at + 9 + p.u32(body, at + 5)]
    if kind == _STRING:
        return f"'{java_text.decode(value, codec_of(p.u32(body, at + 1)))}'"
    try:
        if kind == _REAL:
            return double_text(value, 0).decode()
        if kind == _INT:
            return str(struct.unpack("<q", value)[0])
        if kind == _DECIMAL and len(value) > 2:
            precision, decimals = value[0], value[1]
            if 0 < precision >= decimals and len(value) - 2 >= decimal_size(precision, decimals):
                return decimal_text(value, 2, precision, decimals).decode()
    except (struct.error, ValueError) as error:
        raise p.Broken(f"a USER_VAR event with an invalid value: {error}") from error
    raise p.Broken(f"a USER_VAR event with a value of type {kind}")
