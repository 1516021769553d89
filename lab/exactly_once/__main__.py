"""Kills pipelines, nodes and target servers while rows are written, and compares each target with the source.

    python -m lab.exactly_once --kills 20       # every target; exit code 1 if a change is lost, doubled or out of order
    python -m lab.exactly_once --kills 5 --target kafka http --victim server

Each change has a value of its own. The printed table says how many changes are lost or doubled, and how many keys have
their changes out of order. Kafka is read with read_committed. Rows over HTTP are read as a receiver keeps them, without
those whose number came before. Victims get SIGKILL at random moments while the pipeline reads. Delta, Iceberg and
Parquet are files here, and have no server; they store no order of changes, so none is judged.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lab.exactly_once.changes import Verdict
from lab.exactly_once.kills import VICTIMS, run
from lab.exactly_once.places import PLACES


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name, and print a line for each target and victim. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.exactly_once", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="of each victim; default: 20")
    parser.add_argument("--seed", type=int, default=1, help="of the changes and the moments; default: 1")
    parser.add_argument("--target", nargs="+", choices=list(PLACES), default=list(PLACES))
    parser.add_argument("--victim", nargs="+", choices=VICTIMS, default=list(VICTIMS))
    given = parser.parse_args(arguments)
    verdicts: list[Verdict] = []

    def show(verdict: Verdict) -> None:
        verdicts.append(verdict)
        order = "-" if verdict.disordered is None else verdict.disordered
        numbers = (verdict.kills, verdict.rows, verdict.lost, verdict.doubled, order)
        print(f"{verdict.target:11} {verdict.victim:9}" + "".join(f"{number:>10}" for number in numbers), flush=True)

    heads = ("kills", "rows", "lost", "doubled", "order")
    print(f"{'target':11} {'victim':9}" + "".join(f"{name:>10}" for name in heads), flush=True)
    for kind in given.target:
        run(kind, given.victim, given.kills, given.seed, show)
    return 0 if all(each.well for each in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
