"""A snapshot of a table that is written to all the time, through seeded faults, into the copy of one client.

Nodes and the client are killed, and the source is switched to its standby. It is done once for each database and mode.
At the end the copy must equal the table,
and no older value may have come over a newer one. The exit code is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from lab.exactness.run import run, table
from lab.exactness.stage import Plan, Stage

SHOWN = 20
CONNECTIONS_MOST = 4  # with more, a chunk of the small ring has too few rows


def main() -> int:
    """Return 1 if a promise is broken; with an unsafe watermark, if no older row is noticed."""
    parser = argparse.ArgumentParser(prog="python -m lab.exactness", description=__doc__)
    parser.add_argument("--database", nargs="+", choices=("mariadb", "mysql"), default=["mariadb", "mysql"])
    parser.add_argument(
        "--mode",
        nargs="+",
        choices=("gtid", "position", "log-status"),
        default=["gtid", "position"],
        help="how canal-ha follows the source. position: a snapshot of MySQL locks its rows. log-status: MySQL alone,"
        " the same with the right to ask performance_schema.log_status",
    )
    parser.add_argument("--chunks", type=int, default=300, help="about how many a table has (default: 300)")
    parser.add_argument("--connections", type=int, default=1, help="that read the table side by side (default: 1)")
    parser.add_argument("--faults", type=int, default=6, help="at least one is a switch of the source (default: 6)")
    parser.add_argument("--seed", type=int, default=1, help="of faults, writers and clients (default: 1)")
    parser.add_argument(
        "--unsafe-watermark",
        action="store_true",
        help="do not wait until a SELECT sees what the stream has brought; the exit code is 0 if that is noticed",
    )
    parser.add_argument("--xa", action="store_true", help="write in XA transactions")
    parser.add_argument("--keep", type=Path, help="copy all logs and the client's copy to this directory at the end")
    options = parser.parse_args()
    if options.chunks < 20 or options.faults < 0:
        parser.error("--chunks: at least 20; --faults: at least 0")
    if not 1 <= options.connections <= CONNECTIONS_MOST:
        parser.error(f"--connections: 1 to {CONNECTIONS_MOST}")
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the sessions of killed nodes end
    plans = [
        Plan(
            database,
            mode,
            options.chunks,
            options.faults,
            options.seed,
            unsafe=options.unsafe_watermark,
            connections=options.connections,
            xa=options.xa,
        )
        for database in options.database
        for mode in options.mode
        if database == "mysql" or mode != "log-status"
    ]
    good = [_good(plan, options.keep and options.keep / f"{plan.database}-{plan.mode}") for plan in plans]
    return 0 if good and all(good) else 1


def _good(plan: Plan, keep: Path | None) -> bool:
    """Run and print; return whether no promise is broken, or with an unsafe watermark, whether one is."""
    kind = ", XA" if plan.xa else ""
    print(f"{plan.database}, {plan.mode}, seed {plan.seed}, connections: {plan.connections}{kind}", flush=True)
    with Stage(plan) as stage:
        try:
            result = run(stage, lambda line: print(line, flush=True))
        finally:
            if keep:
                keep.mkdir(parents=True, exist_ok=True)
                stage.keep(keep)
    print(f"\n{table(result)}\n", flush=True)
    broken = result.broken(plan)
    for line in broken[:SHOWN]:
        print(f"VIOLATION {line}", flush=True)
    if len(broken) > SHOWN:
        print(f"and {len(broken) - SHOWN} more", flush=True)
    return bool(result.verdict.older) if plan.unsafe else not broken


if __name__ == "__main__":
    raise SystemExit(main())
