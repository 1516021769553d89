"""Measures how a node scales: counting clients read 1 to 8 destinations, or 1 to 8 client ids of one, at once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench import measure
from bench.suite import BATCH_SIZES, CLIENT_ID, COUNT, DESTINATION, Suite, settings
from bench.workloads import Written
from lab import Node
from lab.process import StartFailed

COUNTS = (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Scaling:
    """A measurement of destinations or client ids that are read at once through one node.

    seconds: until the last ended.
    """

    database: str
    kind: str
    count: int
    rows: int
    seconds: float
    cpu_s: float
    memory_bytes: int


def scale(suite: Suite, written: Written, rows: int) -> list[Scaling]:
    """Measure 1 to 8 destinations and 1 to 8 client ids, each with this many rows."""
    began = time.monotonic()
    found: list[Scaling] = []
    takes: list[tuple[str, list[str], list[int]]] = []
    for count in COUNTS:
        takes.append(("destinations", [f"d{number}" for number in range(count)], [CLIENT_ID] * count))
        takes.append(("client ids", [DESTINATION] * count, [CLIENT_ID + number for number in range(count)]))
    for _ in range(max(suite.rounds // 2, 1)):
        for kind, names, ids in takes:
            try:
                found.append(_together(suite, kind, written, names, ids, rows))
            except (measure.ReaderFailed, StartFailed) as error:
                suite.samples.failed[f"{len(ids)} {kind}"] = str(error)
    suite.say(f"1 to {COUNTS[-1]} destinations and client ids: {time.monotonic() - began:.0f} s")
    return found


def _together(suite: Suite, kind: str, written: Written, names: list[str], ids: list[int], rows: int) -> Scaling:
    instance = settings(suite.server, written)
    with Node(dict.fromkeys(names, instance)) as node:
        start = time.monotonic() + 0.5 + 0.5 * len(ids)  # all processes have started by then
        commands = [
            measure.python(COUNT, node.address, name, client_id, rows, BATCH_SIZES[0], start)
            for name, client_id in zip(names, ids, strict=True)
        ]
        answers, used, memory = measure.through(node, lambda: measure.run_readers(commands))
    seconds = max(answer["ended"] for answer in answers) - start
    return Scaling(suite.database, kind, len(ids), rows * len(ids), seconds, used, memory)
