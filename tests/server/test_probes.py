"""/healthz and /readyz, asked with bytes of HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from canal_ha.accounts.account import Accounts
from canal_ha.accounts.parse import parse
from canal_ha.model.unready import Unready
from canal_ha.server.counters import RequestCounters
from canal_ha.server.entrance import Entrance
from canal_ha.server.metrics import CanalCollector, MetricsPage
from canal_ha.server.probes import Probes
from canal_ha.server.site import QuietSite
from lab.gate import ACCOUNTS

MISSING = (
    Unready("", "ZooKeeper is not connected"),
    Unready("payments", "payments has no owner"),
    Unready("payments", "its file is refused"),
    Unready("orders", "orders has no owner"),
)


def ask(first: str, *unready: Unready, serves: bool = True) -> tuple[int, str, dict[str, Any] | None]:
    """Send a request of a node with accounts; return the code, the head and the JSON of the body."""
    entrance = Entrance(lambda: Accounts(parse(ACCOUNTS, "accounts.toml")), Clock())
    page = MetricsPage(CanalCollector(list, RequestCounters(lambda name: True)), entrance)
    site: Any = QuietSite(page, entrance, Probes(lambda: unready, lambda missing: serves))
    site.startFactory()
    protocol: Any = site.buildProtocol(None)
    transport = StringTransport(peerAddress=IPv4Address("TCP", "10.0.0.9", 54321))
    protocol.makeConnection(transport)
    protocol.dataReceived(f"{first} HTTP/1.1\r\nHost: lb.example\r\nConnection: close\r\n\r\n".encode())
    protocol.connectionLost(None)
    site.stopFactory()
    head, _, body = transport.value().partition(b"\r\n\r\n")
    told = json.loads(body) if body.startswith(b"{") else None
    return int(head.split()[1]), head.decode().lower(), told


def test_a_node_that_serves_everything_is_ready() -> None:
    """A load balancer asks under any host name, and has no login."""
    assert ask("GET /readyz")[::2] == (200, {"ready": True, "reasons": []})


@pytest.mark.parametrize("request_line", ["GET /readyz", "GET /metrics", "GET /nothing"])
def test_no_answer_names_the_software_below_the_node(request_line: str) -> None:
    """Probes and metrics told everybody the version of Twisted."""
    head = ask(request_line)[1]
    assert "server: canal-ha" in head
    assert "twisted" not in head


def test_a_node_that_does_not_serve_everything_says_why_and_names_no_destination() -> None:
    """A stranger learns how many, not which. The process lives all the same."""
    code, _, body = ask("GET /readyz", *MISSING, serves=False)
    reasons = ["ZooKeeper is not connected", "destinations that should run and do not: 2"]
    assert (code, body) == (503, {"ready": False, "reasons": reasons})
    assert ask("GET /healthz", *MISSING)[::2] == (200, {"alive": True})


@pytest.mark.parametrize(("path", "code"), [("/readyz", 200), ("/readyz?strict", 503), ("/readyz?strict=1", 503)])
def test_a_destination_that_does_not_run_takes_traffic_away_only_if_asked_strictly(path: str, code: int) -> None:
    """One bad file made every node of a cluster unready, so a load balancer had none. The body tells it anyway."""
    answered, _, body = ask(f"GET {path}", *MISSING[1:])
    assert (answered, body) == (code, {"ready": code == 200, "reasons": ["destinations that should run and do not: 2"]})
    assert ask(f"GET {path}")[::2] == (200, {"ready": True, "reasons": []})


@pytest.mark.parametrize(("request_line", "code"), [("HEAD /readyz", 503), ("HEAD /healthz", 200)])
def test_head_has_the_code_alone(request_line: str, code: int) -> None:
    """Some load balancers ask so."""
    assert ask(request_line, *MISSING, serves=False)[::2] == (code, None)


def test_a_probe_changes_nothing() -> None:
    """Another method is refused."""
    code, head, _ = ask("DELETE /healthz")
    assert code == 405
    assert "allow: get, head" in head


@pytest.mark.parametrize("path", ["/readyz/", "/readyz/x", "//readyz", "/READYZ"])
def test_no_other_path_is_a_probe(path: str) -> None:
    """They reach the page, which asks for a login."""
    assert ask(f"GET {path}")[0] == 401
