"""A real node with accounts in a file: rights, the widest filter, a change of the file, and who reads what."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from urllib.error import HTTPError

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.snapshots import ClientSnapshot
from canal_ha.errors import ServerRefused
from canal_ha.model.snapshot import read as read_state
from canal_ha.wire.scramble import secret_of
from lab import MySQL, Node, follow
from lab.node import PROGRAM
from lab.ports import LOOPBACK, free_port
from tests.node.following import column, read
from tests.waiting import until

pytestmark = pytest.mark.real

PASSWORD, NEXT = "geheim", "geheimer"
TOKEN = "3f9a-scraper"
TOKEN_HASH = sha256(TOKEN.encode()).hexdigest()


def account(name: str, passwords: tuple[str, ...] = (PASSWORD,), **keys: str) -> str:
    hashes = ", ".join(f'"{secret_of(password).hex()}"' for password in passwords)
    return f"[accounts.{name}]\npasswords = [{hashes}]\n" + "".join(f"{key} = {keys[key]}\n" for key in keys) + "\n"


def accounts(database: str) -> str:
    return (
        account("shop", roles='["read"]', destinations='["example"]', client_ids="[1001]", filter=rf"'{database}\.a.*'")
        + account("other", roles='["read"]', destinations='["elsewhere"]')
        + account("boss", roles='["read", "admin"]', destinations='["*"]')
        + account("scraper", (), roles='["read"]', destinations='["*"]', client_ids="[]", tokens=f'["{TOKEN_HASH}"]')
    )


@pytest.fixture
def node(mysql: MySQL, database: str) -> Iterator[Node]:
    mysql.execute(
        f"CREATE DATABASE {database}",
        *(f"CREATE TABLE {database}.{name} (id int PRIMARY KEY)" for name in ("a1", "a2", "b")),
    )
    properties = {"canal.accounts.file": "../conf/accounts.toml"}
    made = Node({"example": follow(mysql)}, properties=properties, login=("boss", PASSWORD))
    (made.conf / "accounts.toml").write_text(accounts(database))
    with made:
        yield made


def connector(node: Node, name: str, password: str = PASSWORD, client_id: int = 1001) -> SimpleConnector:
    return SimpleConnector(LOOPBACK, node.port, "example", client_id, name, password)


def insert(mysql: MySQL, database: str, number: int) -> None:
    mysql.execute(*(f"INSERT INTO {database}.{name} VALUES ({number})" for name in ("b", "a2", "a1")))


def test_an_account_reads_its_tables_alone(mysql: MySQL, node: Node, database: str) -> None:
    """No filter of the client widens that of its account: neither at SUBSCRIBE, nor in a private read, nor later."""
    start = mysql.query("SHOW BINARY LOGS")[-1]
    with connector(node, "shop") as client:
        client.subscribe(rf"{database}\..*")
        insert(mysql, database, 1)
        assert column(read(client, 2)) == [1, 1]
        client.subscribe(rf"{database}\.(a1|b)")
        insert(mysql, database, 2)
        entries = read(client, 1)
        assert {row.table for row in entries} == {"a1"}
        assert column(entries) == [2]
    with SimpleConnector(LOOPBACK, node.port, "example", 1001, "shop", PASSWORD, rollback_on_connect=False) as client:
        client.read_from(f"{start['Log_name']}:{start['File_size']}", filter=rf"{database}\..*")
        assert {row.table for row in read(client, 4)} == {"a1", "a2"}
    with connector(node, "boss") as client, pytest.raises(ServerRefused, match="should subscribe first"):
        client.get_without_ack(1, 0)  # the client id of the narrow account, without its filter
    with connector(node, "boss") as client:
        client.subscribe(rf"{database}\..*")
        insert(mysql, database, 3)
        until(lambda: any(row.table == "b" for row in read(client, 1)), what="a row of the table b")


def test_what_an_account_may_not(node: Node) -> None:
    """Another destination, another client id, another password: each is refused with its reason."""
    for name, password, client_id, reason in (
        ("shop", PASSWORD, 1002, "account shop has no right on client id 1002"),
        ("other", PASSWORD, 1001, "account other has no right on destination:example"),
        ("shop", NEXT, 1001, "auth failed for user:shop"),
        ("nobody", PASSWORD, 1001, "auth failed for user:nobody"),
    ):
        with pytest.raises(ServerRefused, match=reason), connector(node, name, password, client_id) as client:
            client.subscribe()


def test_a_changed_file_counts_without_a_restart(node: Node, database: str) -> None:
    """A bad file keeps the accounts and raises an alarm with its line; a good one gives and takes rights at once."""
    file = node.conf / "accounts.toml"
    good = file.read_text()
    with connector(node, "boss") as client:
        client.subscribe()
        file.write_text(good.replace('roles = ["read"]', 'roles = ["write"]', 1))
        (alarm,) = until(lambda: node.status()["alarms"] or None, what="an alarm")
        assert (alarm["alarm"], alarm["file"], alarm["line"]) == ("refused", str(file), 3)
        assert "roles: expected a list of read and admin" in alarm["text"]
        with connector(node, "shop") as shop:
            shop.subscribe()
        file.write_text(account("boss", (PASSWORD, NEXT), roles='["admin"]', destinations='["*"]'))
        until(lambda: not node.status()["alarms"], what="the end of the alarm")
        with pytest.raises(ServerRefused, match="account boss has no role read"):
            client.get_without_ack(1, 0)
    connector(node, "boss", NEXT).connect()
    with pytest.raises(ServerRefused, match="auth failed for user:shop"):
        connector(node, "shop").connect()
    file.unlink()
    until(lambda: node.status()["alarms"], what="an alarm about the missing file")


def test_an_account_sees_no_condition_and_no_other_table_of_a_snapshot_with_the_cursor(
    node: Node, database: str
) -> None:
    """The status hid them, and the data port told them."""
    with connector(node, "boss") as client:
        client.subscribe()
    operator = HttpAccess("boss", PASSWORD)
    snapshot = ClientSnapshot("example", 1001, url=f"{LOOPBACK}:{node.admin_port}", access=operator)
    snapshot.start([f"{database}.b", f"{database}.a1"], {f"{database}.b": "id > 15"})
    with connector(node, "shop") as client:
        cursor = client.subscribe("", tell_cursor=True)
        assert cursor is not None
        state = read_state(cursor.snapshot)
        assert state is not None
        assert (state.tables, state.where) == (("***", f"{database}.a1"), {})
    with connector(node, "boss") as client:
        cursor = client.subscribe("", tell_cursor=True)
        assert cursor is not None
        state = read_state(cursor.snapshot)
        assert state is not None
        assert state.tables == (f"{database}.b", f"{database}.a1")


def test_the_status_tells_who_reads(node: Node, tmp_path: Path) -> None:
    """`readers` has account, address and client id; the command shows them; the metrics need every destination."""
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    status = [PROGRAM, "status", "--url", f"127.0.0.1:{node.admin_port}"]
    with connector(node, "shop") as client:
        client.subscribe()
        client.get_without_ack(1)
        (destination,) = node.status()["destinations"]
        assert destination["readers"] == [{"client_id": 1001, "account": "shop", "address": LOOPBACK, "private": False}]
        shown = subprocess.run(
            [
                PROGRAM,
                "status",
                "--url",
                f"127.0.0.1:{node.admin_port}",
                "--user",
                "boss",
                "--password-file",
                str(secret),
            ],
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert "example, client 1001: read by account shop at 127.0.0.1" in shown.stdout
    nobody = subprocess.run(status, capture_output=True, text=True, timeout=30)
    assert nobody.returncode
    assert "give --user and --password-file" in nobody.stderr
    address = f"http://{LOOPBACK}:{node.metrics_port}/metrics"
    for access, code in ((HttpAccess(), 401), (HttpAccess("shop", PASSWORD), 403)):
        with pytest.raises(HTTPError) as caught:
            access.opener().open(address, timeout=5)
        assert caught.value.code == code
    with HttpAccess("boss", PASSWORD).opener().open(address, timeout=5) as answer:
        assert b"canal_port_refusals{" in answer.read()


@pytest.mark.parametrize(("lines", "listens"), [
    ((), False), (("canal.insecure = true",), True), (("canal.ip = 127.0.0.1",), True),
    ((f"canal.passwd = {'0' * 40}",), True), (("canal.ip = 127.0.0.1", "canal.admin.http.bind = 0.0.0.0"), False),
    (("canal.ip = 127.0.0.1", "canal.metrics.pull.bind = 0.0.0.0"), False),
])  # fmt: skip
def test_a_node_that_others_reach_needs_accounts(tmp_path: Path, lines: tuple[str, ...], listens: bool) -> None:
    """A migrated configuration has no accounts: the node does not start, and its message has the line to add."""
    conf = tmp_path / "conf"
    conf.mkdir()
    ports = {key: free_port() for key in ("canal.port", "canal.metrics.pull.port", "canal.admin.http.port")}
    file = conf / "canal.properties"
    file.write_text("\n".join((*(f"{key} = {port}" for key, port in ports.items()), *lines, "")))
    process = subprocess.Popen(
        [PROGRAM, "server", "--conf", str(conf)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr is not None
        told = ""
        while "admin.listening" not in told:
            line = process.stderr.readline()
            told += line
            if not line:
                break
        assert ("admin.listening" in told) is listens, told
        if not listens:
            assert process.wait(20) == 2
            assert f"{file} opens a port to other machines without accounts" in told
            assert "add this line: canal.insecure = true" in told
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("key", "text", "told"), [
    ("canal.accounts.file", "[accounts.a]\nroles = ['read']\n", "bad:1: account a: destinations is missing"),
    ("canal.tls.cert", "-----BEGIN CERTIFICATE-----\nx\n", "bad cannot be used for TLS"),
])  # fmt: skip
def test_a_file_that_cannot_be_used_at_start(tmp_path: Path, key: str, text: str, told: str) -> None:
    """Without accounts read before there is nothing to go on with: the node does not start, and `check` fails."""
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "canal.properties").write_text(f"canal.ip = 127.0.0.1\n{key} = ../conf/bad\n")
    (conf / "bad").write_text(text)
    for command, code in (("server", 2), ("check", 1)):
        done = subprocess.run([PROGRAM, command, "--conf", str(conf)], capture_output=True, text=True, timeout=30)
        assert done.returncode == code
        assert told in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


def test_prometheus_scrapes_with_a_bearer_token(node: Node, tmp_path: Path) -> None:
    """The metrics and the status take the token; without it, and with another one, they refuse."""
    metrics = f"http://{LOOPBACK}:{node.metrics_port}/metrics"
    with HttpAccess(token=TOKEN).opener().open(metrics, timeout=10) as answer:
        assert b"canal_instance{" in answer.read()
    for wrong in (HttpAccess(), HttpAccess(token="another")):
        with pytest.raises(HTTPError) as caught:
            wrong.opener().open(metrics, timeout=10)
        assert caught.value.code == 401
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    url = f"http://{LOOPBACK}:{node.admin_port}"
    shown = subprocess.run(
        [PROGRAM, "status", "--url", url, "--token-file", file], capture_output=True, text=True, check=True, timeout=60
    )
    assert "example" in shown.stdout


def test_the_audit_tells_who_read_and_moved_what(mysql: MySQL, node: Node) -> None:
    """A node with accounts writes it by default: refused and accepted logins, reads, and a change of the accounts."""
    with pytest.raises(ServerRefused):
        connector(node, "shop", "wrong").connect()
    with SimpleConnector(LOOPBACK, node.port, "example", 1001, "shop", PASSWORD, rollback_on_connect=False) as client:
        client.read_from("latest")
    file = node.conf / "accounts.toml"
    file.write_text(file.read_text() + "# changed\n")
    path = node.directory / "logs" / "audit" / "audit.log"

    def found() -> list[tuple[str, str, str]]:
        lines = map(json.loads, path.read_text().splitlines())
        return [(line["action"], line["result"], line["account"]) for line in lines]

    until(lambda: ("configuration", "ok", "") in found(), what="the change of the accounts")
    assert {
        ("login", "ok", "boss"),
        ("login", "refused", "shop"),
        ("login", "ok", "shop"),
        ("read", "ok", "shop"),
        ("read ended", "ok", "shop"),
    } <= {*found()}
    assert path.stat().st_mode & 0o777 == 0o600
