"""Turns a segment's entries into Arrow batches of a given shape. Runs on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

import pyarrow as pa

from canal_ha.client.arrow import BATCH_BYTES, BATCH_ROWS, EntryColumns, maps_of, read_tables, repeated
from canal_ha.client.arrow_types import strings, wrapped
from canal_ha.decode.filters import TableFilter
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.buffers import Spares
from canal_ha.decode.kernel.changes import MapRows
from canal_ha.decode.kernel.layouts import ColumnLayout
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError, SchemaChanged, SpoolUnusable
from canal_ha.pipeline.logged_statements import check_statements
from canal_ha.pipeline.options import Evolution, Shape
from canal_ha.spark import debezium
from canal_ha.spark.entries import DDL, EntryRows, changes_of
from canal_ha.spark.moments import in_utc


@dataclass(frozen=True, slots=True)
class SegmentReading:
    """How segments are read.

    shape: shape of the rows.
    schema: the query's schema in Arrow's form.
    table: see SourceOptions.
    evolution: what to do with a column that the schema lacks.
    time_zone: time zone of TIMESTAMP texts that are not in UTC.
    filter: the client's table filter; "" for none.
    """

    shape: Shape
    schema: pa.Schema
    table: str
    evolution: Evolution
    time_zone: str
    filter: str = ""

    def takes(self, schema: str, table: str) -> bool:
        """Return whether the reader takes the rows of a table."""
        name = f"{schema}.{table}"
        if self.shape is Shape.TABLE:
            return name == self.table
        if self.table and not any(fnmatchcase(name, pattern) for pattern in self.table.split(",")):
            return False
        return not self.filter or _table_filter(self.filter).accepts(schema, table)


@lru_cache(maxsize=16)
def _table_filter(text: str) -> TableFilter:
    return TableFilter(text, "", of_client=True)


def check_logged(frames: bytes, name: str, reading: SegmentReading) -> None:
    """Raise SinkRefused for changes of rows that the source has logged as statements, and SpoolUnusable."""
    try:
        check_statements(frames, reading.takes)
    except RemoteProtocolError as error:
        raise SpoolUnusable(f"{name} holds invalid entries: {error}") from error


def entries_to_arrow(
    frames: bytes, destination: str, seq: int, name: str, reading: SegmentReading, statement: str
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one segment.

    frames: the segment's entries.
    destination: name of the destination.
    seq: number of the segment.
    name: name of the segment, for messages.
    reading: how to read it.
    statement: latest DDL statement of `reading.table`, for messages.
    Raises SpoolUnusable, SchemaChanged, and SinkRefused for a value that does not fit the schema's type, for typed rows
    without all columns, and for changes of rows that the source has logged as statements.
    """
    check_logged(frames, name, reading)
    try:
        if reading.shape is Shape.TABLE:
            wanted = _Table(reading, statement)
            for _, _, rows in read_tables(frames, wanted, reading.time_zone, seq, whole=True):
                yield rows
            return
        if reading.shape is Shape.ENVELOPE:
            yield from _envelope(frames, destination, seq, reading.schema)
            return
    except RemoteProtocolError as error:
        raise SpoolUnusable(f"{name} holds invalid entries: {error}") from error
    columns: list[list[Any]] = [[] for _ in reading.schema]
    add = _ADDERS[reading.shape]
    for change in changes_of(frames, name):
        add(columns, in_utc(change, reading.time_zone), destination, seq)
        if len(columns[0]) >= BATCH_ROWS:
            yield _batch(columns, reading.schema)
            columns = [[] for _ in reading.schema]
    if columns[0]:
        yield _batch(columns, reading.schema)


def _batch(columns: list[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _positions(change: EntryRows, seq: int, rows: Iterable[int]) -> list[dict[str, Any]]:
    header = change.header
    shared = {
        "seq": seq,
        "entry": change.entry,
        "server": header.serverId,
        "journal": header.logfileName,
        "offset": header.logfileOffset,
        "sub": change.sub,
        "gtid": header.gtid,
    }
    return [{**shared, "row": row} for row in rows]


def _head(columns: list[list[Any]], change: EntryRows, destination: str) -> None:
    header, count = change.header, change.count
    values = (change.op, header.executeTime * 1000, destination, header.schemaName, header.tableName)
    for column, value in zip(columns, values, strict=False):
        column.extend([value] * count)


def _add_changes(columns: list[list[Any]], change: EntryRows, destination: str, seq: int) -> None:
    _head(columns, change, destination)
    layout, before, after, position, ddl = columns[5:]
    count = change.count
    layout.extend([None if change.op == DDL else change.layout.to_json()] * count)
    before.extend(change.before or [None] * count)
    after.extend(change.after or [None] * count)
    position.extend(_positions(change, seq, range(count)))
    ddl.extend([change.ddl] * count)


def _add_debezium(columns: list[list[Any]], change: EntryRows, destination: str, seq: int) -> None:
    made = debezium.messages(change, destination)
    for column, value in zip(columns, (destination, change.header.schemaName, change.header.tableName), strict=False):
        column.extend([value] * len(made))
    columns[3].extend(each.key for each in made)
    columns[4].extend(each.value for each in made)
    columns[5].extend(_positions(change, seq, (each.row for each in made)))


_ADDERS: dict[Shape, Callable[[list[list[Any]], EntryRows, str, int], None]] = {
    Shape.CHANGES: _add_changes,
    Shape.DEBEZIUM: _add_debezium,
}


# ---- shapes that the kernel builds


def _envelope(frames: bytes, destination: str, seq: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    work = MapRows(frames, 0, len(frames), BATCH_ROWS, BATCH_BYTES)
    spares = Spares()
    while True:
        try:
            code = work.step()
        except Broken as error:
            raise RemoteProtocolError(str(error)) from error
        count = work.marks.count
        if count:
            columns = EntryColumns(work.marks, spares)
            names = strings(work.names)
            arrays = {
                "op": columns.ops,
                "ts": columns.times,
                "destination": repeated(destination, count),
                "schema": columns.schemas,
                "table": columns.tables,
                "key": maps_of(work.keys, names, schema.field("key").type),
                "before": maps_of(work.befores, names, schema.field("before").type),
                "after": maps_of(work.afters, names, schema.field("after").type),
                "position": columns.positions(schema.field("position").type, seq),
                "ddl": wrapped(work.statements, pa.string()),
            }
            yield pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)
        if code == codes.DONE:
            return
        work.renew()


class _Table:
    """Selects one table's rows, in the query's schema."""

    def __init__(self, reading: SegmentReading, statement: str) -> None:
        self._reading = reading
        self._statement = statement
        self._known = {field.name.lower() for field in reading.schema}

    def table(self, schema: str, table: str) -> bool:
        return f"{schema}.{table}" == self._reading.table

    def fields(self, schema: str, table: str, columns: Sequence[ColumnLayout]) -> pa.Schema:
        reading = self._reading
        if reading.evolution is Evolution.FAIL:
            for column in columns:
                if column.name.lower() not in self._known:
                    because = f": {self._statement}" if self._statement else ""
                    raise SchemaChanged(
                        f"canal: {reading.table} has a column {column.name!r} that this query's schema lacks{because}"
                    )
        return reading.schema

    def key_places(self, schema: str, table: str) -> None:
        """Return None: the key is the primary key."""

    def statement(self, sql: str) -> None:
        self._statement = sql
