"""The charsets of columns, from the statement that makes a table."""

from __future__ import annotations

import pytest

from canal_ha.decode.declared_charsets import declared_charsets, default_charset
from canal_ha.decode.history.definitions import columns_of


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("ENGINE=InnoDB DEFAULT CHARSET=gbk COLLATE=gbk_chinese_ci", "gbk"),
        ("CHARACTER SET latin1", "latin1"),
        ("DEFAULT CHARACTER SET = UTF8MB4 COMMENT='CHARSET=gbk'", "utf8mb4"),
        ("COLLATE sjis_bin", "sjis"),
        ("CHARSET binary PARTITION BY KEY (id) PARTITIONS 2", "binary"),
        ("ENGINE=InnoDB", ""),
        ("", ""),
    ],
)
def test_the_charset_of_a_table(options: str, expected: str) -> None:
    """It stands behind the columns, in any of the server's spellings."""
    assert (
        default_charset(f"CREATE TABLE t (id int, v varchar(9) CHARACTER SET ucs2 COMMENT ')') {options}") == expected
    )


def test_columns_have_their_own_charset_or_the_tables() -> None:
    """Without either, a column is missing."""
    sql = "CREATE TABLE `t` (`A` text CHARACTER SET big5, `b` text) DEFAULT CHARSET=gbk"
    assert declared_charsets(columns_of(sql), sql) == {"a": "big5", "b": "gbk"}
    sql = "CREATE TABLE `t` (`A` text CHARACTER SET big5, `b` text)"
    assert declared_charsets(columns_of(sql), sql) == {"a": "big5"}
    assert default_charset("CREATE TABLE t ('") == ""


def test_a_charset_behind_other_attributes() -> None:
    """MariaDB shows COMPRESSED before the charset; a statement may name a collation anywhere."""
    sql = (
        "CREATE TABLE t (a text /*M!100301 COMPRESSED*/ CHARACTER SET gbk NOT NULL,"
        " b varchar(9) NOT NULL COLLATE latin1_bin, c varchar(9) CHARACTER SET gbk COLLATE gbk_bin)"
    )
    assert [column.charset for column in columns_of(sql)] == ["gbk", "latin1", "gbk"]
