"""`canal-ha status` against an HTTP server."""

from __future__ import annotations

import io
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from canal_ha.admin.document import NodeFacts, status_document
from canal_ha.cli import overview, status
from canal_ha.client import node_http
from canal_ha.client.node_answer import STATUS, check
from canal_ha.cluster.overview import DestinationView, NodeView, Overview
from canal_ha.config.alarms import refused
from canal_ha.errors import ConfigError, NodeUnreachable
from canal_ha.instance.status import InstanceStatus, QueueStatus, StreamStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.figures import duration, size
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.model.unready import Unready
from tests.sampling import LONG

FACTS = NodeFacts(address="10.0.0.1:11111", kernel="compiled", started_at=0.0)
SNAPSHOT = SnapshotState("a1", ("shop.orders", "shop.items"), rows=3000, total=90_000, attempt=1, attempt_rows=3000)
INSTANCES = (
    InstanceStatus(
        "lonely",
        "db2:3306",
        source_error="no [route] to host",
        queue=QueueStatus("kafka:9092", LogPosition("mysql-bin.000004", 491), 2, 30, 1.5, "the brokers", "no broker"),
    ),
    InstanceStatus(
        "example",
        "db:3306",
        streams=(
            StreamStatus(
                1001,
                "",
                "open",
                cursor=LogPosition("mysql-bin.000004", 491),
                decoded=LogPosition("mysql-bin.000004", 822),
                ring_entries=4096,
                ring_capacity=16384,
                batches=(1, 2),
                oldest_unacked_s=61.0,
                seconds_behind=0.25,
                bytes_behind=2048,
                alarms=("blocked",),
                snapshot={**SNAPSHOT.facts(), "rows_per_s": 1250.0, "left_s": 72.0, "failing": "", "retry_in_s": 0.0},
            ),
            StreamStatus(
                1002,
                r"shop\..*",
                "failed",
                error="journal mysql-bin.000001 is gone",
                snapshot=SNAPSHOT.ended(SnapshotPhase.FAILED, 9, "shop.orders is gone").facts(),
            ),
        ),
    ),
)

LATE = InstanceStatus("late", "db:3306", streams=(StreamStatus(1001, "", "open", seconds_behind=5.0),))


@contextmanager
def serving(body: bytes, code: int = 200, path: str = "/api/v1/status") -> Iterator[str]:
    """Serve one answer over HTTP, and yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == path
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def run(document: Any, *arguments: str) -> Result:
    with serving(json.dumps(document).encode()) as url:
        return CliRunner().invoke(status.command, ["--url", url, *arguments], catch_exceptions=False)


def test_the_table() -> None:
    """The table has destinations, streams, cursors, ring, batches and lag. Problems follow."""
    text = run(status_document(FACTS, INSTANCES, 7300.0)).output
    assert "node 10.0.0.1:11111   canal-ha 0.1.0, compiled kernel   up 2 h 1 min" in text
    row = next(line for line in text.splitlines() if "1001" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == [
        "example", "db:3306", "1001", "open", "mysql-bin.000004:491", "mysql-bin.000004:822",
        "4096 of 16384 (25 %)", "2", "1 min 1 s", "0.2 s", "2.0 KiB",
    ]  # fmt: skip
    assert "lonely: no [route] to host" in text
    assert "example, client 1001: its ring is full of batches that it has not acknowledged" in text
    assert "example, client 1002: journal mysql-bin.000001 is gone" in text
    assert next(line for line in text.splitlines() if "1002" in line).count("-") >= 5


@pytest.mark.parametrize(
    ("document", "options", "code"),
    [
        (status_document(FACTS, [], 1.0), (), 0),
        (status_document(FACTS, INSTANCES[:1], 1.0), (), 3),
        (status_document(FACTS, INSTANCES[1:], 1.0), (), 3),
        (status_document(FACTS, [], 1.0, unready=[Unready("", "ZooKeeper is not connected")]), (), 3),
        (status_document(FACTS, [], 1.0, [NodeAlarm("logs", "", "a disk is full", 0.0)]), (), 3),
        (status_document(FACTS, [LATE], 1.0), (), 0),
        (status_document(FACTS, [LATE], 1.0), ("--max-lag", "6"), 0),
        (status_document(FACTS, [LATE], 1.0), ("--max-lag", "4"), 3),
        (status_document(FACTS, [LATE], 1.0), ("--max-lag", "0"), 2),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_the_exit_code_tells_whether_there_is_a_problem(
    document: Any, options: tuple[str, ...], code: int, form: tuple[str, ...]
) -> None:
    """It was 0 whatever the tables said."""
    assert run(document, *options, *form).exit_code == code


def test_snapshots_are_shown() -> None:
    """One that runs has its progress, and one that failed is a problem. One that is done needs no line."""
    text = run(status_document(FACTS, INSTANCES, 7300.0)).output
    progress = "3,000 of about 90,000 rows, 0 of 2 tables"
    assert f"example, client 1001: snapshot a1 running: {progress}, 1,250 rows/s, 1 min 12 s left (shop.orders" in text
    assert f"example, client 1002: snapshot a1 failed: {progress}: shop.orders is gone" in text
    failing = {**SNAPSHOT.facts(), "failing": "db:3306: too many\nconnections (1040)", "retry_in_s": 7.6}
    waits = replace(INSTANCES[1], streams=(replace(INSTANCES[1].streams[0], snapshot=failing),))
    text = " ".join(run(status_document(FACTS, [waits], 7300.0)).output.split())
    assert r"next try in 7.6 s: db:3306: too many\nconnections (1040)" in text
    stream = replace(INSTANCES[1].streams[0], snapshot=replace(SNAPSHOT, phase=SnapshotPhase.DONE).facts())
    quiet = replace(INSTANCES[1], streams=(stream,))
    assert "snapshot" not in run(status_document(FACTS, [quiet], 7300.0)).output


def test_a_node_that_runs_nothing() -> None:
    """A node without destinations prints a text, not an empty table."""
    assert "no destination runs here" in run(status_document(FACTS, (), 1.0)).output


def test_a_configuration_that_is_not_the_one_in_the_file_is_told() -> None:
    """A refused configuration is reported below the table, and also when no destination runs."""
    error = ConfigError("conf/example/instance.properties", "canal.instance.stream.max", "0", "1 to 10000", 3)
    alarm = refused("example", error, running=True, scanned=True, now=7000.0)
    for instances in (INSTANCES, ()):
        document = status_document(FACTS, instances, 7300.0, [alarm])
        text = run(document).output
        assert "conf/example/instance.properties:3: canal.instance.stream.max = '0': expected 1 to 10000" in text
        assert "example goes on with the configuration read before" in text
        (told,) = json.loads(run(document, "--json").output)["alarms"]
        assert (told["line"], told["since"]) == (3, "1970-01-01T01:56:40+00:00")


def test_json() -> None:
    """--json prints the node's document."""
    document = status_document(FACTS, INSTANCES, 7300.0)
    assert json.loads(run(document, "--json").output) == json.loads(json.dumps(document))


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        (b"gone", 404, "answered 404 Not Found: is this a canal-ha node?"),
        (b"<html>", 200, "is not the status of a canal-ha node"),
        (b"[]", 200, "is not the status of a canal-ha node"),
        (b'{"node": {}}', 200, "is not the status of a canal-ha node"),
    ],
)
def test_something_else_answers(body: bytes, code: int, message: str) -> None:
    """The error for another program on that port differs from the one for no program."""
    with serving(body, code) as url, pytest.raises(NodeUnreachable, match=message.replace("?", r"\?")):
        node_http.fetch(url)


@pytest.mark.parametrize("path", ["/api/v1/destinations/shop/log", "/api/v1/destinations/shop/tables?table=shop.t"])
def test_a_wrong_log_is_called_a_configuration(path: str) -> None:
    """The error for a document that no node sends does not take it for a configuration."""
    with serving(b"[]", path=path) as url, pytest.raises(NodeUnreachable, match="is no answer of a canal-ha node"):
        node_http.fetch(url, path=path, shape={"lines?": [str]})


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://127.0.0.1:1/", "127.0.0.1:1", "http://nowhere.invalid"])
def test_nobody_answers(url: str) -> None:
    """The error names the URL and the key to check."""
    with pytest.raises(NodeUnreachable, match=r"no node answers at .*canal\.admin\.http\.port"):
        node_http.fetch(url)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1.0, "-"), (0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3600, "1 h 0 min"), (200_000, "2 d 7 h")],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration has at most two units."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(-1, "-"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (2**50, "1024.0 TiB")]
)
def test_sizes(count: int, text: str) -> None:
    """Sizes have binary units."""
    assert size(count) == text


WRONG: tuple[Any, ...] = (None, "text", -1, 10**400, 1e308, True, [], [[]], {}, [{}], ["\x1b[2J"])


def documents() -> Iterator[tuple[str, Any]]:
    """Yield the document with each value replaced by others, and without it, and what was done.

    On a push each value is replaced by two others, which change from value to value; the long suites try all of them.
    """
    wrongs = itertools.cycle([WRONG] if LONG else itertools.pairwise((*WRONG, WRONG[0])))
    good = json.loads(json.dumps(status_document(FACTS, INSTANCES, 90_000.0)))

    def walk(holder: Any, where: str) -> Iterator[tuple[str, Any]]:
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            value = holder[key]
            if isinstance(value, dict | list):
                yield from walk(value, f"{where}.{key}")
            for wrong in next(wrongs):
                holder[key] = wrong
                yield f"{where}.{key} = {wrong!r:.20}", good
            if isinstance(holder, dict):
                del holder[key]
                yield f"{where}.{key} is missing", good
            holder[key] = value

    yield from walk(good, "")


def test_a_document_of_somebody_else_is_an_error_with_the_place_and_never_a_traceback() -> None:
    """Whatever passes the check can be shown, also as one node of a cluster."""
    refused_count = 0
    for what, document in documents():
        console = Console(file=io.StringIO(), width=200)
        try:
            check(document, STATUS)
        except ValueError:
            refused_count += 1
            continue
        try:
            status.show(document, console)
            node = document["node"]["address"]
            seen = Overview((NodeView(node),), (DestinationView("example", node),)).with_statuses({node: document})
            overview.show(seen, console)
        except Exception as error:
            raise AssertionError(what) from error
        assert "\x1b" not in console.file.getvalue()  # type: ignore[attr-defined] # it is a StringIO
    assert refused_count > 200


def test_a_fake_document_says_what_is_wrong_with_it() -> None:
    """It was a KeyError with a traceback."""
    document = status_document(FACTS, INSTANCES, 90_000.0)
    del document["destinations"][1]["streams"][0]["client_id"]
    with pytest.raises(NodeUnreachable, match=r"destinations\[1\]\.streams\[0\] has no client_id"):
        run(document)


@pytest.mark.parametrize("body", [
    b"[" * 500_000, b'{"node":' * 100_000, b'{"node": {"uptime_s": ' + b"9" * 5000 + b"}}",
    b'{"node": {"address": "a", "version": "v", "kernel": "k", "uptime_s": NaN}, "destinations": []}',
    b'{"node": {"address": "a", "version": "v", "kernel": "k", "uptime_s": 1e999}, "destinations": []}', b"\xff",
], ids=lambda body: repr(body[:20]))  # fmt: skip
def test_a_document_that_is_made_to_hurt_is_refused(body: bytes) -> None:
    """Nesting, digits, infinity and bytes that are no text."""
    with serving(body) as url, pytest.raises(NodeUnreachable, match="not the status of a canal-ha node"):
        node_http.fetch(url)


def test_texts_of_a_document_do_not_steer_the_terminal() -> None:
    """A table has escapes in place of control characters; JSON has them in its own form, and no lone surrogates."""
    document = status_document(replace(FACTS, address="\x1b[2J\x9b1;31m\ud800"), INSTANCES, 90_000.0)
    assert r"\x1b[2J\x9b1;31m\ud800" in run(document).output
    shown = run(document, "--json").output
    assert r"\u001b[2J\u009b1;31m\ud800" in shown
    assert json.loads(shown)["node"] == json.loads(json.dumps(document))["node"]


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_node_that_sends_a_byte_now_and_then_does_not_hold_the_command(
    head: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte ended a wait of five seconds. Later a thread and a connection stayed behind for each question."""
    monkeypatch.setattr(node_http, "WHOLE_S", 0.5)
    hung_up = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            with peer, suppress(OSError):
                peer.sendall(head)
                while True:
                    peer.sendall(b"H")
                    time.sleep(0.05)
            hung_up.set()

        threading.Thread(target=drip, name="server", daemon=True).start()
        began = time.monotonic()
        with pytest.raises(NodeUnreachable, match="not answered completely within"):
            node_http.fetch(f"127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - began < 5
        assert hung_up.wait(5)
        assert "status" not in [each.name for each in threading.enumerate()]


def test_a_longer_answer_than_the_page_takes_is_refused() -> None:
    """Each node could send 64 MB every few seconds to whoever looks at the page."""
    document = json.dumps(status_document(FACTS, INSTANCES, 90_000.0)).encode()
    with serving(document) as url:
        assert node_http.get(url, "/api/v1/status", STATUS, node_http.NO_LOGIN, 5, 5, len(document))
        with pytest.raises(NodeUnreachable, match=f"more than {len(document) - 1} bytes"):
            node_http.get(url, "/api/v1/status", STATUS, node_http.NO_LOGIN, 5, 5, len(document) - 1)


@pytest.mark.parametrize("body", [b'{"error": "' + b"x" * 100_000 + b'"}', b"[" * 60_000])
def test_a_refusal_that_is_made_to_hurt_is_an_error_without_its_text(body: bytes) -> None:
    """A long one, which could be endless, and one that is nested too deeply."""
    with serving(body, 409) as url, pytest.raises(NodeUnreachable, match="answered 409 Conflict: is this"):
        node_http.fetch(url)


def test_a_document_without_end_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than the limit is not read."""
    monkeypatch.setattr(node_http, "MOST_BYTES", 1000)
    with serving(b" " * 2000) as url, pytest.raises(NodeUnreachable, match="more than 1000 bytes"):
        node_http.fetch(url)


@pytest.mark.parametrize(("queue", "options", "problem"), [
    (QueueStatus("kafka:9092", lag_s=-1.0, waits_for="its target"), [], "the node waits for its target"),
    (QueueStatus("kafka:9092", lag_s=90.0), ["--max-lag", "60"], "late, Kafka: it is 1 min 30 s behind its source"),
    (QueueStatus("kafka:9092", lag_s=90.0), [], ""),
    (QueueStatus("kafka:9092", lag_s=-1.0), ["--max-lag", "60"], ""),
])  # fmt: skip
def test_a_queue_that_waits_or_lags_ends_with_3(queue: QueueStatus, options: list[str], problem: str) -> None:
    """A wait counts always, and lag against --max-lag. Unknown lag is said to be unknown."""
    found = run(status_document(FACTS, [InstanceStatus("late", "db:3306", queue=queue)], 1.0), *options)
    assert found.exit_code == (status.PROBLEM if problem else 0)
    assert problem in found.output
    assert ("lag unknown" in found.output) == (queue.lag_s < 0)
