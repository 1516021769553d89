"""Turns entries into Arrow record batches: the kernel fills the buffers, this module adds types.

A batch holds rows of one table with equal columns, in binlog order, followed by

    _op        insert, update, delete, ddl; read: a row of a snapshot, which the copy may have already.
               An update of the key is a delete and an insert
    _ts        time of the event
    _position  entry, row: indexes over all tables, in order of reading; server, journal, offset, sub, gtid
    _ddl       text of a DDL statement; its row has no other values

A deleted row has its old values; other rows have their new values. Types: canal_ha.client.arrow_types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from canal_ha.client.arrow_types import (
    UTC,
    ColumnType,
    column_type,
    finished,
    is_stored,
    refusal,
    strings,
    target_of,
    texts_of,
    wrapped,
)
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.buffers import Spares
from canal_ha.decode.kernel.changes import Maps, Marks, Sheet, TableRows
from canal_ha.decode.kernel.columns import Target, spread, spread_texts
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import ColumnLayout, KeyPlaces, Layout
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError, SinkRefused
from canal_ha.model.batch import EMPTY_BATCH_ID

if TYPE_CHECKING:
    from canal_ha.client.message import Message  # imports protobuf

BATCH_ROWS = 20_000  # largest batch: small overhead, and small enough to keep several
BATCH_BYTES = 16 << 20  # bytes of entries in a batch
OPS = texts_of(["insert", "update", "delete", "ddl", "read"])  # index: codes.INSERT and so on
KNOWN_TABLES = 1000  # tables whose columns are cached between messages
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
class PositionType:
    """The type of `_position`, taken apart once. parts: name, type and bytes of each field; 0 bytes: a text."""

    struct: pa.DataType
    parts: tuple[tuple[str, pa.DataType, int], ...]

    @classmethod
    def of(cls, struct: pa.DataType) -> PositionType:
        """Take a type apart, whose fields are those of POSITION and `seq`, in any order."""
        is_text = pa.types.is_string
        return cls(
            struct, tuple((one.name, one.type, 0 if is_text(one.type) else one.type.bit_width >> 3) for one in struct)
        )


@dataclass(frozen=True, slots=True)
class TableBatch:
    """Rows of one table; see the module for their columns."""

    schema: str
    table: str
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class ArrowMessage:
    """The reply to a GET. id: batch id, or model.batch.EMPTY_BATCH_ID; batches: ordered by first row."""

    id: int
    batches: tuple[TableBatch, ...]

    def __bool__(self) -> bool:
        """Return whether there is a batch to acknowledge; it may have no rows."""
        return self.id != EMPTY_BATCH_ID


def arrow_message(message: Message, time_zone: str = "UTC", pages: Pages | None = None) -> ArrowMessage:
    """Convert a message's rows and statements.

    message: the reply to a GET.
    time_zone: time zone of the server process; canal writes TIMESTAMP values in it.
    pages: cache from earlier messages; None: none.
    Raises RemoteProtocolError for an invalid entry, SinkRefused for a value that does not fit its column's type.
    """
    found = _read(message.walk(), Pages.kept(pages, time_zone))
    return ArrowMessage(message.id, tuple(TableBatch(schema, table, rows) for schema, table, rows in found))


def table_batches(frames: bytes | memoryview, time_zone: str = "UTC") -> Iterator[TableBatch]:
    """Convert entries in the form of `Message.frames`. Raises the same errors as `arrow_message`."""
    for schema, table, rows in read_tables(frames, _Everything(), time_zone):
        yield TableBatch(schema, table, rows)


class Wanted(Protocol):
    """Selects tables and columns, and the schemas of their batches."""

    def table(self, schema: str, table: str) -> bool:
        """Return whether this table is wanted."""

    def fields(self, schema: str, table: str, columns: Sequence[ColumnLayout]) -> pa.Schema:
        """Return the schema of batches of a table's rows with these columns; it ends with META's names.

        Fields match columns by name, in any case; those of one name match its last columns, in order. A field without
        a column is NULL.
        """

    def key_places(self, schema: str, table: str) -> KeyPlaces | None:
        """Return what finds the columns of a table's key; None: they are those of the primary key."""

    def statement(self, sql: str) -> None:
        """Handle a statement about one of these tables; it comes before the rows that follow it."""


class _Everything:
    def table(self, schema: str, table: str) -> bool:
        return True

    def fields(self, schema: str, table: str, columns: Sequence[ColumnLayout]) -> pa.Schema:
        own = [pa.field(column.name, column_type(column.mysql_type, column.sql_type).arrow) for column in columns]
        return pa.schema([*own, *META])

    def key_places(self, schema: str, table: str) -> None:
        """Return None: the key is the primary key."""

    def statement(self, sql: str) -> None:
        """Ignore the statement."""


def read_tables(
    frames: bytes | memoryview, wanted: Wanted, time_zone: str, seq: int = 0, *, whole: bool = False
) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Yield schema, table and rows.

    frames: entries in the form of `Message.frames`.
    wanted: selects tables and columns.
    time_zone: time zone of the server process.
    seq: value of `seq`, in schemas whose `_position` has that field.
    whole: refuse rows without all columns; see Pages.
    Raises the same errors as `arrow_message`.
    """
    src = bytes(frames)
    yield from _read(Entries(src, 0, len(src)), Pages(wanted, time_zone, seq, whole=whole))


def _read(entries: Entries, known: Pages) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    work = TableRows(entries, BATCH_ROWS, BATCH_BYTES)
    pages: list[_Page] = []
    whole = False
    try:
        while (code := _step(work)) != codes.DONE:
            if code == codes.TABLE:
                page = known.page(work.key)
                if page is None:
                    work.add(None)
                else:
                    pages.append(page)
                    page.renew()
                    work.add(page.sheet)
                continue
            page = work.sheet.owner
            if page.sheet.marks.count:
                yield page.take()
                page.renew()
            if code == codes.LAYOUT:
                page.plan(work.layout, work.entry)
            elif code == codes.STATEMENT:
                entry = work.entry
                yield page.statement(entry, entry.text(entry.sql_start, entry.sql_stop))
        for page in pages:
            if page.sheet.marks.count:
                yield page.take()
            page.rest()
        whole = True
    finally:
        if not whole:
            known.forget()


def _step(work: TableRows) -> int:
    try:
        return work.step()
    except Broken as error:
        if work.refused is not None:
            raise work.sheet.owner.refusal(work.place, work.refused) from None
        raise RemoteProtocolError(f"invalid entry: {error}") from error


class Pages:
    """A cache of tables and their columns, reused by one reader after the other.

    whole: raise SinkRefused for a row without all columns of its table, as far as it shows that they are missing.
    """

    def __init__(self, wanted: Wanted, time_zone: str, seq: int = 0, *, whole: bool = False) -> None:
        self._wanted = wanted
        self._whole = whole
        self.time_zone = time_zone
        self._seq = seq
        self._spares = Spares()
        self._pages: dict[bytes, _Page | None] = {}

    @classmethod
    def kept(cls, pages: Pages | None, time_zone: str) -> Pages:
        """Return `pages` if its time zone fits, else a new cache for all tables and columns."""
        return pages if pages is not None and pages.time_zone == time_zone else cls(_Everything(), time_zone)

    def page(self, key: bytes) -> _Page | None:
        """Return the page of a table; None if its rows are not wanted. key: TableRows's name of the table."""
        if key in self._pages:
            return self._pages[key]
        if len(self._pages) >= KNOWN_TABLES:
            self.forget()
        schema, _, table = key.decode().partition("\0")
        page = None
        if self._wanted.table(schema, table):
            page = _Page(schema, table, self._wanted, self.time_zone, self._seq, self._spares, whole=self._whole)
        self._pages[key] = page
        return page

    def forget(self) -> None:
        """Clear the cache; pages in use stay valid."""
        self._pages.clear()


class _Page:
    """A table's Sheet with the types of its columns."""

    def __init__(
        self, schema: str, table: str, wanted: Wanted, time_zone: str, seq: int, spares: Spares, *, whole: bool
    ) -> None:
        self.sheet = Sheet(self, wanted.key_places(schema, table))
        self.sheet.whole = whole
        self.sheet.marks = Marks(named=False)
        self._schema = schema
        self._table = table
        self._wanted = wanted
        self._time_zone = time_zone
        self._seq = seq
        self._spares = spares
        self._identity: object = None
        self._fields: pa.Schema | None = None
        self._position = PositionType.of(POSITION)
        self._types: list[ColumnType] = []  # by index of the column
        # fields before META, the indexes of their columns, and the types of columns whose buffers hold the values
        self._own: list[tuple[pa.Field, int | None, pa.DataType | None]] = []
        self._targets: list[Target | None] = []  # by index of the column
        self._begun = False  # a batch of the current message was taken

    def plan(self, layout: Layout, entry: Entries) -> None:
        """Prepare for rows with these columns. entry: the first one with them."""
        if self.sheet.whole and (layout.partial or entry.partial or self._update_is_partial(entry)):
            at = f"{entry.text(entry.journal_start, entry.journal_stop)}:{entry.offset}"
            raise SinkRefused(
                f"canal: the binlog holds only some columns of {self._schema}.{self._table} at {at}; typed columns"
                " need binlog_row_image=FULL at the source, and no field filter"
            )
        self._identity = layout.identity
        self._fields = self._planned(layout.columns)
        self._types = [column_type(column.mysql_type, column.sql_type) for column in layout.columns]
        places: dict[str, list[int]] = {}
        for index, column in enumerate(layout.columns):
            places.setdefault(column.name.lower(), []).append(index)
        own = list(self._fields)[: -len(META)]
        self._own = []
        self._position = _position_of(self._fields)
        self._targets = [None] * len(self._types)
        for field in reversed(own):
            place: int | None = None
            stored: pa.DataType | None = None
            if left := places.get(field.name.lower()):
                place = left.pop()
                kind = self._types[place]
                target = self._targets[place] = target_of(kind, field.type)
                stored = field.type if is_stored(target, kind, field.type, self._time_zone) else None
            self._own.append((field, place, stored))
        self._own.reverse()
        self.sheet.start(self._identity, self._targets)

    def _update_is_partial(self, entry: Entries) -> bool:
        """Return whether the images of an update have different columns."""
        if entry.event_type != codes.EVENT_UPDATE:
            return False
        images = self.sheet.changes[codes.EVENT_UPDATE - 1]
        return images.before.names is not images.after.names

    def renew(self) -> None:
        """Start a new batch, after `take` or for a new message."""
        self._targets = [None if target is None else target.renewed(self._spares) for target in self._targets]
        self.sheet.start(self._identity, self._targets, self.sheet.marks.renewed(self._spares))

    def take(self) -> tuple[str, str, pa.RecordBatch]:
        """Return the rows of the sheet as a batch; call `renew` next."""
        assert self._fields is not None
        marks = self.sheet.marks
        self._begun = True
        arrays = []
        for field, place, stored in self._own:
            target = None if place is None else self._targets[place]
            if target is not None and stored is not None:
                arrays.append(wrapped(target, stored))
            elif place is None or target is None:
                arrays.append(pa.nulls(marks.count, field.type))
            else:
                arrays.append(finished(target, self._types[place], field.type, self._time_zone))
        arrays += self._meta(self._position, marks, pa.nulls(marks.count, pa.string()))
        return self._schema, self._table, pa.RecordBatch.from_arrays(arrays, schema=self._fields)

    def statement(self, entry: Entries, sql: str) -> tuple[str, str, pa.RecordBatch]:
        """Return a batch with the row of one statement."""
        self._wanted.statement(sql)
        schema = self._fields if self._begun and self._fields is not None else self._planned([])
        marks = Marks()
        marks.put(entry, codes.DDL, 0)
        arrays = [pa.nulls(1, field.type) for field in list(schema)[: -len(META)]]
        arrays += self._meta(_position_of(schema), marks, strings([sql]))
        return self._schema, self._table, pa.RecordBatch.from_arrays(arrays, schema=schema)

    def refusal(self, place: int, target: Target) -> SinkRefused:
        """Return the error for a text that is not a value of its column."""
        field = next(field for field, own, _ in self._own if own == place)
        text = bytes(target.refused or b"").decode(errors="replace")
        return refusal(self._types[place], field.type, f"{text[:80]!r} in {self._schema}.{self._table}.{field.name}")

    def rest(self) -> None:
        """Release the memory of a message that is read."""
        self._begun = False
        self.sheet.rest()

    def _planned(self, columns: Sequence[ColumnLayout]) -> pa.Schema:
        return self._wanted.fields(self._schema, self._table, columns)

    def _meta(self, kind: PositionType, marks: Marks, statements: pa.Array) -> list[pa.Array]:
        columns = EntryColumns(marks, self._spares)
        position = columns.positions(kind, self._seq)
        return [columns.ops, columns.times, position, statements]


def _position_of(schema: pa.Schema) -> PositionType:
    return PositionType.of(schema.field(len(schema) - 2).type)


class EntryColumns:
    """The columns that describe the entry of each row, as arrays. spares: reusable memory.

    Properties and methods raise RemoteProtocolError if one of the columns would be too large.
    """

    def __init__(self, marks: Marks, spares: Spares) -> None:
        self._marks = marks
        self._spares = spares
        self._spread = marks.entries != marks.count

    @property
    def ops(self) -> pa.Array:
        """The operations, by name."""
        return wrapped(spread_texts(OPS, 1, self._marks.ops, self._spares), pa.string())

    @property
    def times(self) -> pa.Array:
        """The times of the events, in microseconds, UTC."""
        return self._of_entries(self._marks.times, UTC, 8)

    @property
    def schemas(self) -> pa.Array:
        """The names of the schemas."""
        return self._texts(self._marks.schemas)

    @property
    def tables(self) -> pa.Array:
        """The names of the tables."""
        return self._texts(self._marks.tables)

    @property
    def count(self) -> int:
        """The number of rows."""
        return self._marks.count

    def positions(self, kind: PositionType, seq: int) -> pa.Array:
        """Return the positions as structs. seq: the value of `seq`, if the type has it."""
        marks = self._marks
        data = {"entry": marks.numbers, "server": marks.servers, "offset": marks.offsets, "sub": marks.subs}
        children = []
        for name, part, width in kind.parts:
            if name in data:
                children.append(self._of_entries(data[name], part, width))
            elif name == "row":
                children.append(_fixed(marks.rows, part, marks.count))
            elif name == "seq":
                children.append(_fixed(bytearray(seq.to_bytes(8, "little") * marks.count), part, marks.count))
            else:
                children.append(self._texts(marks.journals if name == "journal" else marks.gtids))
        return pa.Array.from_buffers(kind.struct, marks.count, [None], 0, children=children)

    def _of_entries(self, data: bytearray, kind: pa.DataType, width: int) -> pa.Array:
        if self._spread:
            data = spread(data, width, self._marks.places, self._spares)
        return _fixed(data, kind, self._marks.count)

    def _texts(self, target: Target) -> pa.Array:
        if self._spread:
            try:
                target = spread_texts(target, 4, self._marks.places, self._spares)
            except Broken as error:
                raise RemoteProtocolError(f"a long GTID set or name in {self.count} rows: {error}") from error
        return wrapped(target, pa.string())


def maps_of(maps: Maps, names: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return rows as maps from names to texts. names: indexed by the kernel's numbers; kind: a map of strings."""
    keys = names.take(_fixed(maps.names, pa.int32(), maps.size))
    pairs = pa.StructArray.from_arrays(
        [keys, wrapped(maps.values, pa.string())], fields=[kind.key_field, kind.item_field]
    )
    items = maps.items
    validity = pa.py_buffer(items.validity) if items.nulls else None
    buffers = [validity, pa.py_buffer(items.offsets)]
    return pa.Array.from_buffers(kind, items.count, buffers, items.nulls, children=[pairs])


def repeated(text: str, count: int) -> pa.Array:
    """Return an array with the same text in every row."""
    return strings([text]).take(_fixed(bytearray(4 * count), pa.int32(), count))


def _fixed(data: bytearray, kind: pa.DataType, count: int) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])
