"""One process at a time for the state directory of a pipeline that has no ZooKeeper to elect one."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from canal_ha import private_files
from canal_ha.errors import ClientIdTaken
from canal_ha.model.excerpt import excerpt, printable
from canal_ha.pipeline import options
from canal_ha.pipeline.description import Description

_FILE = "run.lock"


@contextmanager
def alone(description: Description) -> Iterator[None]:
    """Hold the lock of a pipeline's state directory, unless ZooKeeper elects the process that runs.

    Raises ClientIdTaken, which names the process that has the lock, and OptionInvalid for options of the source.
    A directory that cannot be written, or without locks, is no error here: the pipeline itself tells what it needs.
    """
    descriptor = -1 if options.parse(description.source).zk_servers else _opened(Path(description.state))
    try:
        if descriptor >= 0:
            _take(descriptor, description)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)  # the lock goes with it, also if the process dies


def _opened(state: Path) -> int:
    with suppress(OSError):
        private_files.make_directory(state)
        return private_files.opener(str(state / _FILE), os.O_RDWR | os.O_CREAT | os.O_NONBLOCK)
    return -1


def _take(descriptor: int, description: Description) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = excerpt(printable(os.read(descriptor, 300).decode(errors="replace").strip()))
        raise ClientIdTaken(
            f"{description.file}: the pipeline {description.name} runs already: process {holder} has its state"
            f" directory {description.state}. Stop that one first; with zkServers, a second one would stand by"
        ) from None
    except OSError:
        return
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
