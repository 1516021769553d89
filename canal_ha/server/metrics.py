"""Prometheus metrics: canal's under canal's names (docs/protocol.md#metrics), and how far each stream is behind.

Runs in the reactor's thread: figures are taken there, at the moment they are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.web.resource import Resource
from twisted.web.server import Request

from canal_ha import logs
from canal_ha.accounts import gate
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.listeners import is_loopback
from canal_ha.decode.kernel import BUILD
from canal_ha.instance.status import InstanceStatus, StreamStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.standing import Standing
from canal_ha.model.tap_figures import TapFigures
from canal_ha.server.audit_file import AuditFile
from canal_ha.server.certificates import Certificates
from canal_ha.server.counters import LATENCY_BUCKETS_MS, RequestCounters
from canal_ha.server.entrance import Entrance
from canal_ha.server.heartbeat import Heartbeat
from canal_ha.server.http_login import HttpRefusal, check_host, check_right, login_of, refuse
from canal_ha.server.probes import Probes
from canal_ha.server.site import Listener, site_of
from canal_ha.version import VERSION

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"


log = logs.get(__name__)


class Family(Metric):
    """A metric family whose samples are called as the family is: canal's counters have no `_total`."""

    def __init__(self, name: str, kind: str, text: str, *labels: str) -> None:
        super().__init__(name, text, kind)
        self._labels = labels

    def add(self, value: float, *labels: object) -> None:
        """One sample."""
        self.add_sample(self.name, dict(zip(self._labels, map(str, labels), strict=True)), value)


@dataclass(frozen=True, slots=True)
class CanalCollector(Collector):
    """Figures of all running destinations and of the data port.

    A destination with several streams shows their sum in canal's counters and the one farthest behind in canal's
    gauges; the canal_stream_* families tell them apart.
    """

    status: Callable[[], Sequence[InstanceStatus]]
    counters: RequestCounters
    kernel: str = BUILD
    now: Callable[[], float] = time.time
    alarms: Callable[[], Sequence[ConfigAlarm | NodeAlarm]] = tuple
    heartbeat: Heartbeat | None = None
    audit: AuditFile | None = None
    standing: Callable[[], Standing] | None = None
    lost_notices: Callable[[], int] = lambda: 0
    certificate_expires: Callable[[], float | None] = lambda: None
    taps: Callable[[], TapFigures] = TapFigures

    def collect(self) -> Iterator[Metric]:
        """All families that have samples."""
        instances = self.status()
        now_ms = self.now() * 1000
        yield from (family for family in _node(self.kernel))
        if self.heartbeat:
            yield from _reactor(self.heartbeat)
        if self.audit:
            lost = Family("canal_audit_lost_lines", "counter", "Lines that the audit log had no room for.")
            lost.add(self.audit.lost)
            yield lost
        if self.standing:
            yield from (family for family in _standing(self.standing()) if family.samples)
        lost_notices = Family("canal_alarm_notices_lost", "counter", "Notices of alarms that no handler could send.")
        lost_notices.add(self.lost_notices())
        yield lost_notices
        if (ends := self.certificate_expires()) is not None:
            text = "When the certificate in use ends, s since 1970; nothing without TLS."
            expires = Family("canal_certificate_expiry_timestamp_seconds", "gauge", text)
            expires.add(ends)
            yield expires
        yield from (family for family in _taps(self.taps()) if family.samples)
        yield from (family for family in _configuration(self.alarms()) if family.samples)
        for families in (_instances(instances), _delays(instances, now_ms), _streams(instances), _port(self.counters)):
            yield from (family for family in families if family.samples)


def _node(kernel: str) -> Iterator[Metric]:
    build = Family("canal_build_info", "gauge", "Version, and which kernel decodes rows.", "version", "kernel")
    build.add(1, VERSION, kernel)
    yield build


def _standing(standing: Standing) -> Iterator[Metric]:
    """What the node is in its cluster."""
    ready = Family("canal_node_ready", "gauge", "Whether the node does what it should, as /readyz?strict says.")
    ready.add(int(standing.ready))
    connected = Family("canal_zookeeper_connected", "gauge", "Whether ZooKeeper is connected.")
    sessions = Family("canal_zookeeper_sessions", "counter", "Sessions with ZooKeeper; one expires before the next.")
    if standing.zookeeper is not None:
        connected.add(int(standing.zookeeper))
        sessions.add(standing.sessions)
    states = Family(
        "canal_destination_state", "gauge", "This node's part: running, standby, paused, lazy", "destination", "state"
    )
    for destination, state in sorted(standing.states.items()):
        states.add(1, destination, state)
    claims = Family("canal_destination_claims", "counter", "Times that the node began to run it.", "destination")
    for destination, count in sorted(standing.claims.items()):
        claims.add(count, destination)
    yield from (ready, connected, sessions, states, claims)


def _taps(taps: TapFigures) -> Iterator[Metric]:
    """How many streams read the one dump of their server, and how often such a dump has ended."""
    streams = Family(
        "canal_tap_streams", "gauge", "Streams that read the one dump for all streams of a server.", "address"
    )
    for address, count in sorted(taps.streams.items()):
        streams.add(count, address)
    text = (
        "Dumps for all streams of a server that have ended: unopened, lost, silent, reset, large_event, unused, broken,"
        " stopped."
    )
    ended = Family("canal_taps_ended", "counter", text, "reason")
    for reason, count in taps.ended.items():
        ended.add(count, reason)
    yield from (streams, ended)


def _reactor(heartbeat: Heartbeat) -> Iterator[Metric]:
    """How late the thread runs that serves all clients. Reading the longest delay begins a new one."""
    longest, longest_own = heartbeat.take_longest()
    late = Family("canal_reactor_late_max_seconds", "gauge", "Longest delay of the reactor since the last scrape.")
    late.add(longest)
    own = Family(
        "canal_reactor_blocked_max_seconds",
        "gauge",
        "Longest delay of the reactor since the last scrape, without its waits for a processor.",
    )
    own.add(longest_own)
    stalls = Family("canal_reactor_stalls", "counter", "Delays of the reactor of more than 100 ms.")
    stalls.add(heartbeat.stalls)
    blocks = Family(
        "canal_reactor_blocks",
        "counter",
        "Delays of the reactor of more than 100 ms, without its waits for a processor.",
    )
    blocks.add(heartbeat.own_stalls)
    yield from (late, own, stalls, blocks)


def _configuration(alarms: Sequence[ConfigAlarm | NodeAlarm]) -> Iterator[Metric]:
    """Where the configuration that runs is not the one in the files; without a destination: canal.properties."""
    text = (
        "What runs is not in the files: refused, unreadable, gone, restart, closed, certificate;"
        " audit: trouble with the audit log."
    )
    family = Family("canal_configuration_alarm", "gauge", text, "destination", "alarm")
    for about in _about(alarms, ConfigAlarm):
        family.add(1, *about)
    yield family
    text = (
        "Alarms of a node: unwritten, history, source, standby, unloadable, unreadable, queue, logs, no_rights, tap..."
    )
    family = Family("canal_node_alarm", "gauge", text, "destination", "alarm")
    for about in _about(alarms, NodeAlarm):
        family.add(1, *about)
    yield family


def _about(alarms: Sequence[ConfigAlarm | NodeAlarm], kind: type[ConfigAlarm | NodeAlarm]) -> Sequence[tuple[str, str]]:
    """Return destination and name of the alarms of a kind. Prometheus refuses a pair that comes twice."""
    return sorted({(alarm.destination, alarm.alarm) for alarm in alarms if isinstance(alarm, kind)})


def _instances(instances: Sequence[InstanceStatus]) -> Iterator[Metric]:
    """canal's constants and counters."""
    flushed = Family(
        "canal_cursor_flush_age_seconds", "gauge", "Since everything acknowledged was last durable.", "destination"
    )
    instance = Family("canal_instance", "gauge", "A destination runs here.", "destination", "mode")
    clients = Family("canal_instance_subscriptions", "gauge", "Subscribed clients.", "destination")
    parser = Family("canal_instance_parser_mode", "gauge", "How the binlog is parsed.", "destination", "parallel")
    store = Family("canal_instance_store", "gauge", "Kind and places of the ring.", "destination", "batchMode", "size")
    received = Family(
        "canal_instance_received_binlog_bytes", "counter", "Bytes from the source.", "destination", "parser"
    )
    for status in instances:
        name = status.destination
        instance.add(1, name, "spring")
        if status.flush_age_s >= 0:
            flushed.add(status.flush_age_s, name)
        clients.add(status.subscriptions, name)
        parser.add(1, name, "true")
        store.add(1, name, status.batch_mode, status.buffer_size)
        parts = [part for stream in status.streams for part in stream.parts]
        for number in sorted({part.part for part in parts}):  # canal counts the parsers of a group from 1
            received.add(sum(part.received_bytes for part in parts if part.part == number), name, number)
        if not parts:
            received.add(sum(stream.received_bytes for stream in status.streams), name, 0)
    yield from (instance, flushed, clients, parser, store, received)
    yield from _sources(instances)
    yield from _queues(instances)
    for family, text, read in _COUNTERS:
        counter = Family(f"canal_instance_{family}", "counter", text, "destination")
        for status in instances:
            if status.batch_mode == "MEMSIZE" or not family.endswith("_mem"):
                counter.add(read(status.streams), status.destination)
        yield counter


def _sources(instances: Sequence[InstanceStatus]) -> Iterator[Metric]:
    """Which server each destination reads, and whether it answers."""
    role = Family("canal_source_role", "gauge", "The server read: master or standby.", "destination", "role", "address")
    switches = Family("canal_source_switches", "counter", "Changes of the server.", "destination")
    failures = Family(
        "canal_source_detecting_failures", "gauge", "Detecting statements unanswered in a row.", "destination"
    )
    for status in instances:
        role.add(1, status.destination, status.source_role, status.source_address)
        switches.add(status.source_switches, status.destination)
        failures.add(status.detecting_failures, status.destination)
    yield from (role, switches, failures)


def _queues(instances: Sequence[InstanceStatus]) -> Iterator[Metric]:
    """How much Kafka has of each destination, with canal.serverMode = kafka."""
    commits = Family("canal_queue_commits", "counter", "Transactions of Kafka with changes.", "destination")
    rows = Family("canal_queue_rows", "counter", "Rows and statements in these transactions.", "destination")
    lag = Family("canal_queue_lag_seconds", "gauge", "Age of the newest change in Kafka; 0: all are.", "destination")
    failing = Family("canal_queue_failing", "gauge", "1 while Kafka does not get the changes.", "destination")
    for status in instances:
        if status.queue is not None:
            commits.add(status.queue.commits, status.destination)
            rows.add(status.queue.rows, status.destination)
            if status.queue.lag_s >= 0:
                lag.add(status.queue.lag_s, status.destination)
            failing.add(int(bool(status.queue.error or status.queue.waits_for)), status.destination)
    yield from (commits, rows, lag, failing)


def _sequence(values: Iterable[int]) -> int:
    """Sequences start at -1; together they count entries of all streams, and start at -1 too."""
    return sum(value + 1 for value in values) - 1


Streams = Sequence[StreamStatus]
_COUNTERS: tuple[tuple[str, str, Callable[[Streams], int]], ...] = (
    ("transactions", "Transaction ends.", lambda streams: sum(each.transactions for each in streams)),
    (
        "sink_blocking_time",
        "ms waited for room in the ring.",
        lambda streams: sum(each.sink_blocking_ms for each in streams),
    ),
    ("store_produce_seq", "Entries put, from -1.", lambda streams: _sequence(each.put_seq for each in streams)),
    (
        "store_consume_seq",
        "Entries acknowledged, from -1.",
        lambda streams: _sequence(each.ack_seq for each in streams),
    ),
    ("store_produce_mem", "Bytes put.", lambda streams: sum(each.put_bytes for each in streams)),
    ("store_consume_mem", "Bytes acknowledged.", lambda streams: sum(each.ack_bytes for each in streams)),
    ("put_rows", "Rows put.", lambda streams: sum(each.put_rows for each in streams)),
    ("get_rows", "Rows delivered.", lambda streams: sum(each.get_rows for each in streams)),
    ("ack_rows", "Rows acknowledged.", lambda streams: sum(each.ack_rows for each in streams)),
)


def _delays(instances: Sequence[InstanceStatus], now_ms: float) -> Iterator[Metric]:
    """canal's delays in ms, of the stream farthest behind; none before a first entry."""
    traffic = Family(
        "canal_instance_traffic_delay", "gauge", "ms behind the source when entering the ring.", "destination"
    )
    put = Family("canal_instance_put_delay", "gauge", "ms since the newest entry in a ring ran.", "destination")
    get = Family("canal_instance_get_delay", "gauge", "ms since the newest delivered entry ran.", "destination")
    ack = Family("canal_instance_ack_delay", "gauge", "ms since the newest acknowledged entry ran.", "destination")
    for status in instances:
        behind = [stream.seconds_behind for stream in status.streams if stream.seconds_behind >= 0]
        if behind:
            traffic.add(max(behind) * 1000, status.destination)
        times = [
            (
                stream.put_time_ms,
                min(stream.get_time_ms, stream.put_time_ms),
                min(stream.ack_time_ms, stream.get_time_ms),
            )
            for stream in status.streams
        ]
        for family, column in zip((put, get, ack), zip(*times, strict=True), strict=False):
            known = [time_ms for time_ms in column if time_ms > 0]
            if known:
                family.add(max(0.0, now_ms - min(known)), status.destination)
    yield from (traffic, put, get, ack)


_STREAM_GAUGES: tuple[tuple[str, str, Callable[[StreamStatus], float]], ...] = (
    ("lag_seconds", "Seconds behind the source.", lambda stream: stream.seconds_behind),
    ("lag_bytes", "Binlog bytes behind the source.", lambda stream: stream.bytes_behind),
    ("oldest_unacked_seconds", "Age of the oldest batch in flight.", lambda stream: stream.oldest_unacked_s),
    (
        "purge_in_seconds",
        "Seconds until the source may purge the cursor's journal; 0 if it has.",
        lambda stream: stream.purge_in_s,
    ),
    ("batches_in_flight", "Batches delivered and not acknowledged.", lambda stream: len(stream.batches)),
    ("ring_entries", "Entries in the ring.", lambda stream: stream.ring_entries),
    ("ring_capacity_entries", "Places in the ring.", lambda stream: stream.ring_capacity),
    ("ring_bytes", "Bytes in the ring.", lambda stream: stream.ring_bytes),
    ("ring_capacity_bytes", "Byte budget of the ring.", lambda stream: stream.ring_bytes_budget),
)


def _streams(instances: Sequence[InstanceStatus]) -> Iterator[Metric]:
    """Yield figures of every stream, which canal does not have. An unknown (negative) figure has no sample."""
    pairs = [(status.destination, stream) for status in instances for stream in status.streams]
    state = Family("canal_stream_state", "gauge", "open, parked or failed.", "destination", "client_id", "state")
    for destination, stream in pairs:
        state.add(1, destination, stream.client_id, stream.state)
    yield state
    alarm = Family(
        "canal_stream_alarm",
        "gauge",
        "Alarms: purge, lost, lag, unmoved, blocked, denied.",
        "destination",
        "client_id",
        "alarm",
    )
    for destination, stream in pairs:
        for name in stream.alarms:
            alarm.add(1, destination, stream.client_id, name)
    yield alarm
    behind = Family(
        "canal_stream_source_left_behind",
        "gauge",
        "1 while the merge does not wait for this silent source.",
        "destination",
        "client_id",
        "source",
    )
    for destination, stream in pairs:
        for part in stream.parts:
            behind.add(int(part.left_behind), destination, stream.client_id, part.source_address)
    yield behind
    yield from _snapshots(pairs)
    for name, text, read in _STREAM_GAUGES:
        gauge = Family(f"canal_stream_{name}", "gauge", text, "destination", "client_id")
        for destination, stream in pairs:
            if read(stream) >= 0:
                gauge.add(read(stream), destination, stream.client_id)
        yield gauge


def _snapshots(pairs: Iterable[tuple[str, StreamStatus]]) -> Iterator[Metric]:
    """Yield how far the snapshots of clients have come, also those that ended."""
    labels = ("destination", "client_id")
    phase = Family("canal_snapshot_phase", "gauge", "What the client's last snapshot is doing.", *labels, "phase")
    rows = Family("canal_snapshot_rows", "gauge", "Rows of the snapshot that the client has acknowledged.", *labels)
    total = Family("canal_snapshot_rows_estimated", "gauge", "Rows of its tables, as the server estimates.", *labels)
    rate = Family("canal_snapshot_rows_per_second", "gauge", "Rows acknowledged, over the last minute.", *labels)
    left = Family("canal_snapshot_left_seconds", "gauge", "Until its end, at this rate; none if unknown.", *labels)
    failing = Family(
        "canal_snapshot_failing", "gauge", "1 while the snapshot runs, and its last attempt has failed.", *labels
    )
    for destination, stream in pairs:
        if stream.snapshot:
            phase.add(1, destination, stream.client_id, stream.snapshot["phase"])
            rows.add(stream.snapshot["rows"], destination, stream.client_id)
            total.add(stream.snapshot["total"], destination, stream.client_id)
            rate.add(stream.snapshot["rows_per_s"], destination, stream.client_id)
            if stream.snapshot["left_s"] >= 0:
                left.add(stream.snapshot["left_s"], destination, stream.client_id)
            failing.add(int(bool(stream.snapshot["failing"])), destination, stream.client_id)
    yield from (phase, rows, total, rate, left, failing)


def _port(counters: RequestCounters) -> Iterator[Metric]:
    """What the data port counted."""
    packets = Family("canal_instance_client_packets", "counter", "Answers.", "destination", "packetType")
    for (destination, kind), count in counters.packets.items():
        packets.add(count, destination, kind)
    sent = Family("canal_instance_client_bytes", "counter", "Bytes sent to clients.", "destination")
    for destination, count in counters.bytes.items():
        sent.add(count, destination)
    empty = Family("canal_instance_client_empty_batches", "counter", "Empty answers to GET.", "destination")
    for destination, count in counters.empty_batches.items():
        empty.add(count, destination)
    errors = Family("canal_instance_client_request_error", "counter", "Error answers.", "destination", "errorCode")
    for (destination, code), count in counters.errors.items():
        errors.add(count, destination, code)
    refusals = Family("canal_port_refusals", "counter", "Logins, connections and requests refused.", "reason")
    for reason, count in counters.refusals.items():
        refusals.add(count, reason)
    latency = Family("canal_instance_client_request_latency", "histogram", "Request times, ms.", "destination")
    for destination, times in counters.latency.items():
        for limit, total in zip((*LATENCY_BUCKETS_MS, float("inf")), accumulate(times.buckets), strict=True):
            latency.add_sample(latency.name + "_bucket", {"destination": destination, "le": _number(limit)}, total)
        latency.add_sample(latency.name + "_count", {"destination": destination}, times.count)
        latency.add_sample(latency.name + "_sum", {"destination": destination}, times.sum_ms)
    connections = Family("canal_client_connections", "gauge", "Connections open on the data port.")
    connections.add(counters.connections)
    yield from (packets, sent, empty, errors, refusals, latency, connections)


# ---- text and HTTP


def exposition(families: Iterable[Metric]) -> bytes:
    """Prometheus' text format, version 0.0.4.

    The library's own writer appends `_total` to the name of every counter family; canal's dashboards know none.
    """
    lines = []
    for family in families:
        name = family.name
        if family.type == "counter" and any(sample.name == f"{name}_total" for sample in family.samples):
            name += "_total"  # the library's own counters
        lines.append(f"# HELP {name} {_escaped(family.documentation)}")
        lines.append(f"# TYPE {name} {family.type if family.type != 'unknown' else 'untyped'}")
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            labels = ",".join(f'{key}="{_escaped(value, quote=True)}"' for key, value in sample.labels.items())
            lines.append(
                f"{sample.name}{{{labels}}} {_number(sample.value)}"
                if labels
                else f"{sample.name} {_number(sample.value)}"
            )
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    """A sample's or a bucket's number as Go writes it; counters of bytes keep all their digits."""
    if isinstance(value, int):
        return str(value)
    return floatToGoString(value)  # type: ignore[no-untyped-call, no-any-return] # prometheus_client's


def _escaped(text: str, *, quote: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text


class MetricsPage(Resource):
    """The metrics, under any path as canal serves them."""

    isLeaf = True

    def __init__(
        self, collector: Collector, entrance: Entrance, answers: Callable[[str], bool] = lambda host: True
    ) -> None:
        """Make a page.

        collector: of the node's figures.
        entrance: knows the accounts.
        answers: whether a request's Host header may have this name; see check_host.
        """
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._entrance = entrance
        self._answers = answers
        self._collectors = (collector, PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR)

    def render(self, request: Request) -> bytes:
        """Write everything."""
        try:
            check_host(self._entrance, request, self._answers)
            account, actor = login_of(self._entrance, request)
            if request.method not in (b"GET", b"HEAD"):
                request.setHeader(b"allow", b"GET, HEAD")
                refuse(self._entrance, request, actor, 405, "only GET")
            check_right(self._entrance, account, actor, gate.METRICS)
        except HttpRefusal as refusal:
            request.setResponseCode(refusal.code)
            request.setHeader(b"content-type", b"text/plain; charset=utf-8")
            return f"{refusal}\n".encode()
        request.setHeader(b"content-type", CONTENT_TYPE)
        return exposition(family for collector in self._collectors for family in collector.collect())


def listen(
    reactor: Listener,
    port: int,
    collector: Collector,
    entrance: Entrance,
    bind: str = "",
    certificates: Certificates | None = None,
    probes: Probes | None = None,
) -> IListeningPort | None:
    """Serve the metrics; None when port is 0 or less, or taken: that is logged and stops nobody.

    Two nodes on one host usually share the default port (docs/protocol.md#metrics).

    reactor: Twisted's.
    port: TCP port.
    collector: of the node's figures.
    entrance: knows the accounts.
    bind: address to listen on; "" is every address.
    certificates: for TLS; None: plain HTTP.
    probes: answers /healthz and /readyz.
    """
    if port <= 0:
        return None
    interface = "127.0.0.1" if bind == "localhost" else bind
    # beyond loopback a node has accounts, and Prometheus may know it by any name
    page = MetricsPage(collector, entrance, is_loopback) if is_loopback(interface) else MetricsPage(collector, entrance)
    site = site_of(page, certificates, entrance, probes)
    try:
        listening = reactor.listenTCP(port, site, interface=interface)
    except CannotListenError as error:
        log.warning("metrics.port_taken", port=port, error=str(error.socketError))
        return None
    log.info("metrics.listening", bind=bind or "*", port=port)
    return listening
