"""The numbers that hot modules branch on. A compiled build uses C constants: `import ... as k`, `k.NAME`."""

from __future__ import annotations

# How a cell is read, in the order of the tests in rows.py: frequent kinds first.
INTEGER = 1  # size: bytes
PREFIXED = 2  # size: bytes of the length prefix; text: how the bytes become text
DATETIME2 = 3
TIMESTAMP2 = 4
DECIMAL = 5
DOUBLE = 6
FLOAT = 7
DATE = 8
TIME2 = 9
ENUM = 10
SET = 11
BIT = 12
YEAR = 13
TIMESTAMP = 14  # the temporal types of servers before 5.6
DATETIME = 15
TIME = 16
UTC_TIMESTAMP2 = 17  # in the exact form: UTC, whatever the zone of this process
UTC_TIMESTAMP = 18
NOTHING = 19  # type NULL: no bytes

# How the bytes of a PREFIXED cell become text.
UTF8 = 1
LATIN1 = 2
CHARSET = 3  # Cell.codec
JSON = 4
COMPRESSED_UTF8 = 5  # MariaDB's column compression
COMPRESSED = 6
EXACT_JSON = 7  # JSON of the exact form
PROTECTED = 8  # no bytes of its own: Cell.clear reads them

# What a rows event does.
INSERT = 1
UPDATE = 2
DELETE = 3

# What replaces the start of a before image's value if there is none.
NULL = -1
ABSENT = -2

# Results of EventStream.step.
NEED = 0  # more bytes
SEGMENT = 1  # enough entries for a segment are visible
EVENT = 2  # an event that the decoder handles
SAID = 3  # a packet that is not an event

# Event types (docs/protocol.md#events).
QUERY = 2
STOP = 3
ROTATE = 4
INTVAR = 5
RAND = 13
USER_VAR = 14
FORMAT_DESCRIPTION = 15
XID = 16
TABLE_MAP = 19
WRITE_ROWS_V1 = 23
UPDATE_ROWS_V1 = 24
DELETE_ROWS_V1 = 25
HEARTBEAT = 27
ROWS_QUERY = 29
WRITE_ROWS = 30
UPDATE_ROWS = 31
DELETE_ROWS = 32
GTID = 33
ANONYMOUS_GTID = 34
PREVIOUS_GTIDS = 35
XA_PREPARE = 38
PARTIAL_UPDATE_ROWS = 39
PAYLOAD = 40
HEARTBEAT_V2 = 41
TAGGED_GTID = 42
ANNOTATE_ROWS = 160
BINLOG_CHECKPOINT = 161
MARIADB_GTID = 162
GTID_LIST = 163
START_ENCRYPTION = 164
QUERY_COMPRESSED = 165  # 166 to 171 are MariaDB's compressed rows

# The kind of an entry, see model.segment.EntryKind.
KIND_BEGIN = 1
KIND_ROWS = 2
KIND_END = 3
KIND_QUERY = 5

# Entry.entryType (docs/protocol.md#enums).
TYPE_BEGIN = 1
TYPE_ROWS = 2
TYPE_END = 3
QUERY_TYPE = 7  # Header.eventType of a statement that accompanies others

# Empty transactions and pieces of large ones (docs/protocol.md#groups).
EMPTY_INTERVAL_MS = 5000
EMPTY_THRESHOLD = 8192
PIECE_BYTES = 1 << 20  # a transaction of more bytes than this becomes visible in pieces
EVENT_MAX = (1 << 30) + (1 << 20)  # bytes: the largest max_allowed_packet, 1 GiB, and headers
