"""The server's cursor beside a target's progress."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.errors import ClientIdTaken, DataLoss
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.cursor import begins_anew, judge
from canal_ha.pipeline.progress import Progress

LAST = LogPosition("bin.000003", 500, 10_000, server_id=1, server="a")
DONE = Progress("r", 7, LAST, 10_000)
WHERE = "pipeline p, client id 1001 of d"


def cursor(journal: int = 3, offset: int = 500, mark: str = "", **more: object) -> LogPosition:
    """Return a cursor."""
    at = LogPosition(f"bin.{journal:06d}", offset, 10_000, server_id=1, server="a", mark=mark)
    return replace(at, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("at", "progress"),
    [
        (None, DONE),
        (None, None),
        (cursor(), None),
        (cursor(mark="pipeline r commit 7"), DONE),
        (cursor(journal=9, mark="pipeline r commit 7"), DONE),
        (cursor(mark="pipeline r commit 3"), DONE),
        (cursor(), DONE),
        (cursor(journal=1), DONE),
        (cursor(journal=9), Progress("r", 0, LAST, 0)),
        (cursor(journal=9, server="b"), DONE),
        (replace(cursor(), journal="other.000009"), DONE),
        (cursor(journal=9, timestamp_ms=9_000), DONE),
        (cursor(journal=9, part=1), DONE),
    ],
)
def test_a_target_goes_on_from_its_own_cursor(at: LogPosition | None, progress: Progress | None) -> None:
    """Also from an older one, and where positions cannot be compared."""
    assert judge(at, progress, WHERE) is None


@pytest.mark.parametrize(
    "mark", ["pipeline s commit 1", "spool abc writer 1-0a segment 4", "pipeline r", "anything else"]
)
def test_a_mark_of_something_else_is_theft(mark: str) -> None:
    """Whatever the position; also if the target is empty."""
    for progress in (DONE, None):
        found = judge(cursor(journal=1, mark=mark), progress, WHERE)
        assert isinstance(found, ClientIdTaken)
        assert WHERE in str(found)
        assert mark in str(found)
    assert isinstance(judge(cursor(mark="pipeline r commit 7"), None, WHERE), ClientIdTaken)


def test_a_cursor_behind_the_targets_end_is_a_loss() -> None:
    """A restored target, and a cursor that somebody moved; the text names what to run."""
    restored = judge(cursor(mark="pipeline r commit 8"), DONE, WHERE)
    moved = judge(cursor(journal=4), DONE, WHERE)
    assert isinstance(restored, DataLoss)
    assert isinstance(moved, DataLoss)
    assert "restored from an older copy" in str(restored)
    assert "moved the cursor" in str(moved)
    for found in (restored, moved):
        assert "--to bin.000003:500" in str(found)


def test_changes_that_were_given_up_once_are_not_missed_again() -> None:
    """The cursor keeps the mark of the former run until the first acknowledgement of the new one."""
    given_up = cursor(journal=9, mark="pipeline old commit 9")
    anew = replace(DONE, given_up=given_up.mark)
    assert judge(given_up, anew, WHERE) is None
    assert not begins_anew(given_up, anew)
    assert Progress.from_json(anew.after(LAST, 10_000).to_json()).given_up == given_up.mark
    assert isinstance(judge(replace(given_up, mark="pipeline old commit 10"), anew, WHERE), ClientIdTaken)


def test_a_run_gets_another_name_where_positions_repeat() -> None:
    """After RESET BINARY LOGS, and when changes are given up; not where a process died before it acknowledged."""
    assert not begins_anew(None, DONE)
    assert not begins_anew(cursor(mark="pipeline r commit 7"), DONE)
    assert not begins_anew(cursor(journal=1, timestamp_ms=9_000), DONE)
    assert not begins_anew(cursor(journal=1, timestamp_ms=20_000), Progress("r", 0, LAST, 0))
    assert begins_anew(cursor(journal=1, timestamp_ms=20_000), DONE)
    assert begins_anew(cursor(journal=1, timestamp_ms=0), DONE)
    assert begins_anew(cursor(mark="pipeline r commit 8"), DONE)
