"""Pipelines restored from a copy of spool, checkpoint and lake while rows flow: reported, repaired, complete."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab import MariaDB, Node, ZooKeeper, follow, lake
from lab.node import PROGRAM
from tests.sampling import LONG
from tests.spark.running import Driver, write_pipeline
from tests.waiting import until


@pytest.mark.spark
@pytest.mark.nightly("test_restored.py: the same restores, without Spark")
@pytest.mark.parametrize("lake_too", [False, True] if LONG else [True])
def test_a_pipeline_that_is_restored_says_so_and_ends_complete(
    mariadb: MariaDB, zookeeper: ZooKeeper, database: str, tmp_path: Path, lake_too: bool
) -> None:
    """The command in the error brings every row again; Delta and MySQL end equal to the source."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")
    settings = follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})
    log = tmp_path / "driver.log"
    file = write_pipeline(
        tmp_path / "copy.toml",
        {"zkServers": zookeeper.hosts, "destination": database, "spoolDir": str(tmp_path / "spool"),
         "sessionTimeoutMs": 2000, "availableNowQuietMs": 800},
        [
            {"type": "delta", "path": str(tmp_path / "lake")},
            {"type": "mysql", "address": mariadb.address, "user": "admin", "password": "admin",
             "database": "copy_{schema}", "stateDatabase": f"state_{database}"},
        ],
        tables=[f"{database}.*"],
    )  # fmt: skip
    kept = ["spool", "checkpoint", *(["lake"] if lake_too else [])]
    with Node({database: settings}, zk_servers=zookeeper.hosts) as node:
        until(lambda: database in node.running(), what="a node runs the destination")

        def run(first: int, last: int, *, well: bool = True) -> str:
            """Change rows while a driver reads to the end; return the end of its log."""
            with Driver(file, once=True, log=log) as driver:
                for number in range(first, last):
                    mariadb.execute(
                        f"INSERT INTO {database}.t VALUES ({number}, 0)",
                        f"UPDATE {database}.t SET v = v + 1 WHERE id <= {number}",
                        f"DELETE FROM {database}.t WHERE id = {number - 5}",
                    )
                code = driver.wait(240)
                assert (code == 0) is well, driver.tail()
                return driver.tail()

        run(0, 20)
        for name in kept:
            shutil.copytree(tmp_path / name, tmp_path / f"{name}.copy")
        run(20, 40)
        if LONG:
            run(40, 60)
        for name in kept:
            shutil.rmtree(tmp_path / name)
            (tmp_path / f"{name}.copy").rename(tmp_path / name)
        said = run(60, 80, well=False)
        assert "restored from an older copy" in said
        told = subprocess.run([PROGRAM, "pipeline", "status", str(file)], capture_output=True, text=True)
        assert told.returncode == 1
        assert "restored from an older copy" in told.stdout
        found = re.search(r"`canal-ha (cursor set .*?)`", said)
        assert found
        subprocess.run([PROGRAM, *found[1].split(), "--yes"], check=True, capture_output=True)
        run(80, 90)
        if LONG:
            run(90, 100)
    source = rows(mariadb, database)
    assert source
    assert source == rows(mariadb, f"copy_{database}")
    assert source == {row["id"]: row["v"] for row in lake.rows(tmp_path / "lake" / database / "t")}


def rows(server: MariaDB, schema: str) -> dict[int, Any]:
    """Return the table's values by id."""
    return {row["id"]: row["v"] for row in server.query(f"SELECT * FROM {schema}.t")}


@pytest.mark.spark
@pytest.mark.nightly("test_restored.py: what ends a pipeline; test_cli.py: what the command prints")
def test_the_command_prints_what_ends_a_pipeline(mariadb: MariaDB, node: Node, database: str, tmp_path: Path) -> None:
    """A second pipeline with the first one's client id ends with one sentence, exit code 1 and no traceback."""

    def pipeline(name: str) -> list[str]:
        (tmp_path / name).mkdir()
        file = write_pipeline(
            tmp_path / name / "p.toml",
            {"servers": node.address, "destination": database, "spoolDir": str(tmp_path / name / "spool"),
             "availableNowQuietMs": 800},
            [{"type": "console"}],
            tables=["*"],
        )  # fmt: skip
        return [PROGRAM, "pipeline", "run", str(file), "--once"]

    mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 1)")
    first = subprocess.run(pipeline("one"), capture_output=True, text=True, timeout=240)
    assert first.returncode == 0, first.stderr
    second = subprocess.run(pipeline("two"), capture_output=True, text=True, timeout=240)
    assert second.returncode == 1
    assert f"client id 1001 of {database} is in use by another spool" in second.stderr
    assert "Traceback" not in second.stderr + second.stdout
