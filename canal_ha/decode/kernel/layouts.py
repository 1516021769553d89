"""Reads row images of entries in place: which columns they have, and where their values are.

Columns of one table repeat their whole message except the value, row after row. So the bytes before and behind a value
are remembered (Variant) and compared, and only different bytes are parsed field by field. A protobuf message is a
sequence of fields, so equal bytes around another value mean an equal column, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.fields as f
import canal_ha.decode.kernel.primitives as p

_VARIANTS = 8  # of a column: `updated` or not, NULL or not, two sqlTypes of unsigned numbers
_LAYOUTS = 512  # kept for a table and a side; partial images can have many
BINARY_TYPES = frozenset({-4, -3, -2, 2004})  # java.sql.Types whose texts hold one byte in each character
UTC_TYPE = 2014  # java.sql.Types.TIMESTAMP_WITH_TIMEZONE: texts in UTC


class Variant:
    """The bytes around a column's value: `head` up to and including the value's tag, `tail` behind the value.

    null: there is no value, and `head` is the whole message.
    """

    __slots__ = ("head", "head_size", "null", "sql_type", "tail", "tail_size")

    def __init__(self, head: bytes, tail: bytes, null: bool, sql_type: int) -> None:
        self.head = head
        self.tail = tail
        self.head_size = len(head)
        self.tail_size = len(tail)
        self.null = null
        self.sql_type = sql_type


class ColumnLayout:
    """A column of an image.

    start, stop: the current row's value; start is codes.NULL for none.
    sql_type: its type.
    cell_type: the sqlType of the current row, which counts for NULL, too.
    binary, utc: whether its texts hold bytes, or times in UTC.
    labelled: ENUM or SET.
    """

    __slots__ = (
        "binary", "cell_type", "index", "key", "labelled", "last", "mysql_type", "name", "raw_name", "raw_type",
        "sql_type", "start", "stop", "utc", "variants",
    )  # fmt: skip

    def __init__(self, raw_name: bytes, raw_type: bytes, index: int, key: bool, sql_type: int) -> None:
        """Raises Broken."""
        self.raw_name = raw_name
        self.raw_type = raw_type
        try:
            self.name = raw_name.decode()
            self.mysql_type = raw_type.decode()
        except UnicodeDecodeError:
            raise p.Broken("a column's name or type is no UTF-8") from None
        self.index = index
        self.key = key
        self.sql_type = self.cell_type = sql_type
        self.binary = sql_type in BINARY_TYPES
        self.utc = sql_type == UTC_TYPE
        self.labelled = raw_type[:4].lower() == b"enum" or raw_type[:3].lower() == b"set"
        self.variants: list[Variant] = []
        self.last: Variant | None = None
        self.start = k.NULL
        self.stop = k.NULL


class Layout:
    """The columns of an image.

    identity: the same object for equal columns of a table, whose values can be stored together.
    names: likewise, whatever `binary` and `utc` of the columns are.
    keys: places of the key's columns.
    plan: the consumer's.
    """

    __slots__ = ("columns", "identity", "keys", "names", "partial", "plan")

    def __init__(self, columns: list[ColumnLayout], identity: object, names: object, keys: list[int]) -> None:
        self.columns = columns
        self.identity = identity
        self.names = names
        self.keys = keys
        self.partial = any(column.index != place for place, column in enumerate(columns))
        self.plan: Any = None


KeyPlaces = Callable[[list[ColumnLayout]], list[int]]
"""Finds the places of the key's columns in an image."""


def primary_key(columns: list[ColumnLayout]) -> list[int]:
    """Return the places of the primary key's columns."""
    return [place for place, column in enumerate(columns) if column.key]


def _names(columns: list[ColumnLayout]) -> tuple[tuple[bytes, bytes, int, bool], ...]:
    return tuple((column.raw_name, column.raw_type, column.index, column.key) for column in columns)


class Images(f.Cursor):
    """Reads the RowDatas of one table and one kind of change.

    before, after: layouts of the last row, with the places of its values.
    learned: how many variants were remembered.
    identities: shared by all kinds of change of a table.
    key_places: called once for each Layout; None: the key is the primary key.
    """

    __slots__ = (
        "_index", "_key", "_name_start", "_name_stop", "_null", "_sql_type", "_type_start", "_type_stop", "_value_at",
        "_value_start", "_value_stop", "_values", "after", "before", "identities", "key_places", "known_after",
        "known_before", "learned",
    )  # fmt: skip

    def __init__(self, identities: dict[object, object], key_places: KeyPlaces | None = None) -> None:
        f.Cursor.__init__(self)
        self.identities = identities
        self.key_places = key_places
        self.known_before: dict[object, Layout] = {}
        self.known_after: dict[object, Layout] = {}
        self.learned = 0
        self.before = self._layout([], self.known_before)
        self.after = self._layout([], self.known_after)

    def row(self, src: bytes, start: int, stop: int) -> bool:
        """Read the RowData src[start:stop]; return whether its columns differ from those of the previous row.

        Raises Broken.
        """
        self.src = src
        if self._match(start, stop):
            return False
        before: list[ColumnLayout] = []
        after: list[ColumnLayout] = []
        self.pos = start
        while self.pos < stop:
            tag = self.tag(stop)
            if tag == 0x0A:
                before.append(self._new_column(self.end(stop)))
            elif tag == 0x12:
                after.append(self._new_column(self.end(stop)))
            else:
                self._other(tag, stop)
        self.before = self._layout(before, self.known_before)
        self.after = self._layout(after, self.known_after)
        if not self._match(start, stop):
            raise p.Broken("a row that reads differently the second time")
        return True

    def _match(self, start: int, stop: int) -> bool:
        """Return whether a row has the current layouts; if so, their columns hold the places of its values."""
        src = self.src
        before = self.before.columns
        after = self.after.columns
        befores = len(before)
        afters = len(after)
        before_at = 0
        after_at = 0
        pos = start
        while pos < stop:
            tag = src[pos]
            if tag == 0x12 or tag == 0x0A:
                pos += 1
            else:
                self.pos = pos
                tag = self.tag(stop)
                pos = self.pos
            if tag == 0x12:
                if after_at == afters:
                    return False
                column = after[after_at]
                after_at += 1
            elif tag == 0x0A:
                if before_at == befores:
                    return False
                column = before[before_at]
                before_at += 1
            else:
                self._other(tag, stop)
                pos = self.pos
                continue
            start, end = p.stretch(src, pos, stop)
            if start < 0:
                self.pos = pos
                end = self.end(stop)
                start = self.pos
            pos = start
            variant = column.last
            if (variant is None or not self._is(variant, column, pos, end)) and not self._find(column, pos, end):
                return False
            pos = end
        return before_at == befores and after_at == afters

    def _is(self, variant: Variant, column: ColumnLayout, pos: int, end: int) -> bool:
        """Return whether the Column src[pos:end] is of this variant; if so, `column` holds the place of its value."""
        src = self.src
        if variant.null:
            if not p.same_bytes(src, pos, end, variant.head):
                return False
            column.start = k.NULL
            column.cell_type = variant.sql_type
            return True
        start = pos + variant.head_size
        stop = end - variant.tail_size
        if start >= stop or not p.same_bytes(src, pos, start, variant.head):
            return False
        size = src[start]
        start += 1
        if size > 127:
            self.pos = start - 1
            size = self.end(end) - self.pos
            start = self.pos
        if size != stop - start or not p.same_bytes(src, stop, end, variant.tail):
            return False
        column.start = start
        column.stop = stop
        column.sql_type = column.cell_type = variant.sql_type
        return True

    def _find(self, column: ColumnLayout, pos: int, end: int) -> bool:
        """Try every variant, else parse and remember the variant; return whether the bytes are this column."""
        for variant in column.variants:
            if self._is(variant, column, pos, end):
                column.last = variant
                return True
        self.pos = pos
        self._parse(end)
        src = self.src
        null = self._null or self._values == 0
        if (
            self._index != column.index
            or self._key != column.key
            or not p.same_bytes(src, self._name_start, self._name_stop, column.raw_name)
            or not p.same_bytes(src, self._type_start, self._type_stop, column.raw_type)
            or (not null and (self._sql_type in BINARY_TYPES) != column.binary)
            or (not null and (self._sql_type == UTC_TYPE) != column.utc)
        ):
            return False
        column.cell_type = self._sql_type
        if null:
            column.start = k.NULL
        else:
            column.start = self._value_start
            column.stop = self._value_stop
            column.sql_type = self._sql_type
        if len(column.variants) < _VARIANTS:
            if self._values == 0:
                column.variants.append(Variant(src[pos:end], b"", True, self._sql_type))
                self.learned += 1
            elif self._values == 1 and not null:
                column.variants.append(
                    Variant(src[pos : self._value_at], src[self._value_stop : end], False, self._sql_type)
                )
                self.learned += 1
        return True

    def _parse(self, end: int) -> None:
        """Parse the Column that begins at `pos`, field by field; the last one of a repeated field counts."""
        self._index = 0
        self._sql_type = 0
        self._key = False
        self._null = False
        self._values = 0
        self._name_start = self._name_stop = self._type_start = self._type_stop = 0
        while self.pos < end:
            tag = self.tag(end)
            if tag == 0x08:
                self._index = self.int32(end)
            elif tag == 0x10:
                self._sql_type = self.int32(end)
            elif tag == 0x1A:
                self._name_stop = self.end(end)
                self._name_start = self.pos
                self.pos = self._name_stop
            elif tag == 0x20:
                self._key = self.varint(end) != 0
            elif tag == 0x30:
                self._null = self.varint(end) != 0
            elif tag == 0x42:
                self._value_at = self.pos
                self._value_stop = self.end(end)
                self._value_start = self.pos
                self._values += 1
                self.pos = self._value_stop
            elif tag == 0x52:
                self._type_stop = self.end(end)
                self._type_start = self.pos
                self.pos = self._type_stop
            elif tag == 0x3A:
                self.check(self.end(end))
            else:
                self.skip(tag, end)

    def _other(self, tag: int, stop: int) -> None:
        """Skip a field of RowData that is not a column."""
        if tag == 0x1A:
            self.check(self.end(stop))
        else:
            self.skip(tag, stop)

    def _new_column(self, end: int) -> ColumnLayout:
        self._parse(end)
        src = self.src
        name = src[self._name_start : self._name_stop]
        return ColumnLayout(name, src[self._type_start : self._type_stop], self._index, self._key, self._sql_type)

    def _layout(self, columns: list[ColumnLayout], known: dict[object, Layout]) -> Layout:
        names = _names(columns)
        key = (names, tuple([(column.binary, column.utc) for column in columns]))
        layout = known.get(key)
        if layout is None:
            if len(known) >= _LAYOUTS:
                known.clear()
            if len(self.identities) >= 8 * _LAYOUTS:
                self.identities.clear()
            identity = self.identities.setdefault(key, key)
            keys = primary_key(columns) if self.key_places is None else self.key_places(columns)
            layout = Layout(columns, identity, self.identities.setdefault(names, names), keys)
            known[key] = layout
        return layout


def same_key(before: Layout, after: Layout, src: bytes) -> bool:
    """Return whether both images of a row, with equal columns, have the same key."""
    for place in after.keys:
        old = before.columns[place]
        new = after.columns[place]
        if old.start == k.NULL or new.start == k.NULL:
            if old.start != new.start:
                return False
        elif not p.same_bytes(src, old.start, old.stop, src[new.start : new.stop]):
            return False
    return True
