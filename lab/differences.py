"""The deliberate differences from canal's entries: only where canal garbles or loses data.

docs/compatibility.md lists them with reasons and tests.
"""

from __future__ import annotations

from canal_ha.wire.proto import entry_protocol_pb2 as pb

BLOB, CLOB = 2004, 2005


def deliberate(recorded: bytes) -> bytes:
    """Return our entry for canal's `recorded`: the same bytes, except for MariaDB's JSON.

    With its table history on, canal treats MariaDB's JSON, a LONGTEXT, as binary: sqlType BLOB and one character per
    byte, so that clients print garbled text. Our entry has text, like canal without the table history.
    """
    if b"R\x04json" not in recorded:
        return recorded
    entry = pb.Entry.FromString(recorded)
    if entry.entryType != pb.ROWDATA:
        return recorded
    change = pb.RowChange.FromString(entry.storeValue)
    for row in change.rowDatas:
        for column in (*row.beforeColumns, *row.afterColumns):
            if column.mysqlType == "json" and column.sqlType == BLOB:
                column.sqlType = CLOB
                if not column.isNull:
                    column.value = column.value.encode("latin-1").decode()
    entry.storeValue = change.SerializeToString()
    return entry.SerializeToString()
