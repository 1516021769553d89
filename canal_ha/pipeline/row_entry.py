"""RowEntry: one entry with its rows, for targets that write messages. Pure."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from canal_ha.client.arrow_types import column_type
from canal_ha.decode.kernel.changes import entry_texts
from canal_ha.decode.kernel.codes import ROWDATA
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.envelopes import Envelopes
from canal_ha.decode.kernel.layouts import ColumnLayout, Images, Layout
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.decode.kernel.queue_rows import old_objects, row_hashes, row_objects
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.entry import EventType
from canal_ha.pipeline.given_key import NO_NAMES

Texts = list[str | None]
_NO_PLACES = array("q")
_ROWS = frozenset({EventType.INSERT, EventType.UPDATE, EventType.DELETE})


class ImageColumns:
    """The columns of an image, the same object for all entries of a portion with these columns.

    names, types, keys, indexes: name, mysqlType, whether it is part of the key, and place in the table, of each column.
    kinds: what the types mean.
    made: what a format keeps about them.
    """

    __slots__ = ("_columns", "indexes", "keys", "kinds", "made", "names", "types")

    def __init__(self, columns: Sequence[ColumnLayout]) -> None:
        self._columns = columns
        self.names = [column.name for column in columns]
        self.types = [column.mysql_type for column in columns]
        self.keys = [column.key for column in columns]
        self.indexes = [column.index for column in columns]
        self.kinds = [column_type(column.mysql_type, column.sql_type) for column in columns]
        self.made: dict[Any, Any] = {}

    def joined(self, other: ImageColumns) -> ImageColumns:
        """Return the columns of both images, in table order; the same object each time."""
        found: ImageColumns | None = self.made.get(other)
        if found is None:
            both = {column.index: column for column in (*other._columns, *self._columns)}
            found = self.made[other] = ImageColumns([both[index] for index in sorted(both)])
        return found

    @property
    def key_names(self) -> list[str]:
        """The names of the key's columns."""
        return [name for name, key in zip(self.names, self.keys, strict=True) if key]

    def texts(self, image: Texts) -> dict[str, str]:
        """Return an image's values that are not NULL, by name."""
        return {name: text for name, text in zip(self.names, image, strict=True) if text is not None}

    def places_of(self, other: ImageColumns) -> list[int | None]:
        """Return for each column where another image has it; None if it has not."""
        places = {index: place for place, index in enumerate(other.indexes)}
        return [places.get(index) for index in self.indexes]

    @property
    def partial(self) -> bool:
        """Whether the binlog omits columns before the last one."""
        return self.indexes != list(range(len(self.indexes)))


class StoredRows:
    """The rows of an entry, read when somebody asks for them.

    Iterating yields the texts before and after the change of each row; a side that the event lacks is empty. Reading
    raises RemoteProtocolError.
    """

    __slots__ = ("_images", "_places", "_src")

    def __init__(self, src: bytes, places: array[int], images: Images) -> None:
        """Take where the RowDatas begin and end in `src`. images: those of the entry's table and kind of change."""
        self._src = src
        self._places = places
        self._images = images

    def __len__(self) -> int:
        return len(self._places) // 2

    def __iter__(self) -> Iterator[tuple[Texts, Texts]]:
        with _valid():
            return iter(entry_texts(self._src, self._places, self._images))

    def objects(self, labels: list[bytes], *, deleted: bool) -> list[bytes]:
        """Return the current image of each row as JSON; see queue_rows.row_objects."""
        with _valid():
            return row_objects(self._src, self._places, self._images, deleted, labels)

    def old_objects(self, labels: list[bytes], now: Sequence[int | None]) -> list[bytes]:
        """Return what each row of an UPDATE changed as JSON; see queue_rows.old_objects. now: None without a place."""
        with _valid():
            places = [-1 if place is None else place for place in now]
            return old_objects(self._src, self._places, self._images, places, labels)

    def hashes(self, columns: list[int], *, deleted: bool) -> list[int]:
        """Return the Java hash of these columns in the current image of each row; see queue_rows.row_hashes."""
        with _valid():
            return row_hashes(self._src, self._places, self._images, deleted, columns)

    def write(self, made: Envelopes, event: EventType, *, snapshot: bool) -> None:
        """Append the messages of the rows; see envelopes.Envelopes. Raises what its columns raise, too."""
        with _valid():
            made.write(self._src, self._places, self._images, event, snapshot)


@dataclass(frozen=True, slots=True)
class RowEntry:
    """Rows of one table, or one statement.

    schema, table: its names; those of a statement can be "".
    event: what happened.
    is_ddl, sql: of a statement.
    time_ms: time of the event, ms since 1970.
    server_id, journal, offset: of the event.
    gtid: the set with its transaction; "" without GTIDs.
    own_gtid: GTID of its transaction; "" without.
    snapshot: id of the snapshot that read the rows; "" for the binlog.
    partial: the node says that the new rows lack columns.
    before, after: the columns of each side.
    rows: none for a statement.
    codes: sqlType of each column of the last row, old ones for a delete.
    frame: the entry as field 2 of canal's Messages.
    key_names: other names of given key columns; see GivenKeys.others.
    """

    schema: str
    table: str
    event: EventType
    is_ddl: bool
    sql: str
    time_ms: int
    server_id: int
    journal: str
    offset: int
    gtid: str
    own_gtid: str
    snapshot: str
    partial: bool
    before: ImageColumns
    after: ImageColumns
    rows: StoredRows
    codes: Sequence[int]
    frame: memoryview
    key_names: Mapping[str, str]

    @property
    def image(self) -> ImageColumns:
        """The columns of the current image: the new one, or the old one of a delete."""
        return self.before if self.event == EventType.DELETE else self.after


def row_entries(
    frames: bytes,
    takes: Callable[[str, str], bool],
    key_names: Callable[[str], Mapping[str, str]] = lambda table: NO_NAMES,
) -> Iterator[RowEntry]:
    """Yield the entries with rows or statements, in order.

    frames: field 2 of Messages, once for each entry.
    takes: returns whether a table is wanted (schema, name).
    key_names: returns other names of given key columns of `schema.table`.
    Raises RemoteProtocolError.
    """
    known: dict[tuple[str, str, int], Images] = {}
    entry, start = Entries(frames, 0, len(frames)), 0
    with _valid():
        while entry.next():
            if entry.kind == ROWDATA:
                schema = entry.text(entry.schema_start, entry.schema_stop)
                table = entry.text(entry.table_start, entry.table_stop)
                if takes(schema, table):
                    yield _entry(entry, start, schema, table, known, key_names(f"{schema}.{table}"))
            start = entry.pos


@contextmanager
def _valid() -> Iterator[None]:
    """Turn errors of the kernel into those of a peer that sent invalid entries."""
    try:
        yield
    except Broken as error:
        raise RemoteProtocolError(f"invalid entry: {error}") from error


def _entry(
    entry: Entries,
    start: int,
    schema: str,
    table: str,
    known: dict[tuple[str, str, int], Images],
    key_names: Mapping[str, str],
) -> RowEntry:
    entry.change()
    event = EventType(entry.event_type)
    images = known.get((schema, table, event))
    if images is None:
        images = known[(schema, table, event)] = Images({})
    places = entry.rows[:] if event in _ROWS and not entry.is_ddl else _NO_PLACES
    if places:
        images.row(entry.src, places[-2], places[-1])  # canal takes the columns' codes of the last row
    current = images.before if event == EventType.DELETE else images.after
    return RowEntry(
        schema,
        table,
        event,
        bool(entry.is_ddl),
        entry.text(entry.sql_start, entry.sql_stop),
        entry.time_ms,
        entry.server_id,
        entry.text(entry.journal_start, entry.journal_stop),
        entry.offset,
        entry.text(entry.gtid_start, entry.gtid_stop),
        entry.text(entry.own_gtid_start, entry.own_gtid_stop),
        entry.text(entry.snapshot_start, entry.snapshot_stop) if entry.snapshot_stop else "",
        bool(entry.partial),
        _columns(images.before),
        _columns(images.after),
        StoredRows(entry.src, places, images),
        [column.cell_type for column in current.columns] if places else (),
        memoryview(entry.src)[start : entry.pos],
        key_names,
    )


def _columns(layout: Layout) -> ImageColumns:
    if layout.plan is None:
        layout.plan = ImageColumns(layout.columns)
    columns: ImageColumns = layout.plan
    return columns
