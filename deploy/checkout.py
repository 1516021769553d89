"""A copy of the checkout's own files, for builds that must neither use nor change what lies beside them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def own_files() -> list[str]:
    """Return the files that git tracks or would add, as paths below ROOT."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def copy_to(directory: Path) -> Path:
    """Copy them below a directory, and return it."""
    for name in own_files():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
    return directory
