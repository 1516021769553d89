"""A segment's entries as Arrow batches of one of the source's shapes: what executors run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from canal_ha.errors import SchemaChanged
from canal_ha.spark import debezium
from canal_ha.spark.entries import DDL, DELETE, INSERT, UPDATE, Changes, Layout, Texts, changes_of
from canal_ha.spark.mysql_types import ColumnType, column_type, to_arrow
from canal_ha.spark.options import Evolution, Shape
from canal_ha.spark.shapes import META

BATCH_ROWS = 20_000  # of a batch: enough to make its overhead small, small enough for the JVM's buffers


@dataclass(frozen=True, slots=True)
class Reading:
    """How segments are read. schema: Arrow's form of the query's; table: for Shape.TABLE; name: of the segment, for
    messages; statements: latest DDL by table, as of the micro-batch.
    """

    shape: Shape
    schema: pa.Schema
    table: str
    evolution: Evolution
    time_zone: str


def entries_to_arrow(
    frames: bytes, destination: str, seq: int, name: str, reading: Reading, statement: str
) -> Iterator[pa.RecordBatch]:
    """The rows of one segment. seq: its number; name: for messages; statement: latest DDL of `reading.table`.

    Raises SpoolUnusable, SchemaChanged, SinkRefused (a value that does not fit the schema's type).
    """
    changes = changes_of(frames, name)
    if reading.shape is Shape.TABLE:
        yield from _table(changes, seq, reading, statement)
        return
    columns: list[list[Any]] = [[] for _ in reading.schema]
    add = _ADDERS[reading.shape]
    for change in changes:
        add(columns, change, destination, seq)
        if len(columns[0]) >= BATCH_ROWS:
            yield _batch(columns, reading.schema)
            columns = [[] for _ in reading.schema]
    if columns[0]:
        yield _batch(columns, reading.schema)


def _batch(columns: list[list[Any]], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _positions(change: Changes, seq: int) -> list[dict[str, Any]]:
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
    return [{**shared, "row": row} for row in range(change.count)]


def _head(columns: list[list[Any]], change: Changes, destination: str) -> None:
    header, count = change.header, change.count
    values = (change.op, header.executeTime * 1000, destination, header.schemaName, header.tableName)
    for column, value in zip(columns, values, strict=False):
        column.extend([value] * count)


def _maps(layout: Layout, rows: Any, count: int) -> list[list[tuple[str, str | None]] | None]:
    names = layout.names
    return [list(zip(names, texts, strict=True)) for texts in rows] or [None] * count


def _add_envelope(columns: list[list[Any]], change: Changes, destination: str, seq: int) -> None:
    _head(columns, change, destination)
    key, before, after, position, ddl = columns[5:]
    count = change.count
    layout = change.layout
    images = change.before if change.op == DELETE else change.after
    key.extend([[(layout.names[at], texts[at]) for at in layout.keys] for texts in images] or [None] * count)
    before.extend(_maps(change.before_layout, change.before, count))
    after.extend(_maps(change.after_layout, change.after, count))
    position.extend(_positions(change, seq))
    ddl.extend([change.ddl] * count)


def _add_changes(columns: list[list[Any]], change: Changes, destination: str, seq: int) -> None:
    _head(columns, change, destination)
    layout, before, after, position, ddl = columns[5:]
    count = change.count
    layout.extend([None if change.op == DDL else change.layout.to_json()] * count)
    before.extend(change.before or [None] * count)
    after.extend(change.after or [None] * count)
    position.extend(_positions(change, seq))
    ddl.extend([change.ddl] * count)


def _add_debezium(columns: list[list[Any]], change: Changes, destination: str, seq: int) -> None:
    count = change.count
    header = change.header
    for column, value in zip(columns, (destination, header.schemaName, header.tableName), strict=False):
        column.extend([value] * count)
    keys, values = debezium.texts(change, destination)
    columns[3].extend(keys)
    columns[4].extend(values)
    columns[5].extend(_positions(change, seq))


_ADDERS: dict[Shape, Callable[[list[list[Any]], Changes, str, int], None]] = {
    Shape.ENVELOPE: _add_envelope,
    Shape.CHANGES: _add_changes,
    Shape.DEBEZIUM: _add_debezium,
}


# ---- one table, typed


def _table(changes: Iterator[Changes], seq: int, reading: Reading, statement: str) -> Iterator[pa.RecordBatch]:
    """Rows of equal layout are converted together. An update that changes the key is a delete and an insert."""
    typed = _Typed(reading)
    for change in changes:
        if f"{change.header.schemaName}.{change.header.tableName}" != reading.table:
            continue
        if change.op == DDL:
            statement = change.ddl or statement
        elif reading.evolution is Evolution.FAIL:
            _refuse_unknown(change.layout, reading, statement)
        yield from typed.add(change, seq)
    yield from typed.flush()


def _refuse_unknown(layout: Layout, reading: Reading, statement: str) -> None:
    known = {name.lower() for name in reading.schema.names}
    for name in layout.names:
        if name.lower() not in known:
            because = f": {statement}" if statement else ""
            raise SchemaChanged(f"canal: {reading.table} has a column {name!r} that this query does not know{because}")


class _Typed:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._targets = [field for field in reading.schema if field.name not in META]
        self._layout: Layout | None = None
        self._rows: list[Texts] = []
        self._ops: list[str] = []
        self._times: list[int] = []
        self._positions: list[dict[str, Any]] = []
        self._ddl: list[str | None] = []

    def add(self, change: Changes, seq: int) -> Iterator[pa.RecordBatch]:
        """Take rows; yields those before them that have another layout."""
        positions = _positions(change, seq)
        time = change.header.executeTime * 1000
        if change.op == DDL:
            if self._layout is not None:
                yield from self.flush()
            self._take([], DDL, time, positions[0], change.ddl)
            yield from self.flush()
            return
        if self._layout is not None and (self._layout.columns != change.layout.columns or len(self._ops) >= BATCH_ROWS):
            yield from self.flush()
        self._layout = change.layout
        if change.op != UPDATE:
            for texts, position in zip(change.after or change.before, positions, strict=True):
                self._take(texts, change.op, time, position)
            return
        keys = change.layout.keys
        same_columns = change.before_layout.columns == change.after_layout.columns
        for before, after, position in zip(change.before, change.after, positions, strict=True):
            if same_columns and any(before[at] != after[at] for at in keys):
                self._take(before, DELETE, time, position)
                self._take(after, INSERT, time, position)
            else:
                self._take(after, UPDATE, time, position)

    def _take(self, texts: Texts, op: str, time: int, position: dict[str, Any], ddl: str | None = None) -> None:
        self._rows.append(texts)
        self._ops.append(op)
        self._times.append(time)
        self._positions.append(position)
        self._ddl.append(ddl)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """What was taken, as a batch."""
        if not self._ops:
            return
        layout = self._layout
        places = {} if layout is None else {name.lower(): place for place, name in enumerate(layout.names)}
        arrays = []
        for target in self._targets:
            place = places.get(target.name.lower())
            if layout is None or place is None:
                arrays.append(pa.nulls(len(self._ops), target.type))
                continue
            _, mysql_type, sql_type = layout.columns[place]
            texts = [row[place] for row in self._rows]
            kind: ColumnType = column_type(mysql_type, sql_type)
            arrays.append(to_arrow(texts, kind, target.type, self._reading.time_zone))
        meta = {"_op": self._ops, "_ts": self._times, "_position": self._positions, "_ddl": self._ddl}
        schema = self._reading.schema
        arrays += [pa.array(meta[name], schema.field(name).type) for name in META]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        self._layout = None
        self._rows, self._ops, self._times, self._positions, self._ddl = [], [], [], [], []
