"""Free ports on the loopback interface."""

import os
import random
import socket

LOOPBACK = "127.0.0.1"

# The ports are below Linux's range for outgoing connections, so that a server that is down for a moment finds its port
# still free when it starts again.
_FIRST, _LAST = 12000, 32000
_SHARES = 8  # processes of pytest-xdist that run side by side

_given: set[int] = set()


def free_port() -> int:
    """Return a free port, never the same one twice in this process."""
    share = range(_FIRST + _share(), _LAST, _SHARES)
    for _ in range(1000):
        port = random.choice(share)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
        _given.add(port)
        return port
    raise RuntimeError(f"no free port between {_FIRST} and {_LAST} on {LOOPBACK}")


def _share() -> int:
    """Return this process's share of the ports: a server that is down for a moment keeps its port from the others."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    return int(worker.removeprefix("gw") or 0) % _SHARES


def listens(port: int) -> bool:
    """Return whether a process accepts connections on this port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((LOOPBACK, port)) == 0
