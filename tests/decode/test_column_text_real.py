"""Texts in every charset of the servers, decoded as the servers convert them to utf8mb4."""

from __future__ import annotations

import pytest

from canal_ha.decode.charsets import charset_of
from canal_ha.decode.column_text import READERS, decode
from lab import MariaDB, SqlServer

pytestmark = pytest.mark.real

STEP = 5  # of the pairs of bytes; 1 asks for all of them


def test_every_charset(source_server: SqlServer, database: str) -> None:
    """Each byte, and each fifth pair of bytes, that a column takes. What SELECT shows as ? may be a character here."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.codes (n int PRIMARY KEY)",
    )
    with source_server.connect(autocommit=True, database=database) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = ''")
        numbers = [*range(256), *range(0x8000, 0x10000, STEP)]
        cursor.executemany("INSERT INTO codes VALUES (%s)", [(number,) for number in numbers])
        for charset in sorted(READERS.keys() - {"ucs2", "utf16", "utf16le", "utf32", "uuid", "inet4", "inet6"}):
            if charset == "gb18030" and isinstance(source_server, MariaDB):
                continue
            cursor.execute("DROP TABLE IF EXISTS t")
            cursor.execute(f"CREATE TABLE t (n int, c varchar(4) CHARACTER SET {charset})")
            raw = "CAST(UNHEX(IF(n < 256, LPAD(HEX(n), 2, '0'), HEX(n))) AS BINARY)"
            cursor.execute(f"INSERT IGNORE INTO t SELECT n, {raw} FROM codes")
            cursor.execute("SELECT n, HEX(c) AS kept, HEX(CONVERT(c USING utf8mb4)) AS shown FROM t")
            wrong = []
            for number, stored, shown in (row.values() if isinstance(row, dict) else row for row in cursor.fetchall()):
                asked = number.to_bytes(1 if number < 256 else 2, "big")
                if bytes.fromhex(stored or "") != asked:
                    continue  # no text in this charset: the column took something else
                selected, made = bytes.fromhex(shown).decode(), decode(asked, charset)
                pairs = zip(selected, made, strict=False)
                if any(theirs != ours and theirs not in "?\ufffd" for theirs, ours in pairs):
                    wrong.append((asked, selected, made))
            assert not wrong, (charset, wrong[:5])


def test_every_collation(source_server: SqlServer) -> None:
    """The ids of all collations lead to their charset."""
    if isinstance(source_server, MariaDB):
        asked = "SELECT id, character_set_name AS name FROM information_schema.collation_character_set_applicability"
    else:
        asked = "SELECT id, character_set_name AS name FROM information_schema.collations"
    rows = [{key.lower(): value for key, value in row.items()} for row in source_server.query(asked)]
    assert rows
    assert all(charset_of(row["id"]) == row["name"] for row in rows if row["name"])
