"""Measures rows per second from the packets of a SELECT to a segment, in memory and on one core.

images   packets to synthetic events
segment  packets to a segment: events, then an ordinary decoder
keys     the keys of the segment's rows

A  rows of (id int, k int, c char(120), pad char(60)) in utf8mb4
C  rows of 200 columns of mixed types, a fifth of them NULL

CANAL_HA_KERNEL=off measures the interpreted kernel. Figures are medians of rounds.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from bench.workloads import MIXED
from canal_ha.decode import kernel
from canal_ha.decode.values import packed
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema
from canal_ha.source.connection.flavor import flavor
from canal_ha.source.snapshot.keys import TableKeys
from canal_ha.source.snapshot.table import SnapshotTable
from canal_ha.source.snapshot.transaction import EVENT_BYTES, SnapshotTransactions
from lab.dump import AnyTable, decoder

PLACE = LogPosition("mysql-bin.000001", 4, 1_700_000_000_000, 1)
SBTEST = ("int", "int", "char(120)", "char(60)")
WIDE = tuple(declared.lower().removesuffix(" null") for declared, _ in MIXED) * 20
ROWS = {"A": 200_000, "C": 8_000}
SHARE = 100  # the interpreted build gets this many times fewer rows


def sbtest_row(chance: random.Random) -> list[object]:
    """Return the values of a row of A."""
    digits = "-".join(f"{chance.randrange(10**11):011d}" for _ in range(15))
    return [chance.randrange(10**7), chance.randrange(10**6), digits[:119], digits[120:]]


def wide_row(chance: random.Random) -> list[object]:
    """Return the values of a row of C; ENUM as a number."""
    row = [None if chance.random() < 0.2 else draw(chance) for _, draw in MIXED * 20]
    return [chance.randrange(10**6), *[{"a": 1, "b": 2}.get(str(value), value) for value in row[1:]]]


def packets(rows: Sequence[Sequence[object]]) -> bytes:
    """Return rows as a server sends them."""
    out = bytearray()
    for row in rows:
        texts = [None if value is None else str(value).encode() for value in row]
        content = b"".join(b"\xfb" if text is None else packed(len(text)) + text for text in texts)
        out += len(content).to_bytes(3, "little") + b"\0" + content
    return bytes(out)


def median(rounds: int, rows: int, work: Callable[[], object]) -> str:
    """Return the nanoseconds a row, and rows a second, of processor time."""
    seconds = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds.append(time.process_time() - began)
    each = statistics.median(seconds) / rows
    return f"{each * 1e9:>10,.0f}{1 / each:>14,.0f}"


def measure(name: str, rounds: int) -> None:
    """Print the figures of one workload."""
    count = ROWS[name] // (1 if kernel.BUILD == "compiled" else SHARE)
    chance = random.Random(name)
    make, declared = (sbtest_row, SBTEST) if name == "A" else (wide_row, WIDE)
    pool = [make(chance) for _ in range(min(count, 500))]
    data = packets([pool[index % len(pool)] for index in range(count)])
    columns = tuple(
        Column(f"c{index}", text, key=index == 0, unsigned="unsigned" in text, charset="utf8mb4")
        for index, text in enumerate(declared)
    )
    table = SnapshotTable(TableSchema("bench", "sbtest", columns), flavor({"version": "9.7.4"}))
    transactions = SnapshotTransactions(table, "bench", lambda place: decoder(AnyTable(*columns)))
    segment = transactions.segment(data, PLACE)
    assert segment is not None
    assert sum(segment.row_counts) == count
    keys = TableKeys("bench", "sbtest", table.key)
    for what, work in (
        ("images", lambda: table.images.events(data, (), bytes(100), EVENT_BYTES, bytearray())),
        ("segment", lambda: transactions.segment(data, PLACE)),
        ("keys", lambda: sum(1 for _ in keys.of(segment))),
    ):
        print(f"{name}  {what:<8}{median(rounds, count, work)}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="A or C; default both")
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args(arguments)
    print(f"{kernel.BUILD:<11}{'ns a row':>11}{'rows/s':>14}")
    for name in chosen.workloads or ROWS:
        measure(name, chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
