"""Judges a report of pip-audit; deploy/audit.sh is the command."""

from __future__ import annotations

import json
import sys
from pathlib import Path

CLEAN, VULNERABLE, UNANSWERED = 0, 1, 75


def verdict(report: str) -> tuple[int, list[str]]:
    """Return the exit code and the lines to print.

    report: pip-audit's JSON.
    A vulnerability counts even if other packages got no answer.
    """
    dependencies = json.loads(report)["dependencies"]
    found = [
        f"{package['name']} {package['version']}: {known['id']}, fixed in {' '.join(known['fix_versions']) or '-'}"
        for package in dependencies
        for known in package.get("vulns", ())
    ]
    unanswered = [package["name"] for package in dependencies if "skip_reason" in package]
    if unanswered:
        found.append(f"audit: no answer for {len(unanswered)} of {len(dependencies)} packages: {', '.join(unanswered)}")
    if any(package.get("vulns") for package in dependencies):
        return VULNERABLE, found
    if unanswered or not dependencies:
        return UNANSWERED, found
    return CLEAN, [f"audit: {len(dependencies)} packages, no known vulnerability"]


if __name__ == "__main__":
    code, lines = verdict(Path(sys.argv[1]).read_text())
    print("\n".join(lines))
    sys.exit(code)
