"""Ways to change rows of an Iceberg table by key: ours, and pyiceberg's. `python -m bench.iceberg [ROWS CHANGES KEYS]`.

Prints a line for each way: seconds, the processor's seconds, and snapshots. Each runs in a process of its own.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import And, BooleanExpression, EqualTo, In, Or, Reference
from pyiceberg.table import Table

from canal_ha.pipeline.iceberg.rewriting import FileRewrite

WAYS = ("rewrite", "filter", "upsert")
SIZES = (
    (100_000, 10_000, 1),
    (100_000, 100_000, 1),
    (1_000_000, 10_000, 1),
    (1_000_000, 100_000, 1),
    (100_000, 1000, 2),
)
FILE_ROWS = 100_000
MOST_S = 120


def rows(ids: list[int], mark: str) -> pa.Table:
    """Return rows with these ids."""
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([each % 13 for each in ids], pa.int32()),
            "name": [f"{mark}{each}" for each in ids],
            "amount": [each / 7 for each in ids],
        }
    )


def filter_of(new: pa.Table, keys: list[str]) -> BooleanExpression:
    """Return the filter of all keys."""
    if len(keys) == 1:
        return In(term=Reference(keys[0]), values=new.column(keys[0]).to_pylist())
    rows = new.select(keys).to_pylist()
    return Or(*(And(*(EqualTo(term=Reference(key), value=row[key]) for key in keys)) for row in rows))


def change(way: str, table: Table, new: pa.Table, keys: list[str]) -> None:
    """Replace the rows with these keys in one transaction."""
    with table.transaction() as transaction:
        if way == "rewrite":
            files = FileRewrite(transaction, table.io, "bench")
            files.remove(new.select(keys), {})
            files.add(new)
            files.commit({})
        elif way == "filter":
            transaction.delete(filter_of(new, keys))
            transaction.append(new)
        else:
            transaction.upsert(new, join_cols=keys)


def run(way: str, size: int, changes: int, columns: int) -> str:
    """Fill a table, change rows at random places and add as many, and return the figures."""
    warnings.simplefilter("ignore")  # pyiceberg's about filters that match nothing
    with tempfile.TemporaryDirectory() as place:
        catalog = load_catalog("bench", type="sql", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
        catalog.create_namespace("s")
        filled = rows(list(range(size)), "a")
        table = catalog.create_table("s.t", schema=filled.schema)
        for at in range(0, size, FILE_ROWS):
            table.append(filled.slice(at, FILE_ROWS))
        half = changes // 2
        new = rows(random.Random(1).sample(range(size), half) + list(range(size, size + changes - half)), "b")
        before, begun, used = len(table.snapshots()), time.perf_counter(), time.process_time()
        change(way, table, new, ["id", "k"][:columns])
        took, used = time.perf_counter() - begun, time.process_time() - used
        assert table.scan().count() == size + changes - half
        return f"{took:8.2f} s {used:8.2f} s of processor {len(table.snapshots()) - before} snapshots"


def main() -> None:
    """Run one way if it is named, else all of them."""
    if sys.argv[1:2] and sys.argv[1] in WAYS:
        print(run(sys.argv[1], *map(int, sys.argv[2:5])))
        return
    given = tuple(map(int, sys.argv[1:4]))
    for size in [given] if len(given) == 3 else SIZES:
        for way in WAYS:
            command = [sys.executable, "-m", "bench.iceberg", way, *map(str, size)]
            try:
                done = subprocess.run(
                    command, cwd=Path(__file__).parents[1], timeout=MOST_S, capture_output=True, text=True, check=True
                )
                figures = done.stdout.strip()
            except subprocess.TimeoutExpired:
                figures = f"over {MOST_S} s"
            print(f"{size[0]:>8} rows {size[1]:>7} changes {size[2]} key columns {way:8} {figures}", flush=True)


if __name__ == "__main__":
    main()
