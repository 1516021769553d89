"""Who may send each packet of canal's protocols and each HTTP request, asked of a node.

python -m lab.gate        starts a database and a node with accounts, and prints a line for each request

The exit code is 1 if the node answers otherwise than PACKETS, HTTP and ADMIN say. The tests ask the same in one
process.
"""

from __future__ import annotations

import socket
import sys
from base64 import b64encode
from collections.abc import Mapping
from itertools import count
from typing import Any

from canal_ha.accounts import gate
from canal_ha.wire.proto import canal_protocol_pb2 as pb
from canal_ha.wire.scramble import secret_of
from lab.admin_peer import AdminPeer
from lab.hostile.peer import Peer
from lab.mysql import MySQL
from lab.node import Node, follow
from lab.ports import LOOPBACK, free_port

PASSWORD = "geheim"
_SECRET = secret_of(PASSWORD).hex()
ACCOUNTS = f"""\
[accounts.elsewhere]
passwords = ["{_SECRET}"]
roles = ["read"]
destinations = ["other"]

[accounts.reader]
passwords = ["{_SECRET}"]
roles = ["read"]
destinations = ["example"]
client_ids = [1001]

[accounts.admin]
passwords = ["{_SECRET}"]
roles = ["admin"]
destinations = ["*"]
"""
WHO = ("nobody", "elsewhere", "reader", "admin")
"""Nobody logs in with no account; `elsewhere` reads another destination."""
NAMED: Mapping[str, Any] = {"destination": "example", "client_id": "1001"}

# Whose packet is answered as canal answers it. Every other one is refused: by the login, the gate, or as no request.
PACKETS: Mapping[str, tuple[str, ...]] = {
    "CLIENTAUTHENTICATION": WHO[1:],
    **dict.fromkeys(("SUBSCRIPTION", "UNSUBSCRIPTION", "GET", "DUMP", "CLIENTACK", "CLIENTROLLBACK"), ("reader",)),
    **dict.fromkeys(("PACKAGETYPECOMPATIBLEPROTO2", "HANDSHAKE", "ACK", "MESSAGES", "SHUTDOWN", "HEARTBEAT"), ()),
}
# The same for each route.
HTTP: Mapping[str, tuple[str, ...]] = {
    gate.PROBE: WHO,
    gate.STATUS: WHO[1:],
    gate.SWITCH: ("admin",),
    gate.SNAPSHOT: ("admin",),
    gate.METRICS: ("admin",),
    gate.CONFIGURATION: ("admin",),
    gate.DESTINATION_CONFIGURATION: ("admin",),
    gate.CLUSTER: WHO[1:],
    gate.SEEN: WHO[1:],
    gate.OPENAPI: WHO[1:],
    gate.NODE_LOG: ("admin",),
    gate.LAG: ("reader", "admin"),
    gate.LOG: ("admin",),
    gate.TABLES: ("admin",),
    gate.FRONT: WHO,
    gate.PAGE: WHO[1:],
    gate.DESTINATION_PAGE: ("reader", "admin"),
    gate.DESTINATIONS: WHO[1:],
    **dict.fromkeys(
        (gate.MOVE, gate.PAUSE, gate.RESUME, gate.REBALANCE, gate.ADD, gate.REMOVE, gate.CURSOR), ("admin",)
    ),
    gate.EVENTS: WHO[1:],
}
# The same for each request of canal's admin protocol.
ADMIN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("SERVER check", "SERVER list"), WHO[1:]),
    "INSTANCE check": ("reader", "admin"),
    **dict.fromkeys(("INSTANCE start", "INSTANCE stop", "INSTANCE restart", "INSTANCE release"), ("admin",)),
    **dict.fromkeys(("LOG server", "LOG instance"), ("admin",)),
    **dict.fromkeys(("SERVER stop", "SERVER start", "SERVER restart"), ("admin",)),
}
REFUSED_STATUSES = (303, 401, 403)
"""Pages send a browser without a login to the log-in."""
_PATHS = {
    gate.CLUSTER: "/api/v1/cluster",
    gate.SEEN: "/api/v1/seen",
    gate.OPENAPI: "/api/v1/openapi.json",
    gate.NODE_LOG: "/api/v1/log",
    gate.LAG: "/api/v1/destinations/example/lag",
    gate.LOG: "/api/v1/destinations/example/log",
    gate.TABLES: "/api/v1/destinations/example/tables",
    gate.FRONT: "/login",
    gate.PAGE: "/",
    gate.EVENTS: "/events",
    gate.DESTINATION_PAGE: "/destinations/example",
    gate.DESTINATIONS: "/api/v1/destinations",
}
_PLACEMENT = {
    gate.MOVE: "/api/v1/destinations/example/move",
    gate.PAUSE: "/api/v1/destinations/example/pause",
    gate.RESUME: "/api/v1/destinations/example/resume",
    gate.REBALANCE: "/api/v1/rebalance",
    gate.CURSOR: "/api/v1/destinations/example/cursor",
    gate.ADD: "/api/v1/destinations/added/add",
    gate.REMOVE: "/api/v1/destinations/example/remove",
}
_REFUSALS = ("auth failed for user:", " has no right on ", " has no role ", " is NOT supported!")
_BODIES: Mapping[str, Any] = {
    "SUBSCRIPTION": pb.Sub(**NAMED),
    "UNSUBSCRIPTION": pb.Unsub(**NAMED),
    "GET": pb.Get(fetch_size=1, timeout=-1, unit=2, **NAMED),
    "DUMP": pb.Dump(**NAMED),
    "CLIENTACK": pb.ClientAck(batch_id=4711, **NAMED),
    "CLIENTROLLBACK": pb.ClientRollback(batch_id=4711, **NAMED),
}


def packet_error(port: int, name: str, who: str, source: str = LOOPBACK) -> str:
    """Return the error that answers a packet, "" without one.

    port: of canal's protocol.
    name: of the packet's type.
    who: sends it, one of WHO.
    source: the address that it comes from.
    Raises OSError.
    """
    with Peer(port, source=source) as peer:
        if name == "CLIENTAUTHENTICATION":
            return peer.log_in(who, PASSWORD)
        if who == "nobody":
            peer.seed()
        else:
            _expect_none(peer.log_in(who, PASSWORD))
        if who == "reader" and name in ("GET", "CLIENTACK", "CLIENTROLLBACK"):
            _expect_none(peer.ask(pb.SUBSCRIPTION, pb.Sub(**NAMED)))
        return peer.ask(pb.PacketType.Value(name), _BODIES.get(name, pb.HeartBeat()))


def admin_error(port: int, kind: str, who: str, source: str = LOOPBACK) -> str:
    """Return the error that answers a request of canal's admin protocol, "" without one.

    port: of the protocol.
    kind: a key of ADMIN.
    who, source: see packet_error.
    Raises OSError.
    """
    with AdminPeer(port, source=source) as peer:
        code, text = (0, "") if who == "nobody" else peer.log_in(who, PASSWORD)
        if not code:
            code, text = peer.request(kind, "example")
        return text if code else ""


def _refuses(error: str) -> bool:
    return any(text in error for text in _REFUSALS)


def _expect_none(error: str) -> None:
    if error:
        raise ConnectionError(error)


def http_request(kind: str, who: str) -> str:
    """Return the text of an HTTP request. kind: a key of HTTP; who: sends it, one of WHO."""
    body, first = "", f"GET {_PATHS.get(kind, '/api/v1/status')}"
    if kind == gate.PROBE:
        first = "GET /readyz"
    elif kind == gate.SWITCH:
        body, first = '{"to": "other"}', "POST /api/v1/destinations/example/source"
    elif kind == gate.SNAPSHOT:
        body = '{"action": "start", "client_id": 1001, "tables": ["a.b"]}'
        first = "POST /api/v1/destinations/example/snapshot"
    elif kind == gate.CONFIGURATION:
        first = "GET /api/v1/config"
    elif kind == gate.DESTINATION_CONFIGURATION:
        first = "GET /api/v1/destinations/example/config"
    elif kind in _PLACEMENT:
        wanted = {
            gate.MOVE: '"to": "10.0.0.2:11111", ',
            gate.ADD: '"text": "canal.instance.master.address = db:3306", ',
        }
        body = f'{{{wanted.get(kind, "")}"dry_run": true}}'
        if kind == gate.CURSOR:
            body = '{"client_id": 1001, "action": "delete", "dry_run": true}'
        first = f"POST {_PLACEMENT[kind]}"
    login = "" if who == "nobody" else b64encode(f"{who}:{PASSWORD}".encode()).decode()
    return (
        f"{first} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
        + (f"Authorization: Basic {login}\r\n" if login else "")
        + f"Content-Length: {len(body)}\r\n\r\n{body}"
    )


def _http_status(node: Node, kind: str, who: str) -> int:
    port = node.metrics_port if kind == gate.METRICS else node.admin_port
    with socket.create_connection((LOOPBACK, port), 10) as sock:
        sock.sendall(http_request(kind, who).encode())
        return int(sock.makefile("rb").readline().split()[1])


def walk() -> dict[str, tuple[str, ...]]:
    """Start a node, make each request as each of WHO, and return whose was not refused. Raises StartFailed, OSError."""
    sources = (f"127.0.0.{number}" for number in count(2))  # one has to wait after ten failed logins
    with MySQL() as database:
        admin_port = free_port()
        properties = {"canal.accounts.file": "../conf/accounts.toml", "canal.admin.port": str(admin_port)}
        node = Node({"example": follow(database)}, properties=properties, login=("admin", PASSWORD))
        (node.conf / "accounts.toml").write_text(ACCOUNTS)
        with node:
            packets = {
                name: tuple(who for who in WHO if not _refuses(packet_error(node.port, name, who, next(sources))))
                for name in PACKETS
            }
            routes = {
                kind: tuple(who for who in WHO if _http_status(node, kind, who) not in REFUSED_STATUSES)
                for kind in HTTP
            }
            requests = {
                kind: tuple(who for who in WHO if not _refuses(admin_error(admin_port, kind, who, next(sources))))
                for kind in ADMIN
            }
    return packets | routes | requests


def main() -> int:
    """Print the table; return 1 if a line is not as expected."""
    wrong = 0
    sys.stdout.write(f"{'request':30}{''.join(f'{who:11}' for who in WHO)}".rstrip() + "\n")
    for name, allowed in walk().items():
        cells = "".join(f"{'allowed' if who in allowed else 'refused':11}" for who in WHO)
        expected = {**PACKETS, **HTTP, **ADMIN}[name]
        wrong += allowed != expected
        note = "" if allowed == expected else f"expected: {', '.join(expected) or 'nobody'}"
        sys.stdout.write(f"{name:30}{cells}{note}".rstrip() + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
