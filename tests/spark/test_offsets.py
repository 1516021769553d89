"""Offsets: their text, admission of micro-batches, and losses if a spool and a checkpoint disagree."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import DataLoss
from canal_ha.model.position import LogPosition
from canal_ha.spark import offsets as o
from canal_ha.spark.lineage import Epoch, Lineage, Writer
from canal_ha.spark.manifest import Manifest, SegmentInfo


def manifest(*closed: bool, first: int = 0, rows: int = 10, spool: str = "a") -> Manifest:
    """Return a spool of segments; `closed` tells for each whether it ends a transaction."""
    segments = tuple(
        SegmentInfo(seq, f"s{seq}", 50, 100, rows, is_closed, 0, LogPosition("bin.000001", seq * 10, 1000, 1))
        for seq, is_closed in enumerate(closed, first)
    )
    return Manifest(spool, segments, first + len(closed))


def at(spool: Manifest, seq: int) -> o.Offset:
    """Return the offset after this segment."""
    return o.Offset(seq, spool.spool, LogPosition("bin.000001", seq * 10, 1000, 1))


def test_the_text_is_the_same_whatever_the_order() -> None:
    """Spark compares texts, so destinations are sorted and keys have a fixed order."""
    spool = manifest(True)
    one = o.to_json({"b": at(spool, 0), "a": at(spool, 0)})
    other = o.to_json({"a": at(spool, 0), "b": at(spool, 0)})
    assert json.dumps(one) == json.dumps(other)
    assert o.to_json(o.from_json(one)) == one


def test_a_micro_batch_ends_where_a_transaction_ends() -> None:
    """Parts of one transaction are admitted together; an unfinished transaction waits."""
    spool = manifest(True, False, False, True, False)
    end = o.admit({}, {"d": spool}, o.Limit(rows=1))
    assert end["d"].seq == 0
    end = o.admit(end, {"d": spool}, o.Limit(rows=1))
    assert end["d"].seq == 3
    assert o.admit(end, {"d": spool}, o.Limit()) == end


def test_limits_hold_beyond_the_first_transaction() -> None:
    """One transaction is always admitted; others are admitted if they fit, fairly over the destinations."""
    spools = {"a": manifest(*[True] * 5), "b": manifest(*[True] * 5)}
    end = o.admit({}, spools, o.Limit(rows=40))
    assert {name: offset.seq for name, offset in end.items()} == {"a": 1, "b": 1}
    end = o.admit({}, spools, o.Limit(size_bytes=1))
    assert {name: offset.seq for name, offset in end.items()} == {"a": 0}
    assert o.admit({}, spools, o.Limit())["b"].seq == 4


def test_a_target_is_never_passed() -> None:
    """AvailableNow reads segments that existed when it began, and nothing of a destination that did not exist."""
    spools = {"a": manifest(*[True] * 5), "b": manifest(True)}
    assert {name: end.seq for name, end in o.admit({}, spools, o.Limit(), {"a": 2}).items()} == {"a": 2}


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(1, 60))
def test_every_closed_segment_is_read_once_in_order(closed: list[bool], rows: int) -> None:
    """The plans of all micro-batches together hold all segments up to the last end of a transaction."""
    spools = {"d": manifest(*closed)}
    start: o.Offsets = {}
    read: list[int] = []
    while (end := o.admit(start, spools, o.Limit(rows=rows))) != start:
        read += [segment.seq for segment in o.plan(start, end, spools, fail_on_data_loss=True)["d"]]
        start = end
    last = max((seq for seq, ends in enumerate(closed) if ends), default=-1)
    assert read == list(range(last + 1))


def test_a_checkpoint_older_than_the_spool_is_a_loss() -> None:
    """The error names the segments. With failOnDataLoss=false the query continues after the gap."""
    spool = manifest(True, True, first=5)
    with pytest.raises(DataLoss, match=r"segment 2.*begins with segment 5.*failOnDataLoss"):
        o.admit({"d": at(spool, 2)}, {"d": spool}, o.Limit())
    end = o.admit({"d": at(spool, 2)}, {"d": spool}, o.Limit(), fail_on_data_loss=False)
    planned = o.plan({"d": at(spool, 2)}, end, {"d": spool}, fail_on_data_loss=False)
    assert [segment.seq for segment in planned["d"]] == [5, 6]


def test_the_segment_before_the_oldest_is_no_loss() -> None:
    """The next segment is in the spool."""
    spool = manifest(True, first=5)
    assert o.admit({"d": at(spool, 4)}, {"d": spool}, o.Limit())["d"].seq == 5


def test_another_spool_and_a_lost_tail_are_losses() -> None:
    """Numbers of one spool mean nothing in another, and a query cannot continue after a segment that does not exist."""
    spool, other = manifest(True), manifest(True, spool="b")
    with pytest.raises(DataLoss, match="another spool"):
        o.admit({"d": at(other, 0)}, {"d": spool}, o.Limit())
    with pytest.raises(DataLoss, match="the spool lacks"):
        o.admit({"d": at(spool, 3)}, {"d": spool}, o.Limit())


def test_a_checkpoint_of_something_else_is_refused() -> None:
    """A checkpoint of a later version is refused, too."""
    for body in ({}, {"v": 2, "destinations": {}}, {"v": 1, "destinations": {"d": {"seq": "x"}}}):
        with pytest.raises(DataLoss):
            o.from_json(body)


@given(st.lists(st.integers(0, 9 << 20), max_size=60), st.integers(1, 8))
def test_tasks_share_out_every_segment_in_order(sizes: list[int], processors: int) -> None:
    """Each segment is in one task, in order; no task exceeds the limit by more than one segment."""
    files = tuple(
        SegmentInfo(seq, f"s{seq}", 50, size, 1, True, 0, LogPosition("bin.000001", seq, 1000, 1))
        for seq, size in enumerate(sizes)
    )
    shared = o.tasks(files, processors)
    assert [file for task in shared for file in task] == list(files)
    assert all(sum(file.raw_bytes for file in task) <= o.TASK_BYTES_MOST + (9 << 20) for task in shared)


def test_a_backlog_keeps_all_processors_busy_to_the_end() -> None:
    """The number of tasks is a multiple of the number of processors; one segment is one task."""

    def shared(count: int) -> list[int]:
        files = manifest(*[True] * count).segments
        return [len(task) for task in o.tasks(tuple(replace(file, raw_bytes=5 << 20) for file in files), 2)]

    assert [shared(count) for count in (1, 2, 24, 26, 60)] == [[1], [1, 1], [12, 12], [6, 7, 6, 7], [10] * 6]


def restored(upto: int, count: int) -> Manifest:
    """Return a spool whose second writer began at `upto`, because the first writer's later segments were lost."""
    writers = (Writer(Epoch(1, "0000000a"), 0, follows=True), Writer(Epoch(2, "0000000b"), upto, follows=True))
    return replace(manifest(*[True] * count), lineage=Lineage(writers, since=0))


def test_a_segment_that_was_written_again_under_its_number_is_a_loss() -> None:
    """A checkpoint that outlives its spool names replaced segments. failOnDataLoss=false reads the new ones."""
    lost = o.Offset(4, "a", LogPosition("bin.000001", 40, 1000, 1), Epoch(1, "0000000a"))
    spool = restored(3, 8)
    with pytest.raises(DataLoss, match=r"the spool lacks.*shares segments up to 2"):
        o.admit({"d": lost}, {"d": spool}, o.Limit())
    end = o.admit({"d": lost}, {"d": spool}, o.Limit(), fail_on_data_loss=False)
    assert end["d"].writer == Epoch(2, "0000000b")
    planned = o.plan({"d": lost}, end, {"d": spool}, fail_on_data_loss=False)
    assert [segment.seq for segment in planned["d"]] == [3, 4, 5, 6, 7]
    unknown = replace(lost, writer=Epoch(2, "0000000c"))
    with pytest.raises(DataLoss, match="writer of that segment is unknown"):
        o.admit({"d": unknown}, {"d": spool}, o.Limit())


def test_an_offset_of_a_former_version_is_followed() -> None:
    """A former offset has no writer. Its text does not change before something is read, so Spark sees no new data."""
    spool = replace(restored(3, 5), lineage=Lineage((Writer(Epoch(2, "0000000b"), 3, follows=True),), since=3))
    former = at(spool, 2)
    assert "writer" not in json.dumps(o.to_json({"d": former}))
    assert o.admit({"d": former}, {"d": spool}, o.Limit())["d"] == o.of(spool, spool.segments[-1])
    stays = at(replace(spool, next_seq=3, segments=spool.segments[:3]), 2)
    assert (
        o.admit({"d": stays}, {"d": replace(spool, next_seq=3, segments=spool.segments[:3])}, o.Limit())["d"] == stays
    )
    body = o.to_json({"d": o.of(spool, spool.segments[-1])})
    assert o.to_json(o.from_json(body)) == body
    with pytest.raises(DataLoss):
        o.from_json({"v": 1, "destinations": {"d": {**body["destinations"]["d"], "writer": "x"}}})
