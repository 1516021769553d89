"""A process that sends a table's rows over HTTP until all are sent: argv are address, state directory, rows and seed.

Each start cuts the rows into other commits, as an engine does after a crash.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from canal_ha.pipeline import webhooks
from canal_ha.pipeline.targets.http import open_target
from tests.pipeline.given import described, portion
from tests.spark.entries import begin, end, insert

STEP = 10  # offsets of a transaction: begin, row, end


def transaction(number: int) -> list[bytes]:
    """Return the entries of the transaction with this number, from 1: one row, whose id is the number."""
    at = number * STEP
    return [begin(at), insert(at + 1, number, f"row {number}"), end(at + 2)]


def main() -> None:
    url, state, rows, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    chance = random.Random(seed)
    webhooks._FIRST_PAUSE_S = 0.02  # a quarter of the requests fail
    options = {"url": url, "batchRows": 7, "retryForS": 20, "timeoutS": 5}
    target = open_target(described("http", "events", state, options))
    if target.progress("d") is None:
        target.commit(portion(0, 0, []))
    while (stored := target.progress("d")) is not None:
        seq, done = stored.seq, stored.last.offset // STEP
        if done == rows:
            return
        until = min(rows, done + chance.randint(1, 60))
        entries = [entry for number in range(done + 1, until + 1) for entry in transaction(number)]
        target.commit(portion(seq + 1, until * STEP + 2, entries))


if __name__ == "__main__":
    main()
