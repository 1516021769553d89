"""Compares the compiled decoding of this tree with that of the commit before: `python -m bench.before`.

Workloads A and C, processor time, three rounds. In a round a process of each tree decodes, in turns, and the round's
ratio is the median of its turns. It fails if a workload takes more than 5 % longer in every round. If the sources of
the decoder are the same in both, it compares nothing.

--base COMMIT or CANAL_HA_SPEED_BASE: another commit than the one before, such as the first of several.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from bench import compiled_modules, kernel

ROOT = Path(__file__).parents[1]
SOURCES = ("canal_ha/decode", "canal_ha/model", "canal_ha/wire/proto", "setup.py")  # what decoding runs
NEEDED = ("canal_ha", "lab", "bench", "setup.py", "setup.cfg", "pyproject.toml", "README.md")
ROWS = {"A": 100_000, "C": 2_000}  # some 20 ms each, so that what else the machine does meets both trees
TURNS = 15  # decodings of each tree in a round
ROUNDS = 3
MOST = 1.05
REBUILD = "CANAL_HA_KERNEL=require python setup.py --quiet build_ext --inplace"
COMPILE_S = 60.0

Rounds = Mapping[str, Sequence[float]]  # workload -> the time now divided by the time before, of each round


class NothingToCompare(Exception):
    """There is no commit before, or it cannot be measured; the message says why."""


def slower(rounds: Rounds) -> list[str]:
    """Return the workloads that take more than 5 % longer in every round."""
    return [name for name, ratios in rounds.items() if min(ratios) > MOST]


def line(name: str, ratios: Sequence[float]) -> str:
    """Describe the rounds of a workload."""
    each = ", ".join(f"{ratio:.3f}" for ratio in ratios)
    return f"{name}: {statistics.median(ratios):.3f} of the time before (rounds {each})"


def commit_before(root: Path, base: str) -> str:
    """Return the id of the commit to compare with.

    Raises NothingToCompare if the repository does not have it, or if it has the same sources of the decoder.
    """
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}")
    if found.returncode:
        shallow = _git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == b"true"
        raise NothingToCompare(
            f"this clone is shallow and does not have {base}; `git fetch --deepen 1` brings it"
            if shallow
            else f"the repository has no {base}"
        )
    commit = found.stdout.decode().strip()
    if _git(root, "diff", "--quiet", commit, "--", *SOURCES).returncode == 0:
        raise NothingToCompare(f"the sources of the decoder are those of {commit[:9]}")
    return commit


def extract(root: Path, commit: str, directory: Path) -> None:
    """Write the files of a commit that decoding and its compiling need."""
    directory.mkdir(exist_ok=True)
    packed = directory / "commit.tar"
    needed = [name for name in NEEDED if _git(root, "cat-file", "-e", f"{commit}:{name}").returncode == 0]
    done = _git(root, "archive", f"--output={packed}", commit, "--", *needed)
    if done.returncode:
        raise NothingToCompare(f"{commit[:9]} cannot be read: {done.stderr.decode()}")
    with tarfile.open(packed) as opened:
        opened.extractall(directory, filter="data")


def measure(before: Path, now: Path) -> dict[str, list[float]]:
    """Measure both trees, each round in new processes. Raises NothingToCompare if the older one cannot decode."""
    rounds: dict[str, list[float]] = {name: [] for name in ROWS}
    with tempfile.TemporaryDirectory() as directory:
        files = {name: f"{directory}/{name}" for name in ROWS}
        for name, file in files.items():
            Path(file).write_bytes(kernel.workload(name, ROWS[name]))
        for _ in range(ROUNDS):
            with _Decoding(before, files) as old, _Decoding(now, files) as new:
                try:
                    old.seconds("A")
                except EOFError as error:
                    raise NothingToCompare(f"its decoder does not run with this benchmark: {error}") from error
                new.seconds("A")
                for name, known in rounds.items():
                    known.append(statistics.median(_ratio(old, new, name, turn) for turn in range(TURNS)))
    return rounds


class _Decoding:
    """A process that decodes with the packages of one tree."""

    def __init__(self, tree: Path, files: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(ROOT / "bench/decode_time.py"), *(f"{name}={at}" for name, at in files.items())],
            env={**os.environ, "PYTHONPATH": str(tree), "CANAL_HA_KERNEL": "require"},
            cwd=tree,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> _Decoding:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def seconds(self, name: str) -> float:
        """Decode a workload once. Raises EOFError, with the end of what the process says, if it ended."""
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.stderr
        with suppress(BrokenPipeError):
            print(name, file=self._process.stdin, flush=True)
        if not (answer := self._process.stdout.readline()):
            raise EOFError(self._process.stderr.read()[-500:])
        return float(answer)


def _ratio(old: _Decoding, new: _Decoding, name: str, turn: int) -> float:
    """Decode once with both, the older one first in every other turn."""
    took = [(one, one.seconds(name)) for one in ((old, new) if turn % 2 else (new, old))]
    times = dict(took)
    return times[new] / times[old]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if a workload became slower, or if the compiled modules here are not those of the sources."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", default=os.environ.get("CANAL_HA_SPEED_BASE") or "HEAD^")
    base = parser.parse_args(arguments).base
    cache = Path(os.environ.get("CANAL_HA_CACHE") or Path.home() / ".cache/canal-ha") / "compiled"
    if old := compiled_modules.older_than_sources(ROOT):
        print(f"speed: not compiled from the sources here: {', '.join(old)}. Run `{REBUILD}` and try again.")
        return 1
    compiled_modules.keep(ROOT, cache)
    try:
        commit = commit_before(ROOT, base)
        with tempfile.TemporaryDirectory() as directory:
            extract(ROOT, commit, Path(directory))
            compiled = compiled_modules.provide(Path(directory), cache, COMPILE_S)
            print(f"speed: beside {commit[:9]}; modules compiled for it: {', '.join(compiled) or 'none'}", flush=True)
            rounds = measure(Path(directory), ROOT)
    except (NothingToCompare, compiled_modules.NotBuilt) as reason:
        print(f"speed: not compared with the commit before: {reason}")
        return 0
    for name, ratios in rounds.items():
        print(line(name, ratios))
    for name in slower(rounds):
        print(
            f"speed: workload {name} takes more than {MOST - 1:.0%} longer than at {commit[:9]} in every round."
            f" To look: git diff {commit[:9]} -- {' '.join(SOURCES)}; python -m bench.kernel {name};"
            " docs/performance.md, How to profile."
        )
    return 1 if slower(rounds) else 0


def _git(root: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", "-C", str(root), *arguments], capture_output=True)


if __name__ == "__main__":
    sys.exit(main())
