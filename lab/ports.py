"""Free ports on the loopback interface. Each is reserved, so that no other process that asks here gets it too.

A reservation is a lock on one byte of a file that all processes of this user share: the byte at the port's number. The
kernel removes the locks of a process when it ends, however it ends.
"""

import fcntl
import os
import random
import socket
import tempfile
import threading
from itertools import chain
from pathlib import Path

LOOPBACK = "127.0.0.1"

# The ports are below Linux's range for outgoing connections, so that a server that is down for a moment finds its port
# still free when it starts again.
PORTS = range(12000, 32000)

_given: set[int] = set()
_turn = threading.Lock()
_reservations = -1  # the shared file; open until the process ends, because closing it removes the process's locks


def free_port() -> int:
    """Return a free port, never the same one twice in this process, nor one of another process that still runs."""
    start = random.randrange(len(PORTS))
    with _turn:
        for port in chain(PORTS[start:], PORTS[:start]):
            if port not in _given and _reserve(port):
                _given.add(port)
                if _unused(port):
                    return port
    raise RuntimeError(f"no free port between {PORTS[0]} and {PORTS[-1]} on {LOOPBACK}")


def _reserve(port: int) -> bool:
    """Lock the port's byte until this process ends. Return False if another process has locked it."""
    global _reservations
    if _reservations < 0:
        path = Path(tempfile.gettempdir(), f"canal-ha-ports-{os.getuid()}")
        _reservations = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.lockf(_reservations, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except (BlockingIOError, PermissionError):  # POSIX allows both
        return False
    return True


def _unused(port: int) -> bool:
    """Return whether nobody listens on the port, nor has just done so."""
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def listens(port: int) -> bool:
    """Return whether a process accepts connections on this port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
