"""Entries as Arrow record batches: the kernel fills the buffers, here they get their types.

Every batch holds rows of one table whose columns are equal, in binlog order, and behind them

    _op        insert, update, delete, ddl; an update of the primary key is a delete and an insert
    _ts        time of the event
    _position  entry, row: place within what was read, in order over all tables; server, journal, offset, sub, gtid
    _ddl       a statement's text; its row has nothing else

A deleted row has its last values, any other one its new values. Types: canal_ha.client.arrow_types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from canal_ha.client.arrow_types import UTC, ColumnType, column_type, finished, refusal, strings, target_of, wrapped
from canal_ha.client.message import Message
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.changes import Maps, Marks, Sheet, TableRows
from canal_ha.decode.kernel.columns import Target
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import Column, Layout
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError, SinkRefused
from canal_ha.model.batch import EMPTY_BATCH_ID

BATCH_ROWS = 20_000  # of a batch: enough to make its overhead small, small enough for whoever keeps several of them
BATCH_BYTES = 16 << 20  # of entries, likewise
OPS = strings(["insert", "update", "delete", "ddl"])  # by codes.INSERT and so on
POSITION = pa.struct(
    [
        ("entry", pa.int32()),
        ("row", pa.int32()),
        ("server", pa.int64()),
        ("journal", pa.string()),
        ("offset", pa.int64()),
        ("sub", pa.int32()),
        ("gtid", pa.string()),
    ]
)
META = (
    pa.field("_op", pa.string()),
    pa.field("_ts", UTC),
    pa.field("_position", POSITION),
    pa.field("_ddl", pa.string()),
)


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Rows of one table. rows: a pyarrow.RecordBatch, see the module."""

    schema: str
    table: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ArrowMessage:
    """The answer to a GET. id: to acknowledge, model.batch.EMPTY_BATCH_ID without entries; batches: by first row."""

    id: int
    batches: tuple[TableBatch, ...]

    def __bool__(self) -> bool:
        """Whether there is a batch to acknowledge; it can be without rows."""
        return self.id != EMPTY_BATCH_ID


def arrow_message(message: Message, time_zone: str = "UTC") -> ArrowMessage:
    """A batch's rows and statements. time_zone: of the server's process, in which canal writes TIMESTAMP.

    Raises RemoteProtocolError for what is no entry, SinkRefused for a value that its column's type cannot hold.
    """
    return ArrowMessage(message.id, tuple(table_batches(message.frames, time_zone)))


def table_batches(frames: bytes | memoryview, time_zone: str = "UTC") -> Iterator[TableBatch]:
    """The rows and statements of entries, as `Message.frames` has them. Raises as `arrow_message` does."""
    for schema, table, rows in read_tables(frames, _Everything(), time_zone):
        yield TableBatch(schema, table, rows)


class Wanted(Protocol):
    """Which tables, and which columns of them, become batches of which schema."""

    def table(self, schema: str, table: str) -> bool:
        """Whether its rows are wanted."""

    def fields(self, columns: Sequence[Column]) -> pa.Schema:
        """The schema of batches of rows that have these columns; found by name, in any case. It ends with META's names.

        A field that no column has is NULL.
        """

    def statement(self, sql: str) -> None:
        """A statement about one of these tables comes now."""


class _Everything:
    def table(self, schema: str, table: str) -> bool:
        return True

    def fields(self, columns: Sequence[Column]) -> pa.Schema:
        own = [pa.field(column.name, column_type(column.mysql_type, column.sql_type).arrow) for column in columns]
        return pa.schema([*own, *META])

    def statement(self, sql: str) -> None:
        """Nothing depends on it."""


def read_tables(
    frames: bytes | memoryview, wanted: Wanted, time_zone: str, seq: int = 0
) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Schema, table and rows. seq: for schemas whose `_position` has one. Raises as `arrow_message` does."""
    src = bytes(frames)
    work = TableRows(src, 0, len(src), BATCH_ROWS, BATCH_BYTES)
    pages: list[_Page] = []
    while (code := _step(work)) != codes.DONE:
        if code == codes.TABLE:
            schema, _, table = work.key.decode().partition("\0")
            if wanted.table(schema, table):
                pages.append(_Page(schema, table, wanted, time_zone, seq))
                work.add(pages[-1].sheet)
            else:
                work.add(None)
            continue
        page: _Page = work.sheet.owner
        if page.sheet.marks.count:
            yield page.take()
        if code == codes.LAYOUT:
            page.plan(work.layout)
        elif code == codes.STATEMENT:
            entry = work.entry
            yield page.statement(entry, entry.text(entry.sql_start, entry.sql_stop))
    for page in pages:
        if page.sheet.marks.count:
            yield page.take()


def _step(work: TableRows) -> int:
    try:
        return work.step()
    except Broken as error:
        if work.refused is not None:
            raise work.sheet.owner.refusal(work.place, work.refused) from None
        raise RemoteProtocolError(f"an entry that cannot be read: {error}") from error


class _Page:
    """A Sheet with the types of its columns."""

    def __init__(self, schema: str, table: str, wanted: Wanted, time_zone: str, seq: int) -> None:
        self.sheet = Sheet(self)
        self._schema = schema
        self._table = table
        self._wanted = wanted
        self._time_zone = time_zone
        self._seq = seq
        self._identity: object = None
        self._fields: pa.Schema | None = None
        self._types: list[ColumnType] = []  # by place
        self._places: list[int | None] = []  # of the own fields' columns
        self._targets: list[Target | None] = []  # by place

    def plan(self, layout: Layout) -> None:
        """The rows that follow have these columns."""
        self._identity = layout.identity
        self._fields = self._wanted.fields(layout.columns)
        self._types = [column_type(column.mysql_type, column.sql_type) for column in layout.columns]
        places = {column.name.lower(): place for place, column in enumerate(layout.columns)}
        self._places = [places.get(field.name.lower()) for field in self._own]
        self._renew()

    def take(self) -> tuple[str, str, pa.RecordBatch]:
        """What the sheet has; it is empty then."""
        assert self._fields is not None
        marks = self.sheet.marks
        arrays = []
        for field, place in zip(self._own, self._places, strict=True):
            target = None if place is None else self._targets[place]
            if place is None or target is None:
                arrays.append(pa.nulls(marks.count, field.type))
            else:
                arrays.append(finished(target, self._types[place], field.type, self._time_zone))
        arrays += self._meta(self._fields, marks, pa.nulls(marks.count, pa.string()))
        self._renew()
        return self._schema, self._table, pa.RecordBatch.from_arrays(arrays, schema=self._fields)

    def statement(self, entry: Entries, sql: str) -> tuple[str, str, pa.RecordBatch]:
        """The row of a statement, on its own."""
        self._wanted.statement(sql)
        schema = self._fields or self._wanted.fields([])
        marks = Marks()
        marks.put(entry, codes.DDL, 0)
        arrays = [pa.nulls(1, field.type) for field in list(schema)[: -len(META)]]
        arrays += self._meta(schema, marks, strings([sql]))
        return self._schema, self._table, pa.RecordBatch.from_arrays(arrays, schema=schema)

    def refusal(self, place: int, target: Target) -> SinkRefused:
        """What is said of a text that was no value of its column."""
        field = self._own[self._places.index(place)]
        text = bytes(target.refused or b"").decode(errors="replace")
        return refusal(self._types[place], field.type, f"{text[:80]!r} in {self._schema}.{self._table}.{field.name}")

    @property
    def _own(self) -> list[pa.Field]:
        return [] if self._fields is None else list(self._fields)[: -len(META)]

    def _renew(self) -> None:
        self._targets = [None] * len(self._types)
        for field, place in zip(self._own, self._places, strict=True):
            if place is not None:
                self._targets[place] = target_of(self._types[place], field.type)
        self.sheet.start(self._identity, self._targets)

    def _meta(self, schema: pa.Schema, marks: Marks, statements: pa.Array) -> list[pa.Array]:
        told = Told(marks)
        position = told.positions(schema.field(len(schema) - 2).type, self._seq)
        return [told.ops, told.times, position, statements]


class Told:
    """What every row tells of its entry, as arrays."""

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._places = None if marks.entries == marks.count else _fixed(marks.places, pa.int32(), marks.count)

    @property
    def ops(self) -> pa.Array:
        """By name."""
        return OPS.take(_fixed(self._marks.ops, pa.int8(), self._marks.count))

    @property
    def times(self) -> pa.Array:
        """In microseconds, UTC."""
        return self._of_entries(self._marks.times, UTC)

    @property
    def schemas(self) -> pa.Array:
        """By name."""
        return self._texts(self._marks.schemas)

    @property
    def tables(self) -> pa.Array:
        """By name."""
        return self._texts(self._marks.tables)

    @property
    def count(self) -> int:
        """Rows."""
        return self._marks.count

    def positions(self, kind: pa.DataType, seq: int) -> pa.Array:
        """A struct of POSITION's fields, and of `seq`, in the order of `kind`."""
        marks = self._marks
        children = []
        for field in kind:
            if field.name == "seq":
                children.append(_fixed(bytearray(seq.to_bytes(8, "little") * marks.count), pa.int64(), marks.count))
            elif field.name == "row":
                children.append(_fixed(marks.rows, field.type, marks.count))
            elif field.name in ("journal", "gtid"):
                children.append(self._texts(marks.journals if field.name == "journal" else marks.gtids))
            else:
                data = {"entry": marks.numbers, "server": marks.servers, "offset": marks.offsets, "sub": marks.subs}
                children.append(self._of_entries(data[field.name], field.type))
        return pa.StructArray.from_arrays(children, fields=list(kind))

    def _of_entries(self, data: bytearray, kind: pa.DataType) -> pa.Array:
        return self._spread(_fixed(data, kind, self._marks.entries))

    def _texts(self, target: Target) -> pa.Array:
        return self._spread(wrapped(target, pa.string()))

    def _spread(self, values: pa.Array) -> pa.Array:
        return values if self._places is None else values.take(self._places)


def maps_of(maps: Maps, names: pa.Array, kind: pa.DataType) -> pa.Array:
    """Rows as maps from names to texts. names: what the kernel's numbers stand for; kind: a map of strings."""
    keys = names.take(_fixed(maps.names, pa.int32(), maps.size))
    pairs = pa.StructArray.from_arrays(
        [keys, wrapped(maps.values, pa.string())], fields=[kind.key_field, kind.item_field]
    )
    items = maps.items
    validity = pa.py_buffer(items.validity) if items.nulls else None
    buffers = [validity, pa.py_buffer(items.offsets)]
    return pa.Array.from_buffers(kind, items.count, buffers, items.nulls, children=[pairs])


def repeated(text: str, count: int) -> pa.Array:
    """The same text in every row."""
    return strings([text]).take(_fixed(bytearray(4 * count), pa.int32(), count))


def _fixed(data: bytearray, kind: pa.DataType, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])
