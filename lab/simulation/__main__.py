"""Run seeds of the simulation, and print how many break a promise: `python -m lab.simulation --seeds 2000`."""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter

from lab.arguments import INTERRUPTED, count
from lab.simulation.seeds import outcomes

SHOWN = 5  # violations that are printed with their trace


def main() -> int:
    """Return 1 if a seed broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m lab.simulation", description=__doc__)
    parser.add_argument("--seeds", type=count, default=2000, help="how many seeds (2000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes (one for each processor)")
    parser.add_argument("--trace", action="store_true", help="print the whole trace of a violation")
    chosen = parser.parse_args()
    began, cpu = time.monotonic(), _cpu_s()
    broken: Counter[str] = Counter()
    deliveries = rows = writes = 0
    done, interrupted = 0, False
    try:
        for outcome in outcomes(chosen.start, chosen.seeds, chosen.workers):
            done += 1
            deliveries += outcome.deliveries
            rows += outcome.rows
            writes += outcome.writes
            if not outcome.promise:
                continue
            broken[outcome.promise] += 1
            if sum(broken.values()) <= SHOWN:
                print(f"seed {outcome.seed}: {outcome.what}")
                print("".join(f"    {line}\n" for line in outcome.trace[-60 if chosen.trace else -12 :]), flush=True)
    except KeyboardInterrupt:
        interrupted = True
    took = time.monotonic() - began
    print(
        f"{done} seeds in {took:.1f} s, {done / took:.0f} seeds/s,"
        f" {1000 * (_cpu_s() - cpu) / max(1, done):.1f} ms of processor time each;"
        f" {deliveries} batches, {rows} rows, {writes} cursor writes"
    )
    for promise, seeds in broken.most_common():
        print(f"{seeds} seeds break {promise}")
    return INTERRUPTED if interrupted else int(bool(broken))


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    raise SystemExit(main())
