"""The page of guarantees names promises, tests and mutants that exist, and every promise of the simulation."""

from __future__ import annotations

import re
from pathlib import Path

from lab.mutants.mutants import MUTANTS
from lab.simulation.referee import PROMISES

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| promise ")
]


def test_every_promise_is_on_the_page_once() -> None:
    """The page and the simulation have the same promises."""
    assert sorted(row[0] for row in ROWS) == sorted(PROMISES)


def test_the_named_tests_exist() -> None:
    """Each promise names a test function."""
    for _, _, _, test, _ in ROWS:
        path, _, name = test.strip("`").partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test


def test_the_named_mutants_exist() -> None:
    """A promise names a mutant, or none."""
    known = {mutant.name for mutant in MUTANTS}
    assert {row[4].strip("`") for row in ROWS} - {""} <= known
