"""What foreign keys change is in the binlog of newer MySQL servers, and not in that of MariaDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab import Node, SqlServer, follow
from tests.pipeline.copies import copied
from tests.pipeline.driver import described, run_once
from tests.pipeline.test_engine import selected, source


@pytest.mark.real
def test_rows_that_a_foreign_key_deletes(source_server: SqlServer, database: str, tmp_path: Path) -> None:
    """docs/pipelines.md names it under Limits."""
    server, child = source_server, f"{database}.child"
    reference = f"FOREIGN KEY (parent) REFERENCES {database}.parent (id) ON DELETE CASCADE"
    server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.parent (id INT PRIMARY KEY)",
        f"CREATE TABLE {child} (id INT PRIMARY KEY, parent INT, {reference})",
        f"INSERT INTO {database}.parent VALUES (1), (2)",
        f"INSERT INTO {child} VALUES (10, 1), (20, 2)",
    )
    with Node({database: follow(server)}) as node:
        pipeline = described(tmp_path, source(node, database, snapshot=child), "copies", tables=(child,))
        run_once(pipeline)
        before = selected(server, child)
        assert copied(tmp_path / "copies", child) == before
        server.execute(f"DELETE FROM {database}.parent WHERE id = 1")
        run_once(pipeline)
        expected = selected(server, child) if server.flavor == "mysql" else before
        assert copied(tmp_path / "copies", child) == expected
