"""Load on one real node: idle and active connections, clients that misbehave, rows of 64 MiB.

Prints memory, the reactor's delays and what healthy clients got. The exit code is 1 if a bound is broken. A delay is
judged without the waits for a processor, but means little while other programs keep the processors busy.
"""

from __future__ import annotations

import argparse

from lab.load.clients import Kind
from lab.load.run import Plan, broken, kinds, run, table


def main() -> int:
    """Return 1 if a bound is broken."""
    usual = Plan()
    parser = argparse.ArgumentParser(prog="python -m lab.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=usual.seconds, help="how long rows are written (60)")
    parser.add_argument("--idle", type=int, default=usual.idle, help="connections that only authenticate (2000)")
    parser.add_argument("--active", type=int, default=usual.active, help="clients that get small rows (190)")
    parser.add_argument("--wide", type=int, default=usual.wide, help="clients that get large rows (10)")
    parser.add_argument("--wide-mib", type=int, default=usual.wide_mib, help="size of a large row (64)")
    parser.add_argument("--flavor", choices=("mysql", "mariadb"), default=usual.flavor, help="the databases (mysql)")
    parser.add_argument(
        "--stall-s", type=float, default=usual.stall_s, help="longest block of the reactor allowed (0.1)"
    )
    plan = Plan(**vars(parser.parse_args()))
    for name, count, group in (("--active", plan.active, 10), ("--wide", plan.wide, 5)):
        if count and Kind.HEALTHY not in kinds(count, group):
            parser.error(f"{name} {count}: no client would be healthy; use 3 or more, or 0")
    figures = run(plan)
    print(table(plan, figures))
    found = broken(plan, figures)
    for each in found:
        print(f"BROKEN {each}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
