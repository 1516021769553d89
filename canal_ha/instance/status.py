"""What an instance says of itself to status pages and metrics: plain numbers, taken at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from canal_ha.model.position import LogPosition


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One source of a stream that merges several. left_behind: the others do not wait for it at the moment."""

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
    """One client id's stream. Sequences start at -1; times in seconds; -1.0 where a figure is unknown."""

    client_id: int
    filter: str
    state: str  # open, parked, failed
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
    put_time_ms: int = 0  # executeTime of the newest entry put, got, acknowledged
    get_time_ms: int = 0
    ack_time_ms: int = 0
    transactions: int = 0
    received_bytes: int = 0
    sink_blocking_ms: int = 0
    ring_entries: int = 0
    ring_capacity: int = 0
    ring_bytes: int = 0
    ring_bytes_budget: int = 0
    batches: tuple[int, ...] = ()
    oldest_unacked_s: float = -1.0
    seconds_behind: float = -1.0
    bytes_behind: int = -1
    purge_in_s: float = -1.0  # until the source may purge the cursor's journal; 0.0: it has
    alarms: tuple[str, ...] = ()  # purge, lag, unmoved, blocked: see instance.alarms
    parts: tuple[PartStatus, ...] = ()  # of several sources

    @property
    def blocked(self) -> bool:
        """Whether the ring has no room and everything in it is handed out: only an ACK or a roll-back helps."""
        entries, size = self.ring_entries, self.ring_bytes
        full = bool(self.ring_capacity) and (entries >= self.ring_capacity or size >= self.ring_bytes_budget)
        return full and self.get_seq == self.put_seq


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """Which server is read. role: master or standby; server: its server_uuid, or on MariaDB its server id, "" while
    unknown; switches: since this node runs the destination, and changes of the server behind the address too;
    detecting_failures: how often in a row it did not answer the detecting statement.
    """

    address: str
    role: str = "master"
    server: str = ""
    switches: int = 0
    detecting_failures: int = 0


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """One running destination. source_role, source_server, source_switches, detecting_failures: see SourceFacts."""

    destination: str
    source_address: str
    source_version: str = ""
    source_error: str = ""
    newest: LogPosition | None = None  # where the source's binlog stood when last asked
    batch_mode: str = "MEMSIZE"
    buffer_size: int = 0
    subscriptions: int = 0
    streams: tuple[StreamStatus, ...] = field(default=())
    source_role: str = "master"
    source_server: str = ""
    source_switches: int = 0
    detecting_failures: int = 0
