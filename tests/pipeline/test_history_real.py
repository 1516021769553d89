"""Histories of a table that is written all the time, while the pipeline is killed, against the source's binlog."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from canal_ha.pipeline.description import Description
from lab import MariaDB, MySQL, Node, follow
from lab.postgresql import PostgreSQL
from tests.pipeline.copies import text
from tests.pipeline.driver import Pipeline, described, run_once
from tests.pipeline.lake_writer import options as iceberg_options
from tests.pipeline.sql_copies import SqlCopies
from tests.pipeline.test_engine import create, source, writing

pytestmark = pytest.mark.real
SERVERS = {"postgresql": PostgreSQL, "mysql": MySQL, "mariadb": MariaDB}
_OWN = ("valid_from", "valid_to", "is_current")


def logged(origin: MySQL, name: str, begin: tuple[str, int]) -> list[tuple[Any, ...]]:
    """Return the history of a table that its binlog has from a position on, read by pymysqlreplication alone."""
    schema, _, table = name.partition(".")
    reader = BinLogStreamReader(
        connection_settings={"host": "127.0.0.1", "port": origin.port, "user": "admin", "password": "admin"},
        server_id=4711,
        log_file=begin[0],
        log_pos=begin[1],
        resume_stream=True,
        only_schemas=[schema],
        only_tables=[table],
        only_events=[DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent],
    )
    versions: list[dict[str, Any]] = []
    current: dict[Any, dict[str, Any]] = {}

    def end(key: Any, at: datetime) -> None:
        if key in current:
            current.pop(key).update(valid_to=at, is_current=False)

    try:
        for event in reader:
            at = datetime.fromtimestamp(event.timestamp, UTC)
            for row in event.rows:
                gone = row.get("before_values") or (row["values"] if isinstance(event, DeleteRowsEvent) else None)
                new = row.get("after_values") or (row["values"] if isinstance(event, WriteRowsEvent) else None)
                if gone is not None:
                    end(gone["id"], at)
                if new is not None:
                    end(new["id"], at)
                    made = {**new, "valid_from": at, "valid_to": None, "is_current": True}
                    current[new["id"]] = made
                    versions.append(made)
    finally:
        reader.close()
    return shown(versions)


def shown(versions: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return versions in the order of each key."""
    found = []
    for each in versions:
        times = [each[name] and each[name].replace(tzinfo=UTC) for name in _OWN[:2]]
        own = {name: value for name, value in each.items() if name not in (*_OWN, "valid_position")}
        found.append((each["id"], text(own), *times, bool(each["is_current"])))
    return sorted(found, key=lambda each: each[0])  # versions of a key keep their order


@contextmanager
def copied(kind: str, database: str, directory: Path) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield the target's type and options, and what reads its versions, ordered by `valid_position`."""
    if kind == "delta":

        def lake() -> list[dict[str, Any]]:
            table = DeltaTable(f"{directory}/delta/{database}/a").to_pyarrow_table()
            rows: list[dict[str, Any]] = table.sort_by("valid_position").to_pylist()
            return rows

        yield "delta", {}, lake
        return
    if kind == "iceberg":
        options = iceberg_options(directory / "lake")

        def iceberg() -> list[dict[str, Any]]:
            access = dict(options["catalog"])
            table = load_catalog(access.pop("name"), **access).load_table((database, "a")).scan().to_arrow()
            rows: list[dict[str, Any]] = table.sort_by("valid_position").to_pylist()
            return rows

        yield "iceberg", options, iceberg
        return
    with SERVERS[kind]() as server:
        copies = SqlCopies(server, database)
        yield copies.kind, copies.options(), lambda: copies.rows("a", order="valid_position")


def killed(kind: str, origin: MySQL, database: str, directory: Path, times: int) -> None:
    """Kill a pipeline and compare. times: how often."""
    random, name = Random(times), create(origin, database)
    begin = origin.position()
    with copied(kind, database, directory) as (target, options, rows), Node({database: follow(origin)}) as node:

        def pipeline_with(**more: object) -> Description:
            own = source(node, database, **more)
            return described(directory, own, target, "scd2", tables=(name,), **options)

        pipeline = pipeline_with()
        run_once(pipeline)
        with writing(origin, name):
            for _ in range(times):
                with Pipeline(pipeline) as process:
                    time.sleep(1.2 + random.random())
                    process.process.kill()
        run_once(pipeline_with(segmentBytes=1 << 20))  # hundreds of small commits would take minutes
        expected = logged(origin, name, begin)
        assert len(expected) > 100
        assert shown(rows()) == expected


def test_a_history_equals_that_of_the_binlog_after_two_kills(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Every version of every row, once, with its times."""
    killed("delta", mysql, database, tmp_path, 2)


@pytest.mark.nightly("test_a_history_equals_that_of_the_binlog_after_two_kills")
@pytest.mark.parametrize("kind", ["delta", "iceberg", *SERVERS])
def test_a_history_equals_that_of_the_binlog_after_twenty_kills(
    kind: str, mysql: MySQL, database: str, tmp_path: Path
) -> None:
    """At random moments."""
    killed(kind, mysql, database, tmp_path, 20)
