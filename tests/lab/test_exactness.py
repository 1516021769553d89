"""The exactness run finds what it is made to find: its verdict, its copy, its schedule."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canal_ha.client.rows import Event, Row
from lab.exactness.copy import Copy
from lab.exactness.run import FAULTS, KINDS, Result, schedule
from lab.exactness.stage import Plan
from lab.exactness.verdict import Applied, Verdict, Version, judge

PLAN = Plan("mariadb", "gtid", chunks=100, faults=6, seed=1)


def change(old: Version | None, new: Version | None, *, on: str = "1/1") -> Applied:
    """Return a change of the binlog. on: its connection."""
    return Applied(on, False, old, new)


def read(key: int, version: int, *, on: str = "1/1") -> Applied:
    """Return a row of the snapshot."""
    return Applied(on, True, None, (key, version))


UPDATED, AGAIN, DELETED = change((7, 1), (7, 2)), change((7, 2), (7, 3)), change((7, 3), None)


# ---- the verdict


def test_rows_of_their_place_are_good() -> None:
    """A key that nothing has changed has its first version, any other the version of its last change."""
    found = judge([UPDATED, read(7, 2), read(8, 1), AGAIN, read(7, 3), DELETED, change(None, (7, 4)), read(7, 4)])
    assert (found.older, found.ahead, found.out_of_order) == ([], [], [])
    assert (found.snapshot_rows, found.changes, found.repeated) == (4, 4, 0)


@pytest.mark.parametrize(
    "applied",
    [
        pytest.param([UPDATED, read(7, 1)], id="older version"),
        pytest.param([UPDATED, AGAIN, DELETED, read(7, 3)], id="removed row"),
        pytest.param([change((7, 1), (9, 2)), read(7, 1)], id="row that got another key"),
        pytest.param([AGAIN, UPDATED], id="older change"),
    ],
)
def test_an_older_row_is_found(applied: list[Applied]) -> None:
    """It is older than what the stream has brought before it."""
    assert len(judge(applied).older) == 1


def test_a_row_that_is_newer_than_its_place_is_found() -> None:
    """The stream brings the older value after it."""
    found = judge([UPDATED, read(7, 3), AGAIN])
    assert (len(found.ahead), found.older) == (1, [])


def test_a_new_connection_may_bring_changes_again() -> None:
    """Rows of the snapshot before its first change are judged at the place where that change stands."""
    again = change(AGAIN.old, AGAIN.new, on="2/1")
    found = judge([UPDATED, AGAIN, read(7, 2, on="2/1"), again, read(7, 3, on="2/1")])
    assert (found.older, found.ahead, found.out_of_order) == ([], [], [])
    assert (found.repeated, found.rewinds, found.moves) == (1, 1, 0)
    assert len(judge([UPDATED, AGAIN, read(7, 1, on="2/1"), again]).older) == 1


def test_another_binlog_may_bring_changes_again() -> None:
    """Not more often than the source changes."""
    found = judge([UPDATED, AGAIN, UPDATED, AGAIN])
    assert (found.out_of_order, found.rewinds, found.moves) == ([], 0, 1)
    assert not Result(chunks=100, faults=Counter(switch=1), verdict=found).broken(PLAN)
    assert Result(chunks=100, faults=Counter(node=1), verdict=found).broken(PLAN)


def test_changes_that_come_again_leave_none_out() -> None:
    """After a rewind, the next change is the one that came next before."""
    rewound = change(UPDATED.old, UPDATED.new, on="2/1")
    assert judge([UPDATED, AGAIN, DELETED, rewound, change(DELETED.old, DELETED.new, on="2/1")]).out_of_order
    assert judge([UPDATED, AGAIN, rewound, change((1, 1), (1, 2), on="2/1")]).out_of_order


def test_parts_are_seen_also_if_the_whole_snapshot_passes_between_two_cursors() -> None:
    """A node writes the cursor once a second. The rows tell the parts: the client got them in turns."""
    keys = [key + part for key in range(50) for part in (0, 100, 200, 300)]
    found = judge(read(key, 1) for key in keys)
    assert found.turns == 49
    assert not Result(chunks=200, verdict=found).broken(replace(PLAN, connections=4))


def test_a_table_that_is_read_in_one_go_has_no_turns() -> None:
    """Rows that come again on a new connection are none, and the stream's changes between rows are none."""
    assert judge([read(1, 1), read(2, 1), read(3, 1)]).turns == 0
    assert judge([read(1, 1), read(5, 1), read(2, 1, on="2/1"), read(3, 1, on="2/1")]).turns == 0
    assert judge([UPDATED, read(8, 1), change((2, 1), (2, 2)), read(9, 1)]).turns == 0


def test_parts_that_are_read_one_after_the_other_are_found() -> None:
    """There are fewer turns than parts."""
    keys = [*range(200, 250), *range(100, 150), *range(50)]
    found = judge(read(key, 1) for key in keys)
    assert found.turns == 2
    assert Result(chunks=100, verdict=found).broken(replace(PLAN, connections=4))


def test_every_finding_breaks_the_run() -> None:
    """So do too few chunks, an early end, and connections that wait for each other."""
    good = Result(chunks=100)
    assert not good.broken(PLAN)
    assert Result(chunks=50).broken(PLAN)
    assert Result(stuck="no owner").broken(PLAN)
    assert Result(chunks=100, differences=["key 1"]).broken(PLAN)
    assert Result(chunks=100, verdict=judge([UPDATED, read(7, 1)])).broken(PLAN)
    four = replace(PLAN, connections=4)
    assert not Result(chunks=100, verdict=Verdict(turns=50)).broken(four)
    assert Result(chunks=100).broken(four)


# ---- the copy


def row(old: dict[str, Any] | None, new: dict[str, Any] | None, snapshot: str = "") -> Row:
    """Return a row as a client gets it."""
    event = Event.__new__(Event)
    event.journal, event.offset, event.snapshot = "binlog.1", 4, snapshot
    return Row(event, 0, old, new)


def image(key: int, version: int) -> dict[str, Any]:
    """Return one side of a row."""
    return {"id": key, "version": version, "pad": "x"}


def test_the_copy_has_the_rows_and_what_was_applied(tmp_path: Path) -> None:
    """Inserts, updates, moves and removals; whoever opens the file next finds all of it."""
    copy = Copy(tmp_path / "copy.db")
    copy.take("1/1", [row(None, image(1, 1), "s"), row(None, image(2, 1), "s"), row(None, image(3, 1), "s")])
    copy.take("1/1", [row(image(1, 1), image(1, 2)), row(image(2, 1), image(4, 2)), row(image(3, 1), None)])
    other = Copy(tmp_path / "copy.db")
    assert other.rows() == {1: (1, 2, "x"), 4: (4, 2, "x")}
    assert other.front() == 3
    assert other.has(4)
    assert not other.has(2)
    applied = list(other.applied())
    assert [each.snapshot for each in applied] == [True] * 3 + [False] * 3
    assert applied[4] == Applied("1/1", False, (2, 1), (4, 2))
    assert applied[5].new is None
    other.close()
    copy.close()


def test_the_share_of_the_table_does_not_wait_for_the_cursor(tmp_path: Path) -> None:
    """The copy counts each row of the snapshot once, as soon as it has it; rows of the binlog do not count."""
    copy = Copy(tmp_path / "copy.db")
    assert copy.read() == 0
    copy.take("1/1", [row(None, image(1, 1), "s"), row(None, image(101, 1), "s"), row(None, image(5, 1))])
    assert copy.read() == 2
    copy.take("2/1", [row(None, image(101, 1), "s"), row(image(1, 1), None), row(None, image(2, 1), "s")])
    assert copy.read() == 3
    copy.close()


# ---- the schedule


def test_a_seed_gives_the_same_faults() -> None:
    """In order, at least one of them a switch; none without faults."""
    faults = schedule(PLAN)
    assert faults == schedule(PLAN) == sorted(faults)
    assert "switch" in [kind for _, kind in faults]
    assert set(KINDS) == FAULTS.keys()
    assert not schedule(Plan("mysql", "position", chunks=100, faults=0, seed=1))
