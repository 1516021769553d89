"""A source that stores the names of tables in lower case, and statements that write them in another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from canal_ha.errors import SinkRefused
from lab import MySQL, Node, follow, lake
from tests.pipeline.copies import text
from tests.pipeline.driver import described, run_once
from tests.pipeline.test_engine import selected, source


def mirrored(directory: Path, table: str) -> list[str]:
    """Return the rows of a copy as `selected` does."""
    return sorted(text(row) for row in lake.rows(directory / "delta" / table.replace(".", "/")))


@pytest.mark.real
def test_a_mirror_keeps_rows_if_a_statement_writes_the_table_in_another_case(tmp_path: Path) -> None:
    """Rows events have the stored names, so statements get them too, on a server with lower_case_table_names = 1."""
    tables = [f"shop.{name}" for name in ("truncated", "dropped", "altered", "renamed")]
    with MySQL(lower_names=True) as server:
        server.execute("CREATE DATABASE Shop")
        for table in tables:
            server.execute(f"CREATE TABLE {table.upper()} (Id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
        with Node({"shop": follow(server)}) as node:
            pipeline = described(tmp_path, source(node, "shop", snapshot="initial"), "delta", tables=("shop.*",))
            run_once(pipeline)
            server.execute(
                "TRUNCATE TABLE SHOP.Truncated",
                "USE Shop",
                "DROP TABLE `Dropped`",
                "ALTER TABLE ALTERED ADD COLUMN Altered INT DEFAULT 7",
                "RENAME TABLE Shop.RENAMED TO Shop.`New`",
                "INSERT INTO NEW VALUES (2)",
            )
            run_once(pipeline)
            for table in ("shop.truncated", "shop.altered", "shop.new"):
                assert mirrored(tmp_path, table) == selected(server, table), table
            for table in ("shop.dropped", "shop.renamed"):
                assert mirrored(tmp_path, table) == [], table
            server.execute("SET SESSION binlog_format = STATEMENT", "INSERT INTO Shop.ALTERED (Id) VALUES (3)")
            with pytest.raises(SinkRefused, match=r"INSERT of shop\.altered, at"):
                run_once(pipeline)
