"""What deploy/audit.py makes of a report of pip-audit."""

from __future__ import annotations

import json
from typing import Any

from deploy.audit import CLEAN, UNANSWERED, VULNERABLE, verdict

GOOD = {"name": "click", "version": "8.5.1", "vulns": []}
BAD = {"name": "kazoo", "version": "2.11.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.12"], "aliases": []}]}
UNKNOWN = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0.0)"}


def of(*packages: dict[str, Any]) -> tuple[int, list[str]]:
    """Return the verdict on a report of these packages."""
    return verdict(json.dumps({"dependencies": packages, "fixes": []}))


def test_a_report_without_answers_is_not_a_clean_one() -> None:
    """pip-audit ends with 0 if PyPI knows none of the packages."""
    assert of(GOOD) == (CLEAN, ["audit: 1 packages, no known vulnerability"])
    assert of(GOOD, UNKNOWN) == (UNANSWERED, ["audit: no answer for 1 of 2 packages: rich"])
    assert of()[0] == UNANSWERED


def test_a_vulnerability_fails_even_if_another_package_got_no_answer() -> None:
    """The lines name package, vulnerability and the version that fixes it."""
    code, lines = of(GOOD, BAD, UNKNOWN)
    assert code == VULNERABLE
    assert lines[0] == "kazoo 2.11.0: PYSEC-1, fixed in 2.12"
