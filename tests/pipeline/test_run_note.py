"""What a running pipeline leaves for `canal-ha pipeline status`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canal_ha.model.position import LogPosition
from canal_ha.pipeline import run_note
from canal_ha.pipeline.flow import FlowState
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.run_note import EVERY_S, SILENT_S, RunNote, RunNotes

PROGRESS = Progress("r", 1, LogPosition("mysql-bin.000001", 4), 0)


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Return one."""
    return Clock()


@pytest.fixture
def notes(tmp_path: Path, clock: Clock) -> RunNotes:
    """Return the notes of this process."""
    return RunNotes(str(tmp_path), clock)


def said(directory: Path) -> RunNote:
    """Return the note in a directory."""
    note = run_note.read(str(directory))
    assert note is not None
    return note


def test_a_pipeline_that_works_has_no_problem(notes: RunNotes, tmp_path: Path) -> None:
    """Nor one whose snapshot is being read."""
    notes.tell([FlowState("one", PROGRESS), FlowState("two", PROGRESS, snapshot="s1 has read 5 of about 9 rows")])
    note = said(tmp_path)
    assert (note.says, note.problem) == (f"process {os.getpid()} works", False)
    assert note.snapshots == {"two": "s1 has read 5 of about 9 rows"}


def test_a_target_that_fails_is_a_problem(notes: RunNotes, tmp_path: Path) -> None:
    """It is no longer one when the flow works again."""
    notes.tell([FlowState("one", PROGRESS), FlowState("two", PROGRESS, waiting="its target: 503")])
    note = said(tmp_path)
    assert (note.says, note.problem) == (f"process {os.getpid()} runs, two waits: its target: 503", True)
    notes.tell([FlowState("one", PROGRESS), FlowState("two", PROGRESS)])
    assert not said(tmp_path).problem


def test_the_same_is_written_again_only_after_a_while(notes: RunNotes, clock: Clock, tmp_path: Path) -> None:
    """So an idle pipeline writes a small file every ten seconds."""
    file = tmp_path / "running.json"
    notes.tell([FlowState("one", PROGRESS, rows=1)])
    file.unlink()
    notes.tell([FlowState("one", PROGRESS, rows=2)])
    assert not file.exists()
    clock.now += EVERY_S
    notes.tell([FlowState("one", PROGRESS, rows=3)])
    assert file.exists()


def test_a_killed_process_is_a_problem_after_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has written that it ended."""
    RunNotes(str(tmp_path)).tell([FlowState("one", PROGRESS)])
    note = said(tmp_path)
    monkeypatch.setattr("time.time", lambda: note.at_s + SILENT_S)
    assert note.problem
    assert "has said nothing since" in note.says


def test_the_reason_of_the_end_stays(notes: RunNotes, tmp_path: Path) -> None:
    """Until the next start. Without a reason, somebody stopped the pipeline, and nothing is wrong."""
    notes.tell([FlowState("one", PROGRESS)])
    notes.end("the cursor has moved")
    assert said(tmp_path).problem
    assert said(tmp_path).says.endswith(": the cursor has moved")
    notes.tell([FlowState("one", PROGRESS)])
    notes.end("")
    assert not said(tmp_path).problem
    assert said(tmp_path).says.startswith("ended at 20")


def test_a_process_that_stands_by_leaves_the_note_of_the_active_one(notes: RunNotes, tmp_path: Path) -> None:
    """Both may share the directory. The end of the other one changes nothing either."""
    other = RunNotes(str(tmp_path))
    notes.tell([FlowState("one", PROGRESS, waiting="its target: 503")])
    other.tell([FlowState("one", waiting="another process is active: x", standing_by=True)])
    other.end("")
    assert said(tmp_path).waiting == {"one": "its target: 503"}


def test_a_process_that_starts_overwrote_the_note_of_the_active_one(notes: RunNotes, tmp_path: Path) -> None:
    """Before it knows whether it stands by, its flows have no progress and wait for nothing."""
    other = RunNotes(str(tmp_path))
    notes.tell([FlowState("one", PROGRESS, snapshot="s1 has read 5 rows")])
    other.tell([FlowState("one")])
    other.tell([FlowState("one", waiting="another process is active: x", standing_by=True)])
    other.end("")
    assert said(tmp_path).snapshots == {"one": "s1 has read 5 rows"}


def test_a_pipeline_that_never_reached_a_node_is_a_problem(notes: RunNotes, tmp_path: Path) -> None:
    """Its end, too, is told."""
    notes.tell([FlowState("one", waiting="no connection to a node in time")])
    assert said(tmp_path).says.endswith("one waits: no connection to a node in time")
    notes.end("")
    assert said(tmp_path).ended


def test_the_end_of_a_process_that_lost_its_place_leaves_the_note_of_the_next_one(tmp_path: Path) -> None:
    """It writes its end if nobody has followed yet."""
    first, second = RunNotes(str(tmp_path)), RunNotes(str(tmp_path))
    standing_by = [FlowState("one", PROGRESS, waiting="another process is active: x", standing_by=True)]
    first.tell([FlowState("one", PROGRESS)])
    first.tell(standing_by)
    second.tell([FlowState("one", PROGRESS, waiting="its target: 503")])
    first.end("")
    assert said(tmp_path).waiting == {"one": "its target: 503"}
    second.tell(standing_by)
    second.end("")
    assert said(tmp_path).ended


def test_two_processes_with_a_destination_each_are_no_problem(notes: RunNotes, tmp_path: Path) -> None:
    """Each stands by for the other one's."""
    notes.tell([FlowState("one", PROGRESS), FlowState("two", waiting="another process is active: x", standing_by=True)])
    assert not said(tmp_path).problem


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"at_s": 1, "process": 2, "waiting": [], "snapshots": {}}'])
def test_a_damaged_note_counts_as_none(text: str, tmp_path: Path) -> None:
    """A status must not fail because of it."""
    (tmp_path / "running.json").write_text(text)
    assert run_note.read(str(tmp_path)) is None
