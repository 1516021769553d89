"""Changes of rows that a session logs as statements, although the server logs rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.errors import SinkRefused
from lab import Node, SqlServer, follow
from tests.pipeline.copies import copied
from tests.pipeline.driver import described, run_once
from tests.pipeline.test_engine import selected, source

AS_STATEMENTS = "SET SESSION binlog_format = STATEMENT"


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
    )
    return table


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
    server = source_server
    (tmp_path / "rows").write_text("2\n")
    with Node({database: follow(server)}) as node:
        pipeline = described(
            tmp_path, source(node, database, snapshot=pipeline_table), "copies", tables=(pipeline_table,)
        )
        run_once(pipeline)
        with server.connect(autocommit=True, local_infile=True) as connection, connection.cursor() as cursor:
            cursor.execute(AS_STATEMENTS)
            cursor.execute(statement.format(database=database, file=tmp_path / "rows"))
        assert len(selected(server, pipeline_table)) == 2
        with pytest.raises(
            SinkRefused, match=f"logged a statement without its rows, {what.format(database=database)}, at"
        ):
            run_once(pipeline)


@pytest.mark.real
def test_rows_that_load_data_writes_into_another_table_stop_no_pipeline(
    source_server: SqlServer, database: str, pipeline_table: str, tmp_path: Path
) -> None:
    server = source_server
    (tmp_path / "rows").write_text("2\n")
    with Node({database: follow(server)}) as node:
        pipeline = described(
            tmp_path, source(node, database, snapshot=pipeline_table), "copies", tables=(pipeline_table,)
        )
        run_once(pipeline)
        with server.connect(autocommit=True, local_infile=True) as connection, connection.cursor() as cursor:
            cursor.execute(AS_STATEMENTS)
            cursor.execute(f"LOAD DATA LOCAL INFILE '{tmp_path / 'rows'}' INTO TABLE {database}.other")
        server.execute(f"INSERT INTO {pipeline_table} VALUES (3)")
        run_once(pipeline)
        assert copied(tmp_path / "copies", pipeline_table) == selected(server, pipeline_table)
