"""Turns a segment's entries into Arrow batches of a given shape. Runs on executors.

Every Python worker imports this module before its first row. So what only some shapes, tables or statements need is
imported there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from canal_ha.client.arrow import BATCH_BYTES, BATCH_ROWS, EntryColumns, PositionType, maps_of, read_tables, repeated
from canal_ha.client.arrow_types import strings, wrapped
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.buffers import Spares
from canal_ha.decode.kernel.changes import MapRows
from canal_ha.decode.kernel.layouts import ColumnLayout
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError, SchemaChanged, SpoolUnusable
from canal_ha.pipeline.logged_statements import check_statements
from canal_ha.pipeline.options import Evolution, Shape

if TYPE_CHECKING:
    from canal_ha.decode.filters import TableFilter


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
    from canal_ha.decode.filters import TableFilter  # imports two libraries of regular expressions

    return TableFilter(text, "", of_client=True)


def check_logged(frames: bytes, name: str, reading: SegmentReading) -> None:
    """Raise SinkRefused for changes of rows that the source has logged as statements, and SpoolUnusable."""
    try:
        check_statements(frames, reading.takes)
    except RemoteProtocolError as error:
        raise SpoolUnusable(f"{name} holds invalid entries: {error}") from error


def entries_to_arrow(
    frames: bytes,
    destination: str,
    seq: int,
    name: str,
    reading: SegmentReading,
    statement: str,
    *,
    statements: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one segment.

    frames: the segment's entries.
    destination: name of the destination.
    seq: number of the segment.
    name: name of the segment, for messages.
    reading: how to read it.
    statement: latest DDL statement of `reading.table`, for messages.
    statements: whether the entries can have statements; see segments.Contents.
    Raises SpoolUnusable, SchemaChanged, and SinkRefused for a value that does not fit the schema's type, for typed rows
    without all columns, and for changes of rows that the source has logged as statements.
    """
    if statements:
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
    from canal_ha.spark.parsed_rows import parsed_rows  # imports protobuf

    yield from parsed_rows(frames, destination, seq, name, reading)


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
                "position": columns.positions(PositionType.of(schema.field("position").type), seq),
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
