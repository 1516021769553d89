"""The entries that pass the sink, and its counters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from canal_ha.config.model import DecodeOptions
from canal_ha.errors import RingClosed
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.sink import SKIPPED_MAX, SKIPPED_MS, Sink
from tests.segments import Item, segment

RECORDED = Path(__file__).parent.parent / "golden" / "transaction_entries_off.txt"
OFF = DecodeOptions(filter_transaction_entry=True)


def passed(options: DecodeOptions, *pieces: Segment) -> list[Segment]:
    out: list[Segment] = []
    sink = Sink(out.append, options)
    for piece in pieces:
        sink.accept(piece)
    return out


def transaction(time_ms: int, *, end_ms: int | None = None) -> list[Item]:
    return [
        Item(time_ms, EntryKind.BEGIN, b"b", timestamp_ms=time_ms),
        Item(time_ms + 1, EntryKind.ROWS, b"r", timestamp_ms=time_ms, rows=3),
        Item(time_ms + 2, EntryKind.END, b"e", timestamp_ms=time_ms if end_ms is None else end_ms),
    ]


def bodies(pieces: Sequence[Segment]) -> bytes:
    return b"".join(entry for piece in pieces for entry in piece.entries())


def test_segments_pass_untouched() -> None:
    """Without the option and without heartbeats, the same segment object passes."""
    piece = segment(transaction(1000))
    assert passed(DecodeOptions(), piece) == [piece]
    assert passed(DecodeOptions(), piece)[0] is piece


def test_heartbeats_are_removed() -> None:
    """Heartbeats are removed, and a segment of heartbeats only is not passed on."""
    beat = Item(5, EntryKind.HEARTBEAT, b"h")
    assert bodies(passed(DecodeOptions(), segment([beat, *transaction(1000), beat]), segment([beat]))) == b"bre"
    assert len(passed(DecodeOptions(), segment([beat]), segment([]))) == 0


def test_as_recorded() -> None:
    """The entries that passed the Java server pass the sink, however they are cut into segments."""
    lines = [line.split() for line in RECORDED.read_text().splitlines() if not line.startswith("#")]
    items = [
        Item(int(offset), EntryKind[kind], timestamp_ms=int(time), sub=n)
        for n, (offset, kind, time, _) in enumerate(lines)
    ]
    expected = [n for n, line in enumerate(lines) if line[3] == "passed"]
    for step in (1, 7, len(items)):
        pieces = [segment(items[at : at + step]) for at in range(0, len(items), step)]
        assert [sub for piece in passed(OFF, *pieces) for sub in piece.subs] == expected


def test_one_pair_passes_after_five_seconds() -> None:
    """One begin and its end pass when the last end that passed is more than 5000 ms of event time ago."""
    times = [10_000, 10_000 + SKIPPED_MS, 10_001 + SKIPPED_MS, 10_002 + SKIPPED_MS]
    assert bodies(passed(OFF, *(segment(transaction(time)) for time in times))) == b"bre" + b"r" + b"bre" + b"r"


def test_an_end_may_pass_without_its_begin() -> None:
    """Of a transaction that begins before the threshold and ends after it, only the end passes, as in canal."""
    assert bodies(passed(OFF, segment(transaction(10_000)), segment(transaction(11_000, end_ms=15_001)))) == b"brere"


def test_one_passes_after_many() -> None:
    """After 8192 dropped begins and ends, the next begin and its end pass."""
    pairs = SKIPPED_MAX // 2
    kept = bodies(passed(OFF, *(segment(transaction(10_000)) for _ in range(pairs + 3))))
    assert kept == b"bre" + b"r" * pairs + b"bre" + b"r"


def test_counters() -> None:
    """All ends count as transactions, even dropped ones; rows that passed count; the time is the newest entry's."""
    sink = Sink(lambda segment: None, OFF)
    for time_ms in (10_000, 10_001):
        sink.accept(segment(transaction(time_ms)))
    assert (sink.transactions, sink.rows, sink.last_time_ms) == (2, 6, 10_001)


def test_blocked_time() -> None:
    """The time spent in put counts, even if put raises."""
    now = [100.0]

    def put(piece: Segment) -> None:
        now[0] += 0.25
        if piece.offsets[0] == 2000:
            raise RingClosed("closed")

    sink = Sink(put, DecodeOptions(), clock=lambda: now[0])
    sink.accept(segment(transaction(1000)))
    with pytest.raises(RingClosed):
        sink.accept(segment(transaction(2000)))
    assert sink.blocked_ms == 500.0
