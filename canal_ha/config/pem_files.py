"""Checks the PEM files that other libraries open: OpenSSL would wait for the writer of a pipe."""

from __future__ import annotations

from pathlib import Path

from canal_ha.config.small_files import NotRegular, read_small
from canal_ha.errors import FileUnusable


def check_regular(*files: str) -> None:
    """Raise NotRegular for a device, a pipe or a socket. OpenSSL tells what else is wrong; "" names no file."""
    for file in filter(None, files):
        try:
            read_small(Path(file))
        except NotRegular:
            raise
        except OSError:
            pass


def require_regular(*files: str) -> None:
    """Raise FileUnusable for a device, a pipe or a socket; see check_regular."""
    for file in files:
        try:
            check_regular(file)
        except NotRegular as error:
            raise FileUnusable(file, "is not a regular file: copy what it gives into one") from error
