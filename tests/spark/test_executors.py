"""Executors in their own processes: one is killed during a micro-batch."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lab import MariaDB, Node, follow, lake
from tests.spark.crashing import session_members
from tests.spark.running import Driver, write_pipeline
from tests.waiting import until

ROWS = 2000


@pytest.mark.spark
@pytest.mark.nightly("test_source.py: a worker that dies")
def test_a_killed_executor_is_replaced(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """The executor's tasks run again from the same segments, and the table is complete."""
    with Node({database: follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})}) as node:
        mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")
        for first in range(0, ROWS, 100):
            values = ", ".join(f"({number}, {number})" for number in range(first, first + 100))
            mariadb.execute(f"INSERT INTO {database}.t VALUES {values}")
        file = write_pipeline(
            tmp_path / "p.toml",
            {
                "servers": node.address,
                "destination": database,
                "spoolDir": str(tmp_path / "spool"),
                "maxRowsPerTrigger": 500,
            },
            [{"type": "delta", "path": str(tmp_path / "lake")}],
            tables=[f"{database}.*"],
            master="local-cluster[1,1,1024]",
        )
        table = tmp_path / "lake" / database / "t"
        with Driver(file, once=True, log=tmp_path / "driver.log") as driver:
            until(lambda: DeltaTable.is_deltatable(str(table)), what="a first batch", seconds=300)
            victims = [process for process in session_members(driver.process.pid) if is_executor(process)]
            assert victims
            for process in victims:
                os.kill(process, signal.SIGKILL)
            assert driver.wait(300) == 0, driver.tail()
        rows = lake.rows(table)
        assert sorted(row["id"] for row in rows) == list(range(ROWS))
        assert all(row["v"] == row["id"] for row in rows)


def is_executor(process: int) -> bool:
    """Return whether a process is a JVM that runs tasks."""
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
