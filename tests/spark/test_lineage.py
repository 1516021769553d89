"""The lineage of segments, and the meaning of a cursor for a spool, in histories with copies and restores."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import SpoolUnusable
from canal_ha.model.position import LogPosition
from canal_ha.spark import lineage as lineages
from canal_ha.spark.cursor import CursorVerdict, judge, mark
from canal_ha.spark.lineage import Epoch, Lineage, ReportedProgress, Writer
from canal_ha.spark.manifest import Manifest, SegmentInfo, segment_name

LAST = LogPosition("bin.000007", 500, 2000, 1)


@dataclass
class World:
    """A spool with its real contents, copies of both, and the progress that each step reported.

    held: the contents of the spool's segments; each content is unique.
    said: for each step the mark, the claim, and the contents at that time.
    """

    manifest: Manifest = field(default_factory=lambda: Manifest("spool", lineage=Lineage(since=0)))
    held: tuple[int, ...] = ()  # unique contents
    copies: list[tuple[Manifest, tuple[int, ...]]] = field(default_factory=list)
    said: list[tuple[str, ReportedProgress, tuple[int, ...]]] = field(default_factory=list)
    contents: int = 0
    writers: int = 0
    epoch: Epoch = field(default_factory=lambda: Epoch(1, "00000000"))

    def step(self, what: str, which: int) -> None:
        if what == "write":
            seq = self.manifest.next_seq
            segment = SegmentInfo(seq, segment_name(self.epoch, seq), 1, 1, 1, True, 0, LAST)
            self.manifest = self.manifest.with_segment(segment, {}, self.epoch, follows=True)
            self.contents += 1
            self.held = (*self.held, self.contents)
        elif what == "copy":
            self.copies.append((self.manifest, self.held))
        elif what == "restore" and self.copies:
            self.manifest, self.held = self.copies[which % len(self.copies)]
        if what in ("start", "restore"):  # the number follows the spool's writers, the name is unique
            self.writers += 1
            newest = max((each.epoch.number for each in self.manifest.lineage.writers), default=0)
            self.epoch = Epoch(newest + 1, f"{self.writers:08x}")
            self.manifest = Manifest.from_bytes(self.manifest.to_bytes(), "m")
        seq = self.manifest.next_seq - 1
        self.said.append((mark(self.manifest), ReportedProgress(seq, self.manifest.lineage.writer_of(seq)), self.held))


STEPS = st.lists(
    st.tuples(st.sampled_from(["write", "write", "start", "copy", "restore"]), st.integers(0, 9)), max_size=40
)


@given(STEPS)
def test_a_mark_is_known_exactly_where_the_spool_holds_what_it_acknowledged(steps: list[tuple[str, int]]) -> None:
    """Writes, copies and restores come in any order, and numbers may be issued twice."""
    world = World()
    for step in steps:
        world.step(*step)
    for said, claim, held in world.said:
        holds = world.held[: len(held)] == held
        found = judge(LogPosition("bin.000001", 4, mark=said), world.manifest)
        assert found is (CursorVerdict.FOLLOWS if holds else CursorVerdict.LOST)
        upto, known = world.manifest.lineage.covered(claim, world.manifest.next_seq)
        assert known is holds
        assert upto <= claim.seq
        shared = sum(mine == theirs for mine, theirs in zip(world.held, held, strict=False))
        assert upto + 1 <= shared  # only shared segments count as known


@pytest.mark.parametrize(
    ("cursor", "found"),
    [
        (None, CursorVerdict.UNKNOWN),
        (LogPosition("bin.000007", 500, 9999, 1, consumed=True), CursorVerdict.FOLLOWS),
        (LogPosition("bin.000007", 4, 9999, 1), CursorVerdict.FOLLOWS),
        (LogPosition("bin.000006", 900), CursorVerdict.FOLLOWS),
        (LogPosition("bin.000007", 501, 0, 1), CursorVerdict.LOST),
        (LogPosition("bin.000010", 4), CursorVerdict.LOST),
        (LogPosition("bin.000010", 4, 9999, 1, server="other"), CursorVerdict.UNKNOWN),  # of one origin
        (LogPosition("bin.000010", 4, 9999, 1, server="here"), CursorVerdict.LOST),
        (LogPosition("bin.000010", 4, 1000), CursorVerdict.UNKNOWN),  # an older time: another server's binlog
        (LogPosition("bin.000010", 4, 9999, 2), CursorVerdict.UNKNOWN),
        (LogPosition("log.000010", 4, 9999, 1), CursorVerdict.UNKNOWN),
        (LogPosition("bin.000010", 4, part=1), CursorVerdict.UNKNOWN),
        (LogPosition("bin.000001", 4, mark="spool other writer none segment -1"), CursorVerdict.FOREIGN),
        (LogPosition("bin.000001", 4, mark="my own bookkeeping"), CursorVerdict.FOREIGN),
        (LogPosition("bin.000001", 4, mark="spool a writer 00000009-0b segment 3"), CursorVerdict.LOST),
    ],
)
def test_what_a_cursor_says(cursor: LogPosition | None, found: CursorVerdict) -> None:
    """A mark decides. Without a mark the positions decide, if they can be compared."""
    spool = Manifest("a", (SegmentInfo(0, "s", 1, 1, 1, True, 0, LAST),), 1, lineage=Lineage(since=0), server="here")
    assert judge(cursor, spool) is found


def test_an_empty_spool_takes_any_cursor_but_another_spools() -> None:
    """A new pipeline may take over a client id that no spool used. Its own mark with a missing segment is a loss."""
    empty = Manifest("a", lineage=Lineage(since=0))
    cursor = LogPosition("bin.000007", 500, 1000, 1)
    assert judge(cursor, empty) is CursorVerdict.FOLLOWS
    assert judge(replace(cursor, mark=mark(empty)), empty) is CursorVerdict.FOLLOWS
    assert judge(replace(cursor, mark="spool a writer 00000001-0b segment 0"), empty) is CursorVerdict.LOST
    assert judge(replace(cursor, mark=mark(replace(empty, spool="b"))), empty) is CursorVerdict.FOREIGN


def test_a_mark_fits_into_what_servers_keep() -> None:
    """The longest mark has at most 200 bytes."""
    writer = Writer(Epoch(10**8 - 1, "f" * 16), 0, follows=True)
    spool = Manifest("f" * 64, next_seq=10**18, lineage=Lineage((writer,), since=0))
    assert len(mark(spool)) <= 200
    assert judge(LogPosition("b", 4, mark=mark(spool)), spool) is CursorVerdict.FOLLOWS


def test_a_manifest_of_a_former_version_is_read() -> None:
    """Names of segments give the writers. A claim without a writer counts up to the last segment of that version."""
    first, second = Epoch(1, "0000000a"), Epoch(4, "0000000b")
    names = [segment_name(epoch, seq) for seq, epoch in enumerate((first, first, second), 5)]
    segments = tuple(SegmentInfo(seq, name, 1, 1, 1, True, 0, LAST) for seq, name in enumerate(names, 5))
    body = json.loads(Manifest("a", segments, 8).to_bytes())
    for key in ("writers", "since", "forgotten", "problem"):
        del body[key]
    found = Manifest.from_bytes(json.dumps(body).encode(), "m").lineage
    assert found == Lineage((Writer(first, 5, follows=False), Writer(second, 7, follows=False)), since=8)
    assert found.covered(ReportedProgress(7), 8) == (7, True)
    later = found.with_segment(8, Epoch(5, "0000000c"), follows=True)
    assert later.covered(ReportedProgress(20), 21) == (
        7,
        False,
    )  # the target is ahead of what that version wrote


def test_writers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgotten writers still differ from writers that never existed."""
    monkeypatch.setattr(lineages, "WRITERS_KEPT", 3)
    lineage = Lineage(since=0)
    for number in range(1, 11):
        lineage = lineage.with_segment(number * 10, Epoch(number, f"{number:08x}"), follows=True)
    assert [writer.first for writer in lineage.writers] == [80, 90, 100]
    assert lineage.covered(ReportedProgress(25, Epoch(2, "00000002")), 101) == (25, True)
    assert lineage.covered(ReportedProgress(85, Epoch(2, "00000002")), 101) == (-1, False)
    assert lineage.covered(ReportedProgress(95, Epoch(9, "0000000f")), 101) == (-1, False)


@given(st.integers(0, 10**8 - 1), st.integers(0, 2**32 - 1))
def test_a_writer_is_one_whole_number(number: int, writer: int) -> None:
    """Transactions of Delta can store only a number."""
    epoch = Epoch(number, f"{writer:08x}")
    assert Epoch.of_code(epoch.code) == epoch == Epoch.parse(str(epoch))
    assert 0 <= epoch.code < 2**63


@pytest.mark.parametrize("bad", [[["x", 0, 1]], [[]], [1], "ab"])
def test_a_lineage_that_is_none_is_refused(bad: object) -> None:
    """The error is that of any damaged manifest."""
    body = json.loads(Manifest("a").to_bytes()) | {"writers": bad}
    with pytest.raises(SpoolUnusable, match="not the manifest"):
        Manifest.from_bytes(json.dumps(body).encode(), "m")
