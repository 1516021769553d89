"""Properties of the push parser: any chunking, any schema, any damage."""

from __future__ import annotations

import struct
import sys
from array import array
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from canal_ha.decode import types
from canal_ha.decode.outputs import Output, RawPacket, Rotated, SourceFormat
from canal_ha.errors import MalformedEvent, TableUnknown
from canal_ha.model.segment import Segment
from canal_ha.model.table import Column
from canal_ha.wire.proto import entry_protocol_pb2 as entry
from lab.column_kinds import KINDS, Kind
from lab.dump import JOURNAL, SECONDS, AnyTable, ColumnType, Dump, decoder, entries, packed, packets, segments
from lab.golden import binlog
from tests.sampling import examples


def events_of(file: bytes) -> list[bytes]:
    """Return the events of a binlog file."""
    found = []
    at = 4
    while at < len(file):
        size = struct.unpack_from("<I", file, at + 9)[0]
        found.append(file[at : at + size])
        at += size
    return found


def unsigned_events(events: list[bytes]) -> list[bytes]:
    """Return the same events without checksums, so that damage reaches the parser."""
    plain = []
    for event in events:
        if event[4] == 15:
            plain.append(event[:-5] + b"\0" + event[-4:])
        else:
            plain.append(event[:9] + struct.pack("<I", len(event) - 4) + event[13:-4])
    return plain


FILES = [events_of(binlog(tag)) for tag in ("mysql9_gtid", "mariadb10.11_gtid", "mysql9", "mariadb10.11")]
SMALL = [[event for event in events if len(event) < 4000] for events in FILES]
DUMP = b"".join(map(packets, SMALL[0]))


@dataclass
class Whole:
    """The outputs of a decoder, with all segments joined."""

    frames: bytes
    ends: list[int]
    columns: list[Any]
    kinds: bytes
    positions: list[Any]
    others: list[Output]


def whole(outputs: list[Output]) -> Whole:
    """Join segments, which depend on chunking; keep only the last Passed, because each chunk gives one."""
    result = Whole(b"", [], [], b"", [], [])
    for output in outputs:
        if isinstance(output, Segment):
            base = len(result.frames)
            result.frames += bytes(output.frames)
            result.ends += [base + end for end in output.ends]
            result.kinds += bytes(output.kinds)
            result.positions += [output.position(i) for i in range(len(output))]
            lists: tuple[array[int], ...] = (output.subs, output.event_lengths, output.row_counts)
            result.columns += zip(*lists, strict=True)
        elif isinstance(output, Rotated | SourceFormat | RawPacket):
            result.others.append(output)
    result.others.append(outputs[-1])
    return result


EXPECTED = whole(list(decoder(position=4).feed(DUMP)))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 20000), min_size=1, max_size=50))
@example([1, 3, 2])
@example([19])
def test_any_chunking(sizes: list[int]) -> None:
    """A dump gives the same entries and arrays, however its bytes are cut into chunks."""
    work = decoder()
    outputs: list[Output] = []
    at = turn = 0
    while at < len(DUMP):
        size = sizes[turn % len(sizes)] + at // 200  # tiny chunks would take long
        outputs += work.feed(bytearray(DUMP[at : at + size]))
        at += size
        turn += 1
    # the last chunk may have ended nothing
    outputs.append(next(output for output in reversed(outputs) if type(output).__name__ == "Passed"))
    assert whole(outputs) == EXPECTED


def test_a_file_is_a_dump_without_packets() -> None:
    """The bytes of a file, fed in small chunks, give the same entries as its packets."""
    work = decoder()
    file = b"\xfebin" + b"".join(SMALL[0])
    cuts = [*range(100), *range(100, len(file), 777), len(file)]
    outputs = [out for a, b in pairwise(cuts) for out in work.feed_file(file[a:b])]
    assert b"".join(entries(outputs)) == b"".join(entries(decoder().feed(DUMP)))
    behind = decoder()
    assert entries(behind.feed_file(file[4:])) == entries(outputs)


@settings(max_examples=examples(400), deadline=None)
@given(st.data())
def test_any_damage(data: st.DataObject) -> None:
    """Flipped bits, lost and repeated bytes raise MalformedEvent or TableUnknown, or give valid entries."""
    events = data.draw(st.sampled_from(SMALL))
    start = data.draw(st.integers(1, len(events) - 12))
    dump = bytearray(b"".join(map(packets, unsigned_events([events[0], *events[start : start + 12]]))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(len(packets(events[0])), len(dump) - 1))
        damage = data.draw(st.sampled_from(["flip", "set", "cut", "repeat", "insert"]))
        if damage == "flip":
            dump[at] ^= 1 << data.draw(st.integers(0, 7))
        elif damage == "set":
            dump[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0xFE, 0xFF]))
        elif damage == "cut":
            del dump[at : at + data.draw(st.integers(1, 8))]
        elif damage == "repeat":
            dump[at:at] = dump[at : at + 8]
        else:
            dump[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    work = decoder()
    with suppress(MalformedEvent, TableUnknown):
        for output in work.feed(bytes(dump)):
            if isinstance(output, Segment):
                for raw in output.entries():
                    entry.Entry.FromString(raw)


@settings(max_examples=examples(300), deadline=None)
@given(st.data())
def test_any_damage_inside_an_event(data: st.DataObject) -> None:
    """Damaged bodies under a correct header and checksum raise nothing but the same two errors."""
    events = data.draw(st.sampled_from(SMALL))
    at = data.draw(st.integers(1, len(events) - 3))
    dump = Dump().format()
    for event in events[at : at + 3]:
        body = bytearray(event[19:-4])
        for _ in range(data.draw(st.integers(0, 2))):
            if body:
                body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        if data.draw(st.booleans()):
            body = body[: data.draw(st.integers(0, len(body)))]
        dump.add(event[4], bytes(body))
    with suppress(MalformedEvent, TableUnknown):
        list(decoder().feed(bytes(dump.data)))


# ---- any schema, any row: what we write is what protobuf writes


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Kind], list[Column]]:
    chosen = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=20))
    columns = [
        Column(
            draw(st.text(min_size=1, max_size=20)),
            kind.mysql_type,
            key=draw(st.booleans()),
            unsigned="unsigned" in kind.mysql_type,
        )
        for kind in chosen
    ]
    return chosen, columns


def image(kinds: list[Kind], values: list[Any]) -> bytes:
    """Return a row image; unused null bits are ones, as in MySQL."""
    nulls = (1 << (len(values) + 7) // 8 * 8) - 1
    for index, value in enumerate(values):
        if value is not None:
            nulls &= ~(1 << index)
    stored = [kind.store(value) for kind, value in zip(kinds, values, strict=True) if value is not None]
    return nulls.to_bytes((len(values) + 7) // 8, "little") + b"".join(stored)


def expected_columns(
    target: Any, kinds: list[Kind], columns: list[Column], values: list[Any], before: list[Any] | None, updated: bool
) -> None:
    for index, (kind, column, value) in enumerate(zip(kinds, columns, values, strict=True)):
        made = target.add(
            index=index,
            sqlType=kind.null_sql_type if value is None else kind.sql_type,
            name=column.name,
            isKey=column.key,
            updated=updated if before is None else text_of(kind, before[index]) != text_of(kind, value),
            isNull=value is None,
            mysqlType=column.mysql_type,
        )
        if value is not None:
            made.value = kind.text(value)


def text_of(kind: Kind, value: Any) -> str | None:
    """Return the text of a value; different values may have the same one, as a TIME(0) has no microseconds."""
    return None if value is None else kind.text(value)


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), tables())
def test_what_we_write_is_what_protobuf_writes(data: st.DataObject, table: tuple[list[Kind], list[Column]]) -> None:
    """Entries of any table and any rows equal those of protobuf's own library, byte for byte."""
    check_rows(data, *table)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.mysql_type} {kind.column.code}")
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_every_type(kind: Kind, data: st.DataObject) -> None:
    """Entries of a table with one column of any type equal those of protobuf's own library."""
    check_rows(data, [kind], [Column("c", kind.mysql_type, unsigned="unsigned" in kind.mysql_type)])


def check_rows(data: st.DataObject, kinds: list[Kind], columns: list[Column]) -> None:
    """Draw and decode a rows event; compare its entry with the one that protobuf writes."""
    event, name = data.draw(st.sampled_from([(30, entry.INSERT), (31, entry.UPDATE), (32, entry.DELETE)]))
    row = st.tuples(*(st.none() | kind.value for kind in kinds)).map(list)
    images = b""
    change = entry.RowChange(tableId=1, eventType=name, isDdl=False)
    count = data.draw(st.integers(1, 4))
    for _ in range(count):
        values = data.draw(row)
        made = change.rowDatas.add()
        if event == 31:
            after = [
                old if keep else new
                for old, new, keep in zip(
                    values,
                    data.draw(row),
                    data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))),
                    strict=True,
                )
            ]
            images += image(kinds, values) + image(kinds, after)
            expected_columns(made.beforeColumns, kinds, columns, values, None, False)
            expected_columns(made.afterColumns, kinds, columns, after, values, True)
        else:
            images += image(kinds, values)
            target = made.afterColumns if event == 30 else made.beforeColumns
            expected_columns(target, kinds, columns, values, None, event == 30)
    dump = Dump().format().begin().table(columns=[kind.column for kind in kinds])
    offset = dump.position
    dump.rows(event, images, width=len(kinds))
    length = dump.position - offset
    dump.xid()
    header = entry.Header(
        version=1,
        logfileName=JOURNAL,
        logfileOffset=offset,
        serverId=5,
        serverenCode="UTF-8",
        executeTime=SECONDS * 1000,
        sourceType=entry.MYSQL,
        schemaName="s",
        tableName="t",
        eventLength=length,
        eventType=name,
        props=[entry.Pair(key="rowsCount", value=str(count))],
    )
    expected = entry.Entry(header=header, entryType=entry.ROWDATA, storeValue=change.SerializeToString())
    made_entries = entries(decoder(AnyTable(*columns)).feed(bytes(dump.data)))
    assert made_entries[1] == expected.SerializeToString()


@pytest.mark.parametrize(
    ("stored", "shown"),
    [(b"a\xed\xa0\x80b", "a\ufffdb"), (b"\xff\xc3", "\ufffd\ufffd"), (b"\xe2\x82a", "\ufffda")],
    ids=["a surrogate", "no character", "cut"],
)
def test_malformed_text(stored: bytes, shown: str) -> None:
    """Malformed text has as many U+FFFD as Java's decoder writes."""
    column = ColumnType(types.VARCHAR, struct.pack("<H", 400))
    dump = Dump().format().begin().table(columns=[column])
    dump.rows(30, b"\xfe" + struct.pack("<H", len(stored)) + stored, width=1).xid()
    made = entries(decoder(AnyTable(Column("c", "varchar(100)"))).feed(bytes(dump.data)))[1]
    change = entry.RowChange.FromString(entry.Entry.FromString(made).storeValue)
    assert change.rowDatas[0].afterColumns[0].value == shown


def test_wide_tables() -> None:
    """A table with more columns than a count of one byte is decoded."""
    width = 300
    columns = [ColumnType(types.TINY)] * width
    dump = Dump().format().begin().table(columns=columns)
    dump.rows(30, bytes((width + 7) // 8) + bytes(range(150)) * 2, width=width).xid()
    assert packed(width)[0] == 252
    change = entry.RowChange.FromString(entry.Entry.FromString(entries(decoder().feed(bytes(dump.data)))[1]).storeValue)
    assert [column.index for column in change.rowDatas[0].afterColumns] == list(range(width))


def transaction(rows: Dump, *numbers: int) -> bytes:
    """Return the bytes of the next transaction of a dump, without those before it."""
    rows.data.clear()
    return bytes(rows.begin().table().insert(*numbers).xid().data)


def test_buffers_of_acknowledged_segments_are_used_again() -> None:
    """The buffer of a recycled segment is reused, unless a view of it still exists."""
    rows = Dump().format()
    work = decoder()
    first = segments(work.feed(bytes(rows.data) + transaction(rows, *range(3000))))[0]
    sent, busy = first.frames_view(0, 2), id(first.frames)
    expected = bytes(sent)
    first.recycle()
    del first
    known = []
    for _ in range(5):
        (segment,) = segments(work.feed(transaction(rows, *range(3000))))
        known.append(id(segment.frames))
        segment.recycle()
        del segment
    assert busy not in known
    assert len(set(known)) < len(known)
    assert bytes(sent) == expected


def test_small_segments_take_small_memory() -> None:
    """Small segments that reuse the buffer of a large one do not keep its size."""
    rows = Dump().format()
    work = decoder()
    large = segments(work.feed(bytes(rows.data) + transaction(rows, *range(3000))))[0]
    size = len(large.frames)
    large.recycle()
    for _ in range(20):
        (small,) = segments(work.feed(transaction(rows, 1)))
        assert sys.getsizeof(small.frames) < size / 10
