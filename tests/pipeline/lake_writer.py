"""A process that writes transactions on two tables into Iceberg: argv are directory, mode, transactions and seed.

Each start cuts the transactions into other portions, as an engine does after a crash.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

from canal_ha.pipeline.targets.iceberg import open_target
from tests.pipeline.given import described, portion
from tests.spark.entries import begin, end, insert, rows

STEP = 10  # offsets of a transaction
TABLES = ("t", "u")
KEYS = 40


def options(directory: Path) -> dict[str, Any]:
    """Return the options of a SQL catalog on SQLite in a directory."""
    directory.mkdir(exist_ok=True)
    access = {"type": "sql", "uri": f"sqlite:///{directory}/catalog.db", "warehouse": f"file://{directory}/warehouse"}
    return {"catalog": {"name": "lake", **access}}


def transaction(number: int) -> list[bytes]:
    """Return the entries of a transaction, from 1: each table gets a row, changes or loses it in turns."""
    at = number * STEP
    found = [begin(at)]
    for place, name in enumerate(TABLES, 1):
        key, turn = _change(name, number)
        old = {"id": str(key), "name": f"{number - KEYS}"}
        if turn == 0:
            found.append(insert(at + place, key, f"{number}", table=name))
        elif turn == 1:
            found.append(rows(at + place, "UPDATE", [(old, {"id": str(key), "name": f"{number}"})], table=name))
        else:
            found.append(rows(at + place, "DELETE", [(old, None)], table=name))
    return [*found, end(at + 9)]


def final_rows(name: str, transactions: int) -> dict[int, str]:
    """Return the rows of a table after all transactions."""
    kept: dict[int, str] = {}
    for number in range(1, transactions + 1):
        key, turn = _change(name, number)
        if turn == 2:
            del kept[key]
        else:
            kept[key] = f"{number}"
    return kept


def _change(name: str, number: int) -> tuple[int, int]:
    """Return key and kind: 0 inserts it, 1 updates it, 2 deletes it."""
    return TABLES.index(name) * 1000 + number % KEYS, (number // KEYS) % 3 if number >= KEYS else 0


def main() -> None:
    directory, mode, transactions = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    chance = random.Random(int(sys.argv[4]))
    target = open_target(described("iceberg", mode, directory, options(directory)))  # type: ignore[arg-type]
    target.check()
    if target.progress("d") is None:
        target.commit(portion(0, 0, []))
    while True:
        print("commits", flush=True)
        stored = target.progress("d")
        assert stored is not None
        done = stored.last.offset // STEP
        if done == transactions:
            return
        until = min(transactions, done + chance.randint(1, 30))
        entries = [entry for number in range(done + 1, until + 1) for entry in transaction(number)]
        target.commit(portion(stored.seq + 1, until * STEP + 9, entries))


if __name__ == "__main__":
    main()
