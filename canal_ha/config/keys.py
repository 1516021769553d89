"""Every key that is read here: its kind, unit, default and meaning.

One table serves parsing, the warnings about unknown keys, and the test that conf/ documents every key.
Defaults are written as in a file. Source: docs/protocol.md#keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from canal_ha.config import kinds
from canal_ha.config.kinds import ValueKind
from canal_ha.config.model import BatchMode, FilterMode, WhenLost

T = TypeVar("T", covariant=True)

PORT_MAX = 65535
INT32 = 2**31 - 1
INT64 = 2**63 - 1


class KeyFile(Enum):
    """Which file a key belongs to."""

    NODE = "canal.properties"
    SHARED = "canal.properties, as the default of all destinations, or instance.properties"
    INSTANCE = "instance.properties"


@dataclass(frozen=True, slots=True)
class Key(Generic[T]):
    """One key. default: as written in a file, read like any other value; unit: "" for words, switches and counts."""

    name: str
    kind: ValueKind[T]
    default: str
    meaning: str
    unit: str = ""
    place: KeyFile = KeyFile.NODE
    secret: bool = False  # its value is never shown


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


# ---- the node and its ports

IP = _node("canal.ip", kinds.text(), "", "address the data port listens on; blank listens on every address")
REGISTER_IP = _node(
    "canal.register.ip", kinds.text(), "", "address published in ZooKeeper; blank takes canal.ip, else the one detected"
)
PORT = _node("canal.port", kinds.whole(0, PORT_MAX), "11111", "port of the data service", "TCP port")
USER = _node("canal.user", kinds.text(), "", "user that clients must name; blank lets any name in")
PASSWD = _node(
    "canal.passwd",
    kinds.password_hash(),
    "",
    "the password of canal.user as hex(SHA1(SHA1(password)))",
    "40 hex digits",
    secret=True,
)
MAX_FRAME = _node(
    "canal.max.frame.bytes",
    kinds.whole(4096, INT32),
    str(16 * 1024 * 1024),
    "longest packet taken from a client",
    "bytes",
)
WITHOUT_NETTY = _node("canal.withoutNetty", kinds.switch(), "false", "do not open the data port")
SERVER_MODE = _node("canal.serverMode", kinds.word("tcp"), "tcp", "how rows leave; there are no message queues here")
METRICS_PORT = _node(
    "canal.metrics.pull.port", kinds.whole(-1, PORT_MAX), "11112", "Prometheus metrics; 0 or less: none", "TCP port"
)
ADMIN_PORT = _node(
    "canal.admin.http.port",
    kinds.whole(-1, PORT_MAX),
    "8089",
    "status endpoint (/api/v1/status); a free port when it is taken; less than 0: none",
    "TCP port",
)
ADMIN_BIND = _node("canal.admin.http.bind", kinds.text(), "127.0.0.1", "address the status endpoint listens on")
LOG_DIR = _node("canal.log.dir", kinds.text(), "../logs", "directory of the log files", "directory")
LOG_FORMAT = _node("canal.log.format", kinds.word("text", "json"), "text", "lines as text or as JSON objects")

# ---- ZooKeeper

ZK_SERVERS = _node(
    "canal.zkServers", kinds.zookeepers(), "", "ZooKeeper servers; blank runs this node alone", "host:port list"
)
ZK_SESSION = _node(
    "canal.zookeeper.session.timeout",
    kinds.whole(1000, INT32),
    "6000",
    "session time-out asked for; a node that dies is replaced after about this time",
    "ms",
)
ZK_FLUSH = _node(
    "canal.zookeeper.flush.period",
    kinds.whole(0, INT32),
    "1000",
    "how often cursors are written to ZooKeeper; 0: before each ack is done",
    "ms",
)
ZK_AUTH = _node(
    "canal.zookeeper.auth", kinds.credentials(), "", "digest ACL of our znodes", "user:password", secret=True
)

# ---- destinations

DESTINATIONS = _node("canal.destinations", kinds.names(), "", "destinations to serve, comma separated")
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
    "directory of <destination>/instance.properties; ../conf is --conf",
    "directory",
)
AUTO_SCAN = _node(
    "canal.auto.scan", kinds.switch(), "false", "follow destinations that appear, change and go in that directory"
)
AUTO_SCAN_INTERVAL = _node("canal.auto.scan.interval", kinds.decimal(0.1), "5", "time between two looks at it", "s")
TEMPLATE = _node(
    "canal.instance.global.spring.xml",
    kinds.template(),
    "classpath:spring/default-instance.xml",
    "where cursors live: default-instance: ZooKeeper, or files without canal.zkServers; file-instance; memory-instance;"
    " local-instance: as default-instance, and a directory of binlog files is the source; group-instance: as"
    " default-instance, and several sources are merged",
)
LAZY = _node(
    "canal.instance.global.lazy", kinds.switch(), "false", "start a destination when a client first asks for it"
)

# ---- defaults of all destinations

DATA_DIR = _shared(
    "file.data.dir", kinds.text(), "../conf", "directory of <destination>/meta.dat, cursors in files", "directory"
)
FILE_FLUSH = _shared("file.flush.period", kinds.whole(0, INT32), "1000", "how often cursors are written to files", "ms")
AUTO_RESET = _shared(
    "auto.reset.latest.pos.mode",
    kinds.switch(),
    "false",
    "when the journal to go on in is gone, start at the newest position; rows between are lost",
)
POSITION_LOST = _shared(
    "instance.position.lost",
    kinds.member(WhenLost),
    "fail",
    "when that journal is gone: fail stops and waits for a person; earliest, latest or timestamp (of the cursor) go on"
    " from there, rows between are lost; given, it wins over auto.reset.latest.pos.mode",
)
BUFFER_SIZE = _shared(
    "instance.memory.buffer.size", kinds.whole(1, INT32), "16384", "places in the ring of a stream", "entries"
)
BUFFER_UNIT = _shared(
    "instance.memory.buffer.memunit",
    kinds.whole(1, INT32),
    "1024",
    "memory budget of that ring, divided by buffer.size",
    "bytes",
)
BATCH_MODE = _shared(
    "instance.memory.batch.mode",
    kinds.member(BatchMode),
    "MEMSIZE",
    "what a GET's size counts: memory units or entries (ITEMSIZE)",
)
STREAM_IDLE = _shared(
    "instance.stream.idle", kinds.decimal(0), "300", "a stream without a GET for so long is parked", "s"
)
STREAM_MAX = _shared("instance.stream.max", kinds.whole(1, 10_000), "16", "open streams of one destination", "streams")
ALARM_LAG = _shared(
    "instance.alarm.lag", kinds.decimal(0), "300", "a stream farther behind its source is an alarm; 0: never", "s"
)
ALARM_UNMOVED = _shared(
    "instance.alarm.unmoved",
    kinds.decimal(0),
    "300",
    "a cursor that stands still for so long while rows wait is an alarm; 0: never",
    "s",
)
ALARM_BLOCKED = _shared(
    "instance.alarm.blocked",
    kinds.decimal(0),
    "30",
    "a ring that is full of unacknowledged batches for so long is an alarm; 0: never",
    "s",
)
DDL_ISOLATION = _shared("instance.get.ddl.isolation", kinds.switch(), "false", "a DDL entry makes a batch of its own")
TRANSACTION_SIZE = _shared(
    "instance.transaction.size", kinds.whole(1, INT32), "1024", "larger transactions are handed on in pieces", "entries"
)
FALLBACK = _shared(
    "instance.fallbackIntervalInSeconds",
    kinds.whole(0, INT32),
    "60",
    "after a switch to another MySQL without GTIDs: how far back to look for what was delivered last; if it is not"
    " there, reading goes on so far back",
    "s",
)
GROUP_WAIT = _shared(
    "instance.group.wait",
    kinds.decimal(0),
    "30",
    "with group-instance, how long a source that is silent is waited for before the others go on; 0: transactions come"
    " as they arrive, in no order of time",
    "s",
)
DETECT = _shared("instance.detecting.enable", kinds.switch(), "false", "ask MySQL regularly whether it lives")
DETECT_SQL = _shared("instance.detecting.sql", kinds.text(), "", "the statement asked; blank asks nothing", "SQL")
DETECT_INTERVAL = _shared(
    "instance.detecting.interval.time", kinds.decimal(0.1), "5", "time between two such questions", "s"
)
DETECT_RETRY = _shared(
    "instance.detecting.retry.threshold",
    kinds.whole(0, INT32),
    "3",
    "failures in a row that are tolerated; no answer within detecting.interval.time is one",
    "failures",
)
DETECT_HA = _shared(
    "instance.detecting.heartbeatHaEnable",
    kinds.switch(),
    "false",
    "beyond that many failures read from the other server, if it can be read",
)
RECEIVE_BUFFER = _shared(
    "instance.network.receiveBufferSize", kinds.whole(1024, INT32), "262144", "receive buffer towards MySQL", "bytes"
)
SO_TIMEOUT = _shared(
    "instance.network.soTimeout",
    kinds.decimal(1),
    "30",
    "how long MySQL may be silent before the connection is given up",
    "s",
)
DDL_PARSER = _shared(
    "instance.filter.druid.ddl", kinds.switch(), "true", "read DDL by grammar; false: by regular expressions"
)
NO_DCL = _shared("instance.filter.query.dcl", kinds.switch(), "false", "drop DCL and other query entries")
NO_DML = _shared("instance.filter.query.dml", kinds.switch(), "false", "drop entries that carry the text of DML")
NO_DDL = _shared("instance.filter.query.ddl", kinds.switch(), "false", "drop DDL entries")
TABLE_ERRORS = _shared(
    "instance.filter.table.error", kinds.switch(), "false", "skip rows of a table whose columns are unknown"
)
NO_ROWS = _shared("instance.filter.rows", kinds.switch(), "false", "drop all rows")
NO_TRANSACTION = _shared(
    "instance.filter.transaction.entry", kinds.switch(), "false", "drop begin and end of transactions"
)
NO_INSERT = _shared("instance.filter.dml.insert", kinds.switch(), "false", "drop inserted rows")
NO_UPDATE = _shared("instance.filter.dml.update", kinds.switch(), "false", "drop updated rows")
NO_DELETE = _shared("instance.filter.dml.delete", kinds.switch(), "false", "drop deleted rows")
CLIENT_FILTER = _shared(
    "instance.filter.client.mode",
    kinds.member(FilterMode),
    "replace",
    "a client's filter replaces the server's, or both must hold (and)",
)
BINLOG_FORMAT = _shared(
    "instance.binlog.format",
    kinds.words("ROW", "STATEMENT", "MIXED"),
    "ROW,STATEMENT,MIXED",
    "binlog_format values of the source that are accepted",
)
BINLOG_IMAGE = _shared(
    "instance.binlog.image",
    kinds.words("FULL", "MINIMAL", "NOBLOB"),
    "FULL,MINIMAL,NOBLOB",
    "binlog_row_image values of the source that are accepted",
)
TSDB = _shared(
    "instance.tsdb.enable",
    kinds.switch(),
    "true",
    "keep the history of table definitions (memory-instance: false unless given)",
)
TSDB_DIR = _shared(
    "instance.tsdb.dir",
    kinds.text(),
    "${canal.file.data.dir:../conf}/${canal.instance.destination:}",
    "directory of that history's file",
    "directory",
)
TSDB_URL = _shared(
    "instance.tsdb.url",
    kinds.text(),
    "",
    "jdbc:mysql://host:port/database keeps it in MySQL, for all nodes; blank or jdbc:h2: in a SQLite file of each node",
    "JDBC URL",
)
TSDB_USERNAME = _shared("instance.tsdb.dbUsername", kinds.text(), "", "MySQL user of that database")
TSDB_PASSWORD = _shared("instance.tsdb.dbPassword", kinds.text(), "", "the password of tsdb.dbUsername", secret=True)
TSDB_INTERVAL = _shared(
    "instance.tsdb.snapshot.interval",
    kinds.whole(-INT32, INT32),
    "24",
    "time between two snapshots; 0 or less: none",
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
            "journal (binlog file) where the first client starts; blank: by timestamp",
        ),
        position=_instance(
            f"{who}.position",
            kinds.whole(0, INT64),
            "0",
            "offset in that journal to start at; blank or 0: its beginning",
            "bytes",
        ),
        timestamp=_instance(
            f"{who}.timestamp",
            kinds.whole(0, INT64),
            "0",
            "time to start at when no position is given; blank or 0: now",
            "ms since 1970",
        ),
        gtid=_instance(
            f"{who}.gtid", kinds.text(), "", "GTID set to start behind, with canal.instance.gtidon", "GTID set"
        ),
        ssl_mode=_instance(
            f"{who}.sslMode",
            kinds.word("DISABLED", "PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"),
            "DISABLED",
            "TLS: DISABLED, PREFERRED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY",
        ),
        ssl_ca=_instance(f"{who}.ssl.ca", kinds.text(), "", "certificates of the authorities trusted", "PEM file"),
        ssl_cert=_instance(f"{who}.ssl.cert", kinds.text(), "", "our certificate", "PEM file"),
        ssl_key=_instance(
            f"{who}.ssl.key", kinds.text(), "", "the private key of ssl.cert; blank: in the same file", "PEM file"
        ),
        trust_type=_instance(
            f"{who}.trustCertificateKeyStoreType", kinds.text(), "", "canal's name for ssl.ca: only PEM"
        ),
        trust_url=_instance(
            f"{who}.trustCertificateKeyStoreUrl", kinds.text(), "", "that file as a file: URL or a path", "PEM file"
        ),
        client_type=_instance(
            f"{who}.clientCertificateKeyStoreType", kinds.text(), "", "canal's name for ssl.cert: only PEM"
        ),
        client_url=_instance(
            f"{who}.clientCertificateKeyStoreUrl", kinds.text(), "", "that file as a file: URL or a path", "PEM file"
        ),
    )


MASTER = _source("master", "the MySQL or MariaDB server to follow")
STANDBY = _source("standby", "the server to switch to when the master fails; blank: none")
GROUP_MOST = 16
GROUP = r"canal\.instance\.(?P<role>master|standby)(?P<number>[1-9]\d*)\.(?P<what>.+)"
"""Keys of one of several sources: those of master and standby, with the source's number."""


def numbered(names: SourceKeys, number: int) -> SourceKeys:
    """The keys of source `number` of a group. names: MASTER or STANDBY."""

    def own(key: Key[T]) -> Key[T]:
        return replace(key, name=re.sub(r"\.(master|standby)\.", rf".\g<1>{number}.", key.name, count=1))

    return SourceKeys(**{each.name: own(getattr(names, each.name)) for each in fields(names)})


LOCAL_DIR = _instance(
    "parser.directory",
    kinds.text(),
    "",
    "binlog files to serve, with local-instance; master.address, if given, is asked for table definitions only",
    "directory",
)
LOCAL_SCHEMA = _instance(
    "parser.schema",
    kinds.text(),
    "",
    "definitions (mysqldump --no-data) of tables that those files do not create",
    "SQL file",
)
SLAVE_ID = _instance(
    "mysql.slaveId", kinds.whole(0, 2**32 - 1), "0", "replica server id of the first stream; 0: derived", "server id"
)
GTID_ON = _instance(
    "gtidon", kinds.switch(), "false", "know GTID sets beside journal and offset, in entries and in cursors"
)
DB_USERNAME = _instance(
    "dbUsername", kinds.text(), "canal", "MySQL user; needs REPLICATION SLAVE, REPLICATION CLIENT, SELECT"
)
DB_PASSWORD = _instance("dbPassword", kinds.text(), "canal", "the password of dbUsername", secret=True)
DEFAULT_DATABASE = _instance("defaultDatabaseName", kinds.text(), "", "database of our connections")
CHARSET = _instance("connectionCharset", kinds.charset(), "UTF-8", "charset of statements and names", "charset")
FILTER = _instance(
    "filter.regex", kinds.text(), r".*\..*", "tables to follow: comma separated regular expressions on schema.table"
)
FILTER_BLACK = _instance("filter.black.regex", kinds.text(), "", "tables to leave out, in the same form")
FILTER_FIELD = _instance(
    "filter.field", kinds.column_list(), "", "columns to keep: schema.table:col1/col2,schema2.table2:col3"
)
FILTER_BLACK_FIELD = _instance("filter.black.field", kinds.column_list(), "", "columns to drop, in the same form")

KEYS: tuple[Key[Any], ...] = tuple(_table)
BY_NAME: dict[str, Key[Any]] = {key.name: key for key in KEYS}

OVERRIDE = r"canal\.instance\.(?P<destination>[^=\s]+)\.(?P<what>spring\.xml|lazy|mode|manager\.address)"
"""Keys of canal.properties that say for one destination what canal.instance.global.* says for all."""
