"""A snapshot of a table that is written to all the time, through seeded faults, into the copy of one client.

Nodes and the client are killed, and the source is switched to its standby. At the end the copy must equal the table,
and no older value may have come over a newer one. The exit code is 1 if a promise is broken.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from lab.exactness.run import run, table
from lab.exactness.stage import Plan, Stage

SHOWN = 20


def main() -> int:
    """Return 1 if a promise is broken; with an unsafe watermark, if none is."""
    parser = argparse.ArgumentParser(prog="python -m lab.exactness", description=__doc__)
    parser.add_argument("--database", choices=("mariadb", "mysql"), default="mariadb")
    parser.add_argument(
        "--mode",
        choices=("gtid", "position", "log-status"),
        default="gtid",
        help="how canal-ha follows the source. position: MySQL without GTIDs, where a snapshot locks its rows."
        " log-status: the same, with the right to ask performance_schema.log_status",
    )
    parser.add_argument("--chunks", type=int, default=300, help="about how many the table has (default: 300)")
    parser.add_argument("--faults", type=int, default=6, help="one is a switch of the source (default: 6)")
    parser.add_argument("--seed", type=int, default=1, help="of faults, writers and clients (default: 1)")
    parser.add_argument(
        "--unsafe-watermark",
        action="store_true",
        help="do not wait until a SELECT sees what the stream has brought; the exit code is 0 if that is noticed",
    )
    parser.add_argument("--keep", type=Path, help="copy all logs and the client's copy to this directory at the end")
    options = parser.parse_args()
    if options.mode == "log-status" and options.database != "mysql":
        parser.error("--mode log-status: only MySQL has it")
    if options.chunks < 20 or options.faults < 0:
        parser.error("--chunks: at least 20; --faults: at least 0")
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)
    plan = Plan(
        options.database, options.mode, options.chunks, options.faults, options.seed, unsafe=options.unsafe_watermark
    )
    print(plan, flush=True)
    with Stage(plan) as stage:
        try:
            result = run(stage, lambda line: print(line, flush=True))
        finally:
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                stage.keep(options.keep)
    print(f"\n{table(result)}\n")
    broken = result.broken(plan)
    for line in broken[:SHOWN]:
        print(f"VIOLATION {line}")
    if len(broken) > SHOWN:
        print(f"and {len(broken) - SHOWN} more")
    if plan.unsafe:
        return 0 if result.verdict.older else 1
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
