"""Entries -> changes in columns: how each row changed and where, beside the values of the tables.

    TableRows   the rows of chosen tables, typed: a table has a Sheet, and a Sheet has a Target for each wanted column
    MapRows     the rows of all tables, as lists of names and texts
    entry_rows  the rows of one entry as Python's dicts
    entry_texts the rows of one entry as canal's texts

`step` works until Python has to act, and returns why:

    DONE       the frames are read
    TABLE      `key` is a new table: call `add`
    LAYOUT     the next rows have the columns of `layout`: take the contents of `sheet`, then `start` it for them
    FULL       `sheet` is full: take its contents, then `start` it again
    STATEMENT  the current entry is a statement about `sheet`'s table

In a Sheet, an UPDATE that changes the key is a delete and an insert.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import canal_ha.decode.kernel.buffers as b
import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.columns as c
import canal_ha.decode.kernel.entries as e
import canal_ha.decode.kernel.layouts as ly
import canal_ha.decode.kernel.primitives as p
import canal_ha.decode.kernel.shapes as sh
import canal_ha.decode.kernel.texts as t

_SHAPES = 50  # made between two calls of Sheet.start; more only take time if the columns change with every row
_DDL_EVENTS = frozenset({4, 5, 6, 8, 9, 10, 11})  # model.entry.DDL_TYPES


def _kind(entry: e.Entries) -> int:
    """Return what happened to the rows of an entry."""
    if entry.snapshot_stop > entry.snapshot_start and entry.event_type == k.EVENT_INSERT:
        return k.READ
    return entry.event_type - 1


class Marks:
    """What every row records of its entry, as columns.

    For each row: ops (8 bits), rows (32: index in its entry), places (32: index of its entry below).
    For each entry: numbers, subs (32), times (64, microseconds), servers, offsets (64), and texts; schemas and tables
    only if `named`.
    """

    __slots__ = (
        "_last", "count", "entries", "expected", "expected_entries", "gtids", "journals", "named", "numbers", "offsets",
        "ops", "places", "rows", "schemas", "servers", "subs", "tables", "times",
    )  # fmt: skip

    def __init__(self, named: bool = True) -> None:
        self.named = named
        self.count = 0  # rows
        self.expected = 0  # rows
        self.entries = 0
        self.expected_entries = 0
        self._last = -1
        self.ops = bytearray()
        self.rows = bytearray()
        self.places = bytearray()
        self.numbers = bytearray()
        self.subs = bytearray()
        self.times = bytearray()
        self.servers = bytearray()
        self.offsets = bytearray()
        self.journals = c.Target(k.TEXT)
        self.gtids = c.Target(k.TEXT)
        self.schemas = c.Target(k.TEXT)
        self.tables = c.Target(k.TEXT)

    def left(self) -> Marks:
        """Return empty marks that expect as many rows and entries."""
        again = Marks(self.named)
        again.expected = self.count if self.count else self.expected
        again.expected_entries = self.entries if self.entries else self.expected_entries
        again.journals.expect(self.journals)
        again.gtids.expect(self.gtids)
        return again

    def renewed(self, spares: b.Spares) -> Marks:
        """Return empty marks with memory for the expected rows and entries."""
        again = self.left()
        entries = again.expected_entries
        again.numbers = spares.take(4 * entries)
        again.subs = spares.take(4 * entries)
        again.times = spares.take(8 * entries)
        again.servers = spares.take(8 * entries)
        again.offsets = spares.take(8 * entries)
        again.journals = again.journals.renewed(spares)
        again.gtids = again.gtids.renewed(spares)
        again.ops = spares.take(again.expected)
        again.rows = spares.take(4 * again.expected)
        again.places = spares.take(4 * again.expected)
        return again

    def put(self, entry: e.Entries, op: int, row: int, count: int = 1) -> None:
        """Add rows of the current entry. row: index of the first one."""
        if entry.number != self._last:
            self._last = entry.number
            self.entries += 1
            t.put_i32(self.numbers, entry.number)
            t.put_i32(self.subs, entry.sub)
            t.put_i64(self.times, entry.time_ms * 1000)
            t.put_i64(self.servers, entry.server_id)
            t.put_i64(self.offsets, entry.offset)
            self._put_text(self.journals, entry.src, entry.journal_start, entry.journal_stop)
            self._put_text(self.gtids, entry.src, entry.gtid_start, entry.gtid_stop)
            if self.named:
                self._put_text(self.schemas, entry.src, entry.schema_start, entry.schema_stop)
                self._put_text(self.tables, entry.src, entry.table_start, entry.table_stop)
        t.put_marks(self.ops, self.rows, self.places, op, row, self.entries - 1, count)
        self.count += count

    def _put_text(self, target: c.Target, src: bytes, start: int, stop: int) -> None:
        """Append a text of a header, which is UTF-8."""
        if not t.put_ended(target.data, target.offsets, src, start, stop):
            raise p.Broken("more than 2 GiB in one column")
        target.count += 1


class Sheet:
    """Typed rows of one table, with equal columns.

    plan: for each column of the layout a Target; None leaves it out.
    whole: ask for a layout whenever new rows lack columns, or the images of an update have different ones.
    """

    __slots__ = ("_made", "_shapes", "changes", "identity", "marks", "owner", "plan", "since", "whole")

    def __init__(self, owner: Any, key_places: ly.KeyPlaces | None = None) -> None:
        """Begin without columns.

        owner: any object of the caller.
        key_places: finds the columns of the key; None: of the primary key.
        """
        identities: dict[object, object] = {}
        self.owner = owner
        self.whole = False
        self.changes = [ly.Images(identities, key_places) for _ in range(3)]  # INSERT, UPDATE, DELETE
        self.identity: object = None
        self.plan: list[c.Target | None] = []
        self.marks = Marks()
        self.since = -1  # where the entries of its rows begin
        self._shapes: list[sh.RowShape | None] = [None] * 3  # like changes
        self._made = 0

    def start(self, identity: object, plan: list[c.Target | None], marks: Marks | None = None) -> None:
        """Start again, for rows with these columns. marks: empty ones."""
        self.identity = identity
        self.plan = plan
        self.marks = Marks() if marks is None else marks
        self.since = -1
        self._shapes = [None] * 3
        self._made = 0

    def shape(self, event: int) -> sh.RowShape | None:
        """Return the shape of rows of this kind of change, if some were read."""
        return self._shapes[event - 1]

    def learn(self, event: int, images: ly.Images) -> None:
        """Make a shape of the row that `images` has just read, unless there is one."""
        shape = self._shapes[event - 1]
        if (
            shape is None
            or shape.learned != images.learned
            or shape.before is not images.before
            or shape.after is not images.after
        ) and self._made < _SHAPES:
            self._shapes[event - 1] = sh.RowShape(images, event, self.plan)
            self._made += 1

    def rest(self) -> None:
        """Release all entries and memory, until rows of another TableRows are put here."""
        for images in self.changes:
            images.src = b""
        for target in self.plan:
            if target is not None:
                target.leave()
        self.marks = self.marks.left()
        self.since = -1
        self._shapes = [None] * 3


class TableRows:
    """Reads the rows of chosen tables.

    entry: the entries.
    rows, size: rows and entry bytes at which a Sheet is FULL.
    """

    __slots__ = (
        "_count",
        "_deleted",
        "_present",
        "_row",
        "_schema",
        "_table",
        "_table_known",
        "entry",
        "key",
        "layout",
        "place",
        "refused",
        "rows",
        "sheet",
        "sheets",
        "size",
    )

    def __init__(self, entry: e.Entries, rows: int, size: int) -> None:
        self.entry = entry
        self.rows = rows
        self.size = size
        self.sheets: dict[bytes, Sheet | None] = {}
        self.sheet = Sheet(None)
        self.key = b""
        self.layout = ly.Layout([], None, None, [])
        self.place = -1  # the column of the layout that did not fit its Target
        self.refused: c.Target | None = None
        self._row = -1  # the next row of the current entry; -1: no entry is open
        self._deleted = False  # whether the delete of a key change is done
        self._count = 0
        self._table_known = False
        self._schema = b""
        self._table = b""
        self._present: Sheet | None = None  # of the current entry's table

    def add(self, sheet: Sheet | None) -> None:
        """Set the Sheet for the rows of the table `key`; None skips them."""
        self.sheets[self.key] = sheet

    def step(self) -> int:
        """Work until Python has to act; see the module. Raises Broken, with `refused` set if a value did not fit."""
        entry = self.entry
        while True:
            if self._row < 0:
                if not entry.next():
                    return k.DONE
                if entry.kind != k.ROWDATA:
                    continue
                self._row = 0
                self._count = -1
            if self._count < 0:
                if not self._same_table(entry):
                    key = self._schema + b"\0" + self._table
                    if key not in self.sheets:
                        self._table_known = False
                        self.key = key
                        return k.TABLE
                    self._present = self.sheets[key]
                sheet = self._present
                if sheet is None:
                    self._row = -1
                    continue
                self.sheet = sheet
                self._count = entry.change()
                if self._count == 0 or entry.event_type > k.EVENT_DELETE:
                    self._row = -1
                    if entry.is_ddl or entry.event_type in _DDL_EVENTS:
                        return k.STATEMENT
                    continue
            code = self._entry_rows(entry, self.sheet)
            if code != k.DONE:
                return code
            self._row = -1

    def _same_table(self, entry: e.Entries) -> bool:
        """Return whether `_present` belongs to the current entry's table; if not, set `key` to that table."""
        src = entry.src
        if (
            self._table_known
            and p.same_bytes(src, entry.table_start, entry.table_stop, self._table)
            and p.same_bytes(src, entry.schema_start, entry.schema_stop, self._schema)
        ):
            return True
        self._schema = src[entry.schema_start : entry.schema_stop]
        self._table = src[entry.table_start : entry.table_stop]
        self._table_known = True
        return False

    def _entry_rows(self, entry: e.Entries, sheet: Sheet) -> int:
        """Read the rows of the current entry from `_row` on."""
        src = entry.src
        marks = sheet.marks
        plan = sheet.plan
        event = entry.event_type
        kind = _kind(entry)
        images = sheet.changes[event - 1]
        if sheet.since < 0:
            sheet.since = entry.store_start
        elif marks.count >= self.rows or entry.store_stop - sheet.since > self.size:
            return k.FULL
        usual = not (sheet.whole and entry.partial)
        while self._row < self._count:
            row = self._row
            shape = sheet.shape(event)
            if (
                shape is not None
                and shape.before is images.before  # NULL fits more layouts than one, and `images` tries its last one
                and shape.after is images.after
                and usual
                and not self._deleted
            ):
                done = shape.put(src, entry.rows, row, self._count)
                if shape.refused >= 0:
                    self._refuse(images.before if event == k.EVENT_DELETE else images.after, shape.refused, plan)
                if done:
                    marks.put(entry, kind, row, done)
                    row += done
                    self._row = row
                    if row == self._count:
                        break
            changed = images.row(src, p.item(entry.rows, 2 * row), p.item(entry.rows, 2 * row + 1))
            before = images.before
            after = images.after
            op = kind
            layout = before if event == k.EVENT_DELETE else after
            if event == k.EVENT_UPDATE and before.names is after.names and not ly.same_key(before, after, src):
                op = k.INSERT if self._deleted else k.DELETE
                layout = after if self._deleted else before
            partial = sheet.whole and (entry.partial or (event == k.EVENT_UPDATE and before.names is not after.names))
            if partial or layout.identity is not sheet.identity:
                self.layout = layout
                return k.LAYOUT
            self._put(src, layout, plan)
            if marks.count and not changed and usual and op == kind:
                sheet.learn(event, images)
            marks.put(entry, op, row)
            if op == k.DELETE and event == k.EVENT_UPDATE:
                self._deleted = True
            else:
                self._deleted = False
                self._row = row + 1
        return k.DONE

    def _put(self, src: bytes, layout: ly.Layout, plan: list[c.Target | None]) -> None:
        columns = layout.columns
        for place in range(len(plan)):
            target = plan[place]
            if target is None:
                continue
            column = columns[place]
            if not target.put(src, column.start, column.stop):
                self._refuse(layout, place, plan)

    def _refuse(self, layout: ly.Layout, place: int, plan: list[c.Target | None]) -> None:
        self.place = place
        self.layout = layout
        self.refused = plan[place]
        column = layout.columns[place]
        raise p.Broken(f"column {column.name}: no value of its type")


class Maps:
    """Rows as maps. items: for each row its stretch of names (32 bits, indexes of MapRows.names) and values."""

    __slots__ = ("items", "names", "size", "values")

    def __init__(self) -> None:
        self.items = c.Groups()
        self.names = bytearray()
        self.values = c.Target(k.TEXT)
        self.size = 0

    def put(self, src: bytes, columns: list[ly.ColumnLayout], names: bytes) -> None:
        """Add a row. names: of these columns, encoded like `names`."""
        for column in columns:
            self.values.put(src, column.start, column.stop)
        p.put(self.names, names)
        self.size += len(columns)
        self.items.put(self.size)

    def put_null(self) -> None:
        """Add a row without a map."""
        self.items.put_null(self.size)


class MapRows:
    """Reads the rows of all tables in the frames src[start:stop].

    rows, size: rows and entry bytes after which `step` returns FULL.
    The results are in marks, keys, befores, afters, statements; names maps the numbers to names. Take them, then call
    `renew`.
    """

    __slots__ = (
        "_count", "_numbers", "_row", "_since", "afters", "befores", "entry", "keys", "marks", "names", "rows", "size",
        "statements", "tables",
    )  # fmt: skip

    def __init__(self, src: bytes, start: int, stop: int, rows: int, size: int) -> None:
        self.entry = e.Entries(src, start, stop)
        self.rows = rows
        self.size = size
        self.tables: dict[bytes, list[ly.Images]] = {}
        self._row = -1
        self._count = 0
        self.renew()

    def renew(self) -> None:
        """Start again after the results were taken."""
        self.marks = Marks()
        self.keys = Maps()
        self.befores = Maps()
        self.afters = Maps()
        self.statements = c.Target(k.TEXT)
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._since = -1
        for changes in self.tables.values():
            for images in changes:
                for layout in (*images.known_before.values(), *images.known_after.values()):
                    layout.plan = None

    def step(self) -> int:
        """Read rows; return DONE or FULL. Raises Broken."""
        entry = self.entry
        while True:
            if self._row < 0:
                if not entry.next():
                    return k.DONE
                if entry.kind != k.ROWDATA:
                    continue
                self._count = entry.change()
                self._row = 0
            if self._since < 0:
                self._since = entry.store_start
            elif self.marks.count >= self.rows or entry.store_stop - self._since > self.size:
                return k.FULL
            if self._count and entry.event_type <= k.EVENT_DELETE:
                self._entry_rows(entry)
            elif entry.is_ddl or entry.event_type in _DDL_EVENTS:
                self.keys.put_null()
                self.befores.put_null()
                self.afters.put_null()
                self.statements.put(entry.src, entry.sql_start, entry.sql_stop)
                self.marks.put(entry, k.DDL, 0)
            self._row = -1

    def _entry_rows(self, entry: e.Entries) -> None:
        src = entry.src
        key = src[entry.schema_start : entry.schema_stop] + b"\0" + src[entry.table_start : entry.table_stop]
        changes = self.tables.get(key)
        if changes is None:
            changes = self.tables[key] = [ly.Images({}) for _ in range(3)]
        event = entry.event_type
        kind = _kind(entry)
        images = changes[event - 1]
        for row in range(self._count):
            images.row(src, p.item(entry.rows, 2 * row), p.item(entry.rows, 2 * row + 1))
            before = images.before
            after = images.after
            layout = before if event == k.EVENT_DELETE else after
            plan = self._plan(layout)
            self.keys.put(src, plan.keys, plan.key_names)
            if event == k.EVENT_INSERT:
                self.befores.put_null()
            else:
                self._put(self.befores, src, before)
            if event == k.EVENT_DELETE:
                self.afters.put_null()
            else:
                self._put(self.afters, src, after)
            self.marks.put(entry, kind, row)
            self.statements.put_null()

    def _put(self, maps: Maps, src: bytes, layout: ly.Layout) -> None:
        maps.put(src, layout.columns, self._plan(layout).names)

    def _plan(self, layout: ly.Layout) -> MapPlan:
        plan: MapPlan | None = layout.plan
        if plan is None:
            plan = layout.plan = MapPlan(layout, [self._number(column.name) for column in layout.columns])
        return plan

    def _number(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number


class MapPlan:
    """The names of a layout, and of its key, as consecutive numbers of 32 bits."""

    __slots__ = ("key_names", "keys", "names")

    def __init__(self, layout: ly.Layout, numbers: list[int]) -> None:
        names = bytearray()
        for number in numbers:
            t.put_i32(names, number)
        self.names = bytes(names)
        self.key_names = b"".join(self.names[4 * place : 4 * place + 4] for place in layout.keys)
        self.keys = [layout.columns[place] for place in layout.keys]


# ---- Python's objects

Convert = Callable[[str, int, str], object]
"""A text, its sqlType, its mysqlType -> what it means"""


def entry_rows(
    entry: e.Entries, images: ly.Images, convert: Convert
) -> list[tuple[dict[str, object] | None, dict[str, object] | None]]:
    """Return before and after of every row of an entry; None for a side without columns.

    entry: an entry whose `change` was called.
    images: kept by the caller for the rows of one table and one kind of change.
    convert: makes Python values of texts.
    Raises Broken.
    """
    src = entry.src
    found: list[tuple[dict[str, object] | None, dict[str, object] | None]] = []
    for row in range(p.length(entry.rows) >> 1):
        images.row(src, p.item(entry.rows, 2 * row), p.item(entry.rows, 2 * row + 1))
        found.append((_values(src, images.before, convert), _values(src, images.after, convert)))
    return found


def entry_texts(src: bytes, places: array[int], images: ly.Images) -> list[tuple[list[str | None], list[str | None]]]:
    """Return the texts before and after every row of an entry, in the order of their columns; None for NULL.

    places: where the RowDatas of the entry begin and end in `src`.
    images: those of the entry's table and kind of change.
    Raises Broken, also if the rows have different columns.
    """
    found = []
    before: object = None
    after: object = None
    for row in range(p.length(places) >> 1):
        images.row(src, p.item(places, 2 * row), p.item(places, 2 * row + 1))
        if row > 0 and (images.before.names is not before or images.after.names is not after):
            raise p.Broken("rows of one entry with different columns")
        before = images.before.names
        after = images.after.names
        found.append((_all_texts(src, images.before), _all_texts(src, images.after)))
    return found


def _all_texts(src: bytes, layout: ly.Layout) -> list[str | None]:
    texts: list[str | None] = []
    for column in layout.columns:
        if column.start == k.NULL:
            texts.append(None)
        elif p.is_utf8(src, column.start, column.stop):
            texts.append(t.as_text(src, column.start, column.stop))
        else:
            raise p.Broken("a value that is no UTF-8")
    return texts


def entry_keys(
    entry: e.Entries, images: ly.Images, names: tuple[str, ...]
) -> list[tuple[tuple[str | None, ...], tuple[str | None, ...]]]:
    """Return the texts of these columns before and after every row of an entry.

    entry, images: see entry_rows.
    names: of the columns. A text is None if the side has no such column, or NULL in it; () stands for a side without
        columns.
    Raises Broken.
    """
    src = entry.src
    found = []
    for row in range(p.length(entry.rows) >> 1):
        images.row(src, p.item(entry.rows, 2 * row), p.item(entry.rows, 2 * row + 1))
        found.append((_texts(src, images.before, names), _texts(src, images.after, names)))
    return found


def _texts(src: bytes, layout: ly.Layout, names: tuple[str, ...]) -> tuple[str | None, ...]:
    if layout.plan is None:
        known = {column.name: column for column in layout.columns}
        layout.plan = [known.get(name) for name in names] if known else []
    return tuple([_text(src, column) for column in layout.plan])


def _text(src: bytes, column: ly.ColumnLayout | None) -> str | None:
    return None if column is None or column.start == k.NULL else t.as_text(src, column.start, column.stop)


def _values(src: bytes, layout: ly.Layout, convert: Convert) -> dict[str, object] | None:
    columns = layout.columns
    if not columns:
        return None
    values: dict[str, object] = {}
    for column in columns:
        start = column.start
        if start == k.NULL:
            values[column.name] = None
        else:
            if not p.is_utf8(src, start, column.stop):
                raise p.Broken("a value that is no UTF-8")
            sql_type = column.sql_type
            if column.labelled:
                values[column.name] = convert(t.as_text(src, start, column.stop), sql_type, column.mysql_type)
            elif sql_type in (4, -5, -6, 5, -7):  # java.sql.Types whose texts are whole numbers
                values[column.name] = t.as_integer(src, start, column.stop)
            elif sql_type in (1, 12, 93, 91, 92, 2005, 1111, 2014):  # and those whose texts stay unchanged
                values[column.name] = t.as_text(src, start, column.stop)
            else:
                values[column.name] = convert(t.as_text(src, start, column.stop), sql_type, column.mysql_type)
    return values
