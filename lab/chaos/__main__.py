"""Chaos on real parts: seeded faults on a cluster of three nodes while rows are written, and a verdict.

The exit code is 1 if a promise is broken. The same seed gives the same setting and the same steps.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path

from lab.arguments import count, positive
from lab.chaos import schedule
from lab.chaos.faults import faults
from lab.chaos.run import run
from lab.chaos.stage import Stage
from lab.chaos.verdict import table, violations

SHOWN = 40


def main(arguments: list[str] | None = None) -> int:
    """Run; return 1 if a promise is broken."""
    kinds = "\n".join(f"  {kind:14} {what}" for kind, what in schedule.WHAT.items())
    parser = argparse.ArgumentParser(
        prog="python -m lab.chaos",
        description=__doc__,
        epilog=f"faults:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, default=1, help="of setting, steps, links and writer (default: 1)")
    parser.add_argument("--minutes", type=positive, default=5.0, help="no step begins later (default: 5)")
    parser.add_argument("--steps", type=count, help="end after this step")
    parser.add_argument("--first", type=count, default=1, help="begin with this step")
    parser.add_argument("--only", default="", help='repeat this step alone, as "kill" or "ddl + kill"')
    parser.add_argument("--schedule", action="store_true", help="print the steps and end")
    parser.add_argument("--flavor", choices=("mysql", "mariadb"), help="instead of the seed's choice")
    parser.add_argument("--metadata", choices=("FULL", "MINIMAL"), help="instead of the seed's choice")
    parser.add_argument("--huge-mb", type=count, default=64, help="size of a huge transaction (64; up to 1024)")
    parser.add_argument("--slow", type=positive, default=1.0, help="factor of the limits of time, for a loaded machine")
    parser.add_argument("--keep", type=Path, help="copy all logs to this directory at the end")
    options = parser.parse_args(arguments)
    wanted = [kind.strip() for kind in options.only.split("+")] if options.only else []
    for kind in wanted:
        if kind not in schedule.WHAT:
            parser.error(f'--only {options.only}: unknown fault {kind!r}; give one, or several as "kill + ddl"')
    options.only = " + ".join(wanted)
    if not 0 < options.huge_mb <= 1024:
        parser.error("--huge-mb: 1 to 1024")
    steps = options.steps or max(1, round(options.minutes * 6))
    if options.first > steps:
        parser.error(f"--first {options.first} is behind the last step, {steps}")
    if options.schedule:
        print(schedule.text(options.seed, steps, options.only, options.first))
        return 0
    setting = schedule.setting(options.seed)
    setting = replace(setting, flavor=options.flavor or setting.flavor, metadata=options.metadata or setting.metadata)
    print(f"seed {options.seed}: {setting}", flush=True)
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the operator's connection breaks all the time
    began = time.monotonic()
    with Stage(setting, options.seed) as stage:
        print(f"the stage is up after {time.monotonic() - began:.0f} s", flush=True)
        try:
            result = run(
                stage,
                islice(schedule.steps(options.seed, options.only), options.first - 1, options.steps),
                faults(options.huge_mb << 20),
                options.minutes * 60,
                options.seed,
                lambda line: print(line, flush=True),
            )
        finally:
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                stage.keep(options.keep)
        rows, statements = stage.writer.head, stage.writer.statements
    broken = violations(result, options.slow)
    print(f"\n{len(result.observed)} steps, {rows} rows, {statements} ALTERs\n{table(result, options.slow)}\n")
    for line in broken[:SHOWN]:
        print(f"VIOLATION {line}")
    if len(broken) > SHOWN:
        print(f"and {len(broken) - SHOWN} more")
    if broken:
        last = result.observed[-1].step.number if result.observed else 0
        print(f"again: {_again(options, last)}")
    return 1 if broken else 0


def _again(options: argparse.Namespace, last: int) -> str:
    """Return the command that repeats the run up to a step."""
    words = [f"--seed {options.seed}", f"--minutes {options.minutes:g}", f"--steps {last}"]
    words += [f"--first {options.first}"] if options.first > 1 else []
    words += [f"--huge-mb {options.huge_mb}", f"--slow {options.slow:g}"]
    words += [f"--{name} {value}" for name in ("flavor", "metadata") if (value := getattr(options, name))]
    words += [f'--only "{options.only}"'] if options.only else []
    return " ".join(["python -m lab.chaos", *words])


if __name__ == "__main__":
    sys.exit(main())
