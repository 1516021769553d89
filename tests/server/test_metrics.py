"""The metrics page for Prometheus."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from canal_ha.accounts.account import Accounts
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.status import InstanceStatus, PartStatus, QueueStatus, StreamStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.snapshot import SnapshotState
from canal_ha.model.standing import Standing
from canal_ha.server.audit import Audit
from canal_ha.server.counters import Latency, RequestCounters
from canal_ha.server.entrance import Entrance
from canal_ha.server.metrics import CanalCollector, MetricsPage, exposition, listen
from canal_ha.server.site import CONNECTIONS_MOST, QuietSite
from lab.ports import free_port
from tests.server.harness import LOOPBACK, on_reactor, reactor
from tests.waiting import until

NOW_S = 2_000.0
OPEN = Entrance(Accounts, Clock())
FULL = StreamStatus(
    1001,
    "",
    "open",
    put_seq=9,
    get_seq=7,
    ack_seq=4,
    put_bytes=900,
    ack_bytes=2**60 + 1,
    put_rows=8,
    get_rows=6,
    ack_rows=3,
    put_time_ms=1_999_000,
    get_time_ms=1_998_000,
    ack_time_ms=1_997_000,
    transactions=2,
    received_bytes=5000,
    sink_blocking_ms=12,
    ring_entries=5,
    ring_capacity=16384,
    ring_bytes=400,
    ring_bytes_budget=16777216,
    batches=(3, 4),
    oldest_unacked_s=1.5,
    seconds_behind=0.25,
    bytes_behind=700,
)
NEW = StreamStatus(1002, "", "parked")


def collector(*instances: InstanceStatus, counters: RequestCounters | None = None) -> CanalCollector:
    def status() -> Sequence[InstanceStatus]:
        return instances

    return CanalCollector(status, counters or RequestCounters(lambda name: True), "compiled", now=lambda: NOW_S)


def samples(from_collector: CanalCollector) -> dict[tuple[str, ...], float]:
    """Return (name, label values in order of label names) -> value, after a round trip through the text.

    The library's parser adds `_total` to counters; test_types_and_big_numbers shows that the text does not have it.
    """
    families = text_string_to_metric_families(exposition(from_collector.collect()).decode())
    return {
        (sample.name.removesuffix("_total"), *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_canals_families_of_one_client() -> None:
    """With one client every figure has canal's value under canal's name, without `_total`."""
    found = samples(
        collector(
            InstanceStatus("example", "db:1", batch_mode="MEMSIZE", buffer_size=16384, subscriptions=1, streams=(FULL,))
        )
    )
    expected = {
        ("canal_instance", "example", "spring"): 1,
        ("canal_instance_subscriptions", "example"): 1,
        ("canal_instance_parser_mode", "example", "true"): 1,
        ("canal_instance_store", "MEMSIZE", "example", "16384"): 1,
        ("canal_instance_traffic_delay", "example"): 250,
        ("canal_instance_transactions", "example"): 2,
        ("canal_instance_sink_blocking_time", "example"): 12,
        ("canal_instance_received_binlog_bytes", "example", "0"): 5000,
        ("canal_instance_store_produce_seq", "example"): 9,
        ("canal_instance_store_consume_seq", "example"): 4,
        ("canal_instance_store_produce_mem", "example"): 900,
        ("canal_instance_store_consume_mem", "example"): 2**60 + 1,
        ("canal_instance_put_delay", "example"): 1000,
        ("canal_instance_get_delay", "example"): 2000,
        ("canal_instance_ack_delay", "example"): 3000,
        ("canal_instance_put_rows", "example"): 8,
        ("canal_instance_get_rows", "example"): 6,
        ("canal_instance_ack_rows", "example"): 3,
    }
    assert {key: value for key, value in found.items() if key[0].startswith("canal_instance")} == expected


def test_snapshots_of_clients() -> None:
    """A client without a snapshot has no figure, and an unknown time is none."""
    state = SnapshotState("a1", ("shop.orders",), rows=5, total=90).facts()
    first = replace(FULL, snapshot={**state, "rows_per_s": 2.5, "left_s": 34.0, "failing": "db:1 is away"})
    second = replace(FULL, client_id=1003, snapshot={**state, "rows_per_s": 0.0, "left_s": -1.0, "failing": ""})
    found = samples(collector(InstanceStatus("example", "db:1", streams=(first, NEW, second))))
    assert {key: value for key, value in found.items() if key[0].startswith("canal_snapshot")} == {
        ("canal_snapshot_phase", "1001", "example", "running"): 1,
        ("canal_snapshot_rows", "1001", "example"): 5,
        ("canal_snapshot_rows_estimated", "1001", "example"): 90,
        ("canal_snapshot_rows_per_second", "1001", "example"): 2.5,
        ("canal_snapshot_left_seconds", "1001", "example"): 34,
        ("canal_snapshot_failing", "1001", "example"): 1,
        ("canal_snapshot_phase", "1003", "example", "running"): 1,
        ("canal_snapshot_rows", "1003", "example"): 5,
        ("canal_snapshot_rows_estimated", "1003", "example"): 90,
        ("canal_snapshot_rows_per_second", "1003", "example"): 0,
        ("canal_snapshot_failing", "1003", "example"): 0,
    }


def test_what_the_node_is_in_its_cluster() -> None:
    """Readiness, ZooKeeper, the part in each race, and how often it began to run each destination."""
    standing = Standing(False, True, 2, {"a": "running", "b": "standby"}, {"a": 3})
    found = samples(replace(collector(InstanceStatus("a", "db:1", flush_age_s=1.5)), standing=lambda: standing))
    assert {key: value for key, value in found.items() if key[0].startswith(("canal_n", "canal_z", "canal_d"))} == {
        ("canal_node_ready",): 0,
        ("canal_zookeeper_connected",): 1,
        ("canal_zookeeper_sessions",): 2,
        ("canal_destination_state", "a", "running"): 1,
        ("canal_destination_state", "b", "standby"): 1,
        ("canal_destination_claims", "a"): 3,
    }
    assert found["canal_cursor_flush_age_seconds", "a"] == 1.5
    assert not [key for key in samples(replace(collector(), standing=lambda: Standing(True))) if "zookeeper" in key[0]]


def test_every_stream_by_itself() -> None:
    """Each client id has lag in seconds and bytes, ring and oldest batch. An unknown figure has no sample."""
    found = samples(collector(InstanceStatus("example", "db:1", streams=(FULL, NEW))))
    assert found["canal_stream_lag_seconds", "1001", "example"] == 0.25
    assert found["canal_stream_lag_bytes", "1001", "example"] == 700
    assert found["canal_stream_oldest_unacked_seconds", "1001", "example"] == 1.5
    assert found["canal_stream_batches_in_flight", "1001", "example"] == 2
    assert found["canal_stream_ring_entries", "1001", "example"] == 5
    assert found["canal_stream_ring_capacity_entries", "1001", "example"] == 16384
    assert found["canal_stream_ring_bytes", "1001", "example"] == 400
    assert found["canal_stream_ring_capacity_bytes", "1001", "example"] == 16777216
    assert found["canal_stream_state", "1002", "example", "parked"] == 1
    assert ("canal_stream_lag_seconds", "1002", "example") not in found
    assert ("canal_stream_lag_bytes", "1002", "example") not in found


def test_several_streams_together() -> None:
    """Counters are summed, sequences still start at -1, and delays are those of the stream farthest behind."""
    older = StreamStatus(
        1003, "", "open", put_seq=0, put_time_ms=1_990_000, get_time_ms=1_995_000, put_bytes=1, seconds_behind=7.0
    )
    found = samples(collector(InstanceStatus("example", "db:1", streams=(FULL, NEW, older))))
    assert found["canal_instance_store_produce_seq", "example"] == 10
    assert found["canal_instance_store_consume_seq", "example"] == 4
    assert found["canal_instance_store_produce_mem", "example"] == 901
    assert found["canal_instance_put_delay", "example"] == 10_000
    assert found["canal_instance_get_delay", "example"] == 10_000  # a get counts as no later than its put
    assert found["canal_instance_ack_delay", "example"] == 3000
    assert found["canal_instance_traffic_delay", "example"] == 7000


def test_a_destination_without_clients() -> None:
    """Sequences are -1, and there are no delays."""
    found = samples(collector(InstanceStatus("example", "db:1")))
    assert found["canal_instance_store_produce_seq", "example"] == -1
    assert not [key for key in found if key[0].endswith("_delay")]


def test_memory_figures_need_memsize() -> None:
    """canal shows bytes only in MEMSIZE mode."""
    found = samples(collector(InstanceStatus("example", "db:1", batch_mode="ITEMSIZE", streams=(FULL,))))
    assert not [key for key in found if key[0].endswith("_mem")]
    assert found["canal_instance_store", "ITEMSIZE", "example", "0"] == 1


def test_the_data_port() -> None:
    """The port's metrics are packets, bytes, errors, and a latency histogram with Prometheus' cumulative buckets."""
    latency = Latency()
    for took_ms in (1.0, 2.5, 3.0, 50.0, 1000.0):
        latency.note(took_ms)
    counters = RequestCounters(lambda name: True, latency={"example": latency}, connections=3)
    counters.packets["example", "GET"] = 4
    counters.bytes["example"] = 100
    counters.empty_batches["example"] = 5
    counters.errors["/10.0.0.1", 400] = 6
    found = samples(collector(counters=counters))
    assert found["canal_instance_client_packets", "example", "GET"] == 4
    assert found["canal_instance_client_bytes", "example"] == 100
    assert found["canal_instance_client_empty_batches", "example"] == 5
    assert found["canal_instance_client_request_error", "/10.0.0.1", "400"] == 6
    assert found[("canal_client_connections",)] == 3
    name = "canal_instance_client_request_latency"
    assert [found[name + "_bucket", "example", le] for le in ("2.5", "10.0", "25.0", "100.0", "+Inf")] == [
        2,
        3,
        3,
        4,
        5,
    ]
    assert (found[name + "_count", "example"], found[name + "_sum", "example"]) == (5, 1056.5)


def test_types_and_big_numbers() -> None:
    """Counters are declared under the names of their samples, and keep every digit."""
    text = exposition(collector(InstanceStatus("example", "db:1", streams=(FULL,))).collect()).decode()
    assert "# TYPE canal_instance_put_rows counter\ncanal_instance_put_rows{" in text
    assert "# TYPE canal_instance_put_delay gauge\n" in text
    assert f'canal_instance_store_consume_mem{{destination="example"}} {2**60 + 1}\n' in text
    assert 'canal_build_info{version="' in text


def test_label_values_are_escaped() -> None:
    """A name with quotes, backslashes or line ends stays one label value."""
    name = 'a"b\\c\nd'
    assert ("canal_instance_subscriptions", name) in samples(collector(InstanceStatus(name, "db:1")))


def test_the_page_holds_the_process_too() -> None:
    """The page has the metrics of destinations and process, in Prometheus' content type."""
    site: Any = QuietSite(MetricsPage(collector(InstanceStatus("example", "db:1")), OPEN), OPEN)
    site.startFactory()
    protocol: Any = site.buildProtocol(None)
    transport = StringTransport(peerAddress=IPv4Address("TCP", "127.0.0.1", 54321))
    protocol.makeConnection(transport)
    protocol.dataReceived(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    head, _, body = transport.value().partition(b"\r\n\r\n")
    protocol.connectionLost(None)
    site.stopFactory()
    assert b"text/plain; version=0.0.4" in head.replace(b"Content-Type", b"content-type")
    families: dict[str, Metric] = {each.name: each for each in text_string_to_metric_families(body.decode())}
    assert families["process_cpu_seconds"].type == "counter"
    assert {"canal_instance", "process_resident_memory_bytes", "python_info"} <= set(families)


def test_a_taken_port_stops_nobody() -> None:
    """The node continues without metrics. Port 0 and negative ports turn them off."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        assert listen(reactor, taken.getsockname()[1], collector(), OPEN) is None
    assert listen(reactor, 0, collector(), OPEN) is None
    assert listen(reactor, -1, collector(), OPEN) is None


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def test_a_web_page_cannot_read_the_metrics_of_a_node_on_its_visitors_machine() -> None:
    """On loopback only its names are answered: a page can let its own name lead there, and no login keeps it out."""
    port = free_port()

    async def begin() -> Any:
        return listen(reactor, port, collector(), OPEN, LOOPBACK)

    listening = on_reactor(begin)
    try:
        for host, code in (
            (f"localhost:{port}", b" 200 "),
            (f"{LOOPBACK}:{port}", b" 200 "),
            ("evil.example", b" 403 "),
        ):
            with socket.create_connection((LOOPBACK, port), 5) as browser:
                browser.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert code in browser.recv(100)
    finally:
        reactor.callFromThread(listening.stopListening)


def test_connections_held_by_a_stranger_do_not_keep_monitoring_out() -> None:
    """He keeps more connections than the port has and sends a byte now and then. He loses his own; the page answers."""
    written: list[bytes] = []
    entrance = Entrance(Accounts, Clock(), Audit(Clock(), written.append))
    port = free_port()

    async def begin() -> Any:
        return listen(reactor, port, collector(), entrance, LOOPBACK)

    listening = on_reactor(begin)
    try:
        with socket.create_connection((LOOPBACK, port), 5, ("127.0.0.3", 0)) as monitoring:
            crowd = [
                socket.create_connection((LOOPBACK, port), 5, ("127.0.0.2", 0)) for _ in range(CONNECTIONS_MOST + 19)
            ]
            until(lambda: entrance.refusals["http_connections"] == 20, what="20 refusals")
            assert answers(f"http://{LOOPBACK}:{port}/")
            monitoring.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in monitoring.recv(100)
        line = json.loads(written[0])
        assert (line["action"], line["result"], line["address"]) == ("connection", "refused", "127.0.0.2")
        for each in crowd:
            each.close()
    finally:
        reactor.callFromThread(listening.stopListening)


def test_a_configuration_that_is_not_the_one_in_the_file_is_a_sample() -> None:
    """The sample has destination and kind; canal.properties has no destination. Without an alarm there is no sample."""
    alarms = [
        ConfigAlarm(name, destination, "text", True, 1.0) for name, destination in (("refused", "a"), ("restart", ""))
    ]
    found = samples(CanalCollector(list, RequestCounters(lambda name: True), alarms=lambda: alarms))
    assert found["canal_configuration_alarm", "refused", "a"] == 1
    assert found["canal_configuration_alarm", "restart", ""] == 1
    assert not [key for key in samples(collector()) if key[0] == "canal_configuration_alarm"]


def test_two_equal_alarms_are_one_series() -> None:
    """Prometheus refused the scrape of a node whose audit log could neither be written nor be rotated."""
    alarms = [ConfigAlarm("audit", "", text, True, 1.0) for text in ("cannot be written", "cannot be rotated")]
    collected = CanalCollector(list, RequestCounters(lambda name: True), alarms=lambda: alarms).collect()
    families = [family for family in collected if family.name == "canal_configuration_alarm"]
    assert [[sample.labels for sample in family.samples] for family in families] == [
        [{"destination": "", "alarm": "audit"}]
    ]


@pytest.mark.parametrize("kernel", ["compiled", "interpreted"])
def test_the_build_is_named(kernel: str) -> None:
    """A dashboard can show which kernel runs."""
    found = samples(CanalCollector(list, RequestCounters(lambda name: True), kernel))
    assert [key for key in found if key[0] == "canal_build_info" and kernel in key]


@pytest.mark.parametrize("error", ["", "no room"])
def test_prometheus_reads_the_page_of_a_node_with_a_queue_and_all_else_that_has_figures(error: str) -> None:
    """One sample that is no number would cost all of them. Each number is a Python number that is not a bool."""
    part = PartStatus(1, "db:2", left_behind=True)
    snapshot = SnapshotState("a1", ("shop.orders",)).facts() | {"rows_per_s": 1.0, "left_s": 2.0, "failing": ""}
    stream = replace(FULL, alarms=("lag",), parts=(part,), snapshot=snapshot)
    queue = QueueStatus("kafka:9092", None, 4, 9, 0.5, error=error)
    full = replace(
        collector(InstanceStatus("example", "db:1", streams=(stream, NEW), queue=queue, flush_age_s=1.0)),
        alarms=lambda: [ConfigAlarm("refused", "a", "text", True, 1.0), NodeAlarm("queue", "example", "text", 1.0)],
        standing=lambda: Standing(True, True, 1, {"a": "running"}, {"a": 1}),
    )
    found = samples(full)
    assert found["canal_queue_failing", "example"] == (1 if error else 0)
    assert (found["canal_queue_rows", "example"], found["canal_queue_lag_seconds", "example"]) == (9, 0.5)
    queue = replace(queue, lag_s=-1.0)  # unknown, as before the first answer of Kafka
    unknown = samples(collector(InstanceStatus("example", "db:1", queue=queue)))
    assert ("canal_queue_lag_seconds", "example") not in unknown
    numbers = {type(sample.value) for family in full.collect() for sample in family.samples}
    assert numbers <= {int, float}
