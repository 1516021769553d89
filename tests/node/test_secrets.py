"""A real node with random secrets from files in all places: none of them is anywhere else."""

from __future__ import annotations

import secrets
import subprocess
from pathlib import Path
from urllib.request import Request

import pytest

from canal_ha.client.http_access import HttpAccess
from canal_ha.config.load import load
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.wire.scramble import secret_of
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import MariaDB, Node, ZooKeeper, follow
from lab import process as lab_process
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from tests import leaks
from tests.waiting import until

pytestmark = pytest.mark.real


def run(*arguments: str) -> str:
    """Return what a command prints, whatever its exit code is."""
    done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=60)
    return done.stdout + done.stderr


def znodes(servers: str, auth: str) -> str:
    """Return paths and data of all znodes that the node made."""
    with BlockingZnodes(servers, ZooKeeperAccess(digest=auth)) as tree:
        paths, texts = ["/otter"], []
        for path in paths:
            found = tree.get(path)
            texts.append(f"{path} {found.data!r}" if found else path)
            paths += [f"{path}/{child}" for child in tree.children(path)]
    assert any("running" in text for text in texts)
    return "\n".join(texts)


class SecretNode(Node):
    """A node that gets one of its secrets from --set."""

    def command(self) -> list[str]:
        return [*super().command(), "--set", f"canal.zookeeper.auth=canal:${{file:{self.conf}/secrets/zookeeper}}"]


def test_no_secret_leaves_its_file(mariadb: MariaDB, zookeeper: ZooKeeper, database: str) -> None:
    """Passwords of the source, of the table history, of ZooKeeper and of accounts; also of a source that refuses them.

    They are in no process's command line or environment, log, status, metrics, znode, output of a command, or repr.
    """
    names = ("source", "refused", "history", "zookeeper", "account")
    known = {name: f"s3cret-{secrets.token_hex(12)}" for name in names}
    mariadb.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT AUTO_INCREMENT PRIMARY KEY)",
        f"CREATE USER '{database}'@'%' IDENTIFIED BY '{known['source']}'",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{database}'@'%'",
    )
    servers = f"{zookeeper.hosts}/{database}"
    own = {"canal.instance.dbUsername": database}
    node = SecretNode(
        {
            "example": follow(mariadb, {**own, "canal.instance.dbPassword": "${file:../secrets/source}"}),
            "refused": follow(
                mariadb,
                {
                    **own,
                    "canal.instance.dbPassword": "${file:../secrets/refused}",
                    "canal.instance.tsdb.url": f"jdbc:mysql://{mariadb.address}/{database}",
                    "canal.instance.tsdb.dbUsername": database,
                    "canal.instance.tsdb.dbPassword": "${file:../secrets/history}",
                },
            ),
        },
        zk_servers=servers,
        properties={"canal.accounts.file": "../conf/accounts.toml"},
        login=("boss", known["account"]),
        wait_for={"example"},
    )
    folder = node.conf / "secrets"
    folder.mkdir()
    for name, text in known.items():
        (folder / name).write_text(f"{text}\n")
    known["hash"] = secret_of(known["account"]).hex()
    (folder / "hash").write_text(f"{known['hash']}\n")
    (node.conf / "accounts.toml").write_text(
        '[accounts.boss]\nroles = ["read", "admin"]\ndestinations = ["*"]\npasswords = ["${file:secrets/hash}"]\n'
    )
    auth = ("--user", "boss", "--password-file", str(folder / "account"))
    with node:
        own_client = ("client", "--server", node.address, "--destination", "example", "--user", "boss")
        placeholder = f"${{file:{folder}/account}}"
        run(*own_client, "--password", placeholder, "--filter", rf"{database}\.t", "--idle-exit", "1")
        mariadb.execute(f"INSERT INTO {database}.t VALUES ()")
        got = run(*own_client, "--password", placeholder, "--filter", rf"{database}\.t", "--max-rows", "1")
        assert database in got
        refused = run(*own_client[:-1], "refused", "--password", placeholder, "--idle-exit", "1")
        until(lambda: "Access denied" in node.log_file("refused"), what="a refused login")
        found = leaks.in_processes(known)
        url = f"http://{LOOPBACK}:{node.admin_port}"
        access = HttpAccess("boss", known["account"])
        texts = {"status": str(node.status()), "client": got + refused, "repr of the access": repr(access)}
        with access.opener().open(Request(f"http://{LOOPBACK}:{node.metrics_port}/metrics"), timeout=10) as answer:
            texts["metrics"] = answer.read().decode()
        assert "canal_" in texts["metrics"]
        texts["status command"] = run("status", "--url", url, *auth)
        texts["check command"] = run("check", "--conf", str(node.conf))
        texts["znodes"] = znodes(servers, f"canal:{known['zookeeper']}")
        texts["repr of the configuration"] = repr(load(node.conf, [], {}))
        node.stop()
        files = [path for path in node.directory.rglob("*") if path.is_file() and folder not in path.parents]
        assert node.directory / "logs" / "example" / "example.log" in files
        found |= leaks.in_files(known, files)
        for where, text in texts.items():
            found |= leaks.in_text(known, text, where)
    assert found == set()


def test_a_password_on_the_command_line_is_warned_about(tmp_path: Path) -> None:
    """The command goes on. With a placeholder there is nothing to warn about, and a missing file is an error."""
    client = ("client", "--server", f"{LOOPBACK}:1", "--destination", "d", "--idle-exit", "1")
    (tmp_path / "password").write_text("s3cret\n")
    secret = secrets.token_hex(12)
    shown = lab_process.spawn([PROGRAM, *client[:-1], "60", "--retry", "--password", secret])
    try:
        until(lambda: leaks.in_processes({"password": secret}), what="the password in /proc")
    finally:
        shown.kill()
        shown.wait()
    assert "other users can see --password" in run(*client, "--password", "s3cret")
    assert "other users" not in run(*client, "--password", f"${{file:{tmp_path}/password}}")
    assert "expected a readable file" in run(*client, "--password", f"${{file:{tmp_path}/absent}}")
