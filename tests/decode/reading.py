"""Random entries in every form that protobuf allows, read by protobuf's own parser and by our readers."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any, Literal

from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.changes import MapRows, Maps, Marks, Sheet, TableRows, entry_rows
from canal_ha.decode.kernel.columns import Target
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import Images
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.model.entry import DDL_TYPES, EventType
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from canal_ha.wire.proto.canal_protocol_pb2 import Messages

OPS = ("insert", "update", "delete", "ddl", "read")
Told = tuple[Any, ...]


class Garbled(Exception):
    """Our readers refuse a value that protobuf's parser accepts: a text that is not UTF-8, or a time out of range."""


# ---- random entries


def number(value: int) -> bytes:
    """Return a varint of 64 bits."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def field(tag: int, value: int | bytes) -> bytes:
    """Return a field as protobuf writes it."""
    return number(tag) + (number(value) if isinstance(value, int) else number(len(value)) + value)


UNKNOWN = (
    field(120 << 3, 5), field(121 << 3 | 2, b"unknown"), number(122 << 3 | 1) + bytes(8),
    number(123 << 3 | 5) + b"four",
    number(124 << 3 | 3) + field(1 << 3, 7) + number(124 << 3 | 4),
)  # fmt: skip
TEXTS = ("1", "-7", "", "0", "text", "é", "\xff\0", "中文 \U0001f600", "x" * 127, "y" * 128, "z" * 300, "2024-02-29")
TYPES = (
    ("int(11)", 4), ("bigint(20) unsigned", 3), ("varchar(20)", 12), ("blob", 2004), ("json", 1111), ("set('a')", -7),
    ("datetime(3)", 93), ("double", 8), ("", 0), ("decimal(10,2)", 3),
)  # fmt: skip


def message(chance: random.Random, parts: list[bytes], strange: float) -> bytes:
    """Join fields; sometimes reorder, repeat or remove one, or insert an unknown one."""
    if chance.random() < strange:
        chance.shuffle(parts)
    if chance.random() < strange and parts:
        parts.append(chance.choice(parts))
    if chance.random() < strange:
        parts.insert(chance.randrange(len(parts) + 1), chance.choice(UNKNOWN))
    if chance.random() < strange and parts:
        parts.pop(chance.randrange(len(parts)))
    return b"".join(parts)


def column(chance: random.Random, place: int, name: str, kind: tuple[str, int], strange: float) -> bytes:
    """Return a Column, mostly as canal writes it."""
    null = chance.random() < 0.2
    mysql_type, sql_type = kind
    if chance.random() < 0.1:
        sql_type = chance.choice((4, -5, 3, 12, 2004))
    parts = [field(0x08, place), field(0x10, sql_type), field(0x1A, name.encode()), field(0x20, place == 0)]
    parts += [field(0x28, chance.random() < 0.5), field(0x30, null)]
    if not null or chance.random() < strange / 10:
        text = chance.choice(TEXTS) if chance.random() < 0.5 else str(chance.randrange(-300, 300))
        parts.append(field(0x42, text.encode()))
    if mysql_type:
        parts.append(field(0x52, mysql_type.encode()))
    if chance.random() < strange:
        parts.insert(chance.randrange(len(parts)), field(0x3A, field(0x0A, b"k") + field(0x12, b"v")))
    return message(chance, parts, strange)


def rows_entry(chance: random.Random, table: str, strange: float) -> bytes:
    """Return the RowChange of an entry with rows; a table mostly keeps its columns."""
    of_table = random.Random(table if chance.random() < 0.9 else chance.random())
    count = of_table.choice((0, 1, 2, 5, 9))
    columns = [(f"c{index}", of_table.choice(TYPES)) for index in range(count)]
    event = chance.choice((1, 2, 3))
    rows = []
    for _ in range(chance.choice((1, 1, 2, 6))):
        parts: list[bytes] = []
        for tag in ((0x12,), (0x0A, 0x12), (0x0A,))[event - 1]:
            kept = [one for one in enumerate(columns) if chance.random() > strange / 10]
            parts += [field(tag, column(chance, place, *one, strange)) for place, one in kept]
        rows.append(field(0x62, message(chance, parts, strange / 2)))
    parts = [field(0x08, 7), field(0x10, event), field(0x50, 0), *rows]
    if chance.random() < strange:
        parts.append(field(0x6A, field(0x0A, b"XA_TYPE")))
    return message(chance, parts, strange / 2)


def statement_entry(chance: random.Random, strange: float) -> bytes:
    event = chance.choice((*DDL_TYPES, EventType.QUERY, 0, 77))
    parts = [field(0x10, event), field(0x50, chance.random() < 0.5), field(0x5A, chance.choice(TEXTS).encode())]
    return message(chance, parts, strange)


def prop(chance: random.Random, strange: float) -> bytes:
    """Return a Pair that mostly says that the rows are those of a snapshot."""
    key = chance.choice((b"canal.snapshot", b"canal.snapshot", b"canal.snapshots", b"canal_snapshot"))
    value = chance.choice(("7", "é", "y" * 128, ""))
    parts = [field(0x0A, key), field(0x12, value.encode())]
    if chance.random() < strange:
        parts.insert(chance.randrange(3), field(chance.choice((0x0A, 0x12)), b"other"))
    return message(chance, parts, strange)


def entry(chance: random.Random, at: int, strange: float) -> bytes:
    """Return a random entry. strange: the probability of forms that protobuf allows and canal does not write."""
    table = chance.choice(("t", "u", "v"))
    header = [
        field(0x08, 1), field(0x12, b"mysql-bin.%06d" % (at // 40 + 1)), field(0x18, at // 2 * 100), field(0x20, 3),
        field(0x2A, b"UTF-8"), field(0x30, 1_700_000_000_000 + at), field(0x38, 2), field(0x42, b"s"),
        field(0x4A, table.encode()), field(0x50, 100), field(0x58, 1), field(0x62, field(0x0A, b"rowsCount")),
    ]  # fmt: skip
    if chance.random() < 0.3:
        header.append(field(0x6A, b"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-%d" % at))
    for _ in range(chance.choice((0, 0, 1, 2))):
        header.insert(-1, field(0x62, prop(chance, strange)))
    kind = chance.choice((2, 2, 2, 2, 1, 3, 4, 0, 9) if strange else (2, 2, 1, 3))
    stored = rows_entry(chance, table, strange) if chance.random() < 0.8 else statement_entry(chance, strange)
    parts = [field(0x0A, message(chance, header, strange)), field(0x10, kind), field(0x1A, stored)]
    return message(chance, parts, strange / 4)


def frames(seed: object, count: int, strange: float) -> bytes:
    """Return random entries as Messages carries them."""
    chance = random.Random(str(seed))
    parts = [field(0x12, entry(chance, at, strange)) for at in range(count)]
    if chance.random() < strange:
        parts.insert(chance.randrange(count + 1), field(0x08, 5))
    return b"".join(parts)


def mutated(seed: object, data: bytes) -> bytes:
    """Return the data with some bytes changed, removed or doubled, or without the end."""
    chance = random.Random(f"mutation {seed}")
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        if not out:
            break
        at = chance.randrange(len(out))
        what = chance.randrange(5)
        if what == 0:
            out[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            out[at] = chance.choice((0, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        elif what == 2:
            del out[at : at + chance.choice((1, 2, 10))]
        elif what == 3:
            out[at:at] = out[at : at + chance.choice((1, 2, 10))]
        else:
            del out[at:]
    return bytes(out)


# ---- read by protobuf


def parsed(data: bytes) -> list[tuple[int, int, pb.Entry, pb.RowChange]]:
    """Return number, sub, entry and change of each ROWDATA entry. Raises DecodeError, Garbled."""
    found = []
    place: tuple[object, int] = ("", -1)
    sub = 0
    for index, raw in enumerate(Messages.FromString(data).messages):
        one = pb.Entry.FromString(raw)
        header = one.header
        _texts(header.logfileName, header.schemaName, header.tableName, header.gtid, snapshot(header))
        here = (header.logfileName, header.logfileOffset)
        sub = sub + 1 if here == place else 0
        place = here
        if abs(header.executeTime) > (1 << 63) // 1000 - 1:
            raise Garbled
        if one.entryType == pb.ROWDATA:
            change = pb.RowChange.FromString(one.storeValue)
            _texts(change.sql)
            found.append((index, sub, one, change))
    return found


def snapshot(header: pb.Header) -> str:
    """Return the snapshot that read an entry's rows; "" for an entry of the binlog. Raises Garbled."""
    values = [one.value for one in header.props if one.key == "canal.snapshot"]
    _texts(*values)
    return values[-1] if values else ""


def _texts(*texts: object) -> None:
    if not all(isinstance(text, str) for text in texts):
        raise Garbled


def _text(one: pb.Column) -> str | None:
    _texts(one.name, one.mysqlType)
    if one.isNull or not one.HasField("value"):
        return None
    _texts(one.value)
    return one.value


def _map(columns: Any) -> list[tuple[str, str | None]]:
    return [(one.name, _text(one)) for one in columns]


def _values(columns: Any) -> dict[str, str | None] | None:
    """Return the values by name, with whole numbers as Python writes them."""
    found = {}
    for one in columns:
        text = _text(one)
        if text is not None and one.sqlType in (-7, -6, -5, 4, 5):
            with suppress(ValueError):
                text = str(int(text))
        found[one.name] = text
    return found or None


def _head(index: int, sub: int, one: pb.Entry, row: int, op: str) -> Told:
    header = one.header
    place = (header.logfileName, header.logfileOffset, header.serverId, header.gtid, header.executeTime * 1000)
    return (op, index, sub, row, *place, header.schemaName, header.tableName)


def expected_maps(data: bytes) -> list[Told]:
    """Return the rows and statements that `read_maps` must return."""
    found: list[Told] = []
    for index, sub, one, change in parsed(data):
        event = change.eventType
        if not change.rowDatas or event > 3:
            if change.isDdl or EventType(event) in DDL_TYPES:
                found.append((_head(index, sub, one, 0, "ddl"), None, None, None, change.sql))
            continue
        for row, datas in enumerate(change.rowDatas):
            before, after = _map(datas.beforeColumns), _map(datas.afterColumns)
            columns = datas.beforeColumns if event == 3 else datas.afterColumns
            key = _map(each for each in columns if each.isKey)
            op = "read" if event == 1 and snapshot(one.header) else OPS[event - 1]
            head = _head(index, sub, one, row, op)
            found.append((head, key, None if event == 1 else before, None if event == 3 else after, None))
    return found


def has_rows_of_no_change(data: bytes) -> bool:
    """Return whether an entry has rows although its event type has none."""
    entry = Entries(data, 0, len(data))
    with suppress(Broken):
        while entry.next():
            if entry.kind == codes.ROWDATA and entry.change() and entry.event_type > codes.EVENT_DELETE:
                return True
    return False


def expected_values(data: bytes) -> list[Told]:
    """Return the values before and after each row's change that `read_values` must return."""
    return [
        (index, row, snapshot(one.header), _values(datas.beforeColumns), _values(datas.afterColumns))
        for index, _, one, change in parsed(data)
        for row, datas in enumerate(change.rowDatas)
    ]


def expected_rows(data: bytes) -> list[Told]:
    """Return the rows of tables that `read_rows` must return."""
    found: list[Told] = []
    datas = {(index, row): each for index, _, _, change in parsed(data) for row, each in enumerate(change.rowDatas)}
    for head, _, before, after, sql in expected_maps(data):
        op, index, _, row, *_ = head
        if op == "ddl":
            found.append((head, None, sql))
        elif op == "update" and _rekeyed(datas[index, row]):
            found += [(("delete", *head[1:]), before, None), (("insert", *head[1:]), after, None)]
        else:
            found.append((head, before if op == "delete" else after, None))
    return found


def _rekeyed(row: pb.RowData) -> bool:
    """Return whether the primary key of a row changed."""
    befores, afters = row.beforeColumns, row.afterColumns
    if [_definition(one) for one in befores] != [_definition(one) for one in afters]:
        return False
    return any(new.isKey and _text(old) != _text(new) for old, new in zip(befores, afters, strict=True))


def _definition(one: pb.Column) -> tuple[object, ...]:
    return one.name, one.mysqlType, one.index, one.isKey


# ---- read by the kernel


def values(target: Target) -> list[bytes | None]:
    """Return the values of a column of texts."""
    ends = memoryview(target.offsets).cast("i")
    data = bytes(target.data)
    assert len(ends) == target.count + 1
    assert ends[-1] == len(data)
    return [data[ends[index] : ends[index + 1]] if _valid(target, index) else None for index in range(target.count)]


def _valid(kept: Any, index: int) -> bool:
    return not kept.nulls or bool(kept.validity[index >> 3] >> (index & 7) & 1)


def read_maps(data: bytes, rows: int = 50) -> list[Told]:
    """Read rows and statements with MapRows. Raises Broken."""
    work = MapRows(data, 0, len(data), rows, 1 << 20)
    found: list[Told] = []
    while True:
        code = work.step()
        heads = _heads(work.marks)
        maps = [_lists(each, work.names) for each in (work.keys, work.befores, work.afters)]
        statements = [None if one is None else one.decode() for one in values(work.statements)]
        found += zip(heads, *maps, statements, strict=True)
        if code == codes.DONE:
            return found
        assert code == codes.FULL
        work.renew()


def _heads(marks: Any) -> list[Told]:
    def each(data: bytearray, kind: Literal["b", "i", "q"]) -> list[int]:
        return list(memoryview(data).cast(kind))

    entries = list(
        zip(
            each(marks.numbers, "i"), each(marks.subs, "i"), each(marks.times, "q"), each(marks.servers, "q"),
            each(marks.offsets, "q"),
            *([(one or b"").decode() for one in values(texts)] for texts in
              (marks.journals, marks.gtids, marks.schemas, marks.tables)),
            strict=True,
        )
    )  # fmt: skip
    assert len(entries) == marks.entries
    found = []
    for op, row, place in zip(each(marks.ops, "b"), each(marks.rows, "i"), each(marks.places, "i"), strict=True):
        index, sub, time, server, offset, journal, gtid, schema, table = entries[place]
        found.append((OPS[op], index, sub, row, journal, offset, server, gtid, time, schema, table))
    assert len(found) == marks.count
    return found


def _lists(maps: Maps, names: list[str]) -> list[list[tuple[str, str | None]] | None]:
    ends = memoryview(maps.items.offsets).cast("i")
    items = [
        (names[number], None if value is None else value.decode())
        for number, value in zip(memoryview(maps.names).cast("i"), values(maps.values), strict=True)
    ]
    assert len(items) == maps.size
    return [
        items[ends[index] : ends[index + 1]] if _valid(maps.items, index) else None for index in range(maps.items.count)
    ]


def read_values(data: bytes) -> list[Told]:
    """Read the values before and after each row's change with entry_rows, as texts. Raises Broken."""
    entry = Entries(data, 0, len(data))
    images: dict[object, Images] = {}
    found: list[Told] = []
    while entry.next():
        if entry.kind != codes.ROWDATA:
            continue
        entry.change()
        key = (data[entry.schema_start : entry.schema_stop], data[entry.table_start : entry.table_stop])
        known = images.setdefault((key, entry.event_type), Images({}))
        rows = entry_rows(entry, known, lambda text, sql_type, mysql_type: text)
        told = entry.text(entry.snapshot_start, entry.snapshot_stop)
        found += ((entry.number, row, told, _plain(before), _plain(after)) for row, (before, after) in enumerate(rows))
    return found


def _plain(side: dict[str, object] | None) -> dict[str, str | None] | None:
    if side is None:
        return None
    return {name: None if value is None else str(value) for name, value in side.items()}


def read_rows(data: bytes, rows: int = 50) -> list[Told]:
    """Read the rows of all tables with TableRows, as texts and in the order of the entries. Raises Broken."""
    work = TableRows(Entries(data, 0, len(data)), rows, 1 << 20)
    found: list[tuple[int, int, int, Told]] = []
    sheets: list[Sheet] = []
    while (code := work.step()) != codes.DONE:
        if code == codes.TABLE:
            sheets.append(Sheet([]))
            work.add(sheets[-1])
            continue
        sheet = work.sheet
        _take(sheet, found)
        if code == codes.LAYOUT:
            sheet.owner = [one.name for one in work.layout.columns]
        elif code == codes.STATEMENT:
            entry = work.entry
            alone = Marks()
            alone.put(entry, codes.DDL, 0)
            [head] = _heads(alone)
            found.append((entry.number, 0, len(found), (head, None, entry.text(entry.sql_start, entry.sql_stop))))
        identity = work.layout.identity if code == codes.LAYOUT else sheet.identity
        sheet.start(identity, [Target(codes.TEXT) for _ in sheet.owner])
    for sheet in sheets:
        _take(sheet, found)
    return [told for *_, told in sorted(found, key=lambda one: one[:3])]


def _take(sheet: Sheet, found: list[tuple[int, int, int, Told]]) -> None:
    columns = [values(target) for target in sheet.plan if target is not None]
    for at, head in enumerate(_heads(sheet.marks)):
        row = [
            (name, None if column[at] is None else (column[at] or b"").decode())
            for name, column in zip(sheet.owner, columns, strict=True)
        ]
        found.append((head[1], head[3], len(found), (head, row, None)))
