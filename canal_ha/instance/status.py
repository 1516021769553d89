"""The status of an instance for status pages and metrics: plain numbers, taken at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from canal_ha.model.position import LogPosition


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One source of a stream that merges several.

    part: its number, from 1.
    source_address: host:port of the server that is read.
    decoded: the newest event decoded.
    received_bytes: bytes received from this source since the stream opened.
    last_event_ms: time of its last event, ms since 1970; 0 before the first one.
    idle: whether the source has reported that nothing newer exists.
    left_behind: whether it is silent, and the merge does not wait for it at the moment.
    error: why it cannot be read; "" while it can.
    """

    part: int
    source_address: str
    decoded: LogPosition | None = None
    received_bytes: int = 0
    last_event_ms: int = 0
    idle: bool = False
    left_behind: bool = False
    error: str = ""


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """One client id's stream. A figure that is unknown is -1.

    client_id: the client's.
    filter: the table filter of its subscription; "" where it has none and the server's holds.
    state: open (reads the source), parked (nobody asks, so it does not read) or failed (stopped by an error).
    error: why it cannot read; "" while it can.
    cursor: the acknowledged position.
    decoded: the newest event decoded.
    put_seq: sequence number of the newest entry in the ring; the first entry of a ring has 0.
    get_seq: sequence number of the newest entry delivered.
    ack_seq: sequence number of the newest entry acknowledged.
    put_bytes: bytes of entries put into the ring.
    ack_bytes: bytes of entries acknowledged.
    put_rows: rows put into the ring.
    get_rows: rows delivered.
    ack_rows: rows acknowledged.
    put_time_ms: when the newest entry in the ring was executed at the source, ms since 1970.
    get_time_ms: when the newest entry delivered was executed at the source, ms since 1970.
    ack_time_ms: when the newest entry acknowledged was executed at the source, ms since 1970.
    transactions: transaction ends put into the ring.
    shared: whether it reads the newest part of the binlog from a dump that it shares with other streams.
    tap: name of the dump for 16 or more streams of a server that it reads, as in the server's list of replicas; ""
        where it reads another one. `shared` is true too then.
    lent: whether the thread that answers clients reads its dump.
    received_bytes: bytes received from the source since the stream opened. Those of a dump that streams with equal
        filters share count for one of them; those of a dump for 16 or more streams of a server count for each.
    sink_blocking_ms: how long the reader has waited for room in the ring, ms.
    ring_entries: entries in the ring.
    ring_capacity: places in the ring.
    ring_bytes: bytes in the ring.
    ring_bytes_budget: bytes that the ring may hold.
    batches: ids of the batches in flight: delivered and not acknowledged.
    waiting: GETs of the client that wait for rows.
    oldest_unacked_s: age of the oldest batch in flight, s.
    seconds_behind: lag behind the source, s.
    bytes_behind: lag behind the source, bytes of binlog.
    purge_in_s: until the source may purge the cursor's journal, s; 0: it has purged it.
    alarms: purge, lost, lag, unmoved, blocked, denied; see canal_ha.instance.alarms.
    parts: the sources, where the stream merges several.
    snapshot: the state of the client's last snapshot, by the fields of SnapshotState, with `rows_per_s` of the last
        minute, `left_s`, -1 while nobody can tell it, `failing`, why it cannot go on now, and `retry_in_s`; None if
        it never had one.
    """

    client_id: int
    filter: str
    state: str
    error: str = ""
    cursor: LogPosition | None = None
    decoded: LogPosition | None = None
    put_seq: int = -1
    get_seq: int = -1
    ack_seq: int = -1
    put_bytes: int = 0
    ack_bytes: int = 0
    put_rows: int = 0
    get_rows: int = 0
    ack_rows: int = 0
    put_time_ms: int = 0
    get_time_ms: int = 0
    ack_time_ms: int = 0
    transactions: int = 0
    shared: bool = False
    tap: str = ""
    lent: bool = False
    received_bytes: int = 0
    sink_blocking_ms: int = 0
    ring_entries: int = 0
    ring_capacity: int = 0
    ring_bytes: int = 0
    ring_bytes_budget: int = 0
    batches: tuple[int, ...] = ()
    waiting: int = 0
    oldest_unacked_s: float = -1.0
    seconds_behind: float = -1.0
    bytes_behind: int = -1
    purge_in_s: float = -1.0
    alarms: tuple[str, ...] = ()
    parts: tuple[PartStatus, ...] = ()
    snapshot: Mapping[str, Any] | None = None

    @property
    def blocked(self) -> bool:
        """Whether the ring has no room and everything in it is handed out: only an ACK or a roll-back helps."""
        entries, size = self.ring_entries, self.ring_bytes
        full = bool(self.ring_capacity) and (entries >= self.ring_capacity or size >= self.ring_bytes_budget)
        return full and self.get_seq == self.put_seq


@dataclass(frozen=True, slots=True)
class ReaderStatus:
    """One connection that reads a destination.

    client_id: the client's.
    account: name of the account that logged in; "" on a node without accounts.
    address: IP address of the client.
    private: whether it reads from a position, without a cursor.
    """

    client_id: int
    account: str
    address: str
    private: bool = False


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Which server is read.

    address: host:port.
    role: master or standby.
    server: its server_uuid, or on MariaDB its server id; "" while unknown.
    switches: changes of the server since this node runs the destination; a change behind the same address counts too.
    detecting_failures: detecting statements in a row that it has not answered.
    """

    address: str
    role: str = "master"
    server: str = ""
    switches: int = 0
    detecting_failures: int = 0


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Where the changes of a destination go with canal.serverMode = kafka.

    servers: the brokers, as configured.
    position: of the last change that Kafka has; null before the first.
    commits: transactions of Kafka since this node runs the destination.
    rows: rows and statements in them.
    lag_s: age of the newest change in Kafka while others wait, s; 0 when all are there; -1 while unknown.
    waits_for: what it waits for; "" while it works.
    error: why it stands still; "" while it works.
    """

    servers: str
    position: LogPosition | None = None
    commits: int = 0
    rows: int = 0
    lag_s: float = -1.0
    waits_for: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One running destination.

    destination: name of the destination.
    source_address: host:port of the server that is read, or the directory of binlog files.
    source_version: the server's version; "" while unknown.
    source_error: why the source is not healthy; "" while it is.
    newest: where the source's binlog ended when the node last asked.
    batch_mode: what the size of a GET counts: MEMSIZE or ITEMSIZE.
    buffer_size: places in the ring of a stream.
    subscriptions: clients that have subscribed.
    streams: one for each client id that has a stream on this node.
    source_role: master or standby.
    source_server: the server's server_uuid, or on MariaDB its server id; "" while unknown.
    source_switches: changes of the server since this node runs the destination.
    detecting_failures: detecting statements in a row that the server has not answered.
    readers: the connections that read it; see ReaderStatus.
    queue: where its changes go instead of to clients; null if clients take them. See QueueStatus.
    flush_age_s: since everything acknowledged was last made durable, or since the start, s. It is not about one cursor
        that the store refuses.
    """

    destination: str
    source_address: str
    source_version: str = ""
    source_error: str = ""
    newest: LogPosition | None = None
    batch_mode: str = "MEMSIZE"
    buffer_size: int = 0
    subscriptions: int = 0
    streams: tuple[StreamStatus, ...] = field(default=())
    source_role: str = "master"
    source_server: str = ""
    source_switches: int = 0
    detecting_failures: int = 0
    readers: tuple[ReaderStatus, ...] = ()
    queue: QueueStatus | None = None
    flush_age_s: float = -1.0
