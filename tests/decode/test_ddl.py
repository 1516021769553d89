"""Classification of statements: recorded results, deliberate differences, the plain patterns, and any text."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.decode.ddl.event_types import DdlResult, classify
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import CreateTable
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.model.entry import EventType

RECORDED = Path(__file__).parent.parent / "golden" / "statements" / "statements.jsonl"


def recorded() -> list[dict[str, Any]]:
    """Return recorded statements of MySQL and MariaDB with the results of the reference's parser (druid 1.2.21).

    ours: our result, if we differ on purpose.
    columns: (name, mysqlType, key) of the columns of a CREATE TABLE.
    """
    return [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]


def plain(results: tuple[DdlResult, ...]) -> list[list[str | None]]:
    """Return results in the form of the recording."""
    return [
        [result.event_type.name, result.schema, result.table]
        + ([result.origin_schema, result.origin_table] if result.origin_schema or result.origin_table else [])
        for result in results
    ]


def test_statements_classify_as_the_reference_does() -> None:
    """All recorded statements give the recorded results, in order, except the differences that the file marks."""
    wrong = {
        item["sql"]: plain(found)
        for item in recorded()
        if plain(found := classify(item["sql"], "db")) != item.get("ours", item["results"])
    }
    assert not wrong


def test_columns_of_create_table_as_the_reference_has_them() -> None:
    """The columns of a CREATE TABLE have the reference's names, mysqlType texts and primary keys."""
    for item in recorded():
        if "columns" not in item or "ours" in item or "VECTOR INDEX" in item["sql"] or "``" in item["sql"]:
            continue
        statement = read(item["sql"])
        assert isinstance(statement, CreateTable)
        assert [[c.name, c.mysql_type, c.key] for c in statement.columns] == item["columns"], item["sql"]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("REPLACE INTO a VALUES (1)", "an entry rather than none: the reference loses the statement"),
        ("INSERT INTO a VALUES (1) RETURNING id", "statements that change rows are told by their first words"),
        ("/*!40101 CREATE TABLE a (id int) */", "a table changes, so there is an entry, covered or not"),
        ("CREATE TABLE `a``b` (id int)", "a doubled back-quote is one"),
    ],
)
def test_deliberate_differences_are_marked(sql: str, why: str) -> None:
    """The recording marks the statements on which we differ from the reference on purpose."""
    assert any(item["sql"] == sql and "ours" in item for item in recorded()), why


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE a ADD b int", ("ALTER", "db", "a")),
        ("alter table `s`.`a` add b int", ("ALTER", "s", "a")),
        ("/* x */ CREATE TABLE IF NOT EXISTS a(id int)", ("CREATE", "db", "a")),
        ("CREATE TEMPORARY TABLE a (id int)", ("CREATE", "db", "a")),
        ("DROP TABLE IF EXISTS `a`;", ("ERASE", "db", "a")),
        ("DROP TABLE a, b", ("ERASE", "db", "a,")),
        ("TRUNCATE a", ("TRUNCATE", "db", "a")),
        ("RENAME TABLE s.a TO t.b", ("RENAME", "t", "b", "s", "a")),
        ("CREATE UNIQUE INDEX i ON s.a (b)", ("CINDEX", "s", "a")),
        ("DROP INDEX i ON a", ("DINDEX", "db", "a")),
        ("INSERT INTO a VALUES (1)", ("INSERT", "db", None)),
        ("REPLACE INTO a VALUES (1)", ("INSERT", "db", None)),
        ("update a set b = 1", ("UPDATE", "db", None)),
        ("DELETE FROM a", ("DELETE", "db", None)),
        ("CREATE VIEW v AS SELECT 1", ("QUERY", "db", None)),
        ("GRANT ALL ON *.* TO u", ("QUERY", "db", None)),
        ("ALTER TABLE `d six` ADD b int", ("ALTER", "db", "d")),
    ],
)
def test_plain_patterns(sql: str, expected: tuple[str | None, ...]) -> None:
    """Without the parser a statement gives one result, by the reference's patterns with their weaknesses."""
    assert plain(classify(sql, "db", sql_parser=False)) == [list(expected)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE s.a ADD b 'oops", [DdlResult(EventType.ALTER, "s", "a")]),
        ("CREATE TABLE a (id int default 'oops)", [DdlResult(EventType.CREATE, "db", "a")]),
        ("DROP TABLE a, `b`, 'oops", [DdlResult(EventType.ERASE, "db", "a"), DdlResult(EventType.ERASE, "db", "b")]),
        ("CREATE PROCEDURE p() BEGIN SELECT 'oops; END", []),
        ("ANYTHING 'oops", [DdlResult(EventType.QUERY, None, None)]),
    ],
)
def test_what_the_tokenizer_refuses_goes_by_its_first_words(sql: str, expected: list[DdlResult]) -> None:
    """A statement with an unclosed string still names its table."""
    assert list(classify(sql, "db")) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("ALTER TABLE a ADD b int", [DdlResult(EventType.ALTER, "db", "a")]),
        ("DROP TABLE s.a", [DdlResult(EventType.ERASE, "s", "a")]),
        ("RENAME TABLE a TO b", [DdlResult(EventType.RENAME, "db", "b", "db", "a")]),
        ("INSERT INTO a VALUES (1)", [DdlResult(EventType.INSERT, "db", "a")]),
        ("ALTER TABLE a ADD b 'oops", [DdlResult(EventType.ALTER, "db", "a")]),
        ("GRANT SELECT ON *.* TO u", []),
        ("ANYTHING", [DdlResult(EventType.QUERY, None, None)]),
    ],
)
def test_settings_for_one_statement_hide_nothing(sql: str, expected: list[DdlResult]) -> None:
    """MariaDB logs `SET STATEMENT ... FOR` with the statement; type and table are the statement's."""
    for settings in (
        "SET STATEMENT lock_wait_timeout=5 FOR",
        "set statement a=(1+1), b='FOR' for set statement c=1 for",
    ):
        assert list(classify(f"{settings} {sql}", "db")) == expected
    assert classify("SET STATEMENT max_statement_time=1", "db") == ()


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("TRUNCATE TABLE s.a", EventType.TRUNCATE),
        ("TRUNCATE TABLE s.a, s.b", EventType.TRUNCATE),
        ("ALTER TABLE s.a EXCHANGE PARTITION p WITH TABLE s.b", EventType.ALTER),
        ("ALTER TABLE s.a IMPORT TABLESPACE", EventType.ALTER),
        ("ALTER TABLE s.a IMPORT PARTITION p TABLESPACE", EventType.ALTER),
        ("ALTER TABLE s.a TRUNCATE PARTITION p", EventType.ALTER),
        ("ALTER TABLE s.a DROP PARTITION p, q", EventType.ALTER),
        ("ALTER TABLE s.a DISCARD TABLESPACE", EventType.ALTER),
        ("ALTER TABLE s.a DISCARD PARTITION p TABLESPACE", EventType.ALTER),
    ],
)
@pytest.mark.parametrize("form", ["/*!50000 {} */", "/*! {}*/;", "/* app */ /*M!100100 {} */"])
def test_rows_that_a_statement_in_an_executable_comment_removed_stay_in_copies(
    sql: str, form: str, expected: EventType
) -> None:
    """The statement has the entry that it has without the comment. canal makes none."""
    found = classify(form.format(sql), "db")
    assert found == classify(sql, "db")
    assert found[0] == DdlResult(expected, "s", "a")


@pytest.mark.parametrize("sql", ["DROP DATABASE s", "CREATE OR REPLACE DATABASE s", "CREATE OR REPLACE SCHEMA s"])
def test_a_schema_that_a_statement_in_an_executable_comment_emptied_keeps_its_rows_in_copies(sql: str) -> None:
    """The second form is MariaDB's: it drops the schema first."""
    assert classify(f"/*!50000 {sql} */", "db") == classify(sql, "db")
    assert len(classify(sql, "db")) == 1


@pytest.mark.parametrize(
    "sql",
    ["ALTER TABLE a DISABLE KEYS", "ALTER TABLE a ANALYZE PARTITION p", "CREATE DATABASE d", "CREATE INDEX i ON a (b)"],
)
def test_a_statement_in_an_executable_comment_that_changes_neither_rows_nor_tables_has_no_entry(sql: str) -> None:
    """As in canal, and as dump programs write them for each table."""
    assert classify(f"/*!40000 {sql} */", "db") == ()


@pytest.mark.parametrize("query", ["SELECT 1 b", "AS SELECT 1 b", "TABLE x", "VALUES ROW(1)"])
def test_columns_of_a_query_follow(query: str) -> None:
    """A statement-based CREATE TABLE from a query does not tell all columns."""
    statement = read(f"CREATE TABLE t (a int) {query}")
    assert isinstance(statement, CreateTable)
    assert statement.selected


@pytest.mark.parametrize(
    "name", ["0x1g", "0X41", "0XAB", "0x", "0xg", "0x12$", "0xaé", "0b", "0b12", "0B11", "7e", "1_a"]
)
def test_names_that_begin_like_numbers(name: str) -> None:
    """A name without quotes may begin with digits, 0x, 0b or an exponent (seen on MySQL 9.7 and MariaDB 10.11)."""
    for sql in (f"CREATE TABLE t ({name} int, b int)", f"CREATE TABLE t (b int, {name} int DEFAULT 0x41)"):
        statement = read(sql)
        assert isinstance(statement, CreateTable)
        assert {column.name for column in statement.columns} == {name, "b"}


@given(
    st.sampled_from(["INSERT INTO", "insert ignore", "REPLACE", "UPDATE LOW_PRIORITY", "DELETE FROM", "DELETE"]),
    st.sampled_from(["abc", "s.abc", "`a``b`", "`s`.`abc`", "abc, d", "abc.*", "into_x", "é", "s . abc"]),
    st.sampled_from(["", " ", "/* c */", " -- c", "\n", "(x)", " SET a = 1", ";", "#"]),
)
def test_the_short_way_agrees_with_the_long_one(verb: str, name: str, end: str) -> None:
    """A row statement gives the same result with a comment in front, which prevents the short way."""
    assert classify(f"{verb} {name}{end}", "db") == classify(f"/* c */ {verb} {name}{end}", "db")


@pytest.mark.parametrize("sql", ["CREATE VIEW v AS SELECT 1", "DROP TABLE a, 'x", "DELETE FROM a", "FLUSH TABLES"])
def test_long_comments_hide_nothing(sql: str) -> None:
    """A long comment before a statement does not change the result."""
    for comment in ("/*" + "x" * 9000 + "*/", "-- " + "x" * 9000 + "\n", " " * 9000, "# x\n" * 3000):
        assert classify(comment + sql, "db") == classify(sql, "db")


def test_long_row_statements_are_not_read_to_their_end() -> None:
    """An INSERT of several megabytes is classified by its first words."""
    sql = "INSERT /* c */ INTO `s`.a VALUES " + ",".join(["('x')"] * 500_000)
    assert classify(sql, "db") == (DdlResult(EventType.INSERT, "s", "a"),)


VOCABULARY = """CREATE ALTER DROP RENAME TRUNCATE TABLE INDEX DATABASE ADD COLUMN MODIFY CHANGE TO ON a `b` s.t ( ) ,
    ; . = int varchar(5) enum('a') PRIMARY KEY UNIQUE FIRST AFTER IF NOT EXISTS LIKE SELECT AS DEFAULT 'x' 1 /*! */ --
    # NULL INSERT UPDATE DELETE WITH GRANT VIEW CHECK REFERENCES PARTITION BY CHARACTER SET CONVERT ' " ` /* *"""
WORDS = st.sampled_from(VOCABULARY.split())


@given(st.one_of(st.text(), st.lists(WORDS, max_size=25).map(" ".join)), st.booleans())
def test_any_text_is_classified(sql: str, sql_parser: bool) -> None:
    """classify() accepts any text; read() raises nothing but Unreadable."""
    for result in classify(sql, "db", sql_parser=sql_parser):
        assert isinstance(result.event_type, EventType)
    with suppress(Unreadable):
        read(sql)
