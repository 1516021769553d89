"""Prints a batch like canal's example clients, in the form that operators and tutorials know."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from google.protobuf.message import DecodeError

from canal_ha.client.message import Message
from canal_ha.client.rows import row_change
from canal_ha.errors import RemoteProtocolError
from canal_ha.wire.proto.entry_protocol_pb2 import (
    DELETE,
    ROWDATA,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    Column,
    Entry,
    EventType,
    Header,
    TransactionBegin,
    TransactionEnd,
)

STARS = "*" * 52


def pretty(message: Message, now_ms: int) -> str:
    """Format a batch; each line ends with a newline. Times are local. Raises RemoteProtocolError."""
    lines = [*_head(message, now_ms), ""]
    try:
        for entry in message.entries:
            lines += _entry(entry, now_ms)
    except DecodeError as error:
        raise RemoteProtocolError(f"invalid entry: {error}") from error
    return "".join(f"{line}\n" for line in lines)


def _head(message: Message, now_ms: int) -> Iterator[str]:
    memsize = sum(entry.header.eventLength for entry in message.entries)
    count = len(message.entries)
    yield STARS
    yield f"* Batch Id: [{message.id}] ,count : [{count}] , memsize : [{memsize}] , Time : {_local(now_ms)}"
    yield f"* Start : [{_position(message.entries[0].header)}]"
    yield f"* End : [{_position(message.entries[-1].header)}]"
    yield STARS


def _entry(entry: Entry, now_ms: int) -> Iterator[str]:
    header = entry.header
    tail = f"executeTime : {header.executeTime} , delay : {now_ms - header.executeTime}ms"
    where = f"binlog[{header.logfileName}:{header.logfileOffset}]"
    if entry.entryType == TRANSACTIONBEGIN:
        begin = TransactionBegin.FromString(entry.storeValue)
        yield f"================> {where} , {tail}"
        yield f" BEGIN ----> Thread id: {begin.threadId}"
    elif entry.entryType == TRANSACTIONEND:
        end = TransactionEnd.FromString(entry.storeValue)
        yield "----------------"
        yield f" END ----> transaction id: {end.transactionId}"
        yield f"================> {where} , {tail}"
    elif entry.entryType == ROWDATA:
        change = row_change(entry)
        name = f"name[{header.schemaName},{header.tableName}]"
        yield f"----------------> {where} , {name} , eventType : {EventType.Name(change.eventType)} , {tail}"
        if not change.rowDatas:
            yield f" sql ----> {change.sql}"
        for data in change.rowDatas:
            yield from _columns(data.beforeColumns if change.eventType == DELETE else data.afterColumns)


def _columns(columns: Iterable[Column]) -> Iterator[str]:
    for column in columns:
        updated = "    update=true" if column.updated else ""
        yield f"{column.name} : {column.value}    type={column.mysqlType}{updated}"


def _position(header: Header) -> str:
    return f"{header.logfileName}:{header.logfileOffset}:{header.executeTime}({_local(header.executeTime)})"


def _local(ms: int) -> str:
    return datetime.fromtimestamp(ms // 1000).strftime("%Y-%m-%d %H:%M:%S")
