"""The cluster as `canal-ha status --zk` prints it, from fixed data and without ZooKeeper."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from rich.console import Console

from canal_ha.admin.document import NodeFacts, status_document
from canal_ha.cli import overview
from canal_ha.cluster.overview import ClientView, DestinationView, NodeView, Overview
from canal_ha.config.alarms import refused
from canal_ha.errors import ConfigError
from canal_ha.instance.status import InstanceStatus, StreamStatus
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.version import VERSION

A, B = "10.0.0.1:11111", "10.0.0.2:11111"
CURSOR = LogPosition("mysql-bin.000004", 491)
SEEN = Overview(
    (NodeView(A, "127.0.0.1:8089"), NodeView(B)),
    (
        DestinationView(
            "example",
            A,
            stand_by=(B,),
            clients=(
                ClientView(1001, r"shop\..*", CURSOR, "10.0.0.9:40000"),
                ClientView(1002, problem="/otter/canal/destinations/example/1002/cursor cannot be read: [no] JSON"),
            ),
        ),
        DestinationView("orphan", stand_by=(B,)),
    ),
)
SNAPSHOT = SnapshotState("a1", ("shop.orders",), rows=5, total=90)
SAID = status_document(
    NodeFacts(A, "compiled", 0.0),
    [
        InstanceStatus(
            "example",
            "db:3306",
            source_error="access denied",
            streams=(
                StreamStatus(
                    1001,
                    "",
                    "open",
                    batches=(1, 2),
                    oldest_unacked_s=61.0,
                    seconds_behind=0.25,
                    bytes_behind=2048,
                    snapshot=replace(SNAPSHOT, phase=SnapshotPhase.PAUSED).facts(),
                ),
                StreamStatus(
                    7,
                    "",
                    "failed",
                    error="journal mysql-bin.000001 is gone",
                    snapshot=SNAPSHOT.ended(SnapshotPhase.FAILED, 9, "denied").facts(),
                ),
            ),
        )
    ],
    7200.0,
)


def shown(seen: Overview) -> str:
    """Return what a terminal of 200 columns shows."""
    console = Console(file=io.StringIO(), width=200, highlight=False)
    overview.show(seen, console)
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue()


def rows(text: str) -> list[list[str]]:
    """Return the cells of every row of every table."""
    lines = [line for line in text.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def test_what_zookeeper_alone_tells() -> None:
    """The tables have nodes, owners, stand-bys, clients and cursors, but no figures. Problems follow."""
    text = shown(SEEN)
    assert rows(text) == [
        [A, "-", "-", "-", "127.0.0.1:8089", "example", "-"],
        [B, "-", "-", "-", "-", "-", "example, orphan"],
        ["example", A, B, "-"],
        ["orphan", "nobody", B, "-"],
        ["example", "1001", "10.0.0.9:40000", "-", "mysql-bin.000004:491", "-", "-", "-", "-"],
        ["example", "1002", "-", "-", "-", "-", "-", "-", "-"],
    ]
    assert "orphan: no owner; eligible nodes: 1" in text
    assert "example, client 1002: /otter/canal/destinations/example/1002/cursor cannot be read: [no] JSON" in text


def test_what_the_running_node_adds() -> None:
    """A node's status adds state, lag, batches in flight, the source, and a stream that ZooKeeper does not know."""
    text = shown(SEEN.with_statuses({A: SAID}))
    told = rows(text)
    assert told[0] == [A, VERSION, "compiled", "2 h 0 min", "127.0.0.1:8089", "example", "-"]
    assert told[2] == ["example", A, B, "db:3306"]
    assert told[4] == ["example", "7", "-", "failed", "-", "0", "-", "-", "-"]
    figures = ["2", "1 min 1 s", "0.2 s", "2.0 KiB"]
    assert told[5] == ["example", "1001", "10.0.0.9:40000", "open", "mysql-bin.000004:491", *figures]
    assert "example: access denied" in text
    assert "example, client 7: journal mysql-bin.000001 is gone" in text
    assert "example, client 1001: snapshot a1 paused: 5 of about 90 rows, 0 of 1 tables" in text
    assert "example, client 7: snapshot a1 failed: 5 of about 90 rows, 0 of 1 tables: denied" in text


def test_a_node_that_does_not_answer() -> None:
    """The other rows are the same, and a line says that the node's figures are missing."""
    text = shown(SEEN.with_statuses({A: "no node answers at 127.0.0.1:8089"}))
    assert rows(text)[0] == [A, "-", "-", "-", "not reached", "example", "-"]
    assert rows(text)[1:] == rows(shown(SEEN))[1:]
    assert f"{A}: its figures are missing: no node answers at 127.0.0.1:8089" in text


def test_a_node_with_a_bad_file_is_told() -> None:
    """The problem names the node, the file and the line."""
    error = ConfigError("instance.properties", "canal.port", "x", "a port", 3)
    alarm = refused("example", error, running=False, scanned=False, now=0.0)
    said = status_document(NodeFacts(A, "compiled", 0.0), [], 7200.0, [alarm])
    text = " ".join(shown(SEEN.with_statuses({A: said})).split())
    assert f"{A}: instance.properties:3: canal.port = 'x': expected a port; example does not run on this node" in text


def test_a_dead_node_is_shown_as_missing() -> None:
    """It vanished from the table."""
    text = shown(replace(SEEN, nodes=(*SEEN.nodes, NodeView("10.0.0.3:11111", missing=True))))
    assert rows(text)[2] == ["10.0.0.3:11111", "-", "-", "-", "missing", "-", "-"]
    assert "10.0.0.3:11111: missing: it has ended without an orderly stop" in text


def test_a_client_beyond_the_limit_is_a_problem() -> None:
    """--max-lag is for scripts; an unknown lag is not beyond it."""
    seen = SEEN.with_statuses({A: SAID})
    late = "example, client 1001: it is 0.2 s behind its source; --max-lag is 0.1 s"
    assert [each for each in overview.problems(seen, 0.1) if "behind" in each] == [late]
    assert not [each for each in overview.problems(seen, 0.3) if "behind" in each]


def test_a_released_destination_says_so() -> None:
    """When an operator has set `running` to inactive, the owner is shown as released until it stops."""
    released = replace(SEEN.destinations[0], released=True)
    assert f"{A} (released)" in shown(replace(SEEN, destinations=(released,)))


def test_an_empty_cluster() -> None:
    """An empty cluster has a text in place of each table."""
    text = shown(Overview())
    assert "no node is alive" in text
    assert "no destination is known" in text
    assert "no client has subscribed" in text


def test_a_cluster_whose_nodes_have_all_died_is_not_taken_for_the_wrong_ensemble() -> None:
    """ZooKeeper knows the nodes that did not stop in order. Without any, it can be the wrong one, or an empty one."""
    dead = replace(SEEN, nodes=tuple(replace(node, missing=True) for node in SEEN.nodes))
    text = str(overview.nobody("zk1:2181", dead))
    assert text.startswith(f"no node is alive: ZooKeeper at zk1:2181 answers, and misses {A}, {B}. Start them")
    assert "ensemble" not in text
    assert "Is this the right ensemble and chroot?" in str(overview.nobody("zk1:2181", replace(dead, nodes=())))


def test_json_has_every_field_by_its_name() -> None:
    """For scripts, an object has the same keys whatever is known of it."""
    document = json.loads(json.dumps(overview.document_of(SEEN.with_statuses({A: SAID}))))
    assert sorted(document) == ["destinations", "nodes"]
    assert sorted(document["nodes"][0]) == [
        "address", "alarms", "kernel", "missing", "problem", "status_address", "uptime_s", "version",
    ]  # fmt: skip
    example, orphan = document["destinations"]
    assert sorted(example) == sorted(orphan)
    assert sorted(example) == [
        "clients", "configured", "lazy", "name", "paused", "problem", "queue", "released", "runs_on", "source_address",
        "source_error", "stand_by",
    ]  # fmt: skip
    first, second, third = example["clients"]
    assert [first["client_id"], second["client_id"], third["client_id"]] == [7, 1001, 1002]
    assert sorted(second) == ["active", "client_id", "cursor", "filter", "problem", "stream"]
    assert second["cursor"]["journal"] == "mysql-bin.000004"
    assert second["stream"] == {
        "state": "open",
        "error": "",
        "batches": 2,
        "oldest_unacked_s": 61.0,
        "seconds_behind": 0.25,
        "bytes_behind": 2048,
        "alarms": [],
        "snapshot": json.loads(json.dumps(replace(SNAPSHOT, phase=SnapshotPhase.PAUSED).facts())),
    }
    assert third["stream"] is None


def test_the_queue_of_a_destination_is_shown_with_its_problems() -> None:
    """The cluster tells what one node tells."""
    queue = {
        "servers": "k:9092",
        "position": None,
        "commits": 0,
        "rows": 0,
        "lag_s": 9.0,
        "waits_for": "k",
        "error": "",
    }
    said = {**SAID, "destinations": [{**SAID["destinations"][0], "queue": queue}]}
    seen = SEEN.with_statuses({A: said})
    assert "example: to Kafka at k:9092: 0 rows in 0 transactions, up to -, 9.0 s behind" in shown(seen)
    found = [each for each in overview.problems(seen, 1.0) if "Kafka" in each]
    assert found == [
        "example: Kafka does not get its changes: the node waits for k",
        "example, Kafka: it is 9.0 s behind its source; --max-lag is 1.0 s",
    ]
