"""Reads small files whose path is configured: PEM files, accounts and secrets."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

LARGEST_BYTES = 1 << 20


class NotRegular(OSError):
    """A path names a device, a pipe or a socket."""


def read_small(path: Path, most_bytes: int = LARGEST_BYTES) -> bytes:
    """Return the content of a regular file. Raises OSError, also for a larger file, and NotRegular.

    A device can have no end, and a pipe would let the thread wait for its writer.
    """
    _check(path, path.stat().st_mode)  # before it is opened, which can change a device
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with open(descriptor, "rb") as file:
        _check(path, os.fstat(descriptor).st_mode)
        found = file.read(most_bytes + 1)
    if len(found) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes", str(path))
    return found


def read_secret(path: Path) -> str:
    """Return the text of a small regular file without white space around it. Raises OSError, also without UTF-8."""
    try:
        return read_small(path).decode().strip()
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "it is not UTF-8", str(path)) from None


def read_secret_line(path: Path) -> str:
    """Return the first line with text, without white space around it. Raises OSError, also if there is none."""
    line = read_secret(path).partition("\n")[0].rstrip()
    if not line:
        raise OSError(errno.ENODATA, "it has no secret", str(path))
    return line


def _check(path: Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise NotRegular(errno.EINVAL, "it is not a regular file", str(path))
