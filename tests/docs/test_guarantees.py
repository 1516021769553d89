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
    if line.startswith("| ") and not line.startswith(("| promise ", "| mutant "))
]
PROMISED = [row for row in ROWS if len(row) == 5]
NOTICED = {row[0].strip("`"): row[2] for row in ROWS if len(row) == 3}
"""The promise that notices each mutant."""


def test_every_promise_is_on_the_page_once() -> None:
    """The page and the simulation have the same promises."""
    assert sorted(row[0] for row in PROMISED) == sorted(PROMISES)


def test_the_named_tests_exist() -> None:
    """Each promise names a test function."""
    for _, _, _, test, _ in PROMISED:
        path, _, name = test.strip("`").partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test


def test_every_mutant_is_on_the_page_once() -> None:
    """The table of mutants has each, in order, and the promise that notices it."""
    assert list(NOTICED) == [mutant.name for mutant in MUTANTS]
    assert sum(len(row) == 3 for row in ROWS) == len(MUTANTS)
    assert set(NOTICED.values()) <= set(PROMISES)


def test_every_promise_has_a_mutant_that_breaks_it() -> None:
    """The mutant beside a promise is one that this promise notices."""
    assert {row[0]: NOTICED.get(row[4].strip("`")) for row in PROMISED} == {name: name for name in PROMISES}
