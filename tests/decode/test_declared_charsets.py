"""The charsets of columns, from the statement that makes a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.decode.charsets import doubted, in_doubt
from canal_ha.decode.ddl.apply import alter
from canal_ha.decode.ddl.create_table import create_table
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable
from canal_ha.decode.exact import exact_types
from canal_ha.decode.history.definitions import charset_of, columns_of
from canal_ha.decode.history.history import History
from canal_ha.decode.table_map import TableMap
from canal_ha.errors import TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column


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
    assert charset_of(f"CREATE TABLE t (id int, v varchar(9) CHARACTER SET ucs2 COMMENT ')') {options}") == expected


def test_columns_have_their_own_charset_or_the_tables() -> None:
    """Without either, it is open; a national text is UTF-8, and what is no text has none."""
    columns = "`A` text CHARACTER SET big5, `b` text, c int, d nchar(3), e varbinary(9), f enum('x')"
    found = columns_of(f"CREATE TABLE `t` ({columns}) DEFAULT CHARSET=gbk")
    assert [column.charset for column in found] == ["big5", "gbk", "", "utf8mb3", "", ""]
    found = columns_of("CREATE TABLE t (a text CHARACTER SET big5, b text)")
    assert [column.charset for column in found] == ["big5", ""]
    assert charset_of("CREATE TABLE t ('") == ""


def charsets(*statements: str) -> list[str]:
    """Return the charsets of t's columns, of type varchar(30), after these statements."""
    view = History(lambda schema, table: None).view(LogPosition("mysql-bin.000001", 4))
    for number, sql in enumerate(statements):
        view.apply(LogPosition("mysql-bin.000001", 10 + number), "s", sql)
    count = 1 + sum("ADD" in sql for sql in statements)
    row = TableMap(1, "s", "t", bytes([15] * count), (60,) * count, (True,) * count)
    return [column.charset for column in view.table(row, LogPosition("mysql-bin.000001", 99)).columns]


def test_a_column_has_the_charset_that_its_table_had_when_it_was_added() -> None:
    """A later default of the table does not change it, and another name of the table neither; MODIFY and CONVERT do."""
    create, add = "CREATE TABLE t (a varchar(30)) CHARACTER SET latin1", "ALTER TABLE t ADD b varchar(30)"
    assert charsets(create, "ALTER TABLE t DEFAULT CHARACTER SET = gbk", add) == ["latin1", "gbk"]
    assert charsets(create, f"{add}, COLLATE gbk_bin") == ["latin1", "gbk"]
    assert charsets(create, "ALTER TABLE t CHARSET gbk", "ALTER TABLE t MODIFY a varchar(30)") == ["gbk"]
    assert charsets(create, "ALTER TABLE t CONVERT TO CHARACTER SET gbk, ADD b varchar(30)") == ["gbk", "gbk"]
    assert charsets(create, "RENAME TABLE t TO u", "RENAME TABLE u TO t", add) == ["latin1", "latin1"]
    assert charsets(create, "CREATE TABLE u LIKE t", "DROP TABLE t", "ALTER TABLE u RENAME TO t", add)[1] == "latin1"
    assert charsets("CREATE TABLE t (a varchar(30))", add) == ["", ""]


def test_a_stored_definition_keeps_the_charset_of_its_table() -> None:
    """After a restart, columns that are added get the same charset as before."""
    columns = columns_of("CREATE TABLE t (a text CHARACTER SET latin1)")
    assert charset_of(create_table("t", columns, "gbk")) == "gbk"
    assert columns_of(create_table("t", columns, "gbk")) == columns


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
    assert [column.charset for column in alter(columns, statement.changes)] == [charset, "binary", charset]


def test_gbk_text_came_as_sjis_because_a_conversion_overrules_the_charset_of_a_column_in_its_statement() -> None:
    """CONVERT TO covers columns that the same statement adds or redefines, national ones too, but no bytes."""
    columns = columns_of("CREATE TABLE t (id int, a text CHARACTER SET ucs2, n nchar(3))")
    statement = read(
        "ALTER TABLE t ADD b text CHARACTER SET sjis, CONVERT TO CHARACTER SET gbk, MODIFY a text CHARACTER SET sjis,"
        " ADD c varchar(9) CHARACTER SET binary, ADD d nchar(3), ADD e text"
    )
    assert isinstance(statement, AlterTable)
    after = alter(columns, statement.changes)
    assert [column.charset for column in after] == ["", "gbk", "gbk", "gbk", "binary", "gbk", "gbk"]


def test_utf8_text_came_as_gbk_because_a_conversion_had_nothing_to_convert() -> None:
    """MySQL 5.6 passes over it, so later columns have the old default: the present definition decides, or nothing."""
    create, convert = "CREATE TABLE t (id int)", "ALTER TABLE t CONVERT TO CHARACTER SET gbk"
    add, row = "ALTER TABLE t ADD v varchar(30)", TableMap(1, "s", "t", bytes([3, 15]), (0, 60), (True, True))
    at = LogPosition("mysql-bin.000001", 90)

    def charset(event: TableMap, present: str | None, *statements: str) -> str:
        view = History(lambda schema, table: present).view(LogPosition("mysql-bin.000001", 4))
        for number, sql in enumerate((create, *statements)):
            view.apply(LogPosition("mysql-bin.000001", 10 + number), "s", sql)
        return view.table(event, at).columns[1].charset

    now = "CREATE TABLE `t` (\n  `id` int(11),\n  `v` varchar(30)\n) ENGINE=InnoDB DEFAULT CHARSET=latin1"
    assert charset(row, now, convert, add) == "latin1"
    assert in_doubt(charset(row, None, convert, add))
    assert charset(replace(row, mariadb=True), None, convert, add) == "gbk"
    assert charset(replace(row, default_collation=45), None, convert, add) == "gbk"
    assert charset(row, None, f"{convert}, ADD v varchar(30)") == "gbk"
    assert charset(row, None, "ALTER TABLE t DEFAULT CHARACTER SET gbk", convert, add) == "gbk"
    doubtful = (Column("id", "int"), Column("v", "varchar(30)", charset=doubted("gbk")))
    with pytest.raises(TableUnknown, match=r"charset of s\.t\.v is not known"):
        exact_types(row, doubtful)


def test_a_conversion_makes_a_new_version_of_the_table() -> None:
    """Cells of the version before are not used for later rows: their charset may be the table's."""
    history = History(lambda schema, table: None).view(LogPosition("mysql-bin.000001", 4))
    history.apply(LogPosition("mysql-bin.000001", 10), "s", "CREATE TABLE t (v varchar(8))")
    assert history.apply(LogPosition("mysql-bin.000001", 20), "s", "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4")
