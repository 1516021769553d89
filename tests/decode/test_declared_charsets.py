"""The charsets of columns, from the statement that makes a table."""

from __future__ import annotations

import pytest

from canal_ha.decode.ddl.apply import alter
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable
from canal_ha.decode.declared_charsets import declared_charsets, default_charset
from canal_ha.decode.history.definitions import columns_of
from canal_ha.decode.history.history import History
from canal_ha.model.position import LogPosition


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


def test_the_default_of_the_table_is_no_charset() -> None:
    """DEFAULT in the place of a charset or a collation leaves the column's charset open."""
    sql = "CREATE TABLE t (a varchar(9) CHARACTER SET DEFAULT, b varchar(9) COLLATE DEFAULT, c text CHARSET DEFAULT)"
    assert [column.charset for column in columns_of(sql)] == ["", "", ""]


@pytest.mark.parametrize(
    ("target", "charset"), [("CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", "utf8mb4"), ("CHARSET DEFAULT", "")]
)
def test_a_conversion_changes_the_charset_of_every_text(target: str, charset: str) -> None:
    """Rows behind it were read in the charset from before. Columns without an own charset follow the table's."""
    columns = columns_of("CREATE TABLE t (a varchar(8) CHARACTER SET latin1, b text CHARACTER SET binary, c text)")
    statement = read(f"ALTER TABLE t CONVERT TO {target}")
    assert isinstance(statement, AlterTable)
    assert [column.charset for column in alter(columns, statement.changes)] == [charset, "binary", ""]


def test_a_conversion_makes_a_new_version_of_the_table() -> None:
    """Cells of the version before are not used for later rows: their charset may be the table's."""
    history = History(lambda schema, table: None).view(LogPosition("mysql-bin.000001", 4))
    history.apply(LogPosition("mysql-bin.000001", 10), "s", "CREATE TABLE t (v varchar(8))")
    assert history.apply(LogPosition("mysql-bin.000001", 20), "s", "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4")
