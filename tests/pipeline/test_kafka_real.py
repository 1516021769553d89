"""Kafka behind a real server and node, while the pipeline and the node are killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab import MySQL, Node, follow
from lab.kafka import Kafka
from tests.pipeline.driver import described, run_once
from tests.pipeline.test_engine import create, source, writing
from tests.pipeline.test_lake_real import kill_at_random

pytestmark = pytest.mark.real


def test_replayed_changes_are_the_rows_whatever_is_killed(
    mysql: MySQL, kafka: Kafka, database: str, tmp_path: Path
) -> None:
    """Each change fits the one before it, so none is missing, doubled or out of order."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        options = {"servers": kafka.address, "format": "debezium-json", "partitions": 3, "timeout": 20}
        pipeline = described(tmp_path, source(node, database), "kafka", "events", tables=(name,), **options)
        run_once(pipeline)
        with writing(mysql, name):
            kill_at_random(node, pipeline, 4, 3)
        run_once(pipeline)

    found: dict[int, dict[str, object]] = {}
    messages = kafka.messages(name)
    for message in messages:
        key = json.loads(message.key() or b"")["id"]
        if message.value() is None:
            assert key not in found
            continue
        change = json.loads(message.value() or b"")
        if change["op"] != "c":
            assert found.pop(key) == change["before"]
        assert key not in found
        if change["after"] is not None:
            found[key] = change["after"]
    rows = mysql.query(f"SELECT id, CAST(money AS CHAR) money, name FROM {name}")
    kept = {key: (float(str(row["money"])), row["name"]) for key, row in found.items()}
    assert kept == {row["id"]: (float(row["money"]), row["name"]) for row in rows}
    assert len(messages) > 100


def test_canal_json_has_values_in_canals_form(mysql: MySQL, kafka: Kafka, database: str, tmp_path: Path) -> None:
    """A TIMESTAMP is in the zone of the node, not in UTC as in the exact form."""
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, at TIMESTAMP, own VARCHAR(20))",
    )
    with Node({database: follow(mysql)}) as node:
        options = {"servers": kafka.address, "timeout": 20}
        pipeline = described(tmp_path, source(node, database), "kafka", "events", tables=(f"{database}.t",), **options)
        run_once(pipeline)
        mysql.execute(f"INSERT INTO {database}.t VALUES (1, '2024-01-02 03:04:05', 'mine')")
        run_once(pipeline)

    (message,) = [json.loads(each.value() or b"") for each in kafka.messages(f"{database}.t")]
    assert message["sqlType"] == {"id": 4, "at": 93, "own": 12}
    assert message["data"][0]["own"] == "mine"
