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
