"""Attacks on a real cluster, while a victim's rows are timed.

The exit code is 1 if an attack reached anything: the victim waited too long or missed a row, the node grew, a request
without a right was answered. The same seed gives the same attacks.
"""

from __future__ import annotations

import argparse
import resource
import sys

from lab.hostile import admin, frames, http, network, requests, znodes
from lab.hostile.attack import HEADER, carry_out
from lab.hostile.stage import Stage

ATTACKS = (*frames.ATTACKS, *network.ATTACKS, *http.ATTACKS, *admin.ATTACKS, *requests.ATTACKS, *znodes.ATTACKS)
"""Requests sent ahead come late: memory that the allocator keeps after them would hide what another attack takes."""


def main() -> int:
    """Return 1 if an attack reached anything."""
    parser = argparse.ArgumentParser(
        prog="python -m lab.hostile",
        description=__doc__,
        epilog="attacks:\n" + "\n".join(f"  {attack.name:14} {attack.what}" for attack in ATTACKS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="the attacks to run (all)")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full number of repetitions (1.0)")
    parser.add_argument("--seed", type=int, default=1, help="of the damaged frames (1)")
    parser.add_argument("--slow", type=float, default=1.0, help="factor of all limits of time (1.0)")
    parser.add_argument("--flavor", choices=("mysql", "mariadb"), default="mysql", help="the database (mysql)")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - {attack.name for attack in ATTACKS}
    if unknown:
        parser.error(f"unknown attack: {', '.join(sorted(unknown))}")
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the nodes inherit it
    broken = 0
    with Stage(chosen.flavor) as stage:
        print(HEADER, flush=True)
        for attack in ATTACKS:
            if not chosen.names or attack.name in chosen.names:
                outcome = carry_out(attack, stage, chosen.scale, chosen.seed, chosen.slow)
                print(outcome.text(), flush=True)
                broken += bool(outcome.broken)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
