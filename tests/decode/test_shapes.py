"""Rows with the shape of earlier rows, compared with the readers that parse every row, and with protobuf."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from canal_ha.decode.kernel import BUILD, codes
from canal_ha.decode.kernel.changes import Sheet, TableRows
from canal_ha.decode.kernel.columns import Target
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import Images
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.decode.kernel.shapes import RowShape
from tests.decode.reading import UNKNOWN, expected_rows, field, message, mutated, number, read_rows
from tests.decode.test_reader import agree
from tests.sampling import LONG

SEED = random.randrange(1 << 30) if LONG else 1
SAMPLES = 20_000 if LONG else 300
MUTATIONS = 100_000 if LONG else 1500

INTEGERS = ("0", "-0", "7", "-7", "127", "128", "12345678", "-2147483648", "2147483648", "9223372036854775807",
            "-9223372036854775808", "9223372036854775808", "00000000000000000001", "1 ", "+1", "", "-", "1234567a",
            "12345678:")  # fmt: skip
DECIMALS = ("0", "0.00", "-1.50", "12345.6", ".5", "5.", "", "1e3", "99999999.99", "0.001", "1.230", "-", "1..2")
DOUBLES = ("0", "-0.5", "1e300", "1e-7", "123456789012345678", "3.141592653589793", "inf", "", "1.5e")
DAYS = ("2024-02-29", "2023-02-29", "0000-00-00", "2026-11-30", "9999-12-31", "2024-2-29", "", "1000-01-01")
INSTANTS = ("2024-02-29 23:59:59", "2026-11-30 01:02:03.5", "2026-11-30 01:02:03.123456", "0000-00-00 00:00:00",
            "2024-02-30 00:00:00", "2024-02-29 24:00:00", "", "2024-02-29T23:59:59")  # fmt: skip
TEXTS = ("", "a", "text", "x" * 31, "y" * 127, "z" * 128, "w" * 300, "é", "中文", "\0", "ÿ" * 40, "a" * 20_000)
KINDS = (  # mysqlType, sqlType, the formats, texts that mostly fit, all texts
    ("int", 4, (codes.INTEGER, codes.TEXT), INTEGERS[:7], INTEGERS),
    ("decimal(10,2)", 3, (codes.DECIMAL, codes.DOUBLE, codes.TEXT), DECIMALS[:3], DECIMALS),
    ("double", 8, (codes.DOUBLE, codes.SINGLE), DOUBLES[:6], DOUBLES),
    ("date", 91, (codes.DAY,), DAYS[:5], DAYS),
    ("datetime(6)", 93, (codes.INSTANT,), INSTANTS[:4], INSTANTS),
    ("bit(1)", -7, (codes.BOOLEAN,), ("0", "1"), ("0", "1", "2", "")),
    ("varchar(20)", 12, (codes.TEXT,), TEXTS, TEXTS),
    ("binary(20)", 2004, (codes.BINARY,), TEXTS, TEXTS),
)


class Table:
    """A random table: its columns, and the formats of their values."""

    def __init__(self, chance: random.Random, odd: float) -> None:
        """odd: the probability of values, columns and fields that differ from those of most rows."""
        self.chance = chance
        self.odd = odd
        self.moves = True  # updates change keys
        self.kinds = [chance.choice(KINDS) for _ in range(chance.choice((1, 2, 4, 9)))]
        self.formats = [(chance.choice(kind[2]), chance.choice((1, 2, 4, 8))) for kind in self.kinds]
        self.left_out = [chance.random() < 0.1 for _ in self.kinds]

    def targets(self) -> list[Target | None]:
        found: list[Target | None] = []
        for (format, width), out in zip(self.formats, self.left_out, strict=True):
            size = width if format == codes.INTEGER else 20 if format == codes.BINARY else 0
            found.append(None if out else Target(format, size, 10, 2))
        return found

    def column(self, place: int, text: str | None) -> bytes:
        mysql_type, sql_type, *_ = self.kinds[place]
        chance = self.chance
        parts = [field(0x08, place), field(0x10, sql_type), field(0x1A, b"c%d" % place), field(0x20, place == 0)]
        parts += [field(0x28, chance.random() < 0.5), field(0x30, text is None)]
        if text is not None:
            value = text.encode()
            long = number(len(value) | 1 << 14)[:2] + b"\0" if chance.random() < self.odd and len(value) < 128 else b""
            parts.append(b"\x42" + long + value if long else field(0x42, value))
        parts.append(field(0x52, mysql_type.encode()))
        return message(chance, parts, self.odd / 4)

    def text(self, place: int) -> str | None:
        chance = self.chance
        if chance.random() < 0.2:
            return None
        *_, usual, every = self.kinds[place]
        return chance.choice(every if chance.random() < self.odd / 4 else usual)

    def row(self, event: int) -> bytes:
        chance = self.chance
        after = [self.text(place) for place in range(len(self.kinds))]
        before = [text if chance.random() < 0.9 else self.text(place) for place, text in enumerate(after)]
        if not self.moves or chance.random() < 0.8:
            before[0] = after[0]  # the key
        parts: list[bytes] = []
        for tag, texts in ((0x0A, before), (0x12, after)):
            if event == codes.EVENT_UPDATE or (tag == 0x0A) == (event == codes.EVENT_DELETE):
                for place, text in enumerate(texts):
                    if chance.random() >= self.odd / 20:
                        parts.append(field(tag, self.column(place, text)))
        return message(chance, parts, self.odd / 4)

    def frames(self, count: int) -> bytes:
        chance = self.chance
        found = []
        for at in range(count):
            event = chance.choice((1, 1, 2, 3))
            rows = [field(0x62, self.row(event)) for _ in range(chance.choice((1, 1, 2, 5, 40)))]
            if chance.random() < self.odd:
                rows.insert(chance.randrange(len(rows) + 1), chance.choice(UNKNOWN))
            header = [
                field(0x12, b"mysql-bin.000001"), field(0x18, 100 + at // 2), field(0x42, b"s"), field(0x4A, b"t")
            ]  # fmt: skip
            stored = field(0x08, 1) + field(0x10, event) + b"".join(rows)
            parts = [field(0x0A, message(chance, header, self.odd / 4)), field(0x10, 2), field(0x1A, stored)]
            found.append(field(0x12, b"".join(parts)))
        return b"".join(found)


Column = tuple[int, bytes, bytes, bytes] | None


def columns(targets: list[Target | None]) -> list[Column]:
    return [
        None
        if one is None
        else (one.count, bytes(one.data), bytes(one.offsets), bytes(one.validity) if one.nulls else b"")
        for one in targets
    ]


def read(data: bytes, table: Table, rows: int) -> list[object]:
    """Read with TableRows; return the columns of each sheet, and what ended the work."""
    work = TableRows(Entries(data, 0, len(data)), rows, 1 << 30)
    found: list[object] = []
    try:
        while (code := work.step()) != codes.DONE:
            if code == codes.TABLE:
                work.add(Sheet(None))
            elif code in (codes.LAYOUT, codes.FULL):
                found += taken(work.sheet)
                layout = work.layout
                plan = table.targets()[: len(layout.columns)] if code == codes.LAYOUT else table.targets()
                plan = plan[: len(work.sheet.plan)] if code == codes.FULL else plan
                work.sheet.start(layout.identity if code == codes.LAYOUT else work.sheet.identity, plan)
    except Broken as error:
        refused = work.refused and work.refused.refused
        return [*found, *taken(work.sheet, marks=False), str(error), refused]
    return [*found, *taken(work.sheet)]


def taken(sheet: Sheet, *, marks: bool = True) -> list[object]:
    if not sheet.plan or not (sheet.marks.count or not marks):
        return []
    kept = sheet.marks
    told = [bytes(one) for one in (kept.ops, kept.rows, kept.places, kept.numbers)] if marks else []
    return [columns(sheet.plan), told]


def parse(data: bytes, table: Table) -> Iterator[list[Column]]:
    """Read every row of one layout with Images and Target.put alone; yield all columns after each row."""
    entry = Entries(data, 0, len(data))
    identities: dict[object, object] = {}
    changes = [Images(identities) for _ in range(3)]
    targets = table.targets()
    while entry.next():
        for row in range(entry.change()):
            images = changes[entry.event_type - 1]
            images.row(data, entry.rows[2 * row], entry.rows[2 * row + 1])
            layout = images.before if entry.event_type == codes.EVENT_DELETE else images.after
            for target, column in zip(targets, layout.columns, strict=True):
                if target is not None and not target.put(data, column.start, column.stop):
                    return
            yield columns(targets)


def alone(data: bytes) -> list[bytes]:
    """Return frames with one row each; other content is as in `data`."""
    found = []
    entry = Entries(data, 0, len(data))
    while entry.next():
        header = field(0x0A, field(0x12, b"j") + field(0x42, b"s") + field(0x4A, b"t"))
        for row in range(entry.change()):
            rest = field(0x10, entry.event_type) + field(0x62, data[entry.rows[2 * row] : entry.rows[2 * row + 1]])
            found.append(field(0x12, header + field(0x10, 2) + field(0x1A, rest)))
    return found


def frames(seed: object, odd: float) -> tuple[Table, bytes]:
    chance = random.Random(f"shapes {seed}")
    table = Table(chance, odd)
    return table, table.frames(chance.choice((1, 3, 8)))


@pytest.mark.parametrize("odd", [0.0, 0.02, 0.2])
def test_rows_of_a_shape_are_read_as_rows_that_are_parsed(odd: float) -> None:
    """Columns have the same bytes if many rows are read into one sheet, and if each one begins a sheet of its own.

    A sheet that begins has no shape, so its first rows are parsed.
    """
    for sample in range(SAMPLES):
        table, data = frames(f"{SEED} {sample}", odd)
        single = b"".join(alone(data))
        try:
            assert values(read(single, table, 1)) == values(read(single, table, 1 << 30))
        except BaseException:
            print(f"seed {SEED}, sample {sample}")
            raise


def values(found: list[object]) -> list[object]:
    """Return the values of each column and the ops, whatever sheets they are in."""
    rows: list[object] = []
    for kept in found:
        if not isinstance(kept, list) or not kept or isinstance(kept[0], bytes):
            rows += [] if isinstance(kept, list) else [kept]
            continue
        counts = {one[0] for one in kept if one is not None}
        for row in range(max(counts, default=0)):
            rows.append([one and value(one, row) for one in kept])
    return rows


def value(column: tuple[int, bytes, bytes, bytes], row: int) -> object:
    count, data, offsets, validity = column
    if row >= count or (validity and not validity[row >> 3] >> (row & 7) & 1):
        return row >= count
    if offsets:
        return data[int.from_bytes(offsets[4 * row : 4 * row + 4], "little") :][
            : int.from_bytes(offsets[4 * row + 4 : 4 * row + 8], "little")
            - int.from_bytes(offsets[4 * row : 4 * row + 4], "little")
        ]
    size = len(data) // count
    return data[size * row : size * row + size]


@pytest.mark.parametrize("odd", [0.0, 0.05])
def test_a_sheet_holds_what_images_and_targets_give(odd: float) -> None:
    """Rows with equal columns are stored as Images finds them and Target.put stores them, whole bitmaps included."""
    compared = 0
    for sample in range(SAMPLES):
        table = Table(random.Random(f"whole {SEED} {sample}"), odd)
        table.moves = False
        data = table.frames(4)
        try:
            *parsed, last = parse(data, table)
            sheet, told, *more = read(data, table, 1 << 30)
        except ValueError:  # no rows, or rows without some columns
            continue
        assert isinstance(told, list)
        if not more and len(told[0]) == len(parsed) + 1:  # one layout, no value refused, no key changed
            assert sheet == last, f"seed {SEED}, sample {sample}"
            compared += 1
    assert compared > SAMPLES // 20


@pytest.mark.parametrize("odd", [0.0, 0.02, 0.2])
def test_rows_of_a_shape_are_those_of_protobuf(odd: float) -> None:
    """All readers agree with protobuf on tables whose rows are nearly alike."""
    for sample in range(SAMPLES // 10):
        agree(frames(f"protobuf {SEED} {sample}", odd)[1])


def test_damaged_rows_of_a_shape_are_refused_or_read_alike() -> None:
    """The readers refuse the damaged rows that protobuf refuses, and agree with it on the others."""
    refused = 0
    for index in range(MUTATIONS):
        _, data = frames(f"damaged {SEED} {index % 40}", 0.01)
        try:
            refused += agree(mutated(f"{SEED} {index}", data))
        except BaseException:
            print(f"seed {SEED}, mutation {index}")
            raise
    assert MUTATIONS // 20 < refused < MUTATIONS


def rows_of(columns: list[bytes], count: int) -> bytes:
    """Return frames of one entry whose rows all have these columns."""
    row = field(0x62, b"".join(field(0x12, column) for column in columns))
    header = field(0x0A, field(0x12, b"j") + field(0x42, b"s") + field(0x4A, b"t"))
    return field(0x12, header + field(0x10, 2) + field(0x1A, field(0x10, 1) + row * count))


HEAD = field(0x08, 0) + field(0x10, 12) + field(0x1A, b"c")


@pytest.mark.parametrize(
    "column",
    [
        HEAD + field(0x42, b"text"),
        HEAD + field(0x42, b""),
        HEAD + field(0x42, b"x" * 200) + field(0x52, b"varchar(200)"),
        HEAD + field(0x42, b"y" * 20_000),
        HEAD + field(0x30, 1),
    ],
)
def test_the_compiled_kernel_knows_the_shape(column: bytes) -> None:
    """A shape takes all rows like the row before; the interpreted kernel leaves them to the general readers."""
    data = rows_of([column], 5)
    entry = Entries(data, 0, len(data))
    assert entry.next()
    assert entry.change() == 5
    images = Images({})
    images.row(data, entry.rows[0], entry.rows[1])
    target = Target(codes.TEXT)
    shape = RowShape(images, codes.EVENT_INSERT, [target])
    assert shape.put(data, entry.rows, 1, 5) == (4 if BUILD == "compiled" else 0)
    assert target.count == (4 if BUILD == "compiled" else 0)


@pytest.mark.parametrize("event", [codes.EVENT_INSERT, codes.EVENT_DELETE])
def test_a_plan_of_more_columns_than_the_row_has(event: int) -> None:
    """It is refused, because the compiled kernel has no room for the others."""
    tag = 0x0A if event == codes.EVENT_DELETE else 0x12
    row = field(tag, HEAD + field(0x42, b"text"))
    images = Images({})
    images.row(row, 0, len(row))
    with pytest.raises(ValueError, match="more targets than columns"):
        RowShape(images, event, [Target(codes.TEXT) for _ in range(100)])


@pytest.mark.parametrize(
    "other",
    [
        HEAD + b"\x42\x84\0text",  # a length of two bytes
        HEAD + b"\x42\x84\x80\0text",
        HEAD + b"\x42\x84\x80\x80\x80\0text",
        HEAD + field(0x42, b"other") + field(0x42, b"text"),
        field(0x42, b"text") + HEAD,
        HEAD + field(0x42, b"text") + UNKNOWN[0],
        HEAD + field(0x30, 1) + field(0x42, b"text"),
        HEAD + field(0x30, 1),
        HEAD,
        HEAD + field(0x42, "é".encode()),
        field(0x08, 0) + field(0x10, 12) + field(0x1A, b"d") + field(0x42, b"text"),
        b"",
    ],
)
def test_a_row_of_another_form_between_rows_of_a_shape(other: bytes) -> None:
    """It is read by the general readers, and rows behind it are read as before."""
    usual = HEAD + field(0x42, b"text")
    for before in range(4):
        data = rows_of([usual], before) + rows_of([other], 1) + rows_of([usual], 3) + rows_of([other], 3)
        assert read_rows(data) == expected_rows(data)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_row_that_ends_early_behind_rows_of_a_shape(cut: int) -> None:
    """Lengths that lie about the end of a row, a column or a value are refused, or read as protobuf reads them."""
    usual = HEAD + field(0x42, b"text") + field(0x52, b"varchar(9)")
    good = rows_of([usual], 3)
    for change in (1, -1, 0x40):
        row = bytearray(rows_of([usual], 1))
        at = len(row) - min(cut, len(row))
        row[at] = (row[at] + change) & 0xFF
        agree(good + bytes(row) + good)
        agree(good + bytes(row))


def header(offset: int, more: bytes = b"", time: int = 1_700_000_000_000) -> bytes:
    """Return the usual header of an entry. more: bytes behind it."""
    texts = field(0x42, b"s") + field(0x4A, b"t")
    numbers = field(0x18, offset) + field(0x20, 5) + field(0x30, time)
    return field(0x0A, field(0x08, 1) + field(0x12, b"j.000001") + numbers + texts + field(0x50, 60) + more)


HEADERS = {
    "another offset": header(300),
    "an offset of more bytes": header(1 << 40),
    "an offset of fewer bytes": header(3),
    "a negative time": header(200, time=-5),
    "a snapshot": header(200, field(0x62, field(0x0A, b"canal.snapshot") + field(0x12, b"7"))),
    "another snapshot": header(200, field(0x62, field(0x0A, b"canal.snapshot") + field(0x12, b"8"))),
    "a table that is not ASCII": header(200, field(0x4A, "é".encode())),
    "a table that is no UTF-8": header(200, field(0x4A, b"\xff")),
    "the offset twice": header(200, field(0x18, 900)),
    "two headers": header(200) + header(400),
    "no header": b"",
    "only a table": field(0x0A, field(0x4A, b"t")),
    "an unknown field": header(200, UNKNOWN[1]),
    "a number that does not end": field(0x0A, b"\x18\x80"),
}


@pytest.mark.parametrize("second", HEADERS.values(), ids=HEADERS)
@pytest.mark.parametrize("first", HEADERS.values(), ids=HEADERS)
def test_headers_after_headers(first: bytes, second: bytes) -> None:
    """Each header is read alike, whatever came before it and wherever it stands."""
    rows = field(0x10, 1) + field(0x62, field(0x12, HEAD + field(0x42, b"text")))
    entries = [field(0x12, head + field(0x10, 2) + field(0x1A, rows)) for head in (first, first, second, second, first)]
    agree(b"".join(entries))
    reordered = field(0x12, second + field(0x1A, rows) + field(0x10, 2))
    agree(b"".join([*entries[:2], reordered, entries[0]]))


def test_an_entry_alone_after_one_further_behind() -> None:
    """`only` reads an entry at the start of other bytes as if it had come first."""
    one = header(200) + field(0x10, 2) + field(0x1A, b"")
    walk = Entries(b"\x08\x01" * 500 + field(0x12, one), 0, 1 << 20)
    assert walk.next()
    walk.only(one)
    fresh = Entries(b"", 0, 0)
    fresh.only(one)
    assert walk.change() == fresh.change() == 0
    assert walk.texts() == fresh.texts() == ("s", "t", "j.000001", "", "", "")
    assert (walk.gtid_start, walk.snapshot_stop, walk.own_gtid_stop) == (0, 0, 0)
    assert (walk.store_start, walk.store_stop) == (fresh.store_start, fresh.store_stop)
