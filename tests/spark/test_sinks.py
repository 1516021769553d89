"""From the description of a pipeline to its sinks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset

from canal_ha.errors import OptionInvalid, PipelineFailed
from canal_ha.pipeline.options import Shape
from canal_ha.spark import pipeline, pipeline_file
from canal_ha.spark.entries import changes_of
from canal_ha.spark.shapes import FIXED
from canal_ha.spark.sinks.console import Console
from canal_ha.spark.sinks.parquet import Parquet
from lab import MariaDB, Node, lake
from tests.spark.entries import frames, insert
from tests.spark.made import Made, statement
from tests.spark.running import write_pipeline


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_the_check_of_a_parquet_sink_shuts_out_no_reader(tmp_path: Path, scheme: str) -> None:
    """Spools are for one user, but the target of a pipeline has the modes of the umask."""
    before = os.umask(0o022)
    try:
        Parquet(f"{scheme}{tmp_path}/lake/changes").check()
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "lake", tmp_path / "lake" / "changes")] == [0o755] * 2


def test_an_unknown_sink_is_refused_and_does_not_print_rows(tmp_path: Path) -> None:
    """Only `console` gives the console: rows for another target must not appear on a screen."""
    file = write_pipeline(
        tmp_path / "p.toml",
        {"servers": "127.0.0.1:11111", "destination": "shop", "spoolDir": str(tmp_path / "spool")},
        [{"type": "console", "rows": 3}],
        tables=["shop.*"],
    )
    described = pipeline_file.load(file)
    assert [type(sink) for sink in pipeline.sinks_of(described)] == [Console]
    with pytest.raises(OptionInvalid, match=r"p\.toml: no sink has the type 'kafka'"):
        pipeline.sinks_of(described.with_sink("kafka", {}))


def test_tables_that_get_the_rows_of_others_are_known() -> None:
    """The one that was replaced comes first. Other statements, and tables that are gone again, do not count."""
    swap = statement("RENAME TABLE t TO _t_del, _t_gho TO t")
    assert Made(0, swap).arrived == {"d": ("s.t", "s._t_del")}
    assert Made(0, swap, statement("DROP TABLE _t_del")).arrived == {"d": ("s.t",)}
    assert Made(0, statement("ALTER TABLE t ADD x INT")).arrived == {}


@pytest.mark.real
def test_the_parquet_log_shows_which_rows_a_snapshot_read(spark: Any, tmp_path: Path) -> None:
    """They have the same columns as inserted rows. A batch that comes again replaces its directory."""
    entries = changes_of(frames([insert(10, 1), insert(10, 2, snapshot="7")]), "segment")
    rows = [(e.op, None, "d", "s", "t", e.layout.to_json(), None, e.after[0], None, None) for e in entries]
    batch = Made(0)
    batch.frame = spark.createDataFrame(rows, FIXED[Shape.CHANGES])
    for _ in range(2):
        Parquet(str(tmp_path)).apply(batch)
    log = dataset.dataset(tmp_path / "run=run" / "batch_id=0").to_table().sort_by("op").to_pylist()
    assert [(row["op"], row["key"], row["after"]) for row in log] == [
        ("insert", [("id", "1")], [("id", "1"), ("name", "x")]),
        ("read", [("id", "2")], [("id", "2"), ("name", "x")]),
    ]


@pytest.mark.spark
def test_a_sink_misses_no_rows_that_were_logged_as_statements(
    spark: Any, mariadb: MariaDB, node: Node, database: str, tmp_path: Path
) -> None:
    """The query ends at a statement on one of its tables, and passes over those on others."""
    file = write_pipeline(
        tmp_path / "p.toml",
        {"servers": node.address, "destination": database, "spoolDir": str(tmp_path / "spool")},
        [{"type": "delta", "path": str(tmp_path / "lake")}],
        tables=[f"{database}.t"],
    )
    described = pipeline_file.load(file)
    mariadb.execute(f"USE {database}", "INSERT INTO t VALUES (1, 1)", "CREATE TABLE other (id INT PRIMARY KEY)")
    pipeline.run(spark, described, once=True)
    as_statements = "SET SESSION binlog_format = STATEMENT"
    mariadb.execute(f"USE {database}", as_statements, "INSERT INTO other VALUES (1)")
    pipeline.run(spark, described, once=True)
    mariadb.execute(f"USE {database}", as_statements, "UPDATE t SET v = 2")
    with pytest.raises(PipelineFailed, match=rf"logged a statement without its rows, UPDATE of {database}\.t, at"):
        pipeline.run(spark, described, once=True)
    assert [row["v"] for row in lake.rows(tmp_path / "lake" / database / "t")] == [1]
