"""A large micro-batch is folded and written in portions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canal_ha.model.position import LogPosition
from canal_ha.spark import pipeline, pipeline_file, portions
from canal_ha.spark.manifest import SegmentInfo
from canal_ha.spark.portions import split
from canal_ha.spark.sinks import batch
from lab import MariaDB, Node, lake
from tests.spark.running import write_pipeline


def segments(*rows: str) -> list[SegmentInfo]:
    """Return segments with so many rows; `+` behind the number: the transaction goes on."""
    return [
        SegmentInfo(
            seq, f"s{seq}", 1, 1, int(each.rstrip("+")), not each.endswith("+"), 0, LogPosition("bin.000001", seq)
        )
        for seq, each in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["4", "6"], [[0, 1]]),
        (["4", "7"], [[0], [1]]),
        (["4", "4+", "3", "7"], [[0], [1, 2], [3]]),
        (["1", "6+", "6+", "6+", "1", "1"], [[0], [1], [2], [3, 4, 5]]),
        (["30"], [[0]]),
        (["9", "1+"], [[0, 1]]),
        ([], []),
    ],
    ids=["small", "two", "whole transactions", "a large transaction", "a large segment", "unfinished", "nothing"],
)
def test_only_a_transaction_that_is_larger_than_a_portion_is_split(
    given: list[str], parts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's memory is bounded by a portion, not by the largest transaction."""
    monkeypatch.setattr(portions, "PORTION_ROWS", 10)
    assert [[each.seq for each in part] for part in split(segments(*given))] == parts


def test_a_portion_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows may be wide."""
    monkeypatch.setattr(portions, "PORTION_BYTES", 2)
    assert [len(part) for part in split(segments("1", "1", "1"))] == [2, 1]


@pytest.mark.spark
@pytest.mark.nightly(
    "the tests above; test_commits.py: portions of a micro-batch; test_delta.py: batches that come again"
)
def test_a_transaction_that_is_larger_than_a_portion_is_copied_whole(
    spark: Any, mariadb: MariaDB, node: Node, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver never collects the transaction as a whole. Later portions win."""
    file = write_pipeline(
        tmp_path / "p.toml",
        {"servers": node.address, "destination": database, "spoolDir": str(tmp_path / "spool"),
         "segmentBytes": 4096, "fetchSize": 4},
        [
            {"type": "delta", "path": str(tmp_path / "lake")},
            {"type": "mysql", "address": mariadb.address, "user": "admin", "password": "admin",
             "database": "copy_{schema}", "stateDatabase": f"state_{database}"},
        ],
        tables=[f"{database}.t"],
    )  # fmt: skip
    described = pipeline_file.load(file)
    pipeline.run(spark, described, once=True)  # creates the client id
    monkeypatch.setattr(portions, "PORTION_ROWS", 1000)
    sizes = []
    collect = batch.collected

    def collected(frame: Any) -> Any:
        rows = collect(frame)
        sizes.append(len(rows))
        return rows

    monkeypatch.setattr(batch, "collected", collected)
    mariadb.execute(
        f"USE {database}",
        "INSERT INTO t VALUES (1, 1)",
        "SET autocommit = 0",
        *(f"INSERT INTO t SELECT seq, 0 FROM seq_{first}_to_{first + 99}" for first in range(100, 3000, 100)),
        "UPDATE t SET v = id + 1 WHERE id < 2000",
        "DELETE FROM t WHERE id < 200 AND id > 1",
        "COMMIT",
    )
    pipeline.run(spark, described, once=True)
    expected = mariadb.query(f"SELECT * FROM {database}.t ORDER BY id")
    assert len(expected) == 2801
    assert mariadb.query(f"SELECT * FROM copy_{database}.t ORDER BY id") == expected
    assert sorted(lake.rows(tmp_path / "lake" / database / "t"), key=lambda row: int(row["id"])) == expected
    assert len(sizes) > 4
    assert max(sizes) < 4500, "a segment, which may be larger than a portion, but not the transaction"
