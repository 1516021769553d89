"""A pipeline that fills its copy while tables go: tools that change schemas swap them, and people drop them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from canal_ha.errors import SnapshotRefused
from canal_ha.pipeline.engine import PipelineEngine
from lab import Node, SqlServer, follow
from tests.node.following import stream_of
from tests.node.test_snapshot_of_client import snapshots
from tests.pipeline.copies import copied
from tests.pipeline.driver import described, engine
from tests.pipeline.test_engine import selected, source
from tests.waiting import until

pytestmark = pytest.mark.real

SIZES = {"_r_gho": 900, "a": 200, "r": 900, "z": 300}
SLOW = {"canal.instance.snapshot.rowsPerSecond": "600", "canal.instance.snapshot.chunk.rows": "50"}

SWAP = "RENAME TABLE r TO _r_del, _r_gho TO r"


def filled(server: SqlServer, database: str) -> None:
    """Create tables with rows, in the order in which a snapshot reads them. The tool's table has other values."""
    server.execute(f"CREATE DATABASE {database}")
    for table, rows in SIZES.items():
        values = ", ".join(f"({number}, '{table}')" for number in range(rows))
        server.execute(
            f"CREATE TABLE {database}.{table} (id INT PRIMARY KEY, v VARCHAR(20))",
            f"INSERT INTO {database}.{table} VALUES {values}",
        )


@contextmanager
def running(pipeline: Any) -> Iterator[PipelineEngine]:
    """Run a pipeline on a thread."""
    made = engine(pipeline)
    ended: list[Exception] = []

    def run() -> None:
        try:
            made.run()
        except Exception as error:
            ended.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.stop()
        thread.join(60)
    if ended:
        raise ended[0]


@pytest.mark.parametrize(
    "statements",
    [
        (SWAP,),
        (SWAP, "UPDATE r SET v = 'new' WHERE id < 50", "DROP TABLE _r_del"),
        ("DROP TABLE z",),
        ("RENAME TABLE z TO y",),
        ("RENAME TABLE _r_gho TO b", "DROP TABLE a, z", "CREATE TABLE z (id INT PRIMARY KEY, v VARCHAR(20))"),
    ],
    ids=["swapped", "swapped and dropped", "dropped", "renamed", "renamed, dropped and made again"],
)
def test_the_copy_is_complete_though_tables_go_before_they_are_read(
    source_server: SqlServer, database: str, tmp_path: Path, statements: Sequence[str]
) -> None:
    """The snapshot failed at the table that was gone, and no table behind it was ever read."""
    filled(source_server, database)
    with Node({database: follow(source_server, SLOW)}) as node:
        given = source(node, database, snapshot="initial")
        pipeline = described(tmp_path, given, "copies", tables=(f"{database}.*",))
        with running(pipeline):
            first = f"{database}._r_gho"
            until(lambda: len(copied(tmp_path / "copies", first)) > 100, what="some rows", seconds=30)
            source_server.execute(f"USE {database}", *statements)

            def done() -> bool:
                return bool(stream_of(node, database)["snapshot"]["phase"] == "done")

            until(done, what="the end of the snapshot", seconds=60)
            tables = f"SELECT table_name AS n FROM information_schema.tables WHERE table_schema = '{database}'"
            names = [f"{database}.{row['n']}" for row in source_server.query(tables)]

            def equal() -> bool:
                return all(copied(tmp_path / "copies", name) == selected(source_server, name) for name in names)

            until(equal, what="equal copies")
        for table in {f"{database}.{each}" for each in SIZES} - set(names):
            assert copied(tmp_path / "copies", table) == []


@pytest.mark.parametrize("once", [False, True], ids=["continuous", "once"])
def test_a_pipeline_whose_snapshot_has_failed_ends_with_the_reason(
    mysql: SqlServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    """It went on as if its copy were complete. Everything that came is committed, and a resume lets it go on."""
    monkeypatch.setattr("canal_ha.pipeline.flow.LOOK_S", 0.3)
    name = f"{database}.a"
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {name} (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.nokey (id INT)",
        f"CREATE TABLE {database}.z (id INT PRIMARY KEY)",
        f"INSERT INTO {name} VALUES (1), (2)",
        f"INSERT INTO {database}.z VALUES (3)",
    )
    with Node({"example": follow(mysql)}) as node:
        given = {**source(node, "example", snapshot="initial"), "filter": rf"{database}\..*"}
        pipeline = described(tmp_path, given, "copies", tables=(f"{database}.*",))
        command = f"canal-ha snapshot resume --destination example --client-id 1001 --leave-out {database}.nokey"
        with pytest.raises(SnapshotRefused, match=rf"nokey has no primary key.*`{command}`"):
            engine(pipeline).run(once=once)
        assert copied(tmp_path / "copies", name) == selected(mysql, name)
        snapshots(node).resume(leave_out=[f"{database}.nokey"])
        engine(pipeline).run(once=True)
        assert copied(tmp_path / "copies", f"{database}.z") == selected(mysql, f"{database}.z")


def test_a_pipeline_goes_on_when_a_snapshot_of_an_operator_has_failed(
    mysql: SqlServer, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its copy never had the existing rows, so its changes matter more: the log says what happened."""
    monkeypatch.setattr("canal_ha.pipeline.flow.LOOK_S", 0.3)
    name = f"{database}.a"
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {name} (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.nokey (id INT)",
    )
    with Node({"example": follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, "example"), "copies", tables=(f"{database}.*",))
        with running(pipeline) as made:
            until(lambda: bool(made.states) and made.states[0].lag_s == 0, what="the flow works")
            snapshots(node).start([f"{database}.nokey"])
            until(lambda: "pipeline.snapshot_failed" in caplog.text, what="the warning")
            mysql.execute(f"INSERT INTO {name} VALUES (1)")
            until(lambda: copied(tmp_path / "copies", name) == selected(mysql, name), what="the change")
