"""Entries for rare events, made from the bodies of the events."""

from __future__ import annotations

import struct

import pytest

from canal_ha.decode import entries
from canal_ha.decode.charsets import codec_of
from canal_ha.decode.kernel.primitives import Broken


def query(sql: bytes, status: bytes = b"", schema: bytes = b"s") -> bytes:
    return struct.pack("<IIBHH", 9, 0, len(schema), 0, len(status)) + status + schema + b"\0" + sql


def test_statements_are_read_in_the_charset_of_their_session() -> None:
    """A statement is read in the charset of its status variables, or without one as Latin-1."""
    status = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\6\3std" + b"\4" + struct.pack("<HHH", 28, 28, 33)
    assert entries.parse_query(query("中".encode("gbk"), status)).sql == "中"
    assert entries.parse_query(query("é".encode())).sql == "Ã©"
    assert codec_of(255) == codec_of(2304) == "utf-8"
    assert codec_of(1999) == "latin-1"


@pytest.mark.parametrize(
    ("collation", "written", "name"),
    [
        (38, b"\xfc", "Ł"),
        (37, b"\xa0\x81", "áü"),
        (3, b"\xe9\xd7", "éŒ"),
        (32, b"\xb3", "\u0561"),
        (6, b"\xc5", "é"),
        (92, b"\xc5", "ვ"),
        (39, b"\x8e", "é"),
        (63, "é".encode(), "é"),
        (51, b"\xe6", "ж"),
        (4, b"\xd5", "\u0131"),
        (73, b"\xfd\xad", "²¡"),
        (3, b"\xa4", "\ufffd"),
    ],
)
def test_names_in_rare_charsets(collation: int, written: bytes, name: str) -> None:
    """The names that MySQL 9.7 and MariaDB 10.11 give to columns written in these sessions."""
    status = b"\4" + struct.pack("<HHH", collation, collation, 33)
    assert entries.parse_query(query(b"CREATE TABLE t (`" + written + b"` int)", status)).sql[17:-6] == name


def test_xa_statements_are_found_by_their_keyword() -> None:
    """XA keywords match in any letter case, but as in canal the identifier is found only after upper-case ones."""
    statement = entries.parse_query(query(b"xa commit X'31'"))
    made = entries.xa_entry(statement)
    assert made is not None
    assert made.store.endswith(b"\x0a\x06XA_XID\x12\x00")
    assert entries.xa_entry(entries.parse_query(query(b"XA RECOVER"))) is None


def user_var(kind: int, value: bytes, charset: int = 33) -> bytes:
    return struct.pack("<I", 1) + b"v\0" + struct.pack("<BII", kind, charset, len(value)) + value


@pytest.mark.parametrize(
    ("body", "sql"),
    [
        (struct.pack("<I", 1) + b"v\1", "SET @v := NULL"),
        (user_var(0, "中".encode("gbk"), 28), "SET @v := '中'"),
        (user_var(1, struct.pack("<d", 2.5)), "SET @v := 2.5"),
        (user_var(2, struct.pack("<q", -7)), "SET @v := -7"),
        (user_var(4, b"\2\1\x81\5"), "SET @v := 1.5"),
    ],
)
def test_user_variables(body: bytes, sql: str) -> None:
    """A user variable of each type gives the statement that canal writes."""
    assert entries.user_var_sql(body) == sql


@pytest.mark.parametrize(
    "body",
    [
        b"",
        user_var(0, b"x")[:-1],
        user_var(1, b""),
        user_var(2, b"123"),
        user_var(4, b"\1\2\x80"),
        user_var(4, b"\0\0\x80"),
        user_var(9, b"x"),
    ],
)
def test_user_variables_that_make_no_sense(body: bytes) -> None:
    """Malformed user variables raise Broken, even decimals of an impossible precision."""
    with pytest.raises(Broken):
        entries.user_var_sql(body)
