"""`canal-ha check` finds what would keep a node from working, and says what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from canal_ha.errors import ConfigError
from canal_ha.zookeeper import reading
from lab import Node, SqlServer, ZooKeeper, follow, free_port
from lab.node import PROGRAM
from tests.positions.reading import connected


def arguments(conf: Path, sets: tuple[str, ...]) -> list[str]:
    """Return the arguments of the command."""
    return ["check", "--conf", str(conf), *(f"--set={each}" for each in sets)]


def check_as_installed(conf: Path, *sets: str) -> tuple[int, str]:
    """Run the installed command; return its exit code and all output."""
    done = subprocess.run([PROGRAM, *arguments(conf, sets)], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def check(conf: Path, *sets: str) -> tuple[int, str]:
    """Return what `check_as_installed` returns, without starting a process."""
    result = CliRunner().invoke(group, arguments(conf, sets))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


@pytest.mark.real
def test_what_it_finds(
    source_server: SqlServer, database: str, zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command passes a good configuration and names wrong passwords, missing rights, dead servers and bad paths."""
    monkeypatch.setattr(reading, "CONNECT_MOST_S", 1.0)
    server = source_server
    hosts = f"{zookeeper.hosts}/{database}"
    server.execute(f"CREATE USER {database}@'%' IDENTIFIED BY 'p'", f"CREATE DATABASE {database}")
    with Node({"example": follow(server)}, zk_servers=hosts) as node, connected(node, database):
        code, text = check_as_installed(node.conf)
        assert (code, "FAILED" in text) == (0, False), text
        assert "client 1001 at" in text
        assert "in ZooKeeper, beside the cursors" in text
        where = "canal.instance."
        unreachable = (
            f"{where}master.address=127.0.0.1:{free_port()}",
            "canal.zkServers=127.0.0.1:1",
            f"{where}tsdb.zookeeper=false",
            f"{where}tsdb.dir=/proc/nothing",
        )
        for sets, reasons in (
            ((f"{where}dbPassword=wrong",), ["check canal.instance.dbUsername"]),
            ((f"{where}dbUsername={database}", f"{where}dbPassword=p"), ["GRANT SELECT, REPLICATION SLAVE"]),
            (unreachable, ["Can't connect", "no ZooKeeper answers", "set canal.instance.tsdb.dir"]),
        ):
            code, text = check(node.conf, *sets)
            assert code == 1, text
            assert [reason for reason in reasons if reason not in text] == [], text
        with pytest.raises(ConfigError, match=r"canal\.port"):
            check(node.conf, "canal.port=many")
    server.execute(f"DROP USER {database}@'%'")


def test_a_bad_file_is_told_beside_the_others(tmp_path: Path) -> None:
    """The command prints a line for each unusable destination, with file, line and key, and still checks the others."""
    (tmp_path / "canal.properties").write_text("canal.destinations = good,bad,worse\n")
    address = f"canal.instance.master.address = 127.0.0.1:{free_port()}\n"
    added = {"good": "", "bad": "canal.instance.stream.max = 0", "worse": "canal.instance.filter.regex = ("}
    for name, line in added.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "instance.properties").write_text(address + line)
    code, text = check(tmp_path)
    assert code == 1
    lines = text.splitlines()
    assert [line for line in lines if line.startswith("FAILED   good") and "Can't connect" in line]
    expected = {"bad": "canal.instance.stream.max = '0': expected", "worse": "canal.instance.filter.regex = '('"}
    for name, what in expected.items():
        where = f"{tmp_path}/{name}/instance.properties:2"
        assert [line for line in lines if line.startswith(f"FAILED   {name}") and f"{where}: {what}" in line], text


def test_a_check_leaves_no_file_in_the_configuration(tmp_path: Path) -> None:
    """`canal-ha check` created table_history.db beside instance.properties. What is there stays as it is."""
    instance = tmp_path / "conf" / "example" / "instance.properties"
    instance.parent.mkdir(parents=True)
    (tmp_path / "conf" / "canal.properties").write_text("canal.destinations = example\n")
    instance.write_text(f"canal.instance.master.address = 127.0.0.1:{free_port()}\n")
    before = sorted(tmp_path.rglob("*"))
    _, text = check(tmp_path / "conf")
    assert sorted(tmp_path.rglob("*")) == before
    assert f"ok       example        table history  stored in files below {instance.parent}" in text, text
    file = tmp_path / "elsewhere" / "a"
    file.parent.write_text("a file, where the directory of the history should be")
    _, text = check(tmp_path / "conf", f"canal.instance.tsdb.dir={file}")
    assert "FAILED   example        table history" in text
    assert "or set canal.instance.tsdb.dir" in text


@pytest.mark.real
def test_a_lost_position(mysql: SqlServer, tmp_path: Path) -> None:
    """A cursor whose journal is purged fails the check, and the output has the command that moves the cursor."""
    with Node({"example": follow(mysql)}) as node:
        with connected(node, "x"):
            pass
        node.stop()
        file = node.conf / "example" / "meta.dat"
        file.write_text(file.read_text().replace(mysql.position()[0], "mysql-bin.999999"))
        code, text = check(node.conf)
        assert (code, "canal-ha cursor set" in text) == (1, True), text


@pytest.mark.real
def test_a_generated_column_of_a_protected_one(source_server: SqlServer, database: str) -> None:
    """It has a warning, unless it is protected as much."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.users (id int PRIMARY KEY, email varchar(60), domain varchar(60) AS"
        " (substring_index(email, '@', -1)), size int AS (length(`email`)) STORED)",
    )
    rules = {"canal.instance.privacy.mask": rf"{database}\\.users:email/size"}
    with Node({"example": follow(source_server, rules)}) as node:
        code, text = check(node.conf)
    assert code == 0
    assert f"{database}.users.domain is generated from email, which is protected more" in text
    assert "users.size" not in text
    assert "no table has" not in text


@pytest.mark.real
def test_a_protected_column_that_was_renamed(source_server: SqlServer, database: str) -> None:
    """Clients that begin behind the rename get it unprotected, so it has a warning."""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.users (id int, mail text)")
    rules = {"canal.instance.privacy.mask": rf"{database}\\.users:Email/MAIL"}
    with Node({"example": follow(source_server, rules)}) as node:
        code, text = check(node.conf)
    assert code == 0
    assert "no table has a column email that" in text
    assert "column mail" not in text
