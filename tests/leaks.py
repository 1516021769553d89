"""Where secrets of a test turn up: command lines and environments of all processes, and files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path


def in_processes(secrets: Mapping[str, str]) -> set[str]:
    """Return `name of the secret: file` for each command line and environment in /proc that holds a secret."""
    processes = (path for path in Path("/proc").iterdir() if path.name.isdecimal())
    return in_files(secrets, (process / kind for process in processes for kind in ("cmdline", "environ")))


def in_files(secrets: Mapping[str, str], files: Iterable[Path]) -> set[str]:
    """Return `name of the secret: file` for each file that holds a secret. secrets: name -> text."""
    found = set()
    for file in files:
        with suppress(OSError):  # a process has ended, or a file was replaced
            found |= in_text(secrets, file.read_bytes(), str(file))
    return found


def in_text(secrets: Mapping[str, str], text: str | bytes, where: str) -> set[str]:
    """Return `name of the secret: where` for each secret in a text."""
    raw = text.encode() if isinstance(text, str) else text
    return {f"{name}: {where}" for name, secret in secrets.items() if secret.encode() in raw}
