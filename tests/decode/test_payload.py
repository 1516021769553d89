"""The events inside MySQL's compressed transactions."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import zstandard

from canal_ha.decode import payload
from canal_ha.decode.filters import TableFilter
from canal_ha.decode.kernel import BUILD
from canal_ha.decode.outputs import Output, Passed
from canal_ha.errors import MalformedEvent
from lab.dump import Dump, decoder, entries, packed
from lab.process import memory_mib

TRANSACTION_PAYLOAD = 40
ZSTD, UNCOMPRESSED = 0, 255


def content(rows: int) -> bytes:
    """Return the events of a transaction; inside a payload they have no checksum."""
    inside = Dump(checksum=False).begin()
    for number in range(rows):
        inside.table().insert(number)
    return events(inside.xid())


def events(dump: Dump) -> bytes:
    """Return the events without their packets."""
    found = bytearray()
    at = 0
    while at < len(dump.data):
        size = int.from_bytes(dump.data[at : at + 3], "little")
        found += dump.data[at + 5 : at + 4 + size]
        at += 4 + size
    return bytes(found)


def body(inside: bytes, compression: int = ZSTD, claimed: int | None = None) -> bytes:
    """Return the body of a payload event. claimed: the size of the content; None for the true one."""
    packed_inside = zstandard.compress(inside) if compression == ZSTD else inside
    size = packed(len(inside) if claimed is None else claimed)
    code = packed(compression)
    fields = b"\2" + packed(len(code)) + code + b"\3" + packed(len(size)) + size + b"\0"
    return fields + packed_inside


def dump_of(inside: bytes) -> bytes:
    return bytes(Dump().format().add(TRANSACTION_PAYLOAD, inside).data)


def test_pieces_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are the same whatever the size of the pieces, also if an event is larger than one."""
    whole = content(50)
    wanted = entries(decoder().feed(dump_of(body(whole))))
    assert len(wanted) == 52
    assert len(entries(decoder().feed(dump_of(body(whole, UNCOMPRESSED))))) == len(wanted)
    for size in (1, 2, 18, 19, 20, 50, 97, 1000):
        monkeypatch.setattr(payload, "PIECE_BYTES", size)
        monkeypatch.setattr(payload, "_INFLATE_BYTES", size)
        assert entries(decoder().feed(dump_of(body(whole)))) == wanted
    behind = Dump(position=4).format().add(TRANSACTION_PAYLOAD, body(whole)).begin().table().insert(7).xid()
    assert len(entries(decoder().feed(bytes(behind.data)))) == len(wanted) + 3


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: body(content(2), claimed=10), "more than the 10 bytes that it claims"),
        (lambda: body(content(2), claimed=1 << 40), "bytes that claims 1099511627776"),
        (lambda: body(content(2))[:-8], "claims|does not decompress"),
        (lambda: body(content(2)[:-1]), "an event beyond its compressed payload"),
        (lambda: body(content(2) + struct.pack("<IBIIIH", 0, 2, 1, 7, 0, 0)), "an event beyond its compressed payload"),
        (lambda: body(content(2) + struct.pack("<IBIIIH", 0, 2, 1, 1 << 31, 0, 0)), "an event of 2147483648 bytes"),
        (lambda: body(content(2), 7), "compressed by method 7"),
    ],
)
def test_malformed_payloads_deliver_nothing(make: Callable[[], bytes], reason: str) -> None:
    """A payload that is cut, or larger or smaller than it claims, is refused before any of its rows is delivered."""
    found: list[Output] = []
    with pytest.raises(MalformedEvent, match=reason):
        found.extend(decoder().feed(dump_of(make())))
    assert b"".join(entries(found)).count(b"insert") == 0


def large(count: int, size: int, begin: Dump, end: Dump) -> Iterator[bytes]:
    """Yield the body of a payload with `count` rows events of a table between others; `size`: bytes of each."""
    rows = Dump(checksum=False).rows(30, bytes(size))
    whole = (events(begin.table()), *[events(rows)] * count, events(end))
    claimed = packed(sum(map(len, whole)))
    yield b"\2\1\0\3" + packed(len(claimed)) + claimed + b"\0"
    compressor = zstandard.ZstdCompressor(level=1).compressobj()
    for each in whole:
        yield compressor.compress(each)
    yield compressor.flush()


def decode_large() -> None:
    """Decode a payload of 1.5 GiB, of a table that the filter leaves out; print the peak of memory in MiB."""
    work = decoder(tables=TableFilter("", r"s\..*"))
    begin, end = Dump(checksum=False).begin(), Dump(checksum=False).xid()
    outputs = list(work.feed(dump_of(b"".join(large(104, 15 << 20, begin, end)))))
    assert isinstance(outputs[-1], Passed)
    print(round(memory_mib("self", "VmHWM")))


@pytest.mark.skipif(BUILD == "interpreted", reason="it takes long, and both builds share what bounds the memory")
def test_a_payload_above_one_gibibyte_is_decoded_in_bounded_memory() -> None:
    """A transaction that inflates to 1.5 GiB is read; memory stays a few times a piece and the largest event."""
    code = "from tests.decode.test_payload import decode_large; decode_large()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=120)
    assert int(done.stdout) < 400
