"""What a history passes to a store that fails now and then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from canal_ha.decode.history.ranges import Range, edge
from canal_ha.decode.history.store import HistoryStore, Record, TableSnapshot
from canal_ha.errors import HistoryUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.history.recording import Recording
from canal_ha.source.history.sql_store import in_file


def at(offset: int) -> LogPosition:
    """A position."""
    return LogPosition("bin.000001", offset, timestamp_ms=offset)


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    """A file."""
    return in_file("example", tmp_path)


def test_a_range_is_not_covered_before_its_snapshot_is_stored(
    store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next node would take the range for known, and find none of its tables there."""
    told: list[str] = []

    def refused(*_: Any) -> None:
        raise HistoryUnavailable("Got a packet bigger than 'max_allowed_packet' bytes")

    recording = Recording(store, "u", lambda name, /, **facts: told.append(name), set())
    snapshot = TableSnapshot(at(100), {("s", "t"): "CREATE TABLE t (a int)"})
    ranges = (Range(*(edge(LogPosition("bin.000001", offset)) for offset in (100, 200))),)
    with monkeypatch.context() as failing:
        failing.setattr(store, "add_snapshot", refused)
        recording.keep_snapshot(snapshot)
        recording.note(ranges, {})
        assert store.load("u").ranges == ()
    recording.note(ranges, {})
    kept = store.load("u")
    assert (kept.ranges, kept.snapshots) == (ranges, (snapshot,))
    assert told == ["history.unavailable", "history.available"]


def test_a_snapshot_that_expires_unstored_is_not_stored_any_more(
    store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory does not fill while only snapshots fail."""

    def refused(*_: Any) -> None:
        raise HistoryUnavailable("disk full")

    recording = Recording(store, "u", lambda name, /, **facts: None, set())
    with monkeypatch.context() as failing:
        failing.setattr(store, "add_snapshot", refused)
        for offset in (100, 200):
            recording.keep_snapshot(TableSnapshot(at(offset), {}))
        recording.expire(at(200), 0)
    recording.note((), {})
    recording.keep_snapshot(TableSnapshot(at(300), {}))
    assert [snapshot.at.offset for snapshot in store.load("u").snapshots] == [200, 300]


def test_nothing_expires_in_a_store_that_lacks_the_snapshot_that_takes_over(
    store: HistoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that takes no snapshot any more keeps the old one, and memory does not keep what lies before."""

    def refused(*_: Any) -> None:
        raise HistoryUnavailable("disk full")

    recording = Recording(store, "u", lambda name, /, **facts: None, set())
    recording.keep_snapshot(TableSnapshot(at(100), {}))
    with monkeypatch.context() as failing:
        failing.setattr(store, "add_snapshot", refused)
        failing.setattr(store, "add", refused)
        recording.record(Record(at(150), "s", "DROP TABLE t"))
        recording.keep_snapshot(TableSnapshot(at(200), {}))
        recording.expire(at(200), 0)
    assert [snapshot.at.offset for snapshot in store.load("u").snapshots] == [100]
    recording.note((), {})
    recording.expire(at(200), 0)
    kept = store.load("u")
    assert [snapshot.at.offset for snapshot in kept.snapshots] == [200]
    assert kept.records == ()
