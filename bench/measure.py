"""Runs readers as new processes in turns, and takes samples and medians, with Linux's figures of each process."""

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
    """A reader ended without a figure; the message has the end of its output."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement.

    seconds: from connecting to the last row.
    cpu_s, memory_bytes: of the server between reader and database if there is one, else of the reader; 0: not measured.
    client_cpu_s: of the reader behind such a server; 0: not measured.
    """

    database: str
    workload: str
    reader: str
    rows: int
    seconds: float
    cpu_s: float = 0.0
    memory_bytes: int = 0
    client_cpu_s: float = 0.0

    @property
    def rate(self) -> float:
        """Rows a second."""
        return self.rows / self.seconds


@dataclass(slots=True)
class Samples:
    """All samples of a run. failed: reader -> why it has no figures."""

    taken: list[Sample] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)

    def of(self, database: str, workload: str, reader: str) -> list[Sample]:
        """The samples in their order."""
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
    """Take a sample of each reader, `rounds` times. A failed reader is skipped from then on.

    before: called before each sample.
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
    """Run a reader; return the JSON object in its last line. Raises ReaderFailed."""
    return finish(start_reader(command, environment))


def run_readers(commands: Iterable[Sequence[str]]) -> list[dict[str, float]]:
    """Run several readers at once. If one fails, end the others and raise ReaderFailed."""
    readers = [start_reader(command) for command in commands]
    try:
        return [finish(reader) for reader in readers]
    finally:
        for reader in readers:
            reader.kill()


def start_reader(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a reader without waiting for its end."""
    return spawn(
        command,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, float]:
    """Wait for a reader and return its last line. Raises ReaderFailed."""
    try:
        out, errors = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise ReaderFailed(f"{process.args!r} did not end within {TIMEOUT_S} s") from error
    lines = out.strip().splitlines()
    if process.returncode or not lines:
        raise ReaderFailed(f"{process.args!r} ended with code {process.returncode}\n{errors[-2000:]}")
    answer: dict[str, float] = json.loads(lines[-1])
    return answer


def through(server: Process, run: Callable[[], Answer]) -> tuple[Answer, float, int]:
    """Run a reader; return its result with the server's processor time and peak memory.

    ReaderFailed contains the end of the server's log.
    """
    before = cpu_seconds(server.pid)
    try:
        answer = run()
    except ReaderFailed as error:
        raise ReaderFailed(f"{error}\n{server.name}: {server.log_tail(10)}") from error
    return answer, cpu_seconds(server.pid) - before, peak_memory_bytes(server.pid)


def python(module: str, *arguments: object) -> list[str]:
    """Return the command of one of our readers."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process without its children."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_memory_bytes(pid: int) -> int:
    """Return the peak memory of a process."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def percentile(values: Iterable[float], share: float) -> float:
    """Return the percentile. values: at least one."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
