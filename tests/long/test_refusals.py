"""What canal-go and canal-python do when a node refuses them: they end, with the node's text where they read it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.wire.scramble import secret_of
from lab import MySQL, Network, Node, StartFailed, follow
from lab.ports import LOOPBACK
from tests.peers import lines
from tests.peers.lines import Peer

pytestmark = pytest.mark.long

LOGIN = ("shop", "geheim")
ACCOUNTS = "".join(
    f'[accounts.{name}]\npasswords = ["{secret_of(LOGIN[1]).hex()}"]\nroles = ["read"]\ndestinations = {places}\n'
    for name, places in (("shop", ["example"]), ("other", ["elsewhere"]))
)
AUTH, NO_RIGHT, CLOSED = (
    "auth failed for user:shop",
    "no right on destination:example",
    "Could not read bytes from server",
)
TABLES = r"nowhere\.t"

Start = Callable[[Path, int, tuple[str, str]], Peer]


def golang(errors: Path, port: int, login: tuple[str, str]) -> Peer:
    return lines.golang(errors, port, "example", 1001, TABLES, 1, login)


def python(errors: Path, port: int, login: tuple[str, str]) -> Peer:
    return lines.python(errors, port, "example", 1001, TABLES, 1, login)


@pytest.fixture
def node(mysql: MySQL) -> Iterator[Node]:
    """Run a node with accounts, room for two connections and a second for a login."""
    properties = {
        "canal.accounts.file": "../conf/accounts.toml",
        "canal.client.connections.max": "2",
        "canal.client.login.timeout": "1",
    }
    made = Node({"example": follow(mysql)}, properties=properties, login=LOGIN)
    (made.conf / "accounts.toml").write_text(ACCOUNTS)
    with made:
        yield made


@pytest.mark.parametrize(("start", "wrong", "no_right"), [(golang, AUTH, NO_RIGHT), (python, CLOSED, CLOSED)])
def test_a_refused_client_ends(start: Start, wrong: str, no_right: str, node: Node, tmp_path: Path) -> None:
    """Nothing leaves a client waiting: a wrong password, a missing right, too many connections, a late login.

    canal-python sends a password in the clear, which is no hash, so that a node closes the connection, as canal does.
    """
    log = tmp_path / "log"
    for login, text in ((("shop", "wrong"), wrong), (("other", LOGIN[1]), no_right)):
        with pytest.raises(StartFailed, match=text):
            start(log, node.port, login)
    with ExitStack() as others:
        for client_id in (1, 2):
            others.enter_context(SimpleConnector(LOOPBACK, node.port, "example", client_id, *LOGIN))
        with pytest.raises(StartFailed, match="the node has 2 connections already"):
            start(log, node.port, LOGIN)
    with Network() as network:
        link = network.link(node.port)
        link.delay(1.5)
        with pytest.raises(StartFailed, match="no login within 1 s"):
            start(log, link.port, LOGIN)
