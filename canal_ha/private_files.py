"""Creates files and directories that only the user of the process can read.

The modes are given when a file is created, so there is no moment in which others can open it, and the umask can only
take more away. A directory with the set-group-ID bit that its group can read (`chmod 2750`) shares what is created
below it with that group.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

_FILE, _DIRECTORY = 0o600, 0o700
_SHARED_FILE, _SHARED_DIRECTORY = 0o640, 0o750  # the system passes on the set-group-ID bit


def make_directory(path: Path) -> None:
    """Create a directory and its missing parents; existing ones stay as they are. Raises OSError."""
    if path.is_dir():
        return
    make_directory(path.parent)
    with suppress(FileExistsError):  # another process was faster; a file of this name fails in the caller's next step
        path.mkdir(_SHARED_DIRECTORY if _is_shared(path.parent) else _DIRECTORY)


def opener(path: str, flags: int) -> int:
    """Open a file, for the parameter of this name of `open`. Raises OSError.

    A new file gets its mode. From an existing one, other users' access is taken away.

    path: of the file.
    flags: of os.open.
    """
    allowed = _SHARED_FILE if _is_shared(Path(path).parent) else _FILE
    descriptor = os.open(path, flags, allowed)
    found = os.fstat(descriptor)
    if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) & ~allowed:
        with suppress(OSError):  # another user's file, or a file system without modes
            os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & allowed)
    return descriptor


def tighten(path: Path) -> None:
    """Take other users' access to an existing file away, as `opener` does; a file that is missing stays so."""
    with suppress(OSError):
        os.close(opener(str(path), os.O_RDONLY | os.O_NONBLOCK))


def _is_shared(directory: Path) -> bool:
    shares = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP
    return directory.stat().st_mode & shares == shares


def replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, durably: after a crash it has the old content or the new one. Raises OSError."""
    make_directory(path.parent)
    beside = path.with_name(path.name + ".new")
    with open(beside, "wb", opener=opener) as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    beside.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
