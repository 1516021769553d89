"""Where commands send the login of an account."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer

import pytest
from click.testing import CliRunner

from canal_ha.cli import overview
from canal_ha.cli.main import group
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import fetch
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import NodeUnreachable
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create
from canal_ha.zookeeper.reading import OPEN, BlockingZnodes
from lab import ZooKeeper
from lab.certificates import Authority
from lab.node import PROGRAM
from lab.ports import LOOPBACK

LOGIN = HttpAccess("boss", "geheim")


@contextmanager
def listening(location: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a stranger's web server, and the logins that it gets. location: where it sends callers."""
    got: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got.append(self.headers.get("authorization", ""))
            self.send_response(302 if location else 404)
            self.send_header("location", location)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer((LOOPBACK, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"{LOOPBACK}:{server.server_port}", got
    server.shutdown()
    server.server_close()


def test_a_redirection_gets_no_login() -> None:
    """Only the address that the user gave gets it."""
    with listening() as (elsewhere, stolen), listening(f"http://{elsewhere}/") as (address, got):
        with pytest.raises(NodeUnreachable, match="302"):
            fetch(address, LOGIN)
        assert (len(got), stolen) == (1, [])


def test_an_address_that_is_a_file_is_not_read() -> None:
    """A znode can hold any text."""
    with pytest.raises(NodeUnreachable, match="expected host:port"):
        fetch("file:///etc/hostname#", LOGIN)


@pytest.mark.real
@pytest.mark.parametrize(
    ("znodes_of", "access", "logins"),
    [(OPEN, LOGIN, 0), (OPEN, HttpAccess(), 1), (ZooKeeperAccess("u:p"), LOGIN, 1)],
    ids=["open", "open, without a login", "of an account"],
)
def test_an_address_that_anybody_can_write_into_zookeeper_gets_no_login(
    zookeeper: ZooKeeper, znodes_of: ZooKeeperAccess, access: HttpAccess, logins: int, request: pytest.FixtureRequest
) -> None:
    """The overview says why it has no figures."""
    hosts = f"{zookeeper.hosts}/logins{abs(hash(request.node.name))}"
    with BlockingZnodes(hosts, znodes_of, read_only=False) as znodes, listening() as (address, got):
        znodes.ensure(tree.CLUSTER)
        znodes.transaction([Create(tree.member("10.0.0.1:11111"), address.encode(), ephemeral=True)])
        (node,) = overview.look(znodes, access).nodes
        assert len(got) == logins
        assert ("zk/acl.sh" in node.problem) == (not logins)


@contextmanager
def accepting() -> Iterator[tuple[str, list[str]]]:
    """Yield the address of a stranger's data port, and who has connected to it. It closes each connection."""
    got: list[str] = []

    class Handler(BaseRequestHandler):
        def handle(self) -> None:
            got.append(self.client_address[0])

    with TCPServer((LOOPBACK, 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"{LOOPBACK}:{server.server_address[1]}", got
        server.shutdown()


CASES = pytest.mark.parametrize(
    ("znodes_of", "logged_in", "tls", "connections"),
    [(OPEN, True, False, 0), (OPEN, False, False, 1), (ZooKeeperAccess("u:p"), True, False, 1), (OPEN, True, True, 1)],
    ids=["open", "open, without a login", "of an account", "open, with TLS"],
)
"""Who may change the znodes, what the command is given, and how often it connects to the node that they name."""


def access_options(directory: Path, znodes_of: ZooKeeperAccess, *, logged_in: bool, tls: bool) -> list[str]:
    """Return the command's options for a case, with their files in a directory."""
    (directory / "password").write_text("geheim\n")
    (directory / "zookeeper").write_text("u:p\n")
    options = ["--zk-auth-file", str(directory / "zookeeper")] if znodes_of is not OPEN else []
    options += ["--user", "boss", "--password-file", str(directory / "password")] if logged_in else []
    return [*options, *(["--tls-ca", str(Authority(directory).file)] if tls else [])]


@pytest.mark.real
@CASES
def test_a_data_port_that_anybody_can_write_into_zookeeper_gets_no_login(
    zookeeper: ZooKeeper,
    znodes_of: ZooKeeperAccess,
    logged_in: bool,
    tls: bool,
    connections: int,
    database: str,
    tmp_path: Path,
) -> None:
    """`canal-ha cursor --zk` refuses to delete a client id there, and moves a cursor without a check; it says why."""
    hosts = f"{zookeeper.hosts}/{database}"
    options = ["--zk", hosts, "--destination", "example", "--client-id", "1001", "--yes"]
    options += access_options(tmp_path, znodes_of, logged_in=logged_in, tls=tls)
    with BlockingZnodes(hosts, znodes_of, read_only=False) as znodes, accepting() as (address, got):
        running, cursor = tree.running("example"), tree.cursor("example", 1001)
        znodes.ensure(tree.client("example", 1001))
        znodes.transaction(
            [
                Create(running, tree.RunningData(address).to_bytes(), ephemeral=True),
                Create(cursor, LogPosition("bin.000001", 4).to_json(with_type=True).encode()),
            ]
        )
        deleted = CliRunner().invoke(group, ["cursor", "delete", *options])
        assert isinstance(deleted.exception, NodeUnreachable) == (not connections), deleted.exception
        assert ("zk/acl.sh" in str(deleted.exception)) == (not connections)
        assert len(got) == connections
        moved = CliRunner().invoke(group, ["cursor", "set", *options, "--to", "bin.000002:4"])
        assert moved.exit_code == 0, moved.output
        assert ("not sent" in moved.output) == (not connections)
        assert len(got) == 2 * connections


@pytest.mark.real
@CASES
def test_a_reader_sends_no_login_to_a_node_that_anybody_can_write_into_zookeeper(
    zookeeper: ZooKeeper,
    znodes_of: ZooKeeperAccess,
    logged_in: bool,
    tls: bool,
    connections: int,
    database: str,
    tmp_path: Path,
) -> None:
    """`canal-ha client --zk` sent it to any address. It ends with the reason and names `--server`."""
    hosts = f"{zookeeper.hosts}/{database}"
    options = ["client", "--zk", hosts, "--destination", "example", "--idle-exit", "3"]
    options += access_options(tmp_path, znodes_of, logged_in=logged_in, tls=tls)
    with BlockingZnodes(hosts, znodes_of, read_only=False) as znodes, accepting() as (address, got):
        znodes.ensure(tree.destination("example"))
        znodes.transaction([Create(tree.running("example"), tree.RunningData(address).to_bytes(), ephemeral=True)])
        ended = subprocess.run([PROGRAM, *options], capture_output=True, text=True, timeout=60, check=False)
    assert bool(got) == bool(connections), ended.stderr
    assert ("the login was not sent to the nodes of example" in ended.stderr) == (not connections), ended.stderr
    assert ("with --server" in ended.stderr) == (not connections)
