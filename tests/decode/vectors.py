"""Prints one line for each of many inputs to this process's kernel: a digest of everything delivered, and the error.

test_builds.py runs this program with each build and compares the lines. The inputs are recorded binlogs, generated rows
of every column type, and JSON documents, damaged and undamaged. Arguments: seed, number of generated dumps, number of
damaged recordings.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from typing import Any

from canal_ha.config.model import DecodeOptions
from canal_ha.decode import kernel, types
from canal_ha.decode.filters import FieldFilter
from canal_ha.decode.kernel import kinds
from canal_ha.decode.kernel.documents import document_text
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.decode.outputs import Output
from canal_ha.decode.privacy import NO_PRIVACY, Privacy
from canal_ha.decode.table_map import parse_table_map
from canal_ha.errors import MalformedEvent, TableUnknown
from canal_ha.model.privacy import ColumnRules
from canal_ha.model.segment import Segment
from canal_ha.model.table import Column
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry, RowChange
from lab import golden
from lab.column_kinds import KINDS, random_decimal, squeezed
from lab.dump import AnyTable, ColumnType, Dump, decoder, packed, table_map
from tests.compat import mutations
from tests.decode import documents, result_sets

ROWS_PER_EVENT = 8
DECIMALS = [
    (ColumnType(types.NEWDECIMAL, bytes(size)), f"decimal({size[0]},{size[1]})")
    for size in ((65, 30), (9, 9), (10, 0), (18, 9), (1, 0), (65, 0), (30, 30), (20, 5))
]
COLUMNS = [(kind.column, kind.mysql_type) for kind in KINDS] + DECIMALS
TEXTS = ("", "plain", "ü", "中文", "\U0001f600 and more", "x" * 127, "x" * 128, "é" * 64, "long " * 4000)


def digest(outputs: Iterable[Output]) -> str:
    """Run a decoder to its end; return a digest of its outputs and, if it failed, its error."""
    total = sha256()
    rows = 0
    try:
        for output in outputs:
            if isinstance(output, Segment):
                total.update(output.frames)
                if not all(map(is_protobufs, output.entries())):
                    return f"an entry that protobuf writes otherwise at {output.position(0)}"
                for column in (output.ends, output.offsets, output.subs, output.timestamps, output.event_lengths):
                    total.update(column)
                for column in (output.row_counts, output.run_starts, output.run_server_ids, output.entry_ends):
                    total.update(column)
                total.update(output.kinds)
                total.update(repr(output.run_gtids).encode())
                rows += sum(output.row_counts)
            else:
                total.update(repr(output).encode())
    except (MalformedEvent, TableUnknown) as error:
        return f"{total.hexdigest()} {rows} rows, {type(error).__name__}: {error}"
    return f"{total.hexdigest()} {rows} rows"


def is_protobufs(raw: bytes) -> bool:
    """Return whether protobuf's own library writes the same bytes for the entry and for its stored value."""
    entry = Entry.FromString(raw)
    if entry.SerializeToString() != raw:
        return False
    stored = entry.storeValue
    return entry.entryType != ROWDATA or RowChange.FromString(stored).SerializeToString() == stored


# ---- generated rows


def number(chance: random.Random) -> float:
    """Return a random number: whole, with a short fraction, or any."""
    return chance.choice(
        (0.0, -0.0, 1.0, chance.randrange(-(10**8), 10**8) * 1.0, chance.randrange(10**6) / 100, chance.gauss(0, 1e9))
    )


def prefixed(chance: random.Random, reading: types.CellType) -> bytes:
    """Return a random value after its length."""
    if reading.text == kinds.JSON:
        value = documents.drawn(chance)
    elif chance.random() < 0.5:
        value = chance.randbytes(chance.choice((0, 1, 5, 16, 60)))
    else:
        value = chance.choice(TEXTS[:-1] if reading.size == 1 else TEXTS).encode()
    if reading.text in (kinds.COMPRESSED, kinds.COMPRESSED_UTF8):
        value = squeezed(value[:90])
    value = value[: (1 << 8 * reading.size) - 1]
    return len(value).to_bytes(reading.size, "little") + value


def cell(chance: random.Random, reading: types.CellType) -> bytes:
    """Return a random stored value of a column with this cell type."""
    if reading.kind == kinds.PREFIXED:
        return prefixed(chance, reading)
    if reading.kind == kinds.DECIMAL:
        return random_decimal(chance, reading.precision, reading.decimals)
    if reading.kind in (kinds.DOUBLE, kinds.FLOAT) and chance.random() < 0.7:
        return struct.pack("<d" if reading.size == 8 else "<f", number(chance))
    return chance.choice((bytes(reading.size), b"\xff" * reading.size, *[chance.randbytes(reading.size)] * 6))


def image(chance: random.Random, readings: list[types.CellType], before: bytes = b"") -> bytes:
    """Return a row image; an after image often equals the before image."""
    if before and chance.random() < 0.5:
        return before
    nulls = 0
    stored = b""
    for index, reading in enumerate(readings):
        if chance.random() < 0.2:
            nulls |= 1 << index
        else:
            stored += cell(chance, reading)
    return nulls.to_bytes((len(readings) + 7) // 8, "little") + stored


def mysql_gtid(dump: Dump, chance: random.Random, number: int) -> None:
    """Add the GTID event of a transaction of one of two sources, in most cases the next one."""
    source = bytes([chance.randrange(2)]) * 16
    number = chance.choice((number, number, number, chance.randrange(1 << 63)))
    dump.add(kinds.GTID, b"\0" + source + struct.pack("<Q", number) + b"\2" + struct.pack("<QQ", number - 1, number))


def mariadb_gtid(dump: Dump, chance: random.Random, number: int) -> None:
    """Add the GTID event of the next transaction of one of two domains."""
    dump.add(kinds.MARIADB_GTID, struct.pack("<QIB", number, chance.randrange(2), 0))


def with_gtids(wanted: bool) -> dict[str, Any]:
    """Return the options of a decoder with or without GTIDs."""
    return {"options": DecodeOptions(gtid_on=True), "gtid_set": ""} if wanted else {}


def generated(chance: random.Random, checksums: float = 0.8) -> tuple[bytes, list[Column], str]:
    """Return a dump of a few transactions on one table, the columns of the table, and a field filter or an empty text.

    checksums: the share of dumps that have checksums.
    """
    chosen = chance.choices(COLUMNS, k=chance.choice((1, 2, 7, 8, 9, 20)))
    body = table_map(1, "s", "t", [column for column, _ in chosen])
    metas = parse_table_map(body).metas
    readings = [
        types.reading(column.code, meta, text, True) for (column, text), meta in zip(chosen, metas, strict=True)
    ]
    columns = [
        Column(f"c{index}", text, key=index == 0, unsigned="unsigned" in text) for index, (_, text) in enumerate(chosen)
    ]
    dump = Dump(checksum=chance.random() < checksums, server_id=chance.randrange(1, 1 << 32)).format()
    gtid = chance.choice((None, mysql_gtid, mariadb_gtid))
    for number in range(1, 4):
        if gtid is not None:
            gtid(dump, chance, number)
        dump.begin().add(kinds.TABLE_MAP, body)
        kind = chance.choice((23, 24, 25, 30, 31, 32))
        images = b""
        for _ in range(chance.randrange(1, ROWS_PER_EVENT + 1)):
            before = image(chance, readings)
            images += before + (image(chance, readings, before) if kind in (24, 31) else b"")
        if chance.random() < 0.1:
            images = images[: chance.randrange(len(images))]
        extra = b"\2\0" if kind >= 30 else b""
        bitmap = b"\xff" * ((len(chosen) + 7) // 8) * (2 if kind in (24, 31) else 1)
        dump.add(kind, struct.pack("<Q", 1)[:6] + b"\1\0" + extra + packed(len(chosen)) + bitmap + images)
        dump.xid(chance.randrange(1 << 64))
    return bytes(dump.data), columns, chance.choice(("", "", "s.t:c1"))


PRIVACY = Privacy([ColumnRules(hash="s.t:c0/c3", mask="s.t:c2")], "a key of the tests")


def generated_lines(seed: int, count: int) -> Iterator[str]:
    for index in range(count):
        chance = random.Random(f"{seed} {index}")
        data, columns, skipped = generated(chance)
        privacy = PRIVACY if index % 3 == 0 else NO_PRIVACY
        work = decoder(
            AnyTable(*columns), fields=FieldFilter("", skipped), privacy=privacy, **with_gtids(index % 2 == 1)
        )
        at = chance.randrange(len(data))
        yield f"generated {index} " + digest(output for part in (data[:at], data[at:]) for output in work.feed(part))


# ---- rows of SELECTs


def image_lines(seed: int, count: int) -> Iterator[str]:
    """Yield what becomes of rows of a SELECT, of which every other one is damaged."""
    for index in range(count):
        chance = random.Random(f"{seed} {index}")
        rows, writer = result_sets.drawn(chance)
        raw = bytearray(rows)
        for _ in range(index % 2 * chance.choice((1, 2, 4))):
            raw[chance.randrange(len(raw))] = chance.choice((0, 0x2D, 0x30, 251, 252, 255, chance.randrange(256)))
        out = bytearray()
        skip = [number for number in range(3) if chance.random() < 0.1]
        try:
            made = str(writer.events(bytes(raw), skip, bytes(19), chance.choice((1, 100, 10000)), out))
        except Broken as error:
            made = f"Broken: {error}"
        else:
            made += f" {sha256(out).hexdigest()}"
        yield f"images {index} {made}"


# ---- JSON


def document_lines(seed: int, count: int) -> Iterator[str]:
    """Yield the texts of documents, of which every other one is damaged."""
    for index in range(count):
        chance = random.Random(f"{seed} {index}")
        raw = bytearray(documents.drawn(chance))
        for _ in range(index % 2 * chance.choice((1, 2, 4))):
            raw[chance.randrange(len(raw))] = chance.choice((0, 1, 3, 12, 127, 255, chance.randrange(256)))
        try:
            made = repr(document_text(bytes(raw)))
        except Broken as error:
            made = f"Broken: {error}"
        yield f"document {index} {made}"


# ---- recorded binlogs


def recorded_lines() -> Iterator[str]:
    for tag in mutations.TAGS:
        yield f"{tag} {digest(golden.segments(tag))}"
    for tag, gtids in (("mysql9_gtid", golden.MYSQL_GTIDS), ("mariadb10.11_gtid", golden.MARIADB_GTIDS)):
        yield f"{tag} with GTIDs {digest(golden.segments(tag, DecodeOptions(gtid_on=True), gtid_set=gtids))}"


def damaged_lines(seed: int, count: int) -> Iterator[str]:
    for index in range(count):
        chance = random.Random(f"{seed} {index}")
        case = mutations.draw_case(chance)
        made = mutations.mutate(chance, case)
        outcome = mutations.decode(case, made.events, as_packets=made.as_packets, cut=made.cut)
        entries = sha256(b"".join(outcome.entries)).hexdigest()
        yield f"damaged {index} {made.what} {len(outcome.entries)} {entries} {outcome.error}"


def main() -> None:
    """Print the build, then every line."""
    seed, generate, damage = map(int, sys.argv[1:])
    print(kernel.BUILD)
    damaged = damaged_lines(seed, damage)
    written = image_lines(seed, 10 * generate)
    for lines in (
        recorded_lines(),
        generated_lines(seed, generate),
        document_lines(seed, 10 * generate),
        damaged,
        written,
    ):
        for line in lines:
            print(line)


if __name__ == "__main__":
    main()
