"""Damaged binlogs: an error and only correct entries before it; no crash, no hang and no large use of memory."""

from __future__ import annotations

import resource
import signal
import struct
import zlib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import zstandard

from canal_ha.decode import values
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import MalformedEvent
from lab.dump import ColumnType, Dump, decoder
from tests.compat import mutations
from tests.sampling import LONG

COUNT = 10_400 if LONG else 2_600
PIECES = 8
MEMORY_BYTES = 400 << 20  # on top of what the process has; the largest golden event is a thousandth of this
PIECE_S = 120


def limited(seed: int) -> dict[str, tuple[int, int]]:
    """Run one part of the work in a process with limits for memory and time."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    signal.alarm(PIECE_S)  # ends the process
    try:
        return mutations.run(seed, COUNT // PIECES)
    finally:
        signal.alarm(0)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_mutations() -> None:
    """A malformed event stops the stream there, behind exactly the entries that came before it, whatever the damage."""
    totals: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as workers:
        for found in workers.map(limited, range(PIECES)):
            for what, (times, raised) in found.items():
                totals[what] += times
                errors[what] += raised
    for what, times in sorted(totals.items()):
        print(f"{what:26} {times:6} {errors[what]:6} errors")
    assert sum(totals.values()) == COUNT
    assert min(totals.values()) > COUNT // 500


def test_a_payload_that_claims_too_much() -> None:
    """A payload that claims 1 TiB is refused at its first piece that is no event, or at its end."""
    claim = 1 << 40
    squeezed = zstandard.ZstdCompressor().compress(bytes(64 << 20))
    for content, reason in ((squeezed, "beyond its compressed payload"), (b"", "claims")):
        dump = Dump().format().add(40, mutations.payload(b"", claim, content))
        with pytest.raises(MalformedEvent, match=reason):
            list(decoder().feed(bytes(dump.data)))


def test_a_column_that_holds_more_than_it_claims() -> None:
    """A COMPRESSED column of MariaDB is inflated only as far as it claims."""
    bomb = zlib.compress(bytes(128 << 20), 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Broken, match="length differs"):
        values.uncompressed(b"\x84" + struct.pack(">I", 1000) + bomb, False, "utf-8")
    with pytest.raises(Broken, match="claims"):
        values.uncompressed(b"\x87" + b"\xff" * 7 + bomb, False, "utf-8")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 60 << 10


def test_a_table_of_too_many_columns() -> None:
    """A table map of 5000 columns is refused: no server has more than 4096, and plans for more would fill memory."""
    dump = Dump().format().begin().table(columns=(ColumnType(1),) * 5000)
    with pytest.raises(MalformedEvent, match="a table of 5000 columns"):
        list(decoder().feed(bytes(dump.data)))
