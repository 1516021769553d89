"""Readers as fresh processes, in turns: samples and their medians. What a process costs, as Linux counts it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

from lab.process import Process, StartFailed, spawn

TIMEOUT_S = 300

Answer = TypeVar("Answer")


class ReaderFailed(Exception):
    """A reader ended without a figure; the message has its last words."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading. seconds: from connecting to the last row; cpu_s, memory_bytes: of the reader, or of the server that
    stood between it and the database where there is one; 0 where nobody looked.
    """

    database: str
    workload: str
    reader: str
    rows: int
    seconds: float
    cpu_s: float = 0.0
    memory_bytes: int = 0

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


@dataclass(slots=True)
class Samples:
    """Everything measured. failed: reader -> why it has no figures."""

    taken: list[Sample] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def of(self, database: str, workload: str, reader: str) -> list[Sample]:
        """In the order they were taken."""
        return [
            sample
            for sample in self.taken
            if (sample.database, sample.workload, sample.reader) == (database, workload, reader)
        ]

    def median(self, database: str, workload: str, reader: str, what: Callable[[Sample], float]) -> float | None:
        """None without samples."""
        values = [what(sample) for sample in self.of(database, workload, reader)]
        return statistics.median(values) if values else None

    def as_json(self) -> dict[str, object]:
        return {"samples": [asdict(sample) for sample in self.taken], "failed": self.failed}


Take = Callable[[], Sample]
Say = Callable[[str], None]


def in_turns(
    readers: Mapping[str, Take],
    rounds: int,
    samples: Samples,
    say: Say,
    *,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Take a sample of each reader, `rounds` times. A reader that fails is left out from then on, with its reason.

    before: called ahead of each.
    """
    began = time.monotonic()
    left = dict(readers)
    for _ in range(rounds):
        for name, take in list(left.items()):
            before()
            try:
                samples.taken.append(take())
            except (ReaderFailed, StartFailed, OSError) as error:
                samples.failed[name] = str(error).strip()
                del left[name]
                say(f"{name}: {str(error).strip()[-300:]}")
    say(f"{', '.join(readers)}: {rounds} rounds, {time.monotonic() - began:.0f} s")


def run_reader(command: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, float]:
    """Run a reader that prints one JSON object as its last line; return that. Raises ReaderFailed."""
    return finish(start_reader(command, environment))


def run_readers(commands: Iterable[Sequence[str]]) -> list[dict[str, float]]:
    """Several at once. Raises ReaderFailed when one does; the others are ended then."""
    readers = [start_reader(command) for command in commands]
    try:
        return [finish(reader) for reader in readers]
    finally:
        for reader in readers:
            reader.kill()


def start_reader(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The same, not waited for."""
    return spawn(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, float]:
    """Wait for a reader; its last line. Raises ReaderFailed."""
    try:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise ReaderFailed(f"no end within {TIMEOUT_S} s: {process.args!r}") from error
    lines = out.strip().splitlines()
    if process.returncode or not lines:
        raise ReaderFailed(f"{process.args!r} ended with code {process.returncode}\n{errors[-2000:]}")
    answer: dict[str, float] = json.loads(lines[-1])
    return answer


def through(server: Process, run: Callable[[], Answer]) -> tuple[Answer, float, int]:
    """What `run` returns, and what the server used for it: processor time, and the most it ever had in memory.

    ReaderFailed gets the server's last words.
    """
    before = cpu_seconds(server.pid)
    try:
        answer = run()
    except ReaderFailed as error:
        raise ReaderFailed(f"{error}\n{server.name}: {server.log_tail(10)}") from error
    return answer, cpu_seconds(server.pid) - before, peak_memory_bytes(server.pid)


def python(module: str, *arguments: object) -> list[str]:
    """The command of a reader of ours."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def cpu_seconds(pid: int) -> float:
    """Processor time a process has used, without children."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory_bytes(pid: int) -> int:
    """The most a process has had in memory."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which that share lies. values: at least one."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
