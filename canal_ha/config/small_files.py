"""Reads small files whose path is configured: PEM files and accounts."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST_BYTES = 1 << 20


def read_small(path: Path) -> bytes:
    """Return the content of a regular file. Raises OSError, also for a larger file, a device or a pipe.

    A device can have no end, and a pipe would let the thread wait for its writer.
    """
    _check(path, path.stat().st_mode)  # before it is opened, which can change a device
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        _check(path, os.fstat(descriptor).st_mode)
        found = file.read(LARGEST_BYTES + 1)
    if len(found) > LARGEST_BYTES:
        raise OSError(errno.EFBIG, f"it has more than {LARGEST_BYTES} bytes", str(path))
    return found


def _check(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
