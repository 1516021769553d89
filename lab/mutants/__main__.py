"""Run the simulation with seeded faults until it notices each: `python -m lab.mutants`.

It prints the rows of the table of mutants in docs/guarantees.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from lab.arguments import count
from lab.mutants.mutants import IN_CI, MUTANTS, ROOT, Mutant, NotApplicable

SEEDS = 2000
FIRST_SEED = 0


def main() -> int:
    """Return 1 unless every mutant was caught."""
    parser = argparse.ArgumentParser(prog="python -m lab.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="the mutants to run (all)")
    parser.add_argument("--ci", action="store_true", help="only those that CI catches on each push")
    parser.add_argument("--seeds", type=count, default=SEEDS, help=f"most seeds for each mutant ({SEEDS})")
    parser.add_argument("--workers", type=count, default=os.cpu_count() or 1, help="processes (one for each processor)")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)  # in a process of its own
    chosen = parser.parse_args()
    wanted = IN_CI if chosen.ci else chosen.names
    mutants = [mutant for mutant in MUTANTS if not wanted or mutant.name in wanted]
    if unknown := set(wanted) - {mutant.name for mutant in MUTANTS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; docs/guarantees.md lists all mutants")
    if chosen.run:
        print(json.dumps(_caught(mutants[0], chosen.seeds)))
        return 0
    try:
        for mutant in mutants:
            mutant.check()
    except NotApplicable as error:
        print(error, file=sys.stderr)
        return 2
    missed = 0
    with ThreadPoolExecutor(chosen.workers) as pool:
        results = pool.map(lambda mutant: _run_apart(mutant, chosen.seeds), mutants)
        for mutant, result in zip(mutants, results, strict=True):
            missed += result is None
            seed, promise = ("-", "NOT CAUGHT") if result is None else (str(result[0]), result[1])
            print(f"| `{mutant.name}` | {seed} | {promise} |", flush=True)
    print(f"{len(mutants) - missed} of {len(mutants)} mutants caught within {chosen.seeds} seeds")
    return 1 if missed else 0


def _run_apart(mutant: Mutant, seeds: int) -> tuple[int, str] | None:
    """Return the seed and the promise that caught the mutant, from a process of its own; None if none did."""
    done = subprocess.run(
        [sys.executable, "-m", "lab.mutants", "--run", "--seeds", str(seeds), mutant.name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[Any] | None = json.loads(done.stdout.splitlines()[-1])
    return None if found is None else (found[0], found[1])


def _caught(mutant: Mutant, seeds: int) -> tuple[int, str] | None:
    sys.meta_path.insert(0, _Patching(mutant))
    from lab.simulation.seeds import CHUNK, run_all  # only now, because it imports what is patched

    for first in range(FIRST_SEED, FIRST_SEED + seeds, CHUNK):
        for outcome in run_all(range(first, min(first + CHUNK, FIRST_SEED + seeds)), until_broken=not mutant.promise):
            if outcome.promise and mutant.promise in ("", outcome.promise):
                return outcome.seed, outcome.promise
    return None


class _Patching(MetaPathFinder, Loader):
    """Imports one module with a mutant's text."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = mutant.module.removesuffix(".py").replace("/", ".")

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """See MetaPathFinder."""
        if fullname != self._name or PathFinder.find_spec(fullname, path) is None:
            return None
        return spec_from_loader(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """See Loader."""
        file = ROOT / self._mutant.module
        exec(compile(self._mutant.apply(file.read_text()), str(file), "exec"), module.__dict__)


if __name__ == "__main__":
    raise SystemExit(main())
