"""Decides whether a process may commit, from the progress that the target has. Pure."""

from __future__ import annotations

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress


def lacks(stored: Progress | None, portion: Portion, where: str) -> bool:
    """Return whether the target lacks a portion; False if it has just this one, and only the answer was lost.

    stored: the target's progress, locked until the commit ends.
    portion: what to commit.
    where: the target, for messages.
    Raises SinkRefused if the portion does not follow the stored progress: another process has gone on, or somebody
    changed the target's progress.
    """
    commit = portion.progress
    if stored is not None and stored.to_json() == commit.to_json():
        return False
    seq = stored.seq if stored else 0
    if stored is None or stored.run != commit.run:
        follows = commit.seq == seq and not portion.frames  # a run begins without entries, and keeps the number
    else:
        follows = commit.seq == seq + 1
    if follows:
        return True
    raise SinkRefused(
        f"{where}: destination {portion.destination}: the target is at {_shown(stored)}, and this process would write"
        f" {_shown(commit)}: another process of this pipeline has gone on, or somebody restored"
        " the target. Nothing was written. End this process; if no other one runs, start the pipeline again, which"
        " reads the target's progress"
    )


def _shown(progress: Progress | None) -> str:
    if progress is None:
        return "no commit"
    return f"{progress.mark}{f' of {progress.owner}' if progress.owner else ''}"
