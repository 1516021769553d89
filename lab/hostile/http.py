"""Attacks on the metrics and the status endpoint: bodies, headers, silence, other hosts' names."""

from __future__ import annotations

import contextlib
import socket
import time
from base64 import b64encode
from contextlib import ExitStack
from urllib.request import Request, urlopen

from lab.hostile.attack import Assault, Attack
from lab.hostile.peer import ATTACKER
from lab.hostile.stage import BOSS, DESTINATION
from lab.node import Node
from lab.ports import LOOPBACK

BODY_MIB, MOST_TAKEN_MIB = 300, 16.0
SCRAPE_S = 2.0
_LOGIN = "Basic " + b64encode(":".join(BOSS).encode()).decode()


def scrape(node: Node) -> bytes:
    """Return the metrics, as the operator's account gets them. Raises OSError."""
    url = f"http://{LOOPBACK}:{node.metrics_port}/metrics"
    with urlopen(Request(url, headers={"Authorization": _LOGIN}), timeout=10) as answer:
        page: bytes = answer.read()
        return page


def _connect(port: int) -> socket.socket:
    sock = socket.socket()
    sock.settimeout(5.0)
    sock.bind((ATTACKER, 0))
    sock.connect((LOOPBACK, port))
    return sock


def _ports(node: Node) -> tuple[int, int]:
    return node.metrics_port, node.admin_port


def bodies(assault: Assault) -> None:
    """Bodies of 300 MiB and headers without end."""
    most = 0
    switch = f"POST /api/v1/destinations/{DESTINATION}/source HTTP/1.1\r\nHost: localhost\r\n"
    beginnings = (
        f"{switch}Content-Type: application/json\r\nContent-Length: {BODY_MIB << 20}\r\n\r\n",
        f"{switch}Transfer-Encoding: chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: ",
        "GET /",
    )
    for _ in assault.rounds(4):
        for port in _ports(assault.target):
            for beginning in beginnings:
                sent = 0
                with contextlib.suppress(OSError), _connect(port) as sock:
                    sock.sendall(beginning.encode())
                    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n" if "chunked" in beginning else b"x" * 65536
                    while sent < BODY_MIB << 20:
                        sock.sendall(piece)
                        sent += len(piece)
                most = max(most, sent)
    assault.expect(most < MOST_TAKEN_MIB * (1 << 20), f"the node took {most >> 20} MiB of one request")
    assault.done = f"{assault.times(4) * 8} requests without end; the node took at most {most / (1 << 20):.1f} MiB"


def silence(assault: Assault) -> None:
    """Connections that send half a request, more than the ports take; the operator asks meanwhile."""
    with ExitStack() as stack:
        for port in _ports(assault.target):
            for _ in assault.rounds(300):
                with contextlib.suppress(OSError):
                    stack.enter_context(_connect(port)).sendall(b"GET / HTTP/1.1\r\nHost: loc")
        began = time.monotonic()
        try:
            scrape(assault.target)
            assault.target.status()
        except OSError as error:
            assault.expect(False, f"the operator gets no answer: {error}")
        waited_s = time.monotonic() - began
    assault.expect(assault.within(waited_s, SCRAPE_S), f"the operator waited {waited_s:.1f} s")
    assault.done = f"{assault.times(300)} silent connections to each port; the operator waited {waited_s:.2f} s"


def strangers(assault: Assault) -> None:
    """Requests without a login, and with a wrong one."""
    statuses: set[str] = set()
    for _ in assault.rounds(200):
        for port, path in zip(_ports(assault.target), ("/metrics", "/api/v1/status"), strict=True):
            for login in ("", "Authorization: Basic Ym9zczpib3Nz\r\n", f"Authorization: Bearer {'0' * 64}\r\n"):
                statuses.add(_status(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{login}"))
    assault.expect("200" not in statuses, "a request without a login was answered")
    assault.done = f"{assault.times(200) * 6} requests, answered with {', '.join(sorted(statuses))}"


def rebinding(assault: Assault) -> None:
    """Requests that a web page's name leads here: with the operator's login to the status, with none to the metrics."""
    admin, login = assault.target.admin_port, f"Authorization: {_LOGIN}\r\n"
    switch = f"POST /api/v1/destinations/{DESTINATION}/source"
    statuses: set[str] = set()
    for _ in assault.rounds(100):
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "2130706433", ""):
            for line in ("GET /api/v1/status", switch):
                statuses.add(_status(admin, f"{line} HTTP/1.1\r\nHost: {host}\r\n{login}Content-Length: 0\r\n"))
            statuses.add(_status(assault.target.metrics_port, f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n"))
    assault.expect(statuses <= {"401", "403"}, f"answered with {', '.join(sorted(statuses))}")
    assault.done = f"{assault.times(100) * 15} requests, answered with {', '.join(sorted(statuses))}"


def _status(port: int, head: str) -> str:
    """Send a request; return the status of its answer. head: without the last line."""
    with _connect(port) as sock:
        sock.sendall(f"{head}Connection: close\r\n\r\n".encode())
        line = sock.makefile("rb").readline()
    return line.split()[1].decode() if line else "closed"


ATTACKS = (
    Attack("bodies", "requests without end", bodies),
    Attack("silence", "half requests", silence),
    Attack("strangers", "requests without a login", strangers),
    Attack("rebinding", "requests for the names of other hosts", rebinding),
)
