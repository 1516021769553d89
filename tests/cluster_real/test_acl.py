"""zk/acl.sh, as docs/how-to/change-the-zookeeper-account.md tells operators to use it."""

from __future__ import annotations

import dataclasses
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from canal_ha.config.model import NOBODY, ZooKeeperAccess
from canal_ha.errors import TransactionRefused
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, SetData
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import ZooKeeper
from lab import zookeeper as lab_zookeeper
from lab.certificates import Authority
from lab.zookeeper import tls_settings

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parents[2] / "zk" / "acl.sh"
CURSOR = tree.cursor("example", 1001)
_chroots = itertools.count()


@pytest.fixture
def hosts(zookeeper: ZooKeeper) -> str:
    """Return the servers with a chroot of its own."""
    return f"{zookeeper.hosts}/acl{next(_chroots)}"


def acl(hosts: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script."""
    return subprocess.run(
        ["bash", str(SCRIPT), hosts],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[str, ZooKeeperAccess, dict[str, str]]]:
    """Yield servers that want a certificate, the access of a node, and the environment in which zkCli reaches them."""
    authority = Authority(tmp_path)
    client_file = authority.sign("node")
    port, settings = tls_settings(authority)
    zkcli = tmp_path / "zkCli.sh"  # Debian's own lacks the parts of netty that TLS needs
    jars = ":".join(
        f"/usr/share/java/{each}.jar" for each in ("zookeeper", "slf4j-nop", "netty-codec", "netty-resolver")
    )
    zkcli.write_text(f'#!/bin/sh\nexec java -cp {jars} $CLIENT_JVMFLAGS org.apache.zookeeper.ZooKeeperMain "$@"\n')
    zkcli.chmod(0o755)
    flags = {
        "zookeeper.client.secure": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keyStore.location": str(client_file),
        "zookeeper.ssl.trustStore.location": str(authority.file),
    }
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "CLIENT_JVMFLAGS": " ".join(f"-D{name}={value}" for name, value in flags.items()),
    }
    access = ZooKeeperAccess("canal:secret", ca_file=str(authority.file), cert_file=str(client_file))
    with ZooKeeper(settings=settings):
        yield f"127.0.0.1:{port}", access, environment


def make(hosts: str, access: ZooKeeperAccess, client_ids: Sequence[int] = (1001,)) -> None:
    """Make what a node makes."""
    with BlockingZnodes(hosts, access, read_only=False) as znodes:
        znodes.ensure(tree.destination_members("example"))
        for client_id in client_ids:
            znodes.transaction([Create(tree.client("example", client_id)), Create(tree.cursor("example", client_id))])


def works(hosts: str, access: ZooKeeperAccess, client_ids: Sequence[int] = (1001,)) -> bool:
    """Return whether a node with this account can run the destination: write each cursor, and claim."""
    try:
        with BlockingZnodes(hosts, access, read_only=False) as znodes:
            znodes.transaction([Create(tree.running("example"), b"{}"), SetData(tree.destination("example"), b"")])
            znodes.transaction([SetData(tree.cursor("example", each), b"{}") for each in client_ids])
            znodes.transaction([Delete(tree.running("example"))])
    except TransactionRefused as error:
        if "no rights" not in str(error):
            raise
        return False
    return True


def test_the_script_closes_the_tree(hosts: str) -> None:
    """Afterwards only a session with the account reads and writes the tree. A second run changes nothing."""
    make(hosts, ZooKeeperAccess())
    for _ in range(2):
        done = acl(hosts, ZK_AUTH="canal:secret")
        assert (done.returncode, done.stderr) == (0, "")
        assert "digest,canal:" in done.stdout
    with lab_zookeeper.session(hosts) as stranger, pytest.raises(NoAuthError):
        stranger.get(CURSOR)
    assert works(hosts, ZooKeeperAccess("canal:secret"))
    assert not works(hosts, ZooKeeperAccess())


def test_the_first_account_comes_without_a_moment_in_which_a_node_lacks_a_right(hosts: str) -> None:
    """Nodes restart one after the other; the script closes what all of them have made."""
    make(hosts, ZooKeeperAccess())
    both = ZooKeeperAccess("canal:new", before=NOBODY)
    make(hosts, both, [1002])
    assert all(works(hosts, access, [1001, 1002]) for access in (ZooKeeperAccess(), both))
    new = ZooKeeperAccess("canal:new")
    make(hosts, new, [1003])
    assert all(works(hosts, access, [1001, 1002, 1003]) for access in (both, new))
    assert acl(hosts, ZK_AUTH="canal:new").returncode == 0
    assert works(hosts, new, [1001, 1002, 1003])
    assert not works(hosts, ZooKeeperAccess())


def test_the_account_changes_without_a_moment_in_which_a_node_lacks_a_right(hosts: str) -> None:
    """With both accounts in the tree, nodes with either run the cluster; at the end the former one has no right."""
    old, new = ZooKeeperAccess("canal:former"), ZooKeeperAccess("canal:new")
    make(hosts, old)
    both = ZooKeeperAccess("canal:new", before="canal:former")
    make(hosts, both, [1002])
    assert all(works(hosts, access, [1001, 1002]) for access in (old, both))
    assert acl(hosts, ZK_AUTH="canal:new", ZK_AUTH_OLD="canal:former").returncode == 0
    assert all(works(hosts, access, [1001, 1002]) for access in (old, both, new))
    make(hosts, new, [1003])
    assert all(works(hosts, access, [1001, 1002, 1003]) for access in (both, new))
    assert acl(hosts, ZK_AUTH="canal:new").returncode == 0
    assert works(hosts, new, [1001, 1002, 1003])
    assert not works(hosts, old)


def test_the_tree_belongs_to_no_certificate(secured: tuple[str, ZooKeeperAccess, dict[str, str]]) -> None:
    """ZooKeeper takes auth:: for all ids of a session, with the subject of the certificate of zkCli."""
    hosts, access, environment = secured
    make(hosts, dataclasses.replace(access, digest=""))
    done = acl(hosts, ZK_AUTH="canal:secret", **environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert works(hosts, access)
    assert not works(hosts, dataclasses.replace(access, digest=""))


def test_who_runs_a_destination_stays_readable_at_every_moment(hosts: str) -> None:
    """canal's Java clients would end with NoAuth."""
    make(hosts, ZooKeeperAccess())
    members = tree.destination_members("example")
    with lab_zookeeper.session(hosts) as stranger:
        first = stranger.get_acls(members)[1].aversion
        assert acl(hosts, ZK_AUTH="canal:secret", ZK_WORLD_READ="true").returncode == 0
        with lab_zookeeper.session(hosts, auth_data=[("digest", "canal:secret")]) as owner:
            assert owner.get_acls(members)[1].aversion == first + 1


@pytest.mark.parametrize("account", ["canal:geheimnis-ä", "ca,nal:secret"])
def test_an_account_that_would_lock_everybody_out_is_refused(hosts: str, account: str) -> None:
    """A server may decode it in another encoding, or zkCli may take it apart."""
    make(hosts, ZooKeeperAccess())
    assert acl(hosts, ZK_AUTH=account).returncode == 2
    assert works(hosts, ZooKeeperAccess())


def test_a_znode_that_keeps_other_rights_fails_the_script(hosts: str) -> None:
    """zkCli reports success whatever ZooKeeper answers. The script names the znode; the former account helps."""
    make(hosts, ZooKeeperAccess())
    with lab_zookeeper.session(hosts) as client:
        client.set_acls(CURSOR, [make_digest_acl("canal", "former", all=True)])
    done = acl(hosts, ZK_AUTH="canal:new")
    assert done.returncode == 1
    assert CURSOR in done.stderr.splitlines()
    assert acl(hosts, ZK_AUTH="canal:new", ZK_AUTH_OLD="canal:former").returncode == 0
    assert acl(hosts, ZK_AUTH="canal:new").returncode == 0


def test_a_wrong_password_fails_the_script(hosts: str) -> None:
    """Nothing has changed then. So it is with a path that has no znodes."""
    make(hosts, ZooKeeperAccess("canal:secret"))
    done = acl(hosts, ZK_AUTH="canal:guessed")
    assert done.returncode == 1
    assert "Insufficient permission" in done.stderr
    assert works(hosts, ZooKeeperAccess("canal:secret"))
    assert acl(f"{hosts}/elsewhere", ZK_AUTH="canal:secret").returncode == 1


def test_who_runs_a_destination_stays_readable_if_asked_for(hosts: str) -> None:
    """As with canal.zookeeper.world.read; the script closes it otherwise."""
    make(hosts, ZooKeeperAccess())
    done = acl(hosts, ZK_AUTH="canal:secret", ZK_WORLD_READ="true")
    assert (done.returncode, done.stderr) == (0, "")
    with lab_zookeeper.session(hosts) as stranger:
        assert stranger.get_children(tree.destination_members("example")) == []
        with pytest.raises(NoAuthError):
            stranger.get(CURSOR)
        assert acl(hosts, ZK_AUTH="canal:secret").returncode == 0
        with pytest.raises(NoAuthError):
            stranger.get_children(tree.destination_members("example"))
