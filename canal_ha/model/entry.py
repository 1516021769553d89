"""Names and numbers of EntryProtocol that rooms other than the wire need (docs/protocol.md#enums)."""

from enum import IntEnum

SNAPSHOT_PROP = "canal.snapshot"  # key in Header.props; see docs/protocol.md#snapshot-rows for the value
PARTIAL_PROP = "canal.partial"  # key in Header.props; see docs/protocol.md#exact


class EntryType(IntEnum):
    """Entry.entryType."""

    TRANSACTIONBEGIN = 1
    ROWDATA = 2
    TRANSACTIONEND = 3
    HEARTBEAT = 4
    GTIDLOG = 5


class EventType(IntEnum):
    """Header.eventType and RowChange.eventType."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3
    CREATE = 4
    ALTER = 5
    ERASE = 6
    QUERY = 7
    TRUNCATE = 8
    RENAME = 9
    CINDEX = 10
    DINDEX = 11
    GTID = 12
    XACOMMIT = 13
    XAROLLBACK = 14
    MHEARTBEAT = 15


DDL_TYPES = frozenset(
    {
        EventType.CREATE,
        EventType.ALTER,
        EventType.ERASE,
        EventType.TRUNCATE,
        EventType.RENAME,
        EventType.CINDEX,
        EventType.DINDEX,
    }
)
