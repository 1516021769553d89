"""The configuration of a node and its destinations: frozen, valid once constructed, units in the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any

from canal_ha.config.private_keys import check_key
from canal_ha.config.properties import Layers, Setting
from canal_ha.errors import ConfigError


class BatchMode(Enum):
    """The unit of Get.fetch_size: entries, or units of memory."""

    ITEMSIZE = "ITEMSIZE"
    MEMSIZE = "MEMSIZE"


class CursorPlace(Enum):
    """Where cursors are stored: canal's memory-, file- and default-instance templates."""

    MEMORY = "memory"
    FILE = "file"
    ZOOKEEPER = "zookeeper"


class WhenLost(Enum):
    """canal.instance.position.lost: where to continue if the journal at the cursor is purged."""

    FAIL = "fail"  # do not continue: the stream stops
    EARLIEST = "earliest"  # at the oldest journal that exists
    LATEST = "latest"  # at the newest position
    TIMESTAMP = "timestamp"  # at the cursor's time, less canal.instance.fallbackIntervalInSeconds


class WhenXa(Enum):
    """canal.instance.xa: when the rows of an XA transaction are delivered."""

    COMMIT = "commit"  # at XA COMMIT, and never after XA ROLLBACK
    PREPARE = "prepare"  # at XA PREPARE, as canal does


class FilterMode(Enum):
    """How a client's filter combines with the server's: it replaces it, or both must match."""

    REPLACE = "replace"
    AND = "and"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS towards MySQL. mode: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY; files are PEM paths."""

    mode: str = "PREFERRED"
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @property
    def verified(self) -> bool:
        """Whether the server's certificate is checked, so that nobody can pose as the server."""
        return self.mode in ("VERIFY_CA", "VERIFY_IDENTITY")


@dataclass(frozen=True, slots=True)
class PortTls:
    """TLS of the node's own ports; files are PEM paths.

    ca_file: "" asks clients for no certificate.
    ports: client, metrics, admin.
    """

    cert_file: str
    key_file: str
    ca_file: str = ""
    ports: tuple[str, ...] = ("client",)


NOBODY = "nobody"  # as ZooKeeperAccess.before


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """How to reach ZooKeeper, and as whom; files are PEM paths.

    digest: user:password of ZooKeeper's digest scheme; "" for none.
    sasl: user:password of SASL DIGEST-MD5; "" for none.
    tls: speak TLS; also if one of the files is named.
    ca_file: authorities of the servers' certificates; "": those of the system.
    cert_file: the own certificate; "": none.
    key_file: its key; "": in cert_file.
    world_read: with a digest or SASL, let everybody read who runs a destination and who could.
    before: while the account changes, the digest from before: log in with it too, and share new znodes with it; NOBODY
        if there was no account: leave new znodes open. "" for none.
    """

    digest: str = field(default="", repr=False)
    sasl: str = field(default="", repr=False)
    tls: bool = False
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    world_read: bool = False
    before: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Raise FileUnusable for a key with a password."""
        check_key(self.key_file or self.cert_file)

    @property
    def named(self) -> bool:
        """Whether ZooKeeper knows who we are, so that new znodes can belong to us alone."""
        return bool(self.digest or self.sasl)

    @property
    def closes(self) -> bool:
        """Whether new znodes belong to us alone, or to us and the account before."""
        return self.named and self.before != NOBODY

    @property
    def digests(self) -> tuple[str, ...]:
        """The accounts of the digest scheme to log in with."""
        return tuple(each for each in (self.digest, self.before) if each not in ("", NOBODY))

    @property
    def secured(self) -> bool:
        """Whether the connection is TLS."""
        return self.tls or bool(self.ca_file or self.cert_file)


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """One MySQL or MariaDB server and where to start in its binlog. 0 and "" mean: not configured.

    host: "" for binlog files without a server.
    """

    host: str
    port: int = 3306
    journal: str = ""
    position: int = 0
    timestamp_ms: int = 0
    gtid: str = ""
    tls: TlsConfig = field(default_factory=TlsConfig)

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One of several sources of a destination, with its standby."""

    master: SourceConfig
    standby: SourceConfig | None = None


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Binlog files that replace a server. schema_file: SQL that creates the tables which the files do not create."""

    directory: Path
    schema_file: Path | None = None


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """How a stream turns events into entries (docs/protocol.md#statements, docs/protocol.md#filters)."""

    charset: str = "utf-8"  # canal.instance.connectionCharset as a Python codec name
    gtid_on: bool = False
    transaction_size: int = 1024
    filter_query_dcl: bool = False
    filter_query_dml: bool = False
    filter_query_ddl: bool = False
    filter_rows: bool = False
    filter_table_error: bool = False
    filter_dml_insert: bool = False
    filter_dml_update: bool = False
    filter_dml_delete: bool = False
    filter_transaction_entry: bool = False
    ddl_parser: bool = True  # canal.instance.filter.druid.ddl; False: canal's regular expressions
    field_filter: str = ""
    field_black_filter: str = ""
    privacy_drop: str = ""
    privacy_mask: str = ""
    privacy_hash: str = ""
    privacy_key: str = field(default="", repr=False)
    table_history: bool = True  # canal.instance.tsdb.enable


@dataclass(frozen=True, slots=True)
class Stamp:
    """The state of a file, which shows a change without reading it. changed_ns also moves with its permissions."""

    modified_ns: int
    changed_ns: int
    size_bytes: int
    inode: int


@dataclass(frozen=True, slots=True)
class SnapshotLimits:
    """What a snapshot may ask of its server.

    connections: that read side by side.
    chunk_s: the time that a chunk's SELECT should take.
    rows_most: rows of a chunk.
    bytes_most: of a chunk, as the server sends it.
    rows_per_s: of all connections together, on average; 0: as fast as it goes.
    select_s: the server ends a longer SELECT; 0: never.
    """

    connections: int = 1
    chunk_s: float = 1.0
    rows_most: int = 200_000
    bytes_most: int = 4 << 20
    rows_per_s: int = 0
    select_s: float = 0.0

    def within(self, ring_bytes: int) -> SnapshotLimits:
        """Return the limits for a ring: a chunk is a quarter of it at most, and all connections' together as large."""
        share = ring_bytes // max(4, self.connections)
        return replace(self, bytes_most=max(1, min(self.bytes_most, share)))

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk at most: with a limit of rows a second, those of one second."""
        return min(self.rows_most, self.rows_per_s or self.rows_most)


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """The topics of Kafka that get the changes of one destination.

    pipeline: name in Kafka, in front of the destination's.
    options: of the target, as in the file of a pipeline into Kafka; may hold passwords.
    fetch_size: how much is read from the ring at once.
    fail_on_data_loss: stop if the cursor was moved past changes that Kafka lacks.
    """

    pipeline: str
    options: Mapping[str, Any] = field(repr=False)
    fetch_size: int = 50
    fail_on_data_loss: bool = True


@dataclass(frozen=True, slots=True)
class InstanceConfig:
    """One destination. Two are equal if a destination behaves the same with both.

    local: binlog files to read; `master` then only says where to start and which server knows the tables.
    group: several sources to merge; `master` and `standby` are those of the first.
    """

    destination: str
    master: SourceConfig
    standby: SourceConfig | None = None
    local: LocalFiles | None = None
    group: tuple[GroupMember, ...] = ()
    group_wait_s: float = 30.0
    username: str = "canal"
    password: str = field(default="canal", repr=False)
    default_database: str = ""
    server_id: int = 0  # canal.instance.mysql.slaveId; 0: derived
    filter_regex: str = r".*\..*"
    filter_black_regex: str = ""
    filter_client_mode: FilterMode = FilterMode.REPLACE
    decode: DecodeOptions = field(default_factory=DecodeOptions)
    cursor_place: CursorPlace = CursorPlace.MEMORY
    buffer_size: int = 16384  # entries
    buffer_mem_unit: int = 1024  # bytes
    batch_mode: BatchMode = BatchMode.MEMSIZE
    ddl_isolation: bool = False
    stream_idle_s: float = 300.0
    stream_max: int = 16
    stream_shared: bool = True
    stream_reactor: bool = True
    stream_account_max: int = 16
    read_max: int = 8
    read_account_max: int = 4
    read_idle_s: float = 600.0
    clients_max: int = 256
    clients_account_max: int = 128
    so_timeout_s: float = 30.0
    receive_buffer_bytes: int = 1 << 20
    fallback_interval_s: int = 60
    detecting_enable: bool = False
    detecting_sql: str = ""
    detecting_interval_s: float = 3.0
    detecting_retry_threshold: int = 3
    detecting_heartbeat_ha: bool = False
    binlog_formats: tuple[str, ...] = ("ROW", "STATEMENT", "MIXED")
    binlog_images: tuple[str, ...] = ("FULL", "MINIMAL", "NOBLOB")
    tsdb_dir: str = ""
    tsdb_in_zookeeper: bool = True
    tsdb_url: str = ""
    tsdb_username: str = ""
    tsdb_password: str = field(default="", repr=False)
    tsdb_tls: TlsConfig = field(default_factory=TlsConfig)
    tsdb_snapshot_interval_h: int = 24
    tsdb_snapshot_expire_h: int = 360
    lazy: bool = False
    preferred_labels: tuple[str, ...] = ()  # name=value; of the nodes that shall run it
    alarm_lag_s: float = 300.0
    alarm_unmoved_s: float = 300.0
    alarm_blocked_s: float = 30.0
    snapshot: SnapshotLimits = field(default_factory=SnapshotLimits)
    position_lost: WhenLost = WhenLost.FAIL
    xa: WhenXa = WhenXa.COMMIT
    xa_bytes: int = 16777216
    data_dir: Path = Path("conf")  # directory that holds <destination>/meta.dat
    file_flush_period_ms: int = 1000
    queue: QueueConfig | None = None  # canal.serverMode = kafka
    stamp: Stamp | None = field(default=None, compare=False)  # file state before reading; None: no file
    layers: Layers | None = field(default=None, compare=False, repr=False)  # the settings that it was made of

    @property
    def source_name(self) -> str:
        """The address or directory that the rows come from."""
        if self.local:
            return str(self.local.directory)
        masters = [member.master for member in self.group] or [self.master]
        return ", ".join(f"{master.host}:{master.port}" for master in masters)

    @property
    def members(self) -> tuple[InstanceConfig, ...]:
        """One configuration for each of several sources, named `<destination>/<number>`, from 1.

        Each source has its own directory and its own name as a replica.
        """
        return tuple(
            replace(
                self,
                destination=f"{self.destination}/{number}",
                master=member.master,
                standby=member.standby,
                group=(),
                tsdb_dir=self.tsdb_dir and str(Path(self.tsdb_dir) / str(number)),
            )
            for number, member in enumerate(self.group, start=1)
        )


@dataclass(frozen=True, slots=True)
class RefusedDestination:
    """A destination with an unusable configuration, and the error.

    layers: the settings that were read; None if its file cannot be read.
    """

    destination: str
    error: ConfigError
    layers: Layers | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CanalConfig:
    """The configuration of one node."""

    conf_dir: Path  # directory of <destination>/instance.properties
    destinations: tuple[InstanceConfig, ...]
    ip: str = ""  # "" binds every address
    register_ip: str = ""
    port: int = 11111
    user: str = ""
    passwd: str = field(default="", repr=False)  # hex(SHA1(SHA1(plain))), "": any password is accepted
    accounts_file: Path | None = None
    insecure: bool = False
    tls: PortTls | None = None
    login_timeout_s: int = 10
    connections_max: int = 5000
    address_connections_max: int = 2500
    ahead_bytes: int = 256 * 1024 * 1024
    reply_bytes: int = 1024 * 1024 * 1024
    metrics_port: int = 11112  # <= 0: off
    metrics_bind: str = ""  # "" listens on every address
    admin_http_port: int = 8089  # < 0: off; 0: any free port
    admin_http_bind: str = "127.0.0.1"
    admin_http_secrets: Path | None = None
    admin_port: int = 0  # of canal's admin protocol; <= 0: off
    admin_user: str = ""
    admin_passwd: str = field(default="", repr=False)  # hex(SHA1(SHA1(plain)))
    zk_servers: str = ""
    zk_session_timeout_ms: int = 6000
    zk_flush_period_ms: int = 1000
    labels: tuple[str, ...] = ()  # name=value
    rebalance_delay_s: float = 10.0  # < 0: only on request
    rebalance_interval_s: float = 1.0
    zk_access: ZooKeeperAccess = field(default_factory=ZooKeeperAccess)
    without_netty: bool = False
    max_frame_bytes: int = 16 * 1024 * 1024
    auto_scan: bool = True
    auto_scan_interval_s: float = 5.0
    log_dir: Path = Path("logs")
    log_format: str = "text"  # or json
    audit_file: Path | None = None  # None: no audit log
    alarm_file: Path | None = None
    warnings: tuple[str, ...] = ()  # unknown or ignored keys, for the log at start
    main_file: Path = Path("conf/canal.properties")  # the loaded file, for loading one destination again
    sets: tuple[str, ...] = field(default=(), repr=False)  # key=value arguments; may hold passwords
    refused: tuple[RefusedDestination, ...] = ()  # destinations with unusable configurations
    listed: tuple[str, ...] = ()  # canal.destinations
    main: Mapping[str, Setting] = field(default_factory=dict, repr=False)  # the settings in main_file; with passwords
    given: Mapping[str, str] = field(default_factory=dict, repr=False)  # settings of a program; may hold passwords
    layers: Layers = field(default_factory=lambda: Layers(()), repr=False)  # the settings that it was made of

    @property
    def operator_token_file(self) -> Path:
        """The token that switches sources on a node without accounts."""
        return self.log_dir / "canal" / "operator.token"

    @property
    def status_address_file(self) -> Path:
        """Where the running node says on which address its status endpoint listens."""
        return self.log_dir / "canal" / "status.address"
