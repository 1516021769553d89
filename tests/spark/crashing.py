"""A source that kills the whole driver at a chosen step, like a power cut: the JVM and all Python processes.

CRASH_AT=<step>:<n> means the n-th time that this process reaches the step.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

from canal_ha.spark.source import CanalSource

CRASH_AT = "CRASH_AT"
_seen: Counter[str] = Counter()


def crash(step: str) -> None:
    """If CRASH_AT names this step and count, kill every process of this session, this one last."""
    _seen[step] += 1
    if os.environ.get(CRASH_AT) != f"{step}:{_seen[step]}":
        return
    session = os.getsid(0)
    for process in session_members(session):
        if process != os.getpid():
            os.kill(process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def session_members(session: int) -> list[int]:
    """Return the processes of a session. Source: proc(5), /proc/pid/stat, field 6."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(fields[3]) == session:
            found.append(int(entry.name))
    return found


class CrashingSource(CanalSource):
    """The source under test, which calls `crash` at each step."""

    steps = staticmethod(crash)
