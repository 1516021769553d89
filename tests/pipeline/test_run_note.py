"""What a running pipeline leaves for `canal-ha pipeline status`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from canal_ha.pipeline import run_note
from canal_ha.pipeline.flow import FlowState
from canal_ha.pipeline.run_note import EVERY_S, SILENT_S, RunNote, RunNotes


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
    notes.tell([FlowState("one"), FlowState("two", snapshot="s1 has read 5 of about 9 rows")])
    note = said(tmp_path)
    assert (note.says, note.problem) == (f"process {os.getpid()} works", False)
    assert note.snapshots == {"two": "s1 has read 5 of about 9 rows"}


def test_a_target_that_fails_is_a_problem(notes: RunNotes, tmp_path: Path) -> None:
    """It is no longer one when the flow works again."""
    notes.tell([FlowState("one"), FlowState("two", waiting="its target: 503")])
    note = said(tmp_path)
    assert (note.says, note.problem) == (f"process {os.getpid()} runs, two waits: its target: 503", True)
    notes.tell([FlowState("one"), FlowState("two")])
    assert not said(tmp_path).problem


def test_the_same_is_written_again_only_after_a_while(notes: RunNotes, clock: Clock, tmp_path: Path) -> None:
    """So an idle pipeline writes a small file every ten seconds."""
    file = tmp_path / "running.json"
    notes.tell([FlowState("one", rows=1)])
    file.unlink()
    notes.tell([FlowState("one", rows=2)])
    assert not file.exists()
    clock.now += EVERY_S
    notes.tell([FlowState("one", rows=3)])
    assert file.exists()


def test_a_killed_process_is_a_problem_after_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has written that it ended."""
    RunNotes(str(tmp_path)).tell([FlowState("one")])
    note = said(tmp_path)
    monkeypatch.setattr("time.time", lambda: note.at_s + SILENT_S)
    assert note.problem
    assert "has said nothing since" in note.says


def test_the_reason_of_the_end_stays(notes: RunNotes, tmp_path: Path) -> None:
    """Until the next start. Without a reason, somebody stopped the pipeline, and nothing is wrong."""
    notes.tell([FlowState("one")])
    notes.end("the cursor has moved")
    assert said(tmp_path).problem
    assert said(tmp_path).says.endswith(": the cursor has moved")
    notes.tell([FlowState("one")])
    notes.end("")
    assert not said(tmp_path).problem
    assert said(tmp_path).says.startswith("ended at 20")


def test_a_process_that_stands_by_leaves_the_note_of_the_active_one(notes: RunNotes, tmp_path: Path) -> None:
    """Both may share the directory. The end of the other one changes nothing either."""
    other = RunNotes(str(tmp_path))
    notes.tell([FlowState("one", waiting="its target: 503")])
    other.tell([FlowState("one", waiting="another process is active: x", standing_by=True)])
    other.end("")
    assert said(tmp_path).waiting == {"one": "its target: 503"}


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"at_s": 1, "process": 2, "waiting": [], "snapshots": {}}'])
def test_a_damaged_note_counts_as_none(text: str, tmp_path: Path) -> None:
    """A status must not fail because of it."""
    (tmp_path / "running.json").write_text(text)
    assert run_note.read(str(tmp_path)) is None
