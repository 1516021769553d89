"""Which statements may change a table that a snapshot is reading. Pure."""

from __future__ import annotations

from canal_ha.wire.proto import entry_protocol_pb2 as pb


def concerns(entry: bytes, *, schema: str, table: str) -> bool:
    """Return whether the entry of a statement may concern a table; True in doubt.

    entry: serialized.
    schema, table: names, compared without case.
    """
    parsed = pb.Entry.FromString(entry)
    change = pb.RowChange.FromString(parsed.storeValue)
    if not change.isDdl:
        return False  # the statement behind changes of rows, which come as rows
    if not change.sql:
        return True  # hidden, because a protected column may be in it
    text = f"{parsed.header.schemaName}.{parsed.header.tableName} {change.sql}".lower()
    if table.lower() in text:
        return True
    return schema.lower() in text and ("database" in text or "schema" in text)
