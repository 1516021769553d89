"""What a pipeline that runs says of itself, in a file of its `state` directory, for `canal-ha pipeline status`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from canal_ha import private_files
from canal_ha.pipeline.flow import FlowState

EVERY_S = 10.0  # between notes that say the same
SILENT_S = 60.0  # after which a process without a new note counts as gone, or as stuck

_FILE = "running.json"


@dataclass(frozen=True, slots=True)
class RunNote:
    """One note.

    at_s: wall time of the note, s.
    process: its id, on the machine that runs the pipeline.
    waiting: what each destination waits for; those that work are missing.
    snapshots: how far the snapshots of destinations are, for those that have rows left to read.
    ended: the pipeline has stopped.
    error: why it stopped; "" if somebody stopped it.
    """

    at_s: float
    process: int
    waiting: Mapping[str, str] = field(default_factory=dict)
    snapshots: Mapping[str, str] = field(default_factory=dict)
    ended: bool = False
    error: str = ""

    @property
    def says(self) -> str:
        """What the pipeline does, for people."""
        at = datetime.fromtimestamp(self.at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        if self.ended:
            return f"ended at {at}" + (f": {self.error}" if self.error else "")
        if self._silent:
            return f"process {self.process} has said nothing since {at}: it was killed, or it is stuck"
        waits = "; ".join(f"{name} waits: {text}" for name, text in self.waiting.items())
        return f"process {self.process} works" if not waits else f"process {self.process} runs, {waits}"

    @property
    def problem(self) -> bool:
        """Whether a person has to look."""
        return bool(self.error or self._silent or self.waiting)

    @property
    def _silent(self) -> bool:
        return not self.ended and time.time() - self.at_s >= SILENT_S


class RunNotes:
    """Writes the notes of one process. A thread at a time uses it."""

    def __init__(self, directory: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Create. directory: `state` of the pipeline. clock: monotonic, s."""
        self._file = Path(directory) / _FILE
        self._clock = clock
        self._said: RunNote | None = None
        self._said_at = 0.0
        self._in_charge = False

    def tell(self, states: Sequence[FlowState]) -> None:
        """Write a note if it says something new, or if the last one is EVERY_S old. Raises OSError.

        A process that stands by for another one leaves that one's notes alone, and so does one that may have to stand
        by. Two processes may have one destination each: that the other one has the rest is nothing to look at.
        """
        self._in_charge = any(state.in_charge for state in states)
        if not self._in_charge:
            return
        waiting = {state.destination: state.waiting for state in states if state.waiting and not state.standing_by}
        snapshots = {state.destination: state.snapshot for state in states if state.snapshot}
        now, said = self._clock(), self._said
        news = said is None or (waiting, snapshots) != (said.waiting, said.snapshots)
        if news or now - self._said_at >= EVERY_S:
            self._said_at = now
            self._write(RunNote(time.time(), os.getpid(), waiting, snapshots))

    def end(self, error: str) -> None:
        """Write that the pipeline has stopped. Raises OSError.

        A process that stood by writes nothing over another one's note, unless an error ended it.

        error: why; "" if somebody stopped it.
        """
        if error or self._in_charge or (self._said is not None and read(str(self._file.parent)) == self._said):
            self._write(RunNote(time.time(), os.getpid(), ended=True, error=error))

    def _write(self, note: RunNote) -> None:
        self._said = note
        private_files.replace(self._file, json.dumps(asdict(note)).encode())


def read(directory: str) -> RunNote | None:
    """Return the last note; None if there is none that can be read. directory: `state` of the pipeline."""
    try:
        body: Any = json.loads((Path(directory) / _FILE).read_text(encoding="utf-8"))
        return RunNote(
            at_s=float(body["at_s"]),
            process=int(body["process"]),
            waiting={str(name): str(text) for name, text in body["waiting"].items()},
            snapshots={str(name): str(text) for name, text in body["snapshots"].items()},
            ended=bool(body["ended"]),
            error=str(body["error"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
