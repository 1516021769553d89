"""All supported keys, with kind, unit, default and meaning.

This table serves parsing, warnings about unknown keys, and the test that conf/ documents every key.
Defaults are written as in a file. Source: docs/protocol.md#keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from canal_ha.config import kinds
from canal_ha.config.kinds import ValueKind
from canal_ha.config.model import BatchMode, FilterMode, WhenLost, WhenXa

T = TypeVar("T", covariant=True)

PORT_MAX = 65535
INT32 = 2**31 - 1
INT64 = 2**63 - 1
SNAPSHOT_CONNECTIONS_MOST = 16
SSL_MODES = ("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY")


class KeyFile(Enum):
    """The file that a key belongs to."""

    NODE = "canal.properties"
    SHARED = "canal.properties, as the default of all destinations, or instance.properties"
    INSTANCE = "instance.properties"


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One key.

    name: as written in a file.
    kind: how a value is read.
    default: as written in a file.
    meaning: one phrase, for conf/ and the reference.
    unit: "" for words, switches and counts.
    place: the file that the key belongs to.
    secret: never show the value.
    """

    name: str
    kind: ValueKind[T]
    default: str
    meaning: str
    unit: str = ""
    place: KeyFile = KeyFile.NODE
    secret: bool = False

    @property
    def names_file(self) -> bool:
        """Whether a value is the path of a file or of a directory."""
        return self.unit in _UNITS_OF_PATHS


_UNITS_OF_PATHS = frozenset({"file", "directory", "PEM file", "SQL file"})
_table: list[Key[Any]] = []


def _node(name: str, kind: ValueKind[T], default: str, meaning: str, unit: str = "", *, secret: bool = False) -> Key[T]:
    key = Key(name, kind, default, meaning, unit, KeyFile.NODE, secret)
    _table.append(key)
    return key


def _shared(
    name: str, kind: ValueKind[T], default: str, meaning: str, unit: str = "", *, secret: bool = False
) -> Key[T]:
    key = Key("canal." + name, kind, default, meaning, unit, KeyFile.SHARED, secret)
    _table.append(key)
    return key


def _instance(
    name: str, kind: ValueKind[T], default: str, meaning: str, unit: str = "", *, secret: bool = False
) -> Key[T]:
    key = Key("canal.instance." + name, kind, default, meaning, unit, KeyFile.INSTANCE, secret)
    _table.append(key)
    return key


def _queue(name: str, kind: ValueKind[T], default: str, meaning: str, unit: str = "") -> Key[T]:
    key = Key("canal.mq." + name, kind, default, meaning, unit, KeyFile.INSTANCE)
    _table.append(key)
    return key


# ---- the node and its ports

IP = _node("canal.ip", kinds.text(), "", "address that the data port listens on; blank: every address")
REGISTER_IP = _node(
    "canal.register.ip",
    kinds.text(),
    "",
    "address published in ZooKeeper; blank: canal.ip, or else the detected address",
)
PORT = _node("canal.port", kinds.whole(0, PORT_MAX), "11111", "port of canal's protocol", "TCP port")
USER = _node("canal.user", kinds.text(), "", "user name that clients must send; blank: any name is accepted")
PASSWD = _node(
    "canal.passwd",
    kinds.password_hash(),
    "",
    "password of canal.user as hex(SHA1(SHA1(password)))",
    "40 hex digits",
    secret=True,
)
ACCOUNTS_FILE = _node(
    "canal.accounts.file", kinds.path(), "", "TOML file of accounts; read again when it changes", "file"
)
TLS_CERT = _node(
    "canal.tls.cert", kinds.path(), "", "PEM file of the node's certificate, with its chain; blank: no TLS", "file"
)
TLS_KEY = _node("canal.tls.key", kinds.path(), "", "PEM file of its key; blank: the certificate's file", "file")
TLS_CA = _node(
    "canal.tls.ca",
    kinds.path(),
    "",
    "PEM file of the authorities of client certificates, which can name an account; blank: clients need none. The page"
    " of a node checks the certificates of other nodes with it too",
    "file",
)
TLS_PORTS = _node(
    "canal.tls.ports", kinds.words("client", "metrics", "admin"), "client", "the ports that speak TLS and nothing else"
)
INSECURE = _node(
    "canal.insecure",
    kinds.switch(),
    "false",
    "without accounts, listen beyond this machine all the same; everybody there can read every row",
)
LOGIN_TIMEOUT = _node(
    "canal.client.login.timeout", kinds.whole(1, 3600), "10", "a connection without a login is closed after it", "s"
)
CONNECTIONS = _node(
    "canal.client.connections.max", kinds.whole(1, INT32), "5000", "open connections of clients", "connections"
)
ADDRESS_CONNECTIONS = _node(
    "canal.client.connections.address.max",
    kinds.whole(1, INT32),
    "2500",
    "open connections of clients from one address; in IPv6 from one /64 network",
    "connections",
)
AHEAD_BYTES = _node(
    "canal.client.ahead.bytes",
    kinds.whole(65536, INT64),
    str(256 * 1024 * 1024),
    "memory for requests that all clients together have sent ahead; beyond it, the account or address that holds most "
    "loses the connection that holds most",
    "bytes",
)
REPLY_BYTES = _node(
    "canal.client.replies.bytes",
    kinds.whole(1024 * 1024, INT64),
    str(1024 * 1024 * 1024),
    "memory for replies that clients have not read yet; beyond it, the account or address that holds most loses its "
    "oldest connection",
    "bytes",
)
MAX_FRAME = _node(
    "canal.max.frame.bytes",
    kinds.whole(4096, INT32),
    str(16 * 1024 * 1024),
    "longest packet accepted from a client",
    "bytes",
)
WITHOUT_NETTY = _node("canal.withoutNetty", kinds.switch(), "false", "do not open the data port")
SERVER_MODE = _node(
    "canal.serverMode",
    kinds.server_mode(),
    "tcp",
    "tcp: clients connect to this node; kafka: the node writes all changes to Kafka, and opens no data port",
)
METRICS_PORT = _node(
    "canal.metrics.pull.port",
    kinds.whole(-1, PORT_MAX),
    "11112",
    "port of the Prometheus metrics; 0 or less: no metrics",
    "TCP port",
)
METRICS_BIND = _node("canal.metrics.pull.bind", kinds.text(), "", "address that the metrics listen on; blank: canal.ip")
ADMIN_PORT = _node(
    "canal.admin.http.port",
    kinds.whole(-1, PORT_MAX),
    "8089",
    "port of the status endpoint (/api/v1/status); if it is in use, a free port is taken; less than 0: no endpoint",
    "TCP port",
)
ADMIN_BIND = _node("canal.admin.http.bind", kinds.text(), "127.0.0.1", "address that the status endpoint listens on")
ADMIN_SECRETS = _node(
    "canal.admin.http.secrets",
    kinds.path(),
    "",
    "directory of the files that a destination may name which is added over HTTP; blank: it may name none",
    "directory",
)
CONSOLE_PORT = _node(
    "canal.admin.port",
    kinds.whole(-1, PORT_MAX),
    "0",
    "port of canal's admin protocol, for canal-admin, on the address of canal.ip; 0 or less: not opened",
    "TCP port",
)
CONSOLE_USER = _node(
    "canal.admin.user",
    kinds.text(),
    "",
    "user name of canal's admin protocol, besides the accounts; blank: any name is accepted",
)
CONSOLE_PASSWD = _node(
    "canal.admin.passwd",
    kinds.password_hash(),
    "",
    "password of canal.admin.user, as canal.passwd. Without it, and without accounts, the port only tells what runs;"
    " with the hash of admin, it opens on loopback only",
    "40 hex digits",
    secret=True,
)
LOG_DIR = _node("canal.log.dir", kinds.text(), "../logs", "directory of the log files", "directory")
LOG_FORMAT = _node(
    "canal.log.format", kinds.word("text", "json"), "text", "format of the log lines: text or JSON objects"
)
AUDIT = _node(
    "canal.audit",
    kinds.word("accounts", "on", "off"),
    "accounts",
    "write the audit log: accounts writes it once the node has accounts, canal.user and canal.admin.user among them",
)
AUDIT_FILE = _node(
    "canal.audit.file",
    kinds.path(),
    "",
    "the audit log; blank: audit/audit.log in canal.log.dir. It rotates as the logs do",
    "file",
)
ALARM_FILE = _node(
    "canal.alarm.file",
    kinds.path(),
    "",
    "TOML file of handlers that tell people about alarms; blank: the log and the status alone",
    "file",
)

# ---- Kafka, with canal.serverMode = kafka

KAFKA_SERVERS = _node("kafka.bootstrap.servers", kinds.text(), "", "brokers to begin with", "host:port list")
MQ_FLAT = _node(
    "canal.mq.flatMessage",
    kinds.switch(),
    "true",
    "messages are canal's FlatMessage as JSON; false: canal's protobuf Message",
)
MQ_BATCH = _node(
    "canal.mq.canalBatchSize",
    kinds.whole(1, INT32),
    "50",
    "how much is read from the ring at once",
    "KiB, or entries with batch.mode ITEMSIZE",
)
MQ_DATABASE_HASH = _node(
    "canal.mq.database.hash", kinds.switch(), "true", "the schema's name counts in the hash of canal.mq.partitionHash"
)
MQ_NAME = _node(
    "canal.mq.pipeline.name",
    kinds.pipeline_name(),
    "canal",
    "name of this cluster in Kafka, in transactional ids and in the progress; two clusters need two names",
)
MQ_PROGRESS = _node(
    "canal.mq.progress.topic",
    kinds.text(),
    "canal-ha.progress",
    "compacted topic in which destinations keep how far they are; it is created if it is missing",
    "topic",
)
MQ_DATA_LOSS = _node(
    "canal.mq.failOnDataLoss",
    kinds.switch(),
    "true",
    "stop, with an alarm, if the cursor was moved past changes that Kafka lacks; false: go on without them",
)

# ---- ZooKeeper

ZK_SERVERS = _node(
    "canal.zkServers", kinds.zookeepers(), "", "ZooKeeper servers; blank: this node runs alone", "host:port list"
)
ZK_SESSION = _node(
    "canal.zookeeper.session.timeout",
    kinds.whole(1000, INT32),
    "6000",
    "requested session timeout; a dead node is replaced after about this time",
    "ms",
)
ZK_FLUSH = _node(
    "canal.zookeeper.flush.period",
    kinds.whole(0, INT32),
    "1000",
    "interval between writes of cursors to ZooKeeper; 0: write before each ack completes",
    "ms",
)
ZK_AUTH = _node(
    "canal.zookeeper.auth",
    kinds.credentials(),
    "",
    "account of ZooKeeper's digest scheme; new znodes belong to it alone",
    "user:password",
    secret=True,
)
ZK_SASL = _node(
    "canal.zookeeper.sasl",
    kinds.credentials(),
    "",
    "account of SASL DIGEST-MD5 at the ZooKeeper servers; new znodes belong to it alone",
    "user:password",
    secret=True,
)
ZK_BEFORE = _node(
    "canal.zookeeper.auth.before",
    kinds.earlier_credentials(),
    "",
    "while zookeeper.auth changes: the account of the digest scheme from before, which new znodes belong to as well;"
    " nobody: there was none, and new znodes stay open",
    "user:password",
    secret=True,
)
ZK_WORLD_READ = _node(
    "canal.zookeeper.world.read",
    kinds.switch(),
    "false",
    "with zookeeper.auth or zookeeper.sasl: everybody may read which node runs a destination, and which could",
)
ZK_TLS = _node("canal.zookeeper.tls", kinds.switch(), "false", "TLS to ZooKeeper; also if one of its files is set")
ZK_TLS_CA = _node(
    "canal.zookeeper.tls.ca", kinds.path(), "", "authorities of the ZooKeeper servers; blank: the system's", "PEM file"
)
ZK_TLS_CERT = _node("canal.zookeeper.tls.cert", kinds.path(), "", "certificate of this node for ZooKeeper", "PEM file")
ZK_TLS_KEY = _node(
    "canal.zookeeper.tls.key", kinds.path(), "", "its private key; blank: it is in the same file", "PEM file"
)

# ---- placement

LABELS = _node(
    "canal.node.labels", kinds.labels(), "", "labels of this node, as zone=a,disk=ssd; destinations can prefer them"
)
REBALANCE_DELAY = _node(
    "canal.cluster.rebalance.delay",
    kinds.decimal(-1),
    "10",
    "after no node came or went for this time, destinations move until all nodes run about as many; -1: never",
    "s",
)
REBALANCE_INTERVAL = _node(
    "canal.cluster.rebalance.interval",
    kinds.decimal(0),
    "1",
    "time between two of these moves; one destination moves at a time",
    "s",
)

# ---- destinations

DESTINATIONS = _node("canal.destinations", kinds.names(), "", "comma-separated destinations to serve")
DESTINATIONS_EXPR = _node(
    "canal.destinations.expr",
    kinds.numbered_names(),
    "",
    "numbered destinations instead of the list: prefix{1-32} is prefix1 to prefix32",
)
CONF_DIR = _node(
    "canal.conf.dir",
    kinds.text(),
    "../conf",
    "directory of <destination>/instance.properties; ../conf means the directory of --conf",
    "directory",
)
AUTO_SCAN = _node(
    "canal.auto.scan",
    kinds.switch(),
    "false",
    "start, reload and stop destinations when their files in canal.conf.dir appear, change and go",
)
AUTO_SCAN_INTERVAL = _node(
    "canal.auto.scan.interval", kinds.decimal(0.1), "5", "interval between scans of canal.conf.dir", "s"
)
TEMPLATE = _node(
    "canal.instance.global.spring.xml",
    kinds.template(),
    "classpath:spring/default-instance.xml",
    "instance template. default-instance keeps cursors in ZooKeeper, or in files if canal.zkServers is "
    "blank; file-instance in files; memory-instance in memory. local-instance is default-instance with a "
    "directory of binlog files as source; group-instance is default-instance with several merged sources",
)
LAZY = _node(
    "canal.instance.global.lazy", kinds.switch(), "false", "start a destination at the first request of a client"
)

# ---- defaults of all destinations

DATA_DIR = _shared(
    "file.data.dir", kinds.text(), "../conf", "directory of <destination>/meta.dat, the file of cursors", "directory"
)
FILE_FLUSH = _shared(
    "file.flush.period", kinds.whole(0, INT32), "1000", "interval between writes of cursors to files", "ms"
)
AUTO_RESET = _shared(
    "auto.reset.latest.pos.mode",
    kinds.switch(),
    "false",
    "if the journal at the cursor is purged, start at the newest position; the rows between are lost",
)
POSITION_LOST = _shared(
    "instance.position.lost",
    kinds.member(WhenLost),
    "fail",
    "what to do if the journal at the cursor is purged: fail stops the stream until an operator acts; "
    "earliest, latest and timestamp (the cursor's time) continue from there and lose the rows between. "
    "Overrides auto.reset.latest.pos.mode",
)
PRIVACY_KEY = _shared(
    "instance.privacy.key",
    kinds.secret(16),
    "",
    "secret key of hashed columns, of at least 16 characters; ${file:NAME} reads it from a file",
    secret=True,
)
BUFFER_SIZE = _shared(
    "instance.memory.buffer.size", kinds.whole(1, INT32), "16384", "capacity of a stream's ring", "entries"
)
BUFFER_UNIT = _shared(
    "instance.memory.buffer.memunit",
    kinds.whole(1, INT32),
    "1024",
    "memory budget of a stream's ring, divided by memory.buffer.size",
    "bytes",
)
BATCH_MODE = _shared(
    "instance.memory.batch.mode",
    kinds.member(BatchMode),
    "MEMSIZE",
    "what the size of a GET counts: memory units (MEMSIZE) or entries (ITEMSIZE)",
)
STREAM_IDLE = _shared(
    "instance.stream.idle",
    kinds.decimal(0),
    "300",
    "park a stream after this time without a GET; a parked stream has no connection to MySQL",
    "s",
)
STREAM_MAX = _shared(
    "instance.stream.max", kinds.whole(1, 10_000), "16", "largest number of open streams of one destination", "streams"
)
STREAM_SHARED = _shared(
    "instance.stream.shared",
    kinds.switch(),
    "true",
    "streams with equal filters, and 16 or more of a server, read the newest part of the binlog from one dump",
)
STREAM_REACTOR = _shared(
    "instance.stream.reactor",
    kinds.switch(),
    "true",
    "the thread that answers clients reads the newest part of the binlog itself, while transactions are small",
)
STREAM_ACCOUNT_MAX = _shared(
    "instance.stream.account.max",
    kinds.whole(1, 10_000),
    "16",
    "largest number of open streams of one account on one destination",
    "streams",
)
READ_MAX = _shared(
    "instance.read.max", kinds.whole(1, 10_000), "8", "largest number of private reads of one destination", "reads"
)
READ_ACCOUNT_MAX = _shared(
    "instance.read.account.max",
    kinds.whole(1, 10_000),
    "4",
    "largest number of private reads of one account on one destination",
    "reads",
)
READ_IDLE = _shared(
    "instance.read.idle",
    kinds.decimal(0),
    "600",
    "end a private read after this time without a GET",
    "s",
)
CLIENT_IDS = _shared(
    "instance.clients.max",
    kinds.whole(1, 65_536),
    "256",
    "largest number of client ids of one destination; those that exist stay, and new ones are refused",
    "client ids",
)
CLIENT_IDS_OF_ACCOUNT = _shared(
    "instance.clients.account.max",
    kinds.whole(1, 65_536),
    "128",
    "largest number of client ids of one destination that one account has used since the node runs it; one that exists"
    " is never refused",
    "client ids",
)
ALARM_LAG = _shared(
    "instance.alarm.lag",
    kinds.decimal(0),
    "300",
    "raise an alarm if a stream is farther behind its source; 0: never",
    "s",
)
ALARM_UNMOVED = _shared(
    "instance.alarm.unmoved",
    kinds.decimal(0),
    "300",
    "raise an alarm if a cursor does not move for this time while rows wait; 0: never",
    "s",
)
ALARM_BLOCKED = _shared(
    "instance.alarm.blocked",
    kinds.decimal(0),
    "30",
    "raise an alarm if a ring is full of unacknowledged batches for this time; 0: never",
    "s",
)
PREFERRED_LABELS = _shared(
    "instance.placement.prefer",
    kinds.labels(),
    "",
    "labels of the nodes that shall run the destination while one of them is alive; blank: any node",
)
SNAPSHOT_CONNECTIONS = _shared(
    "instance.snapshot.connections",
    kinds.whole(1, SNAPSHOT_CONNECTIONS_MOST),
    "1",
    "connections over which a snapshot reads the existing rows of tables at the same time",
    "connections",
)
SNAPSHOT_RATE = _shared(
    "instance.snapshot.rowsPerSecond",
    kinds.whole(0, INT32),
    "0",
    "rows a second of one snapshot at most, on average; 0: as fast as the server and the client are",
    "rows/s",
)
SNAPSHOT_EXECUTION = _shared(
    "instance.snapshot.executionTime",
    kinds.decimal(0),
    "0",
    "the server ends a SELECT of a snapshot that takes longer, and a smaller one follows; 0: never",
    "s",
)
SNAPSHOT_CHUNK_TIME = _shared(
    "instance.snapshot.chunk.time",
    kinds.decimal(0.01),
    "1",
    "the time that each SELECT of a snapshot should take; its number of rows adapts to it",
    "s",
)
SNAPSHOT_CHUNK_ROWS = _shared(
    "instance.snapshot.chunk.rows",
    kinds.whole(1, 10_000_000),
    "200000",
    "most rows that one SELECT of a snapshot asks for",
    "rows",
)
SNAPSHOT_CHUNK_BYTES = _shared(
    "instance.snapshot.chunk.bytes",
    kinds.whole(65536, INT32),
    str(4 * 1024 * 1024),
    "most bytes of one SELECT of a snapshot; less if the ring of the stream is small",
    "bytes",
)
DDL_ISOLATION = _shared(
    "instance.get.ddl.isolation", kinds.switch(), "false", "deliver each DDL entry in a batch of its own"
)
TRANSACTION_SIZE = _shared(
    "instance.transaction.size",
    kinds.whole(1, INT32),
    "1024",
    "transactions with more entries are delivered in pieces",
    "entries",
)
XA = _shared(
    "instance.xa",
    kinds.member(WhenXa),
    "commit",
    "when the rows of an XA transaction are delivered: commit, never after XA ROLLBACK; or prepare, as canal does",
)
XA_BYTES = _shared(
    "instance.xa.bytes",
    kinds.whole(0, INT32),
    "16777216",
    "memory of a stream for the rows of XA transactions that are prepared; beyond it they are read from the binlog "
    "again when they commit",
    "bytes",
)
FALLBACK = _shared(
    "instance.fallbackIntervalInSeconds",
    kinds.whole(0, INT32),
    "60",
    "after a switch to another MySQL without GTIDs: how far back the last delivered transaction is "
    "searched; if it is not found, reading continues from there",
    "s",
)
GROUP_WAIT = _shared(
    "instance.group.wait",
    kinds.decimal(0),
    "30",
    "with group-instance, how long the other sources wait for a silent one; 0: do not wait, transactions "
    "are not ordered by time",
    "s",
)
DETECT = _shared("instance.detecting.enable", kinds.switch(), "false", "check MySQL's health at regular intervals")
DETECT_SQL = _shared(
    "instance.detecting.sql", kinds.text(), "", "statement of the health check; blank: no check", "SQL"
)
DETECT_INTERVAL = _shared(
    "instance.detecting.interval.time", kinds.decimal(0.1), "5", "interval between health checks", "s"
)
DETECT_RETRY = _shared(
    "instance.detecting.retry.threshold",
    kinds.whole(0, INT32),
    "3",
    "consecutive failed health checks that are tolerated; no answer within detecting.interval.time is a failure",
    "failures",
)
DETECT_HA = _shared(
    "instance.detecting.heartbeatHaEnable",
    kinds.switch(),
    "false",
    "after more failures than detecting.retry.threshold, read from the other server if it can be read",
)
RECEIVE_BUFFER = _shared(
    "instance.network.receiveBufferSize",
    kinds.whole(1024, INT32),
    "1048576",
    "receive buffer of the connection to MySQL",
    "bytes",
)
SO_TIMEOUT = _shared(
    "instance.network.soTimeout",
    kinds.decimal(1),
    "30",
    "the connection is closed when MySQL sends nothing for this time",
    "s",
)
DDL_PARSER = _shared(
    "instance.filter.druid.ddl",
    kinds.switch(),
    "true",
    "parse DDL with the grammar; false: with canal's regular expressions",
)
NO_DCL = _shared("instance.filter.query.dcl", kinds.switch(), "false", "drop entries of DCL and other queries")
NO_DML = _shared("instance.filter.query.dml", kinds.switch(), "false", "drop entries with the text of DML statements")
NO_DDL = _shared("instance.filter.query.ddl", kinds.switch(), "false", "drop DDL entries")
TABLE_ERRORS = _shared(
    "instance.filter.table.error", kinds.switch(), "false", "skip rows of a table whose columns are unknown"
)
NO_ROWS = _shared("instance.filter.rows", kinds.switch(), "false", "drop all rows")
NO_TRANSACTION = _shared(
    "instance.filter.transaction.entry", kinds.switch(), "false", "drop the begin and end entries of transactions"
)
NO_INSERT = _shared("instance.filter.dml.insert", kinds.switch(), "false", "drop inserted rows")
NO_UPDATE = _shared("instance.filter.dml.update", kinds.switch(), "false", "drop updated rows")
NO_DELETE = _shared("instance.filter.dml.delete", kinds.switch(), "false", "drop deleted rows")
CLIENT_FILTER = _shared(
    "instance.filter.client.mode",
    kinds.member(FilterMode),
    "replace",
    "replace: a client's filter replaces the server's; and: both must match",
)
BINLOG_FORMAT = _shared(
    "instance.binlog.format",
    kinds.words("ROW", "STATEMENT", "MIXED"),
    "ROW,STATEMENT,MIXED",
    "accepted values of the source's binlog_format",
)
BINLOG_IMAGE = _shared(
    "instance.binlog.image",
    kinds.words("FULL", "MINIMAL", "NOBLOB"),
    "FULL,MINIMAL,NOBLOB",
    "accepted values of the source's binlog_row_image",
)
TSDB = _shared(
    "instance.tsdb.enable",
    kinds.switch(),
    "true",
    "keep the history of table definitions; the default with memory-instance is false",
)
TSDB_ZOOKEEPER = _shared(
    "instance.tsdb.zookeeper",
    kinds.switch(),
    "true",
    "keep the history in ZooKeeper, if the node uses ZooKeeper and tsdb.url is blank; false: in a file on each node",
)
TSDB_DIR = _shared(
    "instance.tsdb.dir",
    kinds.text(),
    "${canal.file.data.dir:../conf}/${canal.instance.destination:}",
    "directory of the history's SQLite file, if the history is not in ZooKeeper",
    "directory",
)
TSDB_URL = _shared(
    "instance.tsdb.url",
    kinds.text(),
    "",
    "jdbc:mysql://host:port/database: keep the history in MySQL, shared by all nodes; blank or jdbc:h2: "
    "keep it in ZooKeeper or in a file",
    "JDBC URL",
)
TSDB_USERNAME = _shared("instance.tsdb.dbUsername", kinds.text(), "", "MySQL user of the database in tsdb.url")
TSDB_PASSWORD = _shared("instance.tsdb.dbPassword", kinds.text(), "", "password of tsdb.dbUsername", secret=True)
TSDB_SSL_MODE = _shared(
    "instance.tsdb.sslMode", kinds.word(*SSL_MODES), "PREFERRED", "TLS to the database in tsdb.url, as master.sslMode"
)
TSDB_SSL_CA = _shared(
    "instance.tsdb.ssl.ca", kinds.path(), "", "certificates of the trusted authorities of that database", "PEM file"
)
TSDB_SSL_CERT = _shared("instance.tsdb.ssl.cert", kinds.path(), "", "client certificate for that database", "PEM file")
TSDB_SSL_KEY = _shared(
    "instance.tsdb.ssl.key", kinds.path(), "", "private key of tsdb.ssl.cert; blank: it is in the same file", "PEM file"
)
TSDB_INTERVAL = _shared(
    "instance.tsdb.snapshot.interval",
    kinds.whole(-INT32, INT32),
    "24",
    "interval between snapshots of the history; 0 or less: no snapshots",
    "h",
)
TSDB_EXPIRE = _shared("instance.tsdb.snapshot.expire", kinds.whole(1, INT32), "360", "how long snapshots are kept", "h")

# ---- one destination


@dataclass(frozen=True, slots=True)
class SourceKeys:
    """The keys of one MySQL server."""

    address: Key[tuple[str, int] | None]
    journal: Key[str]
    position: Key[int]
    timestamp: Key[int]
    gtid: Key[str]
    ssl_mode: Key[str]
    ssl_ca: Key[str]
    ssl_cert: Key[str]
    ssl_key: Key[str]
    trust_type: Key[str]
    trust_url: Key[str]
    client_type: Key[str]
    client_url: Key[str]


def _source(who: str, address: str) -> SourceKeys:
    return SourceKeys(
        address=_instance(f"{who}.address", kinds.address(), "", address, "host:port"),
        journal=_instance(
            f"{who}.journal.name",
            kinds.text(),
            "",
            "journal (binlog file) at which a new client starts; blank: start by timestamp",
        ),
        position=_instance(
            f"{who}.position",
            kinds.whole(0, INT64),
            "0",
            "offset in that journal at which a new client starts; blank or 0: its beginning",
            "bytes",
        ),
        timestamp=_instance(
            f"{who}.timestamp",
            kinds.whole(0, INT64),
            "0",
            "time at which a new client starts, if no journal is given; blank or 0: now",
            "ms since 1970",
        ),
        gtid=_instance(
            f"{who}.gtid",
            kinds.text(),
            "",
            "GTID set after which a new client starts; requires canal.instance.gtidon=true",
            "GTID set",
        ),
        ssl_mode=_instance(
            f"{who}.sslMode",
            kinds.word(*SSL_MODES),
            "PREFERRED",
            "TLS: DISABLED, PREFERRED (if the server offers it), REQUIRED, VERIFY_CA or VERIFY_IDENTITY",
        ),
        ssl_ca=_instance(f"{who}.ssl.ca", kinds.path(), "", "certificates of the trusted authorities", "PEM file"),
        ssl_cert=_instance(f"{who}.ssl.cert", kinds.path(), "", "client certificate of canal-ha", "PEM file"),
        ssl_key=_instance(
            f"{who}.ssl.key", kinds.path(), "", "private key of ssl.cert; blank: it is in the same file", "PEM file"
        ),
        trust_type=_instance(
            f"{who}.trustCertificateKeyStoreType",
            kinds.text(),
            "",
            "format of trustCertificateKeyStoreUrl; only PEM is supported",
        ),
        trust_url=_instance(
            f"{who}.trustCertificateKeyStoreUrl", kinds.path(), "", "alias of ssl.ca: a path or a file: URL", "PEM file"
        ),
        client_type=_instance(
            f"{who}.clientCertificateKeyStoreType",
            kinds.text(),
            "",
            "format of clientCertificateKeyStoreUrl; only PEM is supported",
        ),
        client_url=_instance(
            f"{who}.clientCertificateKeyStoreUrl",
            kinds.path(),
            "",
            "alias of ssl.cert: a path or a file: URL",
            "PEM file",
        ),
    )


MASTER = _source("master", "MySQL or MariaDB server to read from")
STANDBY = _source("standby", "server to switch to when the master fails; blank: none")
GROUP_MOST = 16
GROUP = r"canal\.instance\.(?P<role>master|standby)(?P<number>[1-9]\d*)\.(?P<what>.+)"
"""Keys of one of several sources: the keys of master and standby, with the source's number."""


def numbered(names: SourceKeys, number: int) -> SourceKeys:
    """Return the keys of source `number` of a group. names: MASTER or STANDBY."""

    def own(key: Key[T]) -> Key[T]:
        return replace(key, name=re.sub(r"\.(master|standby)\.", rf".\g<1>{number}.", key.name, count=1))

    return SourceKeys(**{each.name: own(getattr(names, each.name)) for each in fields(names)})


LOCAL_DIR = _instance(
    "parser.directory",
    kinds.text(),
    "",
    "directory of binlog files to read, with local-instance; then master.address is used for table "
    "definitions only and may be blank",
    "directory",
)
LOCAL_SCHEMA = _instance(
    "parser.schema",
    kinds.path(),
    "",
    "table definitions (mysqldump --no-data) for tables that the binlog files do not create",
    "SQL file",
)
SLAVE_ID = _instance(
    "mysql.slaveId", kinds.whole(0, 2**32 - 1), "0", "replica server id of the first stream; 0: derive it", "server id"
)
GTID_ON = _instance(
    "gtidon", kinds.switch(), "false", "track GTID sets in entries and cursors, in addition to journal and offset"
)
DB_USERNAME = _instance(
    "dbUsername", kinds.text(), "canal", "MySQL user; needs REPLICATION SLAVE, REPLICATION CLIENT, SELECT"
)
DB_PASSWORD = _instance("dbPassword", kinds.text(), "canal", "password of dbUsername", secret=True)
DEFAULT_DATABASE = _instance("defaultDatabaseName", kinds.text(), "", "default database of the connections to MySQL")
CHARSET = _instance("connectionCharset", kinds.charset(), "UTF-8", "character set of statements and names", "charset")
FILTER = _instance(
    "filter.regex",
    kinds.text(),
    r".*\..*",
    "tables to include: comma-separated regular expressions that match schema.table",
)
FILTER_BLACK = _instance("filter.black.regex", kinds.text(), "", "tables to exclude, in the same form")
FILTER_FIELD = _instance(
    "filter.field", kinds.column_list(), "", "columns to include: schema.table:col1/col2,schema2.table2:col3"
)
FILTER_BLACK_FIELD = _instance("filter.black.field", kinds.column_list(), "", "columns to exclude, in the same form")
PRIVACY_DROP = _instance(
    "privacy.drop",
    kinds.column_rules(),
    "",
    "columns that never leave the node: TABLE:col1/col2,... with a regular expression that matches schema.table",
)
PRIVACY_MASK = _instance(
    "privacy.mask", kinds.column_rules(), "", "columns delivered as ***, in the same form; NULL stays NULL"
)
PRIVACY_HASH = _instance(
    "privacy.hash",
    kinds.column_rules(),
    "",
    "columns delivered as hex(HMAC-SHA-256(privacy.key, text)), in the same form; NULL stays NULL",
)

MQ_TOPIC = _queue(
    "topic", kinds.text(), "", "topic of all rows; with canal.mq.dynamicTopic, of those that match no rule"
)
MQ_DYNAMIC_TOPIC = _queue(
    "dynamicTopic",
    kinds.text(),
    "",
    "rules that choose a table's topic: schema.table, schema or a regular expression, each with an optional topic:",
)
MQ_PARTITION = _queue(
    "partition", kinds.whole(0, INT32), "0", "partition of all messages, if canal.mq.partitionHash is blank"
)
MQ_PARTITION_HASH = _queue(
    "partitionHash",
    kinds.text(),
    "",
    "what rows are distributed by: TABLE:column^column, TABLE:$pk$ for the primary key, TABLE for its name",
)
MQ_PARTITIONS = _queue(
    "partitionsNum",
    kinds.whole(1, INT32),
    "1",
    "partitions that canal.mq.partitionHash distributes rows to",
    "partitions",
)
MQ_TOPIC_PARTITIONS = _queue(
    "dynamicTopicPartitionNum", kinds.text(), "", "canal.mq.partitionsNum of single topics", "topic:number list"
)
MQ_ALL_PARTITIONS = _queue(
    "enableDynamicQueuePartition",
    kinds.switch(),
    "false",
    "distribute rows to all partitions that a topic has, instead of canal.mq.partitionsNum",
)

KEYS: tuple[Key[Any], ...] = tuple(_table)
BY_NAME: dict[str, Key[Any]] = {key.name: key for key in KEYS}

LIVE: frozenset[str] = frozenset(
    key.name
    for key in (
        DESTINATIONS,
        DESTINATIONS_EXPR,
        AUTO_SCAN_INTERVAL,
        TEMPLATE,
        LAZY,
        LOGIN_TIMEOUT,
        CONNECTIONS,
        ADDRESS_CONNECTIONS,
        AHEAD_BYTES,
        REPLY_BYTES,
    )
)
"""Keys of the node that a running node takes over from a changed canal.properties. The others need a restart."""

OVERRIDE = r"canal\.instance\.(?P<destination>[^=\s]+)\.(?P<what>spring\.xml|lazy|mode|manager\.address)"
"""Keys of canal.properties that override canal.instance.global.* for one destination."""
