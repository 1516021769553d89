"""Pipelines in one process: contents of the targets after the checkpoint was restored to an older one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
import pytest

from canal_ha.spark import pipeline, pipeline_file
from lab import MariaDB, Node, lake
from tests.spark.running import write_pipeline

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly("test_restored.py: the same, without Spark; test_delta.py, test_mysql.py: batches again"),
]


def test_a_restored_checkpoint_loses_and_doubles_nothing(
    spark: Any, mariadb: MariaDB, node: Node, database: str, tmp_path: Path
) -> None:
    """Applied changes come again in other batches, with numbers that the targets have seen, and with new rows.

    They include a statement that names another table first.
    """
    file = write_pipeline(
        tmp_path / "p.toml",
        {"servers": node.address, "destination": database, "spoolDir": str(tmp_path / "spool")},
        [
            {"type": "parquet", "path": str(tmp_path / "log")},
            {"type": "delta", "path": str(tmp_path / "lake")},
            {"type": "mysql", "address": mariadb.address, "user": "admin", "password": "admin",
             "database": "copy_{schema}", "stateDatabase": f"state_{database}"},
        ],
        tables=[f"{database}.t"],
    )  # fmt: skip
    described = pipeline_file.load(file)
    checkpoint, old = tmp_path / "checkpoint", tmp_path / "old"

    def written(*statements: str) -> None:
        mariadb.execute(f"USE {database}", *statements)
        pipeline.run(spark, described, once=True)

    written("INSERT INTO t VALUES (1, 1), (2, 2)")
    shutil.copytree(checkpoint, old)
    written(
        "CREATE TABLE a (id INT PRIMARY KEY)",
        "DROP TABLE a, t",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
        "INSERT INTO t VALUES (2, 2), (3, 3)",
    )
    written("UPDATE t SET v = 20 WHERE id = 2")
    shutil.rmtree(checkpoint)
    shutil.copytree(old, checkpoint)
    written("INSERT INTO t VALUES (4, 4)")
    expected = mariadb.query(f"SELECT * FROM {database}.t ORDER BY id")
    assert [row["id"] for row in expected] == [2, 3, 4]
    assert mariadb.query(f"SELECT * FROM copy_{database}.t ORDER BY id") == expected
    delta = lake.rows(tmp_path / "lake" / database / "t")
    assert sorted(delta, key=lambda row: int(row["id"])) == expected
    log = dataset.dataset(tmp_path / "log", partitioning="hive").to_table().to_pylist()
    places = [(row["position"]["seq"], row["position"]["entry"], row["position"]["row"]) for row in log]
    assert len(places) == len(set(places)) == 8
