"""The figures of status and metrics, compared with what really happened."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request

import pytest

from lab import MySQL, Node, follow
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from tests.node.following import destination_of, following, read, stream_of
from tests.waiting import until

pytestmark = pytest.mark.real

ROWS = 40


def metrics(node: Node) -> dict[str, float]:
    """Return every sample: name with labels -> value."""
    with urllib.request.urlopen(f"http://{LOOPBACK}:{node.metrics_port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value) for name, _, value in (line.rpartition(" ") for line in lines) if name and "#" not in name
    }


def shown(node: Node, *options: str) -> str:
    """Return the output of `canal-ha status`."""
    url = f"http://{LOOPBACK}:{node.admin_port}"
    done = subprocess.run([PROGRAM, "status", "--url", url, *options], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.nightly("tests/server/test_metrics.py: each figure")
def test_figures(mysql: MySQL, database: str) -> None:
    """Status, its table and the metrics agree on an idle stream, a stream with a full ring, and one that caught up.

    The ring has 16 entries. While the client does not acknowledge, the stream is behind by the bytes and seconds left
    to read. When it has caught up, every row is counted once and the stream is not behind.
    """
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY, v varchar(2000))")
    settings = {"canal.instance.memory.buffer.size": "16", "canal.instance.memory.batch.mode": "ITEMSIZE"}
    tables = rf"{database}\.t"
    labels = 'destination="example"'
    stream = labels + ',client_id="1001"'
    with Node({"example": follow(mysql, settings)}) as node:
        assert "none" in shown(node)
        with following(node, tables=tables) as client:
            until(lambda: stream_of(node, "example")["seconds_behind"] == 0.0, what="idle", seconds=5)
            idle = stream_of(node, "example")
            assert (idle["state"], idle["bytes_behind"], idle["ring_entries"], idle["ring_capacity"]) == (
                "open",
                0,
                0,
                16,
            )
            assert metrics(node)[f"canal_stream_lag_seconds{{{stream}}}"] == 0

            began = time.time()
            for number in range(ROWS):
                mysql.execute(f"INSERT INTO {database}.t VALUES ({number}, REPEAT('x', 1500))")
            message = until(lambda: client.get_without_ack(5, 100) or None, what="a batch")
            newest = mysql.position()
            until(
                lambda: (at := destination_of(node, "example")["newest"]) and (at["journal"], at["offset"]) == newest,
                what="the next look at the source",
            )
            status = stream_of(node, "example")
            assert 16 <= status["ring_entries"] <= 20
            assert status["ring_entries"] == status["put_seq"] - status["ack_seq"]
            assert status["batches"] == [message.id]
            assert 0 < status["oldest_unacked_s"] < time.time() - began
            assert status["bytes_behind"] == newest[1] - status["decoded"]["offset"] > 1500 * (ROWS - 12)
            assert 1.0 < status["seconds_behind"] < time.time() - began + 1.1  # events tell whole seconds
            sample = metrics(node)
            assert sample[f"canal_stream_lag_bytes{{{stream}}}"] == status["bytes_behind"]
            assert abs(sample[f"canal_stream_lag_seconds{{{stream}}}"] - status["seconds_behind"]) < 2
            assert sample[f"canal_stream_ring_entries{{{stream}}}"] == status["ring_entries"]
            assert sample[f"canal_instance_store_produce_seq{{{labels}}}"] == status["put_seq"]
            assert sample[f"canal_instance_sink_blocking_time{{{labels}}}"] >= 0
            table = shown(node)
            assert f"{status['ring_entries']} of 16 (" in table
            assert f"{status['cursor']['journal']}:{status['cursor']['offset']}" in table

            client.ack(message.id)
            left = ROWS - sum(entry.entryType == 2 and entry.header.eventType == 1 for entry in message.entries)
            read(client, left)
            until(lambda: stream_of(node, "example")["seconds_behind"] == 0.0, what="idle again", seconds=5)
            end = json.loads(shown(node, "--json"))["destinations"][0]["streams"][0]
            assert (end["bytes_behind"], end["ring_entries"], end["batches"]) == (0, 0, [])
            assert end["put_rows"] == end["get_rows"] == end["ack_rows"] == ROWS
            assert end["transactions"] >= ROWS
            sample = metrics(node)
            for family in ("put_rows", "get_rows", "ack_rows"):
                assert sample[f"canal_instance_{family}{{{labels}}}"] == ROWS
            assert sample[f"canal_instance_store_consume_seq{{{labels}}}"] == end["put_seq"]
            assert sample[f'canal_instance_received_binlog_bytes{{{labels},parser="0"}}'] > 1500 * ROWS
            assert sample[f'canal_instance{{{labels},mode="spring"}}'] == 1
            assert sample[f"canal_instance_subscriptions{{{labels}}}"] == 1
            assert sample["canal_client_connections"] == 1
            assert not [name for name in sample if name.startswith("canal_") and "_total" in name]
