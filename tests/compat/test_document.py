"""docs/compatibility.md names an existing test for each of its claims."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
PROOF = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_proof_exists() -> None:
    """Each test that the page names exists."""
    proofs = PROOF.findall(PAGE.read_text(encoding="utf-8"))
    assert len(proofs) > 40
    missing = [
        f"{file}::{test}" for file, test in proofs if f"def {test}(" not in (ROOT / file).read_text(encoding="utf-8")
    ]
    assert not missing


def test_every_feature_and_difference_has_a_proof() -> None:
    """Each row of the two tables of features and differences names a test."""
    tables = PAGE.read_text(encoding="utf-8").partition("## Feature by feature")[2].partition("## Versions")[0]
    rows = [
        line for line in tables.splitlines() if line.startswith("| ") and not line.startswith(("| canal |", "| case |"))
    ]
    assert len(rows) > 35
    assert [row for row in rows if not PROOF.search(row)] == []
