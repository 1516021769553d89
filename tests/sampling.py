"""How much of the tests runs on a push, which has two processors and 15 minutes (see deploy/test.sh)."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path
from zlib import crc32

LONG = bool(os.environ.get("CANAL_HA_LONG"))  # the long suites: everything


def examples(count: int) -> int:
    """Return how many random examples a test tries: all in the long suites, a quarter of them on a push."""
    return count if LONG else max(count // 4, 10)


def draw(name: str, parts: int) -> int:
    """Return the part, from 0, that this name belongs to. All runs of a commit agree; another commit draws anew."""
    return crc32(f"{_commit()} {name}".encode()) % parts


@cache
def _commit() -> str:
    """Return the commit of this checkout; "" without git."""
    try:
        return subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        ).stdout
    except OSError:
        return ""
