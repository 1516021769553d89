"""Arrow batches of the shapes `changes` and `debezium`, which are built from protobuf objects. Runs on executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from canal_ha.client.arrow import BATCH_ROWS
from canal_ha.pipeline.options import Shape
from canal_ha.spark import debezium
from canal_ha.spark.entries import DDL, EntryRows, changes_of
from canal_ha.spark.moments import in_utc

if TYPE_CHECKING:
    from canal_ha.spark.arrow import SegmentReading


def parsed_rows(
    frames: bytes, destination: str, seq: int, name: str, reading: SegmentReading
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one segment; see entries_to_arrow. Raises SpoolUnusable."""
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
