"""`canal-ha cursor` shows and moves cursors, in a running cluster and on a stopped node."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from canal_ha.client.cluster import ClusterConnector
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import CanalError, MetaWriteFailed
from canal_ha.meta.files import meta_text
from canal_ha.meta.repository import Snapshot
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.wire.scramble import secret_of
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import Node, SqlServer, ZooKeeper, follow, free_port
from lab.mysql import ADMIN
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from tests.positions.reading import connected, rows
from tests.waiting import until

ID = ("--client-id", "1001")
INSERT = "INSERT INTO {}.t VALUES ({})"


def cursor_as_installed(*arguments: str) -> tuple[int, str]:
    """Run the installed command; return its exit code and all output."""
    done = subprocess.run([PROGRAM, "cursor", *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def cursor(*arguments: str) -> tuple[int, str]:
    """Return what `cursor_as_installed` returns, without starting a process."""
    result = CliRunner().invoke(group, ["cursor", *arguments])
    if isinstance(result.exception, CanalError):
        return 1, f"{result.output}{result.exception}"
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.mark.real
def test_on_a_running_cluster(source_server: SqlServer, database: str, zookeeper: ZooKeeper) -> None:
    """The connected client continues where the command moves the cursor: an offset, also inside a transaction, a time,
    or the newest position. Positions that do not exist are refused.
    """
    server = source_server
    server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    journal, offset = server.position()
    hosts = f"{zookeeper.hosts}/{database}"
    with (
        Node({"example": follow(server)}, zk_servers=hosts) as node,
        connected(node, database) as client,
    ):
        begun = datetime.now(UTC).isoformat()
        server.execute(*(INSERT.format(database, number) for number in (1, 2)))
        assert [row.after for row in rows(client, 2)] == [{"id": 1}, {"id": 2}]
        where = ("--destination", "example", "--conf", str(node.conf))
        for to in (f"{journal}:{offset}", f"{journal}:{offset + 90}", f"time:{begun}"):
            before = node.log_file("example").count("cursor.replaced")
            code, text = cursor("set", *where, *ID, "--to", to, "--dry-run")
            assert (code, "would move from" in text) == (0, True), text
            assert node.log_file("example").count("cursor.replaced") == before
            code, text = cursor("set", *where, *ID, "--to", to, "--yes")
            assert (code, "moved from" in text) == (0, True), text
            again = rows(client, 2)
            assert [row.after for row in again][-2:] == [{"id": 1}, {"id": 2}], to
        server.execute(INSERT.format(database, 3))
        by_zk = ("--destination", "example", "--zk", hosts, *ID)
        for missing in (f"{journal}:99999999", "mysql-bin.099999:4"):
            code, text = cursor("set", *by_zk, "--to", missing, "--yes")
            assert (code, "does not exist; the binlog reaches from" in text) == (1, True), text
        code, text = cursor("set", *by_zk, "--to", f"{journal}:{offset}", "--yes")
        assert (code, "not checked" in text) == (0, False), text
        assert [row.after for row in rows(client, 3)] == [{"id": 1}, {"id": 2}, {"id": 3}]
        for refused, reason in (
            (("set", *where, *ID, "--to", f"{journal}:99999999", "--yes"), "does not exist"),
            (("set", *where, *ID, "--to", "yesterday", "--yes"), "invalid position"),
            (("set", *where, "--to", f"{journal}:{offset}", "--yes"), "give --client-id; clients of example: 1001"),
            (("set", *where, *ID, "--to", f"{journal}:{offset}"), "without a terminal, confirm with --yes"),
            (("show", *where, "--client-id", "7"), "never subscribed; clients of example: 1001"),
        ):
            code, text = cursor(*refused)
            assert code
            assert reason in text
        server.execute(INSERT.format(database, 4))
        assert cursor("reset", *where, *ID, "--yes")[0] == 0
        server.execute(INSERT.format(database, 5))
        assert [row.after for row in rows(client, 1)][-1:] == [{"id": 5}]
        code, text = cursor_as_installed("show", *where)
        assert (code, "its journal exists" in text) == (0, True), text


@pytest.mark.real
@pytest.mark.parametrize("role", ["admin", "read"])
def test_an_account_moves_a_cursor_to_a_journal_that_does_not_exist(
    mysql: SqlServer, zookeeper: ZooKeeper, database: str, tmp_path: Path, role: str
) -> None:
    """`set --zk` lets the owner check the position with either role. Without both, it says so without a Java name."""
    journal, offset = mysql.position()
    hosts = f"{zookeeper.hosts}/{database}"
    properties = {"canal.accounts.file": "../conf/accounts.toml", "canal.zookeeper.auth": "canal:x"}
    accounts = {"boss": role, "stranger": role}
    text = "".join(
        f'[accounts.{name}]\npasswords = ["{secret_of(name).hex()}"]\nroles = ["{its}"]\n'
        f'destinations = ["{"other" if name == "stranger" else "*"}"]\nclient_ids = [7]\n'
        for name, its in accounts.items()
    )
    (tmp_path / "zookeeper").write_text("canal:x\n")
    node = Node({"example": follow(mysql)}, zk_servers=hosts, properties=properties, login=("boss", "boss"))
    (node.conf / "accounts.toml").write_text(text)
    access = ZooKeeperAccess("canal:x")
    with BlockingZnodes(hosts, access, read_only=False) as znodes:
        znodes.ensure(tree.client("example", 7))
        at = LogPosition(journal, offset, address=LOOPBACK, port=mysql.port).to_json(with_type=True).encode()
        znodes.transaction([Create(tree.cursor("example", 7), at)])
    by_zk = ("--destination", "example", "--zk", hosts, "--zk-auth-file", str(tmp_path / "zookeeper"))

    def moved(account: str, to: str) -> tuple[int, str]:
        (tmp_path / account).write_text(account)
        login = ("--user", account, "--password-file", str(tmp_path / account))
        return cursor("set", *by_zk, *login, "--client-id", "7", "--to", to, "--yes")

    with node:
        until(lambda: node.running() == {"example"})
        code, text = moved("boss", "mysql-bin.099999:4")
        assert (code, "does not exist; the binlog reaches from" in text) == (1, True), text
        assert "xception" not in text
        code, text = moved("boss", f"{journal}:{offset}")
        assert (code, "not checked" in text) == (0, False), text
        code, text = moved("stranger", f"{journal}:{offset}")
        assert (code, "not checked" in text) == (0, True), text
        assert text.count("account stranger has no right on destination:example") == 1
        assert "xception" not in text


@pytest.mark.real
@pytest.mark.parametrize("place", ["file", "ZooKeeper"])
def test_the_command_asks_the_server_that_was_switched_to_last(
    mysql: SqlServer, zookeeper: ZooKeeper, database: str, tmp_path: Path, place: str
) -> None:
    """After a switch `canal-ha cursor` and `canal-ha check` follow the durable choice, not the server of the cursor."""
    gone = free_port()
    journal, offset = mysql.position()
    cursor_of_gone = LogPosition(journal, offset, 1, address=LOOPBACK, port=gone)
    switched = f"{LOOPBACK}:{mysql.port}"
    lines = [f"canal.instance.dbUsername = {ADMIN}", f"canal.instance.dbPassword = {ADMIN}"]
    lines += [f"canal.instance.master.address = {LOOPBACK}:{gone}", f"canal.instance.standby.address = {switched}"]
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "instance.properties").write_text("\n".join(lines))
    settings = ["canal.destinations = example", f"canal.file.data.dir = {tmp_path}"]
    if place == "ZooKeeper":
        hosts = f"{zookeeper.hosts}/{database}"
        settings += [
            f"canal.zkServers = {hosts}",
            "canal.instance.global.spring.xml = classpath:spring/default-instance.xml",
        ]
        with BlockingZnodes(hosts, read_only=False) as znodes:
            znodes.ensure(tree.client("example", 1001))
            data = cursor_of_gone.to_json(with_type=True).encode()
            znodes.transaction(
                [Create(tree.cursor("example", 1001), data), Create(tree.source("example"), switched.encode())]
            )
    else:
        client = {1001: ClientIdentity("example", 1001, "")}
        stored = Snapshot(client, {1001: cursor_of_gone}, servers=(switched,))
        (tmp_path / "example" / "meta.dat").write_text(meta_text("example", stored))
    (tmp_path / "canal.properties").write_text("\n".join(settings))
    where = ("--destination", "example", "--conf", str(tmp_path))
    code, text = cursor("show", *where)
    assert code == 0, text
    assert f"example reads {switched} now" in text
    text = CliRunner().invoke(group, ["check", "--conf", str(tmp_path)]).output
    assert f"client 1001 at {cursor_of_gone}: a position of {LOOPBACK}:{gone}, and example reads {switched} now" in text
    code, text = cursor("set", *where, *ID, "--to", "latest", "--yes")
    assert (code, f"to {journal}:" in text) == (0, True), text
    code, text = cursor("show", *where)
    assert "its journal exists" in text


@pytest.mark.real
def test_in_files(mysql: SqlServer, database: str) -> None:
    """The command is refused while the node runs, which would overwrite the file, and works when it is stopped."""
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    gtids = mysql.gtid_set()
    node = Node({"example": follow(mysql)})
    where = ("--destination", "example", "--conf", str(node.conf))
    with connected(node.start(), database) as client:
        mysql.execute(INSERT.format(database, 1))
        assert [row.after for row in rows(client, 1)] == [{"id": 1}]
        code, text = cursor_as_installed("set", *where, *ID, "--to", "earliest", "--yes")
        assert (code, "stop the node first" in text) == (1, True), text
    node.stop()
    code, text = cursor("set", *where, *ID, "--to", f"gtid:{gtids}", "--yes")
    assert code == 0, text
    with node.start(), connected(node, database) as client:
        assert [row.after for row in rows(client, 1)] == [{"id": 1}]


@pytest.mark.real
def test_a_client_id_is_deleted(mysql: SqlServer, zookeeper: ZooKeeper, database: str) -> None:
    """The node that runs the destination deletes it; without one, the command does. It begins anew afterwards.

    Without a node, `set --zk` says that nobody was asked about the position.
    """
    mysql.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    hosts = f"{zookeeper.hosts}/{database}"
    by_zk = ("--destination", "example", "--zk", hosts, *ID)
    with Node({"example": follow(mysql)}, zk_servers=hosts) as node:
        for _ in range(2):
            with connected(node, database):
                pass
            code, text = cursor("show", "--destination", "example", "--zk", hosts)
            assert (code, text.startswith("example, client 1001: ")) == (0, True), text
            code, text = cursor("delete", *by_zk, "--dry-run")
            assert (code, "would delete the client id, its cursor" in text) == (0, True), text
            code, text = cursor("delete", *by_zk, "--yes")
            assert (code, "deleted, its cursor" in text) == (0, True), text
            code, text = cursor("delete", *by_zk, "--yes")
            assert (code, "never subscribed; clients of example: none" in text) == (1, True), text
        with connected(node, database):
            pass
        node.stop()
    code, text = cursor("set", *by_zk, "--to", "mysql-bin.099999:4", "--yes")
    assert code == 0
    assert "not checked: whether the source has mysql-bin.099999:4: no node runs example. With --conf" in text
    code, text = cursor("delete", *by_zk, "--yes")
    assert (code, "deleted" in text) == (0, True), text
    with BlockingZnodes(hosts) as znodes:
        assert znodes.get(tree.client("example", 1001)) is None


@pytest.mark.real
def test_a_forged_cursor_in_zookeeper_cannot_steer_the_operators_terminal(zookeeper: ZooKeeper, database: str) -> None:
    """`show`, `set` and its refusals print escapes for what steers a terminal."""
    hosts = f"{zookeeper.hosts}/{database}"
    at = LogPosition("bin\x1b[2J\nexample, client 7: \u202e", 4)
    with BlockingZnodes(hosts, read_only=False) as znodes:
        znodes.ensure(tree.client("example", 1001))
        znodes.transaction([Create(tree.cursor("example", 1001), at.to_json(with_type=True).encode())])
    by_zk = ("--destination", "example", "--zk", hosts)
    for words, said in (
        (("show",), "example, client 1001: bin"),
        (("set", *ID, "--to", "mysql-bin.000001:4", "--dry-run"), "would move from bin"),
        (("set", *ID, "--to", "mysql-bin.000001:4"), "would move from bin"),
        (("set", *ID, "--to", "2/mysql-bin.000001:4", "--yes"), "the cursor is bin"),
        (("set", *ID, "--to", "mysql-bin.000001:4", "--yes"), "moved from bin"),
    ):
        _, text = cursor(words[0], *by_zk, *words[1:])
        assert rf"{said}\x1b[2J\nexample, client 7: \u202e:4" in text
        assert "".join(text.split("\n")).isprintable()


@pytest.mark.real
def test_a_client_id_in_use_is_not_deleted(mysql: SqlServer, zookeeper: ZooKeeper, database: str) -> None:
    """ZooKeeper names the process that is active, also while no node runs. One that begins meanwhile counts too."""
    hosts = f"{zookeeper.hosts}/{database}"
    with (
        Node({"example": follow(mysql)}, zk_servers=hosts, wait_for=["example"]) as node,
        ClusterConnector(hosts, "example", filter=r".*\\..*"),
    ):
        for stopped in (False, True):
            if stopped:
                node.stop()
            code, text = cursor("delete", "--destination", "example", "--zk", hosts, *ID, "--yes")
            assert (code, "client 1001 of example is in use by" in text) == (1, True), text
        with BlockingZnodes(hosts) as znodes, pytest.raises(MetaWriteFailed, match="stop it first"):
            CursorNodes(znodes).delete("example", 1001)
