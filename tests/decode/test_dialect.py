"""Statements of any sql_mode and either server, rewritten as the default sql_mode writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.ddl.dialect import Dialect, plain
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import CreateTable

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
MARIADB, MYSQL = Dialect(mariadb=True), Dialect(mariadb=False)


def columns(sql: str, dialect: Dialect) -> str:
    """The names of the columns that a CREATE TABLE makes."""
    statement = read(plain(sql, dialect))
    assert isinstance(statement, CreateTable)
    return " ".join(column.name for column in statement.columns)


@pytest.mark.parametrize(
    ("sql", "mysql", "mariadb"),
    [
        ("CREATE TABLE t (a int, /*M! x int, */ b int)", "a b", "a x b"),
        ("CREATE TABLE t (a int, /*M!100100 x int, */ b int)", "a b", "a x b"),
        ("CREATE TABLE t (a int, /*M!50701 x int, */ b int)", "a b", "a x b"),
        ("CREATE TABLE t (a int, /*!50701 x int, */ b int)", "a x b", "a x b"),
        ("CREATE TABLE t (a int, /*!080023 x int, */ b int)", "a x b", "a x b"),
        ("CREATE TABLE t (a int, /*!50100x int, */ b int)", "a x b", "a x b"),
        ("CREATE TABLE t (a int, /*!50100 x int, /* c */ y int, */ b int)", "a x y b", "a x y b"),
        ("CREATE TABLE t (a int, /* 990000 x int, */ b int)", "a b", "a b"),
        ("CREATE TABLE t (a int, /*M 990000 x int, */ b int)", "a b", "a b"),
        ("CREATE TABLE t (a int COMMENT '/*M! ', x int, b int COMMENT ' */')", "a x b", "a x b"),
        ("CREATE TABLE t (a int, -- /*M!\n x int, /* /*M! */ b int)", "a x b", "a x b"),
        ("CREATE TABLE t (a int) /*M! COMMENT='open", "a", "a"),
    ],
)
def test_executable_comments_by_server(sql: str, mysql: str, mariadb: str) -> None:
    """`/*M! */` is a comment to MySQL. Both servers take away the marks of what they do not execute."""
    assert columns(sql, MYSQL) == mysql
    if not sql.endswith("open"):
        assert columns(sql, MARIADB) == mariadb


@pytest.mark.parametrize(
    ("sql", "mode", "expected"),
    [
        (r"CREATE TABLE t (a int COMMENT 'C:\', b int)", NO_BACKSLASH_ESCAPES, "a b"),
        (
            r"CREATE TABLE t (a int COMMENT 'C:\', b int COMMENT 'x''\', c int COMMENT 'y')",
            NO_BACKSLASH_ESCAPES,
            "a b c",
        ),
        (r'CREATE TABLE t (a int COMMENT "\", b int COMMENT "x")', NO_BACKSLASH_ESCAPES, "a b"),
        (r"CREATE TABLE t (`a\` int, b int)", NO_BACKSLASH_ESCAPES, "a\\ b"),
        (r"CREATE TABLE t (a int, -- it's \ here" + "\n b int)", NO_BACKSLASH_ESCAPES, "a b"),
        ('CREATE TABLE "t" ("a" int, "b" int)', ANSI_QUOTES, "a b"),
        (r"""CREATE TABLE t ("a\" int, "b""`c" int, d int COMMENT 'it\'s')""", ANSI_QUOTES, 'a\\ b"`c d'),
        (
            r"""CREATE TABLE t ("it's" int COMMENT '\', b int COMMENT '"')""",
            ANSI_QUOTES | NO_BACKSLASH_ESCAPES,
            "it's b",
        ),
    ],
)
def test_sql_modes(sql: str, mode: int, expected: str) -> None:
    """Backslashes and double quotes mean what the session's sql_mode says."""
    for mariadb in (False, True):
        assert columns(sql, Dialect(mariadb, mode)) == expected


@given(st.text("'\"`\\/*M!#- \na"), st.booleans(), st.sampled_from([0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES]))
def test_any_text_is_rewritten_once(sql: str, mariadb: bool, mode: int) -> None:
    """No text fails, nothing is lost of a text in the default mode, and MariaDB's default texts stay as they are."""
    dialect = Dialect(mariadb, mode)
    found = plain(sql, dialect)
    if mode == 0:
        assert found == sql if mariadb else plain(found, dialect).replace(" ", "") == found.replace(" ", "")
    if mode == NO_BACKSLASH_ESCAPES and mariadb:
        assert found.replace("\\", "") == sql.replace("\\", "")
