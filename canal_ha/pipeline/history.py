"""Reduces the changes of a portion to versions of rows, for targets that keep the history of tables (SCD2). Pure.

A row of such a table is a version: the values that a key had from `valid_from` until `valid_to`. An insert or update
begins a version and ends the one before it; a delete ends one. A row that a snapshot reads has the values of the
current version and begins none, unless there is no current version.

Times of a binlog have a resolution of a second. `valid_position` tells the versions of one second apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.client.arrow import META, TableBatch
from canal_ha.client.arrow_types import UTC
from canal_ha.errors import SinkRefused
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.altered import find
from canal_ha.pipeline.done import number_of, statement_ids
from canal_ha.pipeline.latest import check_keys, key_columns, row_numbers
from canal_ha.pipeline.reading import TYPE
from canal_ha.pipeline.statements import StatementEffect, effects

FROM, TO, CURRENT, POSITION = "valid_from", "valid_to", "is_current", "valid_position"
OWN = (
    pa.field(FROM, UTC, metadata={TYPE: b"timestamp(6)"}),
    pa.field(TO, UTC, metadata={TYPE: b"timestamp(6)"}),
    pa.field(CURRENT, pa.bool_(), metadata={TYPE: b"bit(1)"}),
    pa.field(POSITION, pa.string(), metadata={TYPE: b"varchar(255)"}),
)
"""Columns of a version behind those of its table."""

VERSION_KEY = (FROM, POSITION)
"""With the key of the table, the key of a version."""

_DIGITS = {"offset": 12, "sub": 4, "row": 6}


@dataclass(frozen=True, slots=True)
class RowVersions:
    """What the history of one table has to take over, in this order: `statements`, `ended_at`, and the three tables.

    schema, table: its names.
    keys: names of the key's columns; () if there are no rows.
    statements: texts of the table's DDL, in order; they are before the rows.
    statement_ids: what recognises each of them (canal_ha.pipeline.done).
    ended_at: time at which all rows were gone, because of TRUNCATE, DROP, RENAME or CREATE; None if they were not.
    ends: key columns and TO: the current versions of these keys end.
    begun: versions that begin, with OWN; their keys have no current version, or it is in `ends`.
    read: versions whose values a snapshot read; the current version of such a key takes over all but VERSION_KEY.
    last: number of the last row's position (canal_ha.pipeline.done); 0 without rows.
    """

    schema: str
    table: str
    keys: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    statement_ids: tuple[str, ...] = ()
    ended_at: datetime | None = None
    ends: pa.Table = field(default_factory=lambda: pa.table({}))
    begun: pa.Table = field(default_factory=lambda: pa.table({}))
    read: pa.Table = field(default_factory=lambda: pa.table({}))
    last: int = 0

    @property
    def fields(self) -> list[pa.Field] | None:
        """The columns of new versions; None without any."""
        return next((list(rows.schema) for rows in (self.begun, self.read) if rows.num_rows), None)

    @property
    def version_key(self) -> tuple[str, ...]:
        """The key of a version."""
        return (*self.keys, *VERSION_KEY)


def versions(batches: Iterable[TableBatch], keys: Mapping[str, Sequence[str]]) -> list[RowVersions]:
    """Reduce the batches of a portion, each table's in order. A statement begins another stretch of a table.

    batches: of `Portion.batches`.
    keys: `schema.table` -> key columns of tables without a primary key, or to use instead of it.
    Raises SinkRefused for a table without a key, for NULL in a key, and for a column with a name of OWN.
    """
    tables: dict[tuple[str, str], list[_HistoryStretch]] = {}
    for batch in batches:
        stretches = tables.setdefault((batch.schema, batch.table), [_HistoryStretch()])
        rows = batch.rows
        operations = rows.column(rows.num_columns - len(META))
        if rows.num_rows and operations[0].as_py() == "ddl":
            times, texts = rows.column(rows.num_columns - 3), rows.column(rows.num_columns - 1)
            ids = statement_ids(rows)
            for sql, moment, own_id in zip(texts.to_pylist(), times.to_pylist(), ids, strict=True):
                if stretches[-1].parts:
                    stretches.append(_HistoryStretch())
                stretches[-1].statement_ids.append(own_id)
                stretches[-1].statement(sql, moment, batch)
        elif rows.num_rows:
            name = f"{batch.schema}.{batch.table}"
            own = key_columns(rows.schema, name, tuple(keys.get(name, ())))
            if not stretches[-1].takes(rows, own):
                stretches.append(_HistoryStretch())
            stretches[-1].keys = own
            stretches[-1].parts.append(rows)
    return [stretch.versions(*name) for name, stretches in tables.items() for stretch in stretches]


def in_order(batches: Sequence[TableBatch]) -> list[TableBatch]:
    """Return the batches of one table in the order of the binlog.

    Several tables that a route merges come one after the other between two statements. A target that commits a portion
    in parts, each with its position, needs the order.
    """
    entries = [pc.struct_field(batch.rows.column(batch.rows.num_columns - 2), "entry") for batch in batches]
    bounds = [(each[0].as_py(), each[-1].as_py()) for each in entries]
    if all(before[1] <= after[0] for before, after in pairwise(bounds)):
        return list(batches)
    places = pa.table(
        {
            "entry": pa.concat_arrays(entries),
            "batch": pa.concat_arrays([pa.repeat(at, len(each)) for at, each in enumerate(entries)]),
            "row": pa.concat_arrays([row_numbers(len(each)) for each in entries]),
        }
    )
    order = pc.sort_indices(places, [(name, "ascending") for name in places.column_names])
    places = places.take(order).combine_chunks()
    begins = pc.indices_nonzero(pc.invert(_same_as_before([places.column("batch").combine_chunks()]))).to_pylist()
    found = []
    for begin, end in pairwise([*begins, len(places)]):
        batch = batches[places.column("batch")[begin].as_py()]
        rows = batch.rows.slice(places.column("row")[begin].as_py(), end - begin)
        found.append(TableBatch(batch.schema, batch.table, rows))
    return found


def check_columns(names: Iterable[str], table: str) -> None:
    """Check that a target's table has versions. names: of its columns; table: its name. Raises SinkRefused."""
    missing = {each.name for each in OWN} - set(names)
    if missing:
        raise SinkRefused(
            f"canal: {table} is there, without the column {min(missing)} of a history: it was not written with mode:"
            " scd2. Give the pipeline another client id, and an empty target"
        )


@dataclass(slots=True)
class _HistoryStretch:
    """Statements, and the rows behind them, which have the same key and columns.

    keys, statements, statement_ids, ended_at: as in RowVersions.
    parts: the rows.
    """

    keys: tuple[str, ...] = ()
    statements: list[str] = field(default_factory=list)
    statement_ids: list[str] = field(default_factory=list)
    ended_at: datetime | None = None
    parts: list[pa.RecordBatch] = field(default_factory=list)

    def statement(self, sql: str, moment: datetime, batch: TableBatch) -> None:
        """Add a statement at a time. batch: it names the table."""
        self.statements.append(sql)
        name = (batch.schema, batch.table)
        mine: list[StatementEffect] = [each for each in effects(sql, batch.schema) if (each.schema, each.table) == name]
        if self.ended_at is None and any(each.emptied for each in mine):
            self.ended_at = moment

    def takes(self, rows: pa.RecordBatch, keys: tuple[str, ...]) -> bool:
        """Return whether rows fit to those before them. Deleted rows need their key alone."""
        if not self.parts:
            return True
        return keys == self.keys and (self.parts[-1].schema.equals(rows.schema) or _only_deletes(rows))

    def versions(self, schema: str, table: str) -> RowVersions:
        """Return the versions."""
        statements, ids = tuple(self.statements), tuple(self.statement_ids)
        if not self.parts:
            return RowVersions(schema, table, statements=statements, statement_ids=ids, ended_at=self.ended_at)
        wanted = next((rows.schema for rows in self.parts if not _only_deletes(rows)), self.parts[0].schema)
        whole = pa.Table.from_batches([fitted(rows, wanted) for rows in self.parts])
        check_keys(whole, self.keys, f"{schema}.{table}")
        own = list(whole.schema)[: -len(META)]
        taken = [each.name for each in OWN if find(pa.schema(own), each.name) >= 0]
        if taken:
            raise SinkRefused(
                f"canal: {schema}.{table} has a column {taken[0]}, which the history of a table needs for itself:"
                " rename it with a transform"
            )
        ends, begun, read = _folded(whole, own, self.keys)
        place = whole.column(whole.num_columns - 2)[-1].as_py()
        last = number_of(LogPosition(place["journal"], place["offset"]))
        return RowVersions(schema, table, self.keys, statements, ids, self.ended_at, ends, begun, read, last)


def _folded(whole: pa.Table, own: list[pa.Field], keys: tuple[str, ...]) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return ends, begun and read versions of rows.

    whole: the rows, with META.
    own: fields of the table.
    keys: names of the key's columns.
    """
    sortable = pa.table(
        [*(whole.column(key) for key in keys), row_numbers(len(whole))], [*map(str, range(len(keys))), "row"]
    )
    order = pc.sort_indices(sortable, [(name, "ascending") for name in sortable.column_names])
    rows = whole.take(order).combine_chunks()
    first = pc.invert(_same_as_before([rows.column(key).combine_chunks() for key in keys]))
    operations = rows.column(len(own)).combine_chunks()
    deleted, was_read = pc.equal(operations, "delete"), pc.equal(operations, "read")
    after_delete = pa.concat_arrays([pa.array([True]), deleted[:-1]])
    bounds = pc.or_(pc.or_(first, pc.invert(was_read)), after_delete)  # where a version begins or ends
    at = pc.indices_nonzero(bounds).cast(pa.int64())
    following = pa.concat_arrays([at[1:], pa.array([len(rows)], pa.int64())])
    values_at = pc.subtract(following, 1)  # the last row that was read has the values
    moments = rows.column(len(own) + 1).combine_chunks()
    beyond = pa.concat_arrays([first, pa.array([True])])  # behind the last row another key would begin
    no_moment = pa.concat_arrays([moments, pa.array([None], moments.type)])
    ended = pc.invert(beyond.take(following))
    end = pc.if_else(ended, no_moment.take(following), pa.scalar(None, moments.type))
    place = _places(rows.column(len(own) + 2).combine_chunks())
    made = pa.Table.from_arrays(
        [
            *(rows.column(number).take(values_at) for number in range(len(own))),
            moments.take(at).cast(UTC),
            end.cast(UTC),
            pc.invert(ended),
            place.take(at),
        ],
        schema=pa.schema([*own, *OWN]),
    )
    live = pc.invert(deleted.take(at))
    begins_with_read = pc.and_(first, was_read)
    read = begins_with_read.take(at)
    leading = pc.and_(first, pc.invert(was_read))
    places = [rows.schema.get_field_index(key) for key in keys]
    ends = pa.Table.from_arrays(
        [*(rows.column(number).filter(leading) for number in places), moments.filter(leading).cast(UTC)],
        schema=pa.schema([*(own[number] for number in places), OWN[1]]),
    )
    return ends, made.filter(pc.and_(live, pc.invert(read))), made.filter(pc.and_(live, read))


def _same_as_before(columns: Sequence[pa.Array]) -> pa.Array:
    """Return which rows have the values of the row before them in all columns, which have no NULL."""
    count = len(columns[0])
    same = pa.concat_arrays([pa.array([False]), pa.repeat(True, count - 1)])
    for column in columns:
        same = pc.and_(same, pa.concat_arrays([pa.array([False]), pc.equal(column[1:], column[:-1])]))
    return same


def _places(position: pa.StructArray) -> pa.Array:
    """Return journal:offset.sub.row, whose order as texts is that of the binlog."""
    journal = pc.fill_null(pc.struct_field(position, "journal"), "")
    numbers = [
        pc.utf8_lpad(pc.fill_null(pc.struct_field(position, name), 0).cast(pa.string()), width, "0")
        for name, width in _DIGITS.items()
    ]
    return pc.binary_join_element_wise(journal, pc.binary_join_element_wise(*numbers, "."), ":")


def _only_deletes(rows: pa.RecordBatch) -> bool:
    return bool(pc.all(pc.equal(rows.column(rows.num_columns - len(META)), "delete")).as_py())


def fitted(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of a schema; deleted rows may lack some, or have others."""
    if rows.schema.equals(wanted):
        return pa.RecordBatch.from_arrays(rows.columns, schema=wanted)
    columns = []
    for each in wanted:
        at = find(rows.schema, each.name)
        columns.append(pa.nulls(rows.num_rows, each.type) if at < 0 else rows.column(at).cast(each.type))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
