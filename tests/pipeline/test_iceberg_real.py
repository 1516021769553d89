"""Iceberg and HTTP behind a real server and node, while the pipeline and the node are killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lab import MySQL, Node, follow
from tests.pipeline.copies import text
from tests.pipeline.driver import described, run_once
from tests.pipeline.lake_writer import options
from tests.pipeline.receiver import Receiver
from tests.pipeline.test_engine import create, selected, source, writing
from tests.pipeline.test_lake_real import kill_and_change_columns, kill_at_random, replayed

pytestmark = pytest.mark.real


def rows(directory: Path, schema: str) -> list[dict[str, Any]]:
    """Return the rows of the Iceberg table `a`."""
    access = dict(options(directory)["catalog"])
    found = load_catalog(access.pop("name"), **access).load_table((schema, "a")).scan().to_arrow()
    return list(found.to_pylist())


def test_an_iceberg_copy_is_exact_whatever_is_killed(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Each row equals the source's, and columns were added, dropped, renamed and widened meanwhile."""
    name, lake = create(mysql, database), tmp_path / "lake"
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "iceberg", tables=(name,), **options(lake))
        kill_and_change_columns(mysql, name, node, pipeline)
        mirror = rows(lake, database)
        assert sorted(text(row) for row in mirror) == selected(mysql, name)
        assert len(mirror) > 10


@pytest.mark.nightly("tests/pipeline/test_iceberg.py, where only the writer is killed")
def test_an_iceberg_log_has_each_change_once(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Replayed, it gives the source's rows."""
    name, lake = create(mysql, database), tmp_path / "lake"
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "iceberg", "changelog", tables=(name,), **options(lake))
        run_once(pipeline)
        with writing(mysql, name):
            kill_at_random(node, pipeline, 3, 3)
        run_once(pipeline)
        log = rows(lake, database)
        assert replayed(log) == selected(mysql, name)
        assert len(log) > 30


@pytest.mark.nightly("tests/pipeline/test_http.py, where only the writer is killed")
def test_a_receiver_has_each_change_once(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """It drops repeats by their numbers. What is left, replayed, gives the source's rows."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node, Receiver() as receiver:
        pipeline = described(
            tmp_path, source(node, database), "http", "events", tables=(name,), url=receiver.url, batchRows=5
        )
        run_once(pipeline)
        with writing(mysql, name):
            kill_at_random(node, pipeline, 4, 3)
        run_once(pipeline)
        changes = [json.loads(line) for line in receiver.distinct()]
        assert len({(each["journal"], each["offset"], each["row"]) for each in changes}) == len(changes) > 30
        found: dict[int, Any] = {}
        for each in changes:
            if each["before"] is not None:
                del found[each["before"]["id"]]
            if each["after"] is not None:
                assert found.setdefault(each["after"]["id"], each["after"]) is each["after"]
        assert {key: row["name"] for key, row in found.items()} == {
            row["id"]: row["name"] for row in mysql.query(f"SELECT * FROM {name}")
        }
