"""What this process's build makes of random entries as typed columns: where it cuts them, and every byte.

Arguments: seed, count. The first line names the build; each other line is one input's number and digest.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from hashlib import sha256

from canal_ha.decode import kernel
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.changes import Sheet, TableRows
from canal_ha.decode.kernel.columns import Target
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.primitives import Broken
from tests.decode.fuzz_reader import target
from tests.decode.reading import TEXTS, field, frames, mutated


def column(chance: random.Random, place: int, text: str) -> bytes:
    """Return a Column whose type says now and then that it holds bytes; a NULL does not show which it is."""
    sql_type = chance.choice((12, 12, 12, 2004))
    parts = [field(0x08, place), field(0x10, sql_type), field(0x1A, b"c%d" % place), field(0x20, 0)]
    null = chance.random() < 0.3
    parts += [field(0x30, null)] if null else [field(0x30, 0), field(0x42, text.encode())]
    return b"".join(parts) + field(0x52, b"text")


def ambiguous(chance: random.Random) -> bytes:
    """Return entries of one table whose columns change between two types, with NULLs that fit both."""
    width = chance.choice((1, 2))
    found = []
    for offset in range(6):
        event = chance.choice((1, 2, 2, 2, 3))
        rows = []
        for _ in range(chance.choice((1, 3, 8))):
            sides = ((0x12,), (0x0A, 0x12), (0x0A,))[event - 1]
            text = chance.choice(("a", "bb"))
            images = [field(tag, column(chance, place, text)) for tag in sides for place in range(width)]
            rows.append(field(0x62, b"".join(images)))
        header = field(0x12, b"j") + field(0x18, offset) + field(0x42, b"s") + field(0x4A, b"t")
        stored = field(0x10, event) + b"".join(rows)
        found.append(field(0x12, field(0x0A, header) + field(0x10, 2) + field(0x1A, stored)))
    return b"".join(found)


def alike(chance: random.Random) -> bytes:
    """Return entries of many rows whose values mostly have equal sizes; some values do not fit, or are not ASCII."""
    kinds = [(place, *chance.choice((("int", 4), ("date", 91), ("text", 12), ("blob", 2004)))) for place in range(3)]
    odd = chance.choice((0.0, 0.01, 0.1))
    found = []
    for offset in range(3):
        rows = []
        for _ in range(chance.choice((1, 2, 40, 100))):
            row = b""
            for place, mysql_type, sql_type in kinds:
                text = f"{chance.randrange(10):0{chance.choice((6, 6, 6, 7))}d}"
                if sql_type == 91:
                    text = f"2024-0{chance.randrange(1, 10)}-11"
                if chance.random() < odd:
                    text = chance.choice((*TEXTS, "2024-13-11", "0000-00-00", "12345x", "é12345"))
                raw = b"\xff\xfe" if chance.random() < odd / 100 else text.encode()
                rest = field(0x08, place) + field(0x10, sql_type) + field(0x1A, b"c%d" % place)
                row += field(0x12, rest + field(0x42, raw) + field(0x52, mysql_type.encode()))
            rows.append(field(0x62, row))
        header = field(0x12, b"j") + field(0x18, offset) + field(0x42, b"s") + field(0x4A, b"t")
        stored = field(0x10, 1) + b"".join(rows)
        found.append(field(0x12, field(0x0A, header) + field(0x10, 2) + field(0x1A, stored)))
    return b"".join(found)


def texts(chance: random.Random) -> Target:
    """Return a target that takes every text."""
    return Target(codes.TEXT)


def sheets(chance: random.Random, data: bytes, target: Callable[[random.Random], Target | None]) -> list[object]:
    """Return all columns of each batch, and how the entries end. target: makes the target of a column."""
    work = TableRows(Entries(data, 0, len(data)), chance.choice((1, 10, 1000)), 1 << 20)
    found: list[object] = []
    try:
        while (code := work.step()) != codes.DONE:
            if code == codes.TABLE:
                work.add(Sheet(None))
                continue
            found += [code, taken(work.sheet)]
            layout = work.layout
            if code == codes.LAYOUT:
                work.sheet.start(layout.identity, [target(chance) for _ in layout.columns])
            else:
                formats = [one and Target(one.format, one.width, one.precision, one.scale) for one in work.sheet.plan]
                work.sheet.start(work.sheet.identity, formats)
    except Broken as error:
        return [*found, str(error), work.refused and work.refused.refused]
    return [*found, *(taken(sheet) for sheet in work.sheets.values() if sheet is not None)]


def taken(sheet: Sheet) -> list[object]:
    """Return a sheet's marks and columns."""
    marks = sheet.marks
    told: list[object] = [marks.ops, marks.rows, marks.places, marks.numbers, marks.subs, marks.times, marks.offsets]
    told += [(one.data, one.offsets) for one in (marks.journals, marks.gtids)]
    return told + [one and (one.count, one.nulls, one.data, one.offsets, one.validity) for one in sheet.plan]


def main() -> None:
    """Print the build, then a line for each input."""
    seed, count = map(int, sys.argv[1:])
    print(kernel.BUILD)
    for number in range(count):
        name = f"{seed} {number}"
        chance = random.Random(name)
        made = [(ambiguous(chance), texts), (alike(chance), texts), (alike(chance), target)]
        made.append((frames(name, 8, chance.choice((0.0, 0.02, 0.3))), target))
        all_of_it = [sheets(chance, data, kind) for one, kind in made for data in (one, mutated(name, one))]
        print(number, sha256(repr(all_of_it).encode()).hexdigest())


if __name__ == "__main__":
    main()
