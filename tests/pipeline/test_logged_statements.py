"""Changes of rows that a session logs as statements, although the server logs rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.refilling import tables_to_read_again
from lab import Node, SqlServer, follow
from tests.pipeline.copies import copied
from tests.pipeline.driver import described, run_once
from tests.pipeline.given import portion
from tests.pipeline.test_engine import selected, source
from tests.spark.entries import ddl


@pytest.fixture
def pipeline_table(source_server: SqlServer, database: str) -> str:
    """A table with a row, beside a function that adds rows to it and a table like it."""
    table = f"{database}.a"
    source_server.execute(
        "SET GLOBAL log_bin_trust_function_creators = 1",
        "SET GLOBAL local_infile = 1",
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.other LIKE {table}",
        f"CREATE FUNCTION {database}.f(x INT) RETURNS INT MODIFIES SQL DATA"
        f" BEGIN INSERT INTO {table} VALUES (x); RETURN x; END",
        f"INSERT INTO {table} VALUES (1)",
        f"INSERT INTO {database}.other VALUES (1)",
    )
    return table


@contextmanager
def logged(server: SqlServer, database: str, table: str, directory: Path, statement: str) -> Iterator[Description]:
    """Yield a pipeline that has a copy of the table, after the server has logged a statement instead of rows.

    statement: with places for the database, and for a file that has a row with 2.
    """
    (directory / "rows").write_text("2\n")
    with Node({database: follow(server)}) as node:
        pipeline = described(directory, source(node, database, snapshot=table), "copies", tables=(table,))
        run_once(pipeline)
        with server.connect(autocommit=True, local_infile=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"USE {database}")
            cursor.execute("SET SESSION binlog_format = STATEMENT")
            cursor.execute(statement.format(database=database, file=directory / "rows"))
        yield pipeline


@pytest.mark.real
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("SELECT {database}.f(2)", "UPDATE of several tables, or of tables that it does not name"),
        ("DO {database}.f(2)", "UPDATE of several tables, or of tables that it does not name"),
        ("LOAD DATA LOCAL INFILE '{file}' INTO TABLE {database}.a", r"INSERT of {database}\.a"),
    ],
)
def test_a_copy_lacks_rows_that_a_function_or_load_data_wrote(
    source_server: SqlServer, database: str, pipeline_table: str, tmp_path: Path, statement: str, what: str
) -> None:
    """The pipeline stops at statements that name no table, or come in events of their own."""
    told = f"logged a statement without its rows, {what.format(database=database)}, at"
    with logged(source_server, database, pipeline_table, tmp_path, statement) as pipeline:
        assert len(selected(source_server, pipeline_table)) == 2
        with pytest.raises(SinkRefused, match=told):
            run_once(pipeline)


BOTH = [
    "/* app */ UPDATE {database}.other o JOIN {database}.a q ON q.id = o.id SET q.id = 9",
    "DELETE q FROM {database}.a q, {database}.other o WHERE q.id = o.id",
    "DELETE FROM q USING {database}.other o JOIN {database}.a q ON q.id = o.id",
]
OF_MYSQL = ["WITH c AS (SELECT 1 x) UPDATE {database}.other o JOIN {database}.a q ON q.id = o.id SET q.id = 9"]
OF_MARIADB = [
    "SET STATEMENT max_statement_time = 9 FOR UPDATE {database}.other o JOIN {database}.a q SET q.id = 9",
    "ANALYZE UPDATE {database}.a SET id = 9",
]


@pytest.mark.real
@pytest.mark.parametrize(
    ("source_server", "statement"),
    [
        *(("mysql", statement) for statement in BOTH + OF_MYSQL),
        *(("mariadb", statement) for statement in BOTH + OF_MARIADB),
    ],
    indirect=["source_server"],
)
def test_a_copy_keeps_rows_that_a_statement_changed_under_another_name(
    source_server: SqlServer, database: str, pipeline_table: str, tmp_path: Path, statement: str
) -> None:
    """The pipeline stops, whatever is before the statement's verb."""
    told = r"of several tables, or of tables that it does not name"
    with (
        logged(source_server, database, pipeline_table, tmp_path, statement) as pipeline,
        pytest.raises(SinkRefused, match=told),
    ):
        run_once(pipeline)


@pytest.mark.real
def test_rows_that_load_data_writes_into_another_table_stop_no_pipeline(
    source_server: SqlServer, database: str, pipeline_table: str, tmp_path: Path
) -> None:
    """The pipeline goes on behind the statement."""
    statement = "LOAD DATA LOCAL INFILE '{file}' INTO TABLE {database}.other"
    with logged(source_server, database, pipeline_table, tmp_path, statement) as pipeline:
        source_server.execute(f"INSERT INTO {pipeline_table} VALUES (3)")
        run_once(pipeline)
        assert copied(tmp_path / "copies", pipeline_table) == selected(source_server, pipeline_table)


SELECTED = [
    "CREATE TABLE {database}.b (id INT PRIMARY KEY) SELECT 7 AS id",
    "CREATE TABLE IF NOT EXISTS {database}.b (id INT PRIMARY KEY) AS SELECT 7 AS id",
]


@pytest.mark.real
@pytest.mark.parametrize("statement", SELECTED)
def test_a_copy_of_a_table_that_a_logged_query_filled_is_empty(
    source_server: SqlServer, database: str, pipeline_table: str, tmp_path: Path, statement: str
) -> None:
    """The pipeline reads the table, or stops if it must not."""
    made = f"{database}.b"
    with logged(source_server, database, pipeline_table, tmp_path, statement) as pipeline:
        both = replace(pipeline, tables=(pipeline_table, made))
        source = {name: value for name, value in both.source.items() if name != "snapshot"}
        with pytest.raises(SinkRefused, match=rf"{made} the rows of another table, as .*SELECT do.* Set `snapshot"):
            run_once(replace(both, source=source))
        run_once(both)
        source_server.execute(f"INSERT INTO {made} VALUES (8)")
        run_once(both)
        assert copied(tmp_path / "copies", made) == selected(source_server, made)


@pytest.mark.parametrize("sql", ["CREATE TABLE t (a INT) SELECT 1 AS a", "CREATE TABLE t AS SELECT 1 AS a"])
def test_a_changelog_lacks_the_rows_that_a_logged_query_made(sql: str) -> None:
    """The pipeline stops. Where the source logs rows, the statement has no query."""
    target = TargetDescription("delta", "changelog", "evolve", {})
    for text, logs_rows in ((sql, False), ("CREATE TABLE `t` (\n  `a` int NOT NULL\n) START TRANSACTION", True)):
        given = portion(1, 1, [ddl(1, text, "CREATE")])
        if logs_rows:
            assert tables_to_read_again(given, target, "here", snapshot=True) == []
        else:
            with pytest.raises(SinkRefused, match=r"without its rows, CREATE TABLE \.\.\. SELECT of s\.t, at"):
                tables_to_read_again(given, target, "here", snapshot=True)
