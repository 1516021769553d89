"""ChangeReader: turns the entries of a portion into Arrow batches, or into rows one by one. Pure.

A statement stands at the table that its entry names, and at every other table of the pipeline that it changes: a copy
has to know that `DROP TABLE a, b` drops b.

The binlog can have only some columns of a row (binlog_row_image). Such a row is refused, unless it is deleted: a column
without a value is not NULL. The node marks such rows among exact values. Otherwise it shows by a gap between the
columns, by images with different columns, or by columns that change without a statement. A statement that changes rows
is refused, too: the source has not logged the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.client.arrow import META, Pages, TableBatch, arrow_message, table_batches
from canal_ha.client.arrow_types import ColumnType
from canal_ha.client.message import Message, parse
from canal_ha.client.rows import Event, Row, row_change
from canal_ha.decode.ddl.event_types import removes_unnamed_rows
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.changes import entry_rows
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import ColumnLayout, Images, KeyPlaces
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError, SinkRefused
from canal_ha.model.entry import DDL_TYPES
from canal_ha.pipeline.entry_transform import transformed
from canal_ha.pipeline.given_key import KeyNames
from canal_ha.pipeline.logged_statements import check_filled, check_statement, check_statements, place_of
from canal_ha.pipeline.row_entry import RowEntry, row_entries
from canal_ha.pipeline.statements import StatementEffect, effects
from canal_ha.pipeline.transforms import Transforms
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto.canal_protocol_pb2 import Messages
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA

KEY = b"canal.key"
TYPE = b"canal.type"
GIVEN = b"canal.given"  # the name that the pipeline's file has for a key column, if it is another one
PARTIAL = b"canal.partial"  # in the metadata of a schema: columns are missing between those of the rows
_AS_TEXT = {True: ("date", "datetime", "timestamp"), False: ("date", "datetime")}  # in UTC, and in another time zone
_ANY_ID = 1  # messages are built here, and nobody acknowledges them

Table = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement that changes a table of the pipeline.

    start, stop: of its frame.
    number: of its entry.
    own: the table that its entry names.
    sql: its text.
    effects: on tables of the pipeline.
    place: see place_of.
    """

    start: int
    stop: int
    number: int
    own: Table
    sql: str
    effects: Sequence[StatementEffect]
    place: str

    @property
    def tables(self) -> list[Table]:
        """The tables, each once."""
        return list(dict.fromkeys((effect.schema, effect.table) for effect in self.effects))


class ChangeReader:
    """Reads the tables of one pipeline. One thread; it keeps the columns of tables from portion to portion."""

    def __init__(
        self,
        takes: Callable[[str, str], bool],
        time_zone: str = "UTC",
        transforms: Sequence[Mapping[str, Any]] = (),
        keys: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """Begin without known tables.

        takes: returns whether the pipeline includes a table (schema, name).
        time_zone: of the server process; canal writes TIMESTAMP values in it.
        transforms: of the pipeline's file.
        keys: `schema.table` -> key columns of tables without a primary key, by names at the target.
        Raises OptionInvalid for transforms that cannot be used.
        """
        self._takes = takes
        self._transforms = Transforms(transforms, keys, takes)
        self._time_zone = time_zone
        self._pages = {
            as_text: Pages(
                _Described(takes, self._transforms, _AS_TEXT[time_zone == "UTC"] if as_text else ()), time_zone
            )
            for as_text in (False, True)
        }
        self._images: dict[bytes, Images | None] = {}
        self._scanned: tuple[bytes, list[_Statement]] | None = None  # of a portion that is not read yet
        self._columns: dict[Table, frozenset[str]] = {}  # names in lower case, since the table's last statement

    def batches(self, frames: bytes, *, dates_as_text: bool = False) -> Iterator[TableBatch]:
        """See Portion.batches."""
        for batch in self._numbered(frames, self._pages[dates_as_text]):
            self._check(batch)
            yield self._transforms.of(batch.schema, batch.table).batch(batch)

    def merged(self, schema: str, table: str) -> bool:
        """Return whether a table of the target, whose rows `batches` has yielded, is one that a route merges."""
        return self._transforms.merged(schema, table)

    def rows(self, frames: bytes) -> Iterator[Row]:
        """See Portion.changes."""
        images: dict[tuple[str, str, str], Images] = {}
        entry = Entries(frames, 0, len(frames))
        try:
            while entry.next():
                if entry.kind != codes.ROWDATA:
                    continue
                count, event = entry.change(), Event(entry)
                if self._takes(event.schema, event.table):
                    known = images.setdefault((event.schema, event.table, event.type), Images({}))
                    yield from self._rows(entry, event, known) if count else [self._statement_row(event)]
        except Broken as error:
            raise RemoteProtocolError(f"invalid entry: {error}") from error

    def transformed(self, frames: bytes) -> bytes:
        """Return entries in the same form as the target gets them, for targets that read these; without other tables.

        Raises SinkRefused and RemoteProtocolError.
        """
        if not self._transforms:
            return frames
        made = []
        for raw in _message(frames).raw_entries:
            entry = parse(raw)
            schema, table = entry.header.schemaName, entry.header.tableName
            if entry.entryType == ROWDATA and self._takes(schema, table):
                entry = transformed(entry, self._transforms.of(schema, table), self._time_zone)
                made.append(entry.SerializeToString())
        return Messages(messages=made).SerializeToString()

    def row_entries(self, frames: bytes) -> Iterator[RowEntry]:
        """See Portion.row_entries. Raises SinkRefused and RemoteProtocolError."""
        self._learn_names(frames)
        others = self._transforms.given.others
        if self._transforms:
            return row_entries(self.transformed(frames), lambda schema, table: True, others)
        return row_entries(frames, self._takes, others)

    def key_names(self, frames: bytes, before: KeyNames) -> KeyNames:
        """Begin a portion; return the names of given key columns behind it. before: those of the progress before it.

        Raises SinkRefused if another column gets the name of one, and RemoteProtocolError.
        """
        self._transforms.given.begin(before)
        self._learn_names(frames)
        return self._transforms.given.names

    def check_statements(self, frames: bytes) -> None:
        """Raise SinkRefused if the source has logged changes of rows as statements, for messages of single rows.

        `batches` does so, too, but for CREATE TABLE ... SELECT: see check_filled.
        """
        check_statements(frames, self._takes)

    def check_filled(self, frames: bytes) -> None:
        """Raise SinkRefused if the source has logged a CREATE TABLE ... SELECT, whose rows a changelog would lack."""
        for statement in self._statements(frames):
            check_filled(statement.effects, statement.place)

    def _rows(self, entry: Entries, event: Event, images: Images) -> Iterator[Row]:
        plan = self._transforms.of(event.schema, event.table)
        event.schema, event.table = plan.schema, plan.table
        for index, (before, after) in enumerate(entry_rows(entry, images, plan.convert)):
            old = plan.values(before, images.before, self._time_zone)
            yield Row(event, index, old, plan.values(after, images.after, self._time_zone))

    def _statement_row(self, event: Event) -> Row:
        plan = self._transforms.of(event.schema, event.table)
        event.schema, event.table, event.sql = plan.schema, plan.table, plan.statement(event.sql)
        return Row(event, 0, None, None)

    def leaving(self, frames: bytes) -> list[str]:
        """See Portion.leaving."""
        return [statement.sql for statement in self._statements(frames) if removes_unnamed_rows(statement.sql)]

    def refilled(self, frames: bytes, *, columns: bool) -> list[str]:
        """See Portion.refilled."""
        found: dict[str, bool] = {}
        for statement in self._statements(frames):
            for effect in statement.effects:
                unknown = effect.refilled or (columns and bool(effect.computed))
                found[effect.name] = unknown or (found.get(effect.name, False) and not effect.emptied)
        return [name for name, refilled in found.items() if refilled]

    def emptied(self, frames: bytes) -> list[str]:
        """See Portion.emptied."""
        changed = [effect for statement in self._statements(frames) for effect in statement.effects]
        return list(dict.fromkeys(effect.name for effect in changed if effect.emptied))

    def _numbered(self, frames: bytes, pages: Pages) -> Iterator[TableBatch]:
        """Yield the batches, unchecked. A statement about other tables than its own ends those before it."""
        begin, first = 0, 0
        statements, self._scanned = self._statements(frames), None
        for statement in statements:
            if statement.tables in ([], [statement.own]) and self._takes(*statement.own):
                continue
            yield from _stretch(frames[begin : statement.start], first, pages)
            [shown] = table_batches(frames[statement.start : statement.stop])
            own = [statement.own] if self._takes(*statement.own) else []
            for schema, table in dict.fromkeys([*own, *statement.tables]):
                yield _shifted(TableBatch(schema, table, shown.rows), statement.number)
            begin, first = statement.stop, statement.number + 1
        yield from _stretch(frames[begin:], first, pages)

    def _check(self, batch: TableBatch) -> None:
        """Raise SinkRefused for new rows without all columns."""
        rows, table = batch.rows, (batch.schema, batch.table)
        operations = rows.column(rows.num_columns - len(META))
        if operations[0].as_py() == "ddl":
            self._columns.pop(table, None)
            return
        if not pc.any(pc.not_equal(operations, "delete")).as_py():
            return
        names = frozenset(name.lower() for name in rows.schema.names[: -len(META)])
        if PARTIAL in (rows.schema.metadata or {}) or self._columns.setdefault(table, names) != names:
            raise _partial(*table, _place(rows))

    def _statements(self, frames: bytes) -> list[_Statement]:
        """Return what `_scan` does, once for a portion."""
        if self._scanned is None or self._scanned[0] is not frames:
            self._scanned = (frames, self._scan(frames))
        return self._scanned[1]

    def _scan(self, frames: bytes) -> list[_Statement]:
        """Return the statements that change tables of the pipeline, and check the images of updated rows."""
        found = []
        self._transforms.given.begin_again()
        entry = Entries(frames, 0, len(frames))
        try:
            while (count := entry.next_unusual()) >= 0:
                if count:
                    self._check_images(entry)
                elif entry.is_ddl or entry.event_type in DDL_TYPES:
                    statement = self._statement(entry, entry.frame_start)
                    if statement.effects or self._takes(*statement.own) or removes_unnamed_rows(statement.sql):
                        found.append(statement)
                else:
                    check_statement(entry, self._takes)
        except Broken as error:
            raise RemoteProtocolError(f"invalid entry: {error}") from error
        for images in self._images.values():
            if images is not None:
                images.src = b""  # the portion is not kept
        return found

    def _statement(self, entry: Entries, start: int) -> _Statement:
        own = (entry.text(entry.schema_start, entry.schema_stop), entry.text(entry.table_start, entry.table_stop))
        stored = row_change(parse(Messages.FromString(entry.src[start : entry.pos]).messages[0]))
        changed = effects(stored.sql, stored.ddlSchemaName or own[0])
        mine = [effect for effect in changed if self._takes(effect.schema, effect.table)]
        for effect in mine:
            if effect.alter is not None:
                self._transforms.of(effect.schema, effect.table).note_names(effect.alter)
        return _Statement(start, entry.pos, entry.number, own, stored.sql, mine, place_of(entry))

    def _learn_names(self, frames: bytes) -> None:
        """Note the names that statements give to given key columns, because rows before them may have these, too."""
        self._transforms.given.begin_again()
        entry = Entries(frames, 0, len(frames))
        try:
            while self._transforms.given and (count := entry.next_unusual()) >= 0:
                if not count and entry.is_ddl:
                    self._statement(entry, entry.frame_start)
        except Broken as error:
            raise RemoteProtocolError(f"invalid entry: {error}") from error

    def _check_images(self, entry: Entries) -> None:
        """Raise SinkRefused for new rows without all columns, and for an update whose images have different ones.

        All rows of an event have the same columns.
        """
        src = entry.src
        key = src[entry.schema_start : entry.schema_stop] + b"\0" + src[entry.table_start : entry.table_stop]
        if key not in self._images:
            schema, _, table = key.decode().partition("\0")
            self._images[key] = Images({}) if self._takes(schema, table) else None
        images = self._images[key]
        if images is None:
            return
        images.row(src, entry.rows[0], entry.rows[1])
        if entry.partial or images.before.names is not images.after.names:
            schema, _, table = key.decode().partition("\0")
            raise _partial(schema, table, place_of(entry))


def _stretch(frames: bytes, first: int, pages: Pages) -> Iterator[TableBatch]:
    """Yield the batches of entries. first: number of the first one."""
    if frames:
        for batch in arrow_message(_message(frames), pages.time_zone, pages).batches:
            yield _shifted(batch, first)


def _message(frames: bytes) -> Message:
    return Message(Fetched(_ANY_ID, frames))


def _shifted(batch: TableBatch, first: int) -> TableBatch:
    """Return the batch with `first` added to the numbers of its entries."""
    if not first:
        return batch
    rows = batch.rows
    at = rows.num_columns - 2
    position = rows.column(at)
    children = position.flatten()
    fields = list(position.type)
    numbers = next(place for place, field in enumerate(fields) if field.name == "entry")
    children[numbers] = pc.add(children[numbers], pa.scalar(first, pa.int32()))
    moved = pa.StructArray.from_arrays(children, fields=fields)
    columns = [moved if place == at else column for place, column in enumerate(rows.columns)]
    return TableBatch(batch.schema, batch.table, pa.RecordBatch.from_arrays(columns, schema=rows.schema))


def _place(rows: pa.RecordBatch) -> str:
    """Return journal and offset of the first row."""
    position = rows.column(rows.num_columns - 2)[0].as_py()
    return f"{position['journal']}:{position['offset']}"


def _partial(schema: str, table: str, place: str) -> SinkRefused:
    return SinkRefused(
        f"canal: the binlog has only some columns of {schema}.{table} at {place}, or a statement that changed them is"
        " missing. Run SET GLOBAL binlog_row_image = FULL at the source, where sessions must not change it; remove"
        " filters and privacy rules that drop its columns, and canal.instance.filter.query.ddl. Then start the pipeline"
        " after this place, and read the table again with a snapshot"
    )


class _Described:
    """The tables of a pipeline, with key and type of each column in its field's metadata.

    takes, transforms: see ChangeReader.
    as_text: families of types that become texts; timestamps in UTC are texts whenever datetimes are.
    """

    def __init__(self, takes: Callable[[str, str], bool], transforms: Transforms, as_text: Collection[str]) -> None:
        self._takes = takes
        self._transforms = transforms
        self._as_text = as_text

    def table(self, schema: str, table: str) -> bool:
        return self._takes(schema, table)

    def fields(self, schema: str, table: str, columns: Sequence[ColumnLayout]) -> pa.Schema:
        own = []
        others = self._transforms.of(schema, table).other_names
        for column, plan in self._transforms.of(schema, table).names(columns):
            kind = plan.type_of(column)
            metadata = {KEY: b"1" if column.key else b"0", TYPE: kind.text.encode()}
            if plan.name.lower() in others:
                metadata[GIVEN] = others[plan.name.lower()].encode()
            arrow = kind.arrow if plan.changes_values else self._arrow(kind)
            own.append(pa.field(column.name, arrow, metadata=metadata))  # `Transforms` gives it its new name
        gaps = any(column.index != place for place, column in enumerate(columns))
        return pa.schema([*own, *META], metadata={PARTIAL: b"1"} if gaps else None)

    def _arrow(self, kind: ColumnType) -> pa.DataType:
        as_text = kind.name in self._as_text or (kind.utc and bool(self._as_text))
        return pa.string() if as_text else kind.arrow

    def key_places(self, schema: str, table: str) -> KeyPlaces | None:
        return self._transforms.of(schema, table).key_places

    def statement(self, sql: str) -> None:
        """Ignore the statement; it has a row of its own."""
