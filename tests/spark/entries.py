"""Entries in the form that a server sends, for tests without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from canal_ha.wire.proto import entry_protocol_pb2 as pb

ColumnSpec = tuple[str, str, int, bool]
"""name, mysqlType, sqlType, whether it is part of the key"""

ID: ColumnSpec = ("id", "int(11)", 4, True)
NAME: ColumnSpec = ("name", "varchar(20)", 12, False)


def header(
    offset: int,
    kind: str = "",
    table: str = "t",
    *,
    journal: str = "bin.000001",
    time: int = 1000,
    server: int = 1,
    snapshot: str = "",
    gtid: str = "",
    schema: str = "s",
    partial: bool = False,
    own: str = "",
) -> pb.Header:
    """Return a header. `rows` adds its rowsCount."""
    made = pb.Header(
        version=1, logfileName=journal, logfileOffset=offset, serverId=server, executeTime=time, schemaName=schema
    )
    made.tableName = table
    made.gtid = gtid
    if kind:
        made.eventType = pb.EventType.Value(kind)
    if snapshot:
        made.props.add(key="canal.snapshot", value=snapshot)
    if partial:
        made.props.add(key="canal.partial", value="true")
    if own:
        made.props.add(key="curtGtid", value=own)
    return made


def begin(offset: int, **more: object) -> bytes:
    """Return the begin of a transaction."""
    return _entry(header(offset, **more), pb.TRANSACTIONBEGIN, pb.TransactionBegin())  # type: ignore[arg-type]


def end(offset: int, **more: object) -> bytes:
    """Return the end of a transaction."""
    return _entry(header(offset, **more), pb.TRANSACTIONEND, pb.TransactionEnd())  # type: ignore[arg-type]


def ddl(offset: int, sql: str, kind: str = "ALTER", **more: object) -> bytes:
    """Return an entry with a DDL statement."""
    change = pb.RowChange(eventType=pb.EventType.Value(kind), isDdl=True, sql=sql)
    return _entry(header(offset, kind, **more), pb.ROWDATA, change)  # type: ignore[arg-type]


def logged_statement(offset: int, sql: str, kind: str, **more: object) -> bytes:
    """Return an entry of a statement that changes rows, as a source with binlog_format=STATEMENT logs it."""
    change = pb.RowChange(eventType=pb.EventType.Value(kind), isDdl=False, sql=sql)
    return _entry(header(offset, kind, **more), pb.ROWDATA, change)  # type: ignore[arg-type]


def rows(
    offset: int,
    kind: str,
    images: Sequence[tuple[Mapping[str, str | None] | None, Mapping[str, str | None] | None]],
    columns: Sequence[ColumnSpec] = (ID, NAME),
    **more: object,
) -> bytes:
    """Return a rows entry. images: before and after of each row, by column name."""
    made = header(offset, kind, **more)  # type: ignore[arg-type]
    made.props.add(key="rowsCount", value=str(len(images)))
    change = pb.RowChange(eventType=pb.EventType.Value(kind), isDdl=False)
    for before, after in images:
        row = change.rowDatas.add()
        for image, target in ((before, row.beforeColumns), (after, row.afterColumns)):
            for index, (name, mysql_type, sql_type, key) in enumerate(columns):
                if image is None or name not in image:
                    continue
                column = target.add(index=index, name=name, mysqlType=mysql_type, sqlType=sql_type, isKey=key)
                value = image[name]
                column.isNull = value is None
                if value is not None:
                    column.value = value
    return _entry(made, pb.ROWDATA, change)


def insert(offset: int, key: int, name: str | None = "x", **more: object) -> bytes:
    """Return an entry with one inserted row."""
    return rows(offset, "INSERT", [(None, {"id": str(key), "name": name})], **more)  # type: ignore[arg-type]


def frames(entries: Sequence[bytes]) -> bytes:
    """Return the entries in the form of a segment."""
    from canal_ha.wire.messages import varint

    return b"".join(b"\x12" + varint(len(entry)) + entry for entry in entries)


def _entry(made: pb.Header, kind: Any, stored: object) -> bytes:
    body = stored.SerializeToString()  # type: ignore[attr-defined]
    return pb.Entry(header=made, entryType=kind, storeValue=body).SerializeToString()
