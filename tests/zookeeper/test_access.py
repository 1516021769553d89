"""Credentials, TLS and rights at a real ZooKeeper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import Permissions

from canal_ha.cluster.rights import open_znodes
from canal_ha.config.model import NOBODY, ZooKeeperAccess
from canal_ha.errors import ZnodeDenied, ZooKeeperUnavailable
from canal_ha.zookeeper import reading, tree
from canal_ha.zookeeper.operations import Create, SetData
from canal_ha.zookeeper.port import ended
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import ZooKeeper
from lab.certificates import Authority
from lab.zookeeper import session, tls_settings
from tests.zookeeper.stage import RealStage, on_reactor, wait_until

pytestmark = pytest.mark.real

DESTINATION = tree.destination("example")
SASL = ZooKeeperAccess(sasl="canal:secret")
SASL_PROVIDER = "authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
LOGIN_MODULE = 'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_canal="{}"; }};\n'


def make(znodes: BlockingZnodes) -> None:
    """Make one node of each kind, as nodes of a cluster do."""
    znodes.ensure(tree.destination_members("example"))
    znodes.transaction(
        [
            Create(tree.running("example"), b"{}"),
            Create(tree.destination_member("example", "n:1")),
            Create(tree.client("example", 1001)),
            Create(tree.cursor("example", 1001), b"{}"),
        ]
    )


@pytest.fixture
def stranger(zookeeper: ZooKeeper) -> Iterator[KazooClient]:
    """Yield a session without credentials."""
    with session(zookeeper.hosts) as client:
        yield client


def test_everybody_reads_who_runs_a_destination_if_the_key_says_so(zookeeper: ZooKeeper, stranger: KazooClient) -> None:
    """`running` and `cluster` are readable for canal's clients; nobody may change them, or read anything else."""
    root = "/world"
    with BlockingZnodes(f"{zookeeper.hosts}{root}", ZooKeeperAccess("u:p", world_read=True), read_only=False) as znodes:
        make(znodes)
        assert open_znodes(znodes, ["example"]) == ""
    assert stranger.get(root + tree.running("example"))[0] == b"{}"
    assert stranger.get_children(root + tree.destination_members("example")) == ["n:1"]
    assert stranger.get(root + tree.destination_member("example", "n:1"))[0] == b""
    for path in (tree.cursor("example", 1001), tree.client("example", 1001), DESTINATION, tree.DESTINATIONS):
        with pytest.raises(NoAuthError):
            stranger.get(root + path)
    for path in (tree.running("example"), tree.destination_member("example", "n:1")):
        with pytest.raises(NoAuthError):
            stranger.set(root + path, b"")
    with pytest.raises(NoAuthError):
        stranger.create(root + tree.destination_member("example", "mine:1"))


def test_open_znodes_are_named_with_the_command_that_closes_them(zookeeper: ZooKeeper) -> None:
    """Nodes without credentials made them before."""
    hosts = f"{zookeeper.hosts}/open"
    with BlockingZnodes(hosts, read_only=False) as znodes:
        make(znodes)
    with BlockingZnodes(hosts, ZooKeeperAccess("u:p")) as znodes:
        warning = open_znodes(znodes, ["example"])
    assert warning.startswith(f"everybody may change {tree.ROOT}, ")
    assert "zk/acl.sh" in warning


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """Yield a ZooKeeper with an account for SASL DIGEST-MD5."""
    jaas = tmp_path_factory.mktemp("zookeeper") / "jaas.conf"
    jaas.write_text(LOGIN_MODULE.format("secret"))
    with ZooKeeper(settings=SASL_PROVIDER, java=[f"-Djava.security.auth.login.config={jaas}"]) as server:
        yield server


def test_znodes_of_a_sasl_account_are_its_own(guarded: ZooKeeper) -> None:
    """The account reads and writes them; nobody else does, and a wrong password does not connect."""
    with BlockingZnodes(guarded.hosts, SASL, read_only=False) as znodes:
        make(znodes)
        assert open_znodes(znodes, ["example"]) == ""
    with BlockingZnodes(guarded.hosts) as znodes, pytest.raises(ZooKeeperUnavailable, match="denies access"):
        znodes.get(tree.cursor("example", 1001))
    with BlockingZnodes(guarded.hosts, SASL) as znodes:
        assert znodes.get(tree.cursor("example", 1001)) is not None
    wrong = ZooKeeperAccess(sasl="canal:wrong")
    with pytest.raises(ZooKeeperUnavailable, match=r"canal\.zookeeper\.sasl"), BlockingZnodes(guarded.hosts, wrong):
        pass


def test_a_node_connects_after_zookeeper_has_ended_its_login(tmp_path: Path) -> None:
    """kazoo gives up for good then, also if a server only stops during a login. The node makes a new kazoo client."""
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(LOGIN_MODULE.format("another"))
    with ZooKeeper(settings=SASL_PROVIDER, java=[f"-Djava.security.auth.login.config={jaas}"]) as server:
        stage = RealStage(server.hosts, timeout_ms=1000, access=SASL)
        session = stage.open()
        on_reactor(session.start)
        wait_until(lambda: ended(session._port._client) != "", 15.0)
        server.kill()
        jaas.write_text(LOGIN_MODULE.format("secret"))
        server.start()
        wait_until(lambda: session.connected, 20.0)
        stage.close()


def test_tls_with_certificates_of_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is checked against the authority and its name; it asks for a certificate of the client."""
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    client_file = authority.sign("node")
    secure, settings = tls_settings(authority)
    good = ZooKeeperAccess(ca_file=str(authority.file), cert_file=str(client_file))
    with ZooKeeper(settings=settings):
        hosts = f"127.0.0.1:{secure}"
        with BlockingZnodes(hosts, good, read_only=False) as znodes:
            make(znodes)
            assert znodes.children(DESTINATION) == ("1001", "cluster", "running")
        account = replace(good, digest="canal:secret", world_read=True, before="canal:former")
        with BlockingZnodes(f"{hosts}/account", account, read_only=False) as znodes:
            make(znodes)
            for path in (tree.DESTINATIONS, tree.cursor("example", 1001), tree.running("example")):
                owners = [acl.id for acl in znodes._client.get_acls(path)[0] if acl.perms == Permissions.ALL]
                assert [each.id.partition(":")[0] for each in owners] == ["canal", "canal"], "not the certificate too"
        monkeypatch.setattr(reading, "CONNECT_MOST_S", 1.5)
        for bad in (
            ZooKeeperAccess(ca_file=str(other.file), cert_file=str(client_file)),
            ZooKeeperAccess(ca_file=str(authority.file)),
            ZooKeeperAccess(),
        ):
            with pytest.raises(ZooKeeperUnavailable):
                BlockingZnodes(hosts, bad).__enter__()


def test_nodes_with_the_old_and_with_the_new_account_run_a_cluster_together(zookeeper: ZooKeeper) -> None:
    """A node that knows both reads and writes what either has made, and what it makes is for both."""
    hosts = f"{zookeeper.hosts}/change"
    with BlockingZnodes(hosts, ZooKeeperAccess("canal:old"), read_only=False) as znodes:
        make(znodes)
    with BlockingZnodes(hosts, ZooKeeperAccess("canal:new", before="canal:old"), read_only=False) as znodes:
        znodes.transaction([SetData(tree.cursor("example", 1001), b"{ }")])
        znodes.transaction([Create(tree.client("example", 1002)), Create(tree.cursor("example", 1002), b"{}")])
    for account in ("canal:old", "canal:new"):
        with BlockingZnodes(hosts, ZooKeeperAccess(account), read_only=False) as znodes:
            znodes.transaction([SetData(tree.cursor("example", 1002), b"{ }")])
    with BlockingZnodes(hosts, ZooKeeperAccess("canal:new")) as znodes:
        assert isinstance(znodes.get_all([tree.cursor("example", 1001)])[0], ZnodeDenied)  # acl.sh changes that


def test_nodes_with_the_first_account_and_without_one_run_a_cluster_together(zookeeper: ZooKeeper) -> None:
    """As long as canal.zookeeper.auth.before is nobody, new znodes are open, also where only reading would be."""
    hosts = f"{zookeeper.hosts}/first"
    access = ZooKeeperAccess("canal:new", before=NOBODY, world_read=True)
    with BlockingZnodes(hosts, access, read_only=False) as znodes:
        make(znodes)
    with BlockingZnodes(hosts, read_only=False) as znodes:
        znodes.transaction([SetData(tree.cursor("example", 1001), b"{ }"), SetData(tree.running("example"), b"{}")])
