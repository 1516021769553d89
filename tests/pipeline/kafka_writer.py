"""Writes numbered rows to Kafka through the target, from wherever its progress says, until it has all of them.

Run as a program: python -m tests.pipeline.kafka_writer SERVERS FORMAT ROWS. It prints the number of each commit before
it begins. A row's number is its offset and its name.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

from canal_ha.errors import TargetUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.targets.kafka import KafkaTarget, open_target
from tests.spark.entries import frames, insert

KEYS = 11
DESTINATION = "example"


def description(servers: str, *, name: str = "p", **options: Any) -> Description:
    """Return a pipeline into Kafka. options: of the target."""
    target = TargetDescription("kafka", "events", options={"servers": servers, **options})
    return Description("p.yaml", name, "embedded", "unused", ("*",), {}, {}, target)


def portion(entries: bytes, progress: Progress) -> Portion:
    """Return a portion of `DESTINATION`."""
    return Portion(DESTINATION, entries, progress, 1, True, ChangeReader(lambda schema, table: True))


def begun(target: KafkaTarget) -> Progress:
    """Return the progress of the target, after a first commit without entries if it has none."""
    progress = target.progress(DESTINATION)
    if progress is None:
        progress = Progress("run", 0, LogPosition("bin.000001", -1), 0)
        target.commit(portion(b"", progress))
    return progress


def numbered(first: int, count: int, before: Progress, options: Mapping[str, Any] | None = None) -> Portion:
    """Return a portion with these rows, which follows the progress."""
    progress = before.after(LogPosition("bin.000001", first + count - 1), 1)
    rows = [insert(number, number % KEYS, str(number), **(options or {})) for number in range(first, first + count)]
    return portion(frames(rows), progress)


def write(target: KafkaTarget, rows: int) -> None:
    """Write the rows that the target has not, in portions of random size."""
    while True:
        try:
            progress = begun(target)
            while (first := progress.last.offset + 1) < rows:
                made = numbered(first, min(random.randint(1, 40), rows - first), progress)
                print(made.progress.seq, flush=True)
                target.commit(made)
                progress = made.progress
            return
        except TargetUnavailable:
            continue


if __name__ == "__main__":
    servers, form, rows = sys.argv[1:]
    opened = open_target(description(servers, format=form, partitions=3, timeout=5))
    opened.check()
    write(opened, int(rows))
