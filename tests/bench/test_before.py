"""How CI compares the speed of a commit with the one before it. The decoding itself runs in `deploy/test.sh speed`."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

from bench import before, compiled_modules
from bench.before import NothingToCompare
from canal_ha.decode import kernel

ROOT = Path(__file__).parents[2]
KERNEL = Path("canal_ha/decode/kernel")


def git(root: Path, *arguments: str) -> str:
    who = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    names = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    done = subprocess.run(
        ["git", "-C", str(root), *names, *arguments],
        env={**os.environ, **who},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commit(root: Path, file: str, text: str) -> str:
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", file)
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    commit(root, "canal_ha/decode/plans.py", "one = 1\n")
    return root


def test_a_loss_counts_if_every_round_shows_it() -> None:
    """Two rounds of three can be chance, and a loss of 5 % exactly is none."""
    rounds = {"A": [1.06, 1.3, 1.1], "B": [1.3, 1.04, 1.3], "C": [1.05, 1.5, 1.5], "D": [0.5, 0.9, 1.0]}
    assert before.slower(rounds) == ["A"]


def test_a_line_shows_the_median_and_each_round() -> None:
    """Who reads the log sees a gain or a loss, and how much the rounds differ."""
    assert before.line("A", [2.0, 0.5, 1.1]) == "A: 1.100 of the time before (rounds 2.000, 0.500, 1.100)"


def test_a_commit_that_leaves_the_decoder_alone_is_not_measured(repository: Path) -> None:
    """The reason names the commit with the same sources."""
    commit(repository, "docs/page.md", "text\n")
    with pytest.raises(NothingToCompare, match=f"are those of {git(repository, 'rev-parse', 'HEAD^')[:9]}"):
        before.commit_before(repository, "HEAD^")


def test_a_change_of_the_decoder_is_measured_also_before_it_is_committed(repository: Path) -> None:
    """A developer compares without a commit."""
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, "canal_ha/decode/plans.py", "one = 2\n")
    assert before.commit_before(repository, "HEAD^") == first
    (repository / "canal_ha/decode/plans.py").write_text("one = 3\n")
    assert before.commit_before(repository, "HEAD") == git(repository, "rev-parse", "HEAD")


def test_a_shallow_clone_says_that_it_has_no_commit_before(repository: Path, tmp_path: Path) -> None:
    """The message has the command that brings the commit."""
    commit(repository, "canal_ha/decode/plans.py", "one = 2\n")
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", "clone")
    with pytest.raises(NothingToCompare, match="shallow and does not have HEAD\\^; `git fetch --deepen 1` brings it"):
        before.commit_before(tmp_path / "clone", "HEAD^")
    with pytest.raises(NothingToCompare, match="the repository has no HEAD~5"):
        before.commit_before(repository, "HEAD~5")


def test_the_files_of_the_commit_before_are_written(repository: Path, tmp_path: Path) -> None:
    """A file that the commit does not have yet is left out."""
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, "canal_ha/decode/plans.py", "one = 2\n")
    before.extract(repository, first, tmp_path / "out")
    assert (tmp_path / "out/canal_ha/decode/plans.py").read_text() == "one = 1\n"


def kernel_copy(tmp_path: Path, name: str) -> Path:
    tree = tmp_path / name
    shutil.copytree(ROOT / KERNEL, tree / KERNEL, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "setup.py", tree)
    return tree


def keys(tree: Path) -> dict[str, str]:
    return {file.stem: compiled_modules.key(tree, file.stem) for file in (tree / KERNEL).glob("*.py")}


def changed(tmp_path: Path, file: str) -> set[str]:
    old, new = kernel_copy(tmp_path, f"old {file}"), kernel_copy(tmp_path, f"new {file}")
    with open(new / KERNEL / file, "a") as opened:
        opened.write("\n")
    first, second = keys(old), keys(new)
    return {module for module in first if first[module] != second[module]}


def test_only_modules_that_a_change_reaches_are_compiled_again(tmp_path: Path) -> None:
    """A source reaches its own module, a header those that read it, and a header of C all that use the primitives."""
    assert changed(tmp_path, "rows.py") == {"rows"}
    assert changed(tmp_path, "gtid.pxd") == {"gtid", "stream"}
    assert {"cells", "rows", "stream", "columns"} <= changed(tmp_path, "primitives.h")


def test_compiled_modules_that_are_older_than_a_source_are_noticed(tmp_path: Path) -> None:
    """Otherwise the figures would be those of another source."""
    tree = tmp_path / "tree"
    for name in ("canal_ha", "lab"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    for module in kernel.HOT:
        (tree / KERNEL / f"{module}{EXTENSION_SUFFIXES[0]}").touch()
    assert compiled_modules.older_than_sources(tree) == []
    later = time.time() + 10
    os.utime(tree / KERNEL / "gtid.pxd", (later, later))
    assert compiled_modules.older_than_sources(tree) == ["gtid", "stream"]
