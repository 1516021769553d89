"""The debug bundle: what it has, and what it must not have."""

from __future__ import annotations

import json
import stat
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from canal_ha.cli import bundle as module
from canal_ha.cli.bundle import Bundle
from canal_ha.cli.bundle_parts import znodes_of
from canal_ha.cli.main import group
from canal_ha.config.effective import secrets_of
from canal_ha.config.load import load_usable
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import LocalProtocolError
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotRange, SnapshotState
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import SetData, Znode
from canal_ha.zookeeper.reading import BlockingZnodes
from lab import MariaDB, Node, ZooKeeper, follow
from tests.leaks import in_text
from tests.positions.reading import connected, rows
from tests.waiting import until


def members(file: Path) -> dict[str, str]:
    """Return the texts in a bundle, by the names below its top directory."""
    with tarfile.open(file) as archive:
        return {
            each.name.partition("/")[2]: content.read().decode()
            for each in archive.getmembers()
            if (content := archive.extractfile(each))
        }


def of_a_profile(servers: str, auth: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the znodes in a bundle for which a profile names the servers and the file with the login there."""
    (directory / "zookeeper.auth").write_text(f"{auth}\n")
    config = f'[profiles.there]\nzk = "{servers}"\nzk-auth-file = "zookeeper.auth"\n'
    (directory / "config.toml").write_text(config)
    monkeypatch.setenv("CANAL_HA_CONFIG", str(directory / "config.toml"))
    out = directory / "two.tar.gz"
    ended = CliRunner().invoke(group, ["debug", "bundle", "--profile", "there", "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(members(out)["znodes.json"])
    return found


class ThreeZnodes:
    """A cursor, the position of `parse` and a cursor that cannot be read, in the place of BlockingZnodes."""

    def __init__(self, position: str) -> None:
        self._texts = {
            tree.cursor("shop", 1001): position,
            tree.parse("shop"): position,
            tree.cursor("shop", 1002): position.replace("{", "{{", 1),
        }

    def get(self, path: str) -> Znode | None:
        """See BlockingZnodes."""
        return Znode(self._texts.get(path, "").encode(), 3)

    def children(self, path: str) -> list[str]:
        """See BlockingZnodes."""
        below = (each[len(path) + 1 :] for each in self._texts if each.startswith(f"{path}/"))
        return sorted({each.partition("/")[0] for each in below})


def test_a_bundle_has_no_keys_and_no_hashes_of_rows() -> None:
    """The state of a snapshot has keys of rows in its cursor, and the trail hashes. The places and the phase remain."""
    ranges = (SnapshotRange(0, ("0x736563726574",), ("0x736563726574",)),)
    snapshot = SnapshotState("ab12", ("shop.users",), ranges=ranges)
    at = LogPosition("bin.000001", 4, trail="hash", origins="hash", mark="mark", snapshot=snapshot.text)
    found = dict(znodes_of(cast(Any, ThreeZnodes(at.to_json(with_type=True))), Bundle()))
    text = json.dumps(found)
    assert all(secret not in text for secret in ("736563726574", "hash", '"mark'))
    for path in (tree.cursor("shop", 1001), tree.parse("shop")):
        shown = LogPosition.from_json(found[path]["text"])
        assert shown == at
        assert SnapshotState.from_text(shown.snapshot) == replace(snapshot, ranges=())
    assert found[tree.cursor("shop", 1002)]["error"].startswith("it cannot be read: ")


@pytest.mark.real
def test_a_bundle_of_a_node_and_its_cluster_has_no_secret(
    mariadb: MariaDB, zookeeper: ZooKeeper, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every secret of the configuration is looked for in every file, although the log, a znode and a URL have it."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    own = f"{database}_user"
    secrets = {
        "dbPassword": 'db"secret-7é',
        "zookeeper": "zk-secret-8",
        "tsdb": "tsdb-secret-9",
        "jaas": "jaas-secret-10",
        "hash key": "hash-key-secret-of-16",
        "placeholder": "from-a-file-11",
        "url": "url-secret-12",
        "canal.passwd": "E3619321C1A937C46A0D8BD1DAC39F93B27D4458",
    }
    mariadb.execute(
        f"CREATE USER {own}@'%' IDENTIFIED BY '{secrets['dbPassword']}'",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {own}@'%'",
    )
    (tmp_path / "secret").write_text(secrets["placeholder"])
    hosts = f"{zookeeper.hosts}/{database}"
    jaas = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{secrets["jaas"]}";'
    )
    instance = {
        **follow(mariadb),
        "canal.instance.dbUsername": own,
        "canal.instance.dbPassword": secrets["dbPassword"],
        "canal.instance.tsdb.dbPassword": secrets["tsdb"],
        "canal.instance.privacy.key": secrets["hash key"],
        "my.own.name": f"${{file:{tmp_path}/secret}}",
        "canal.proxy": f"http://somebody:{secrets['url']}@127.0.0.1:1/",
    }
    properties = {
        "canal.zookeeper.auth": f"owner:{secrets['zookeeper']}",
        "kafka.sasl.jaas.config": jaas,
        "canal.user": "canal",
        "canal.passwd": secrets["canal.passwd"],
    }
    node = Node({"example": instance}, zk_servers=hosts, properties=properties, login=("canal", "canal"))
    out = tmp_path / "one.tar.gz"
    (tmp_path / "password").write_text("canal\n")
    login = ("--user", "canal", "--password-file", str(tmp_path / "password"))
    with node:
        with BlockingZnodes(hosts, ZooKeeperAccess(properties["canal.zookeeper.auth"]), read_only=False) as znodes:
            znodes.ensure(tree.client("example", 7))
            znodes.transaction([SetData(tree.client("example", 7), b"x")])
            znodes.ensure(tree.client_filter("example", 7))
            znodes.transaction([SetData(tree.client_filter("example", 7), secrets["zookeeper"].encode())])
            until(lambda: znodes.get(tree.running("example")), what="an owner")
        with (node.conf.parent / "logs" / "canal" / "canal.log").open("a") as log:
            log.writelines(f"WARN test.said it={json.dumps(secret)} or {secret}\n" for secret in secrets.values())
        elsewhere = of_a_profile(hosts, properties["canal.zookeeper.auth"], tmp_path, monkeypatch)
        known = secrets_of(load_usable(node.conf, (), {}))
        ended = CliRunner().invoke(group, ["debug", "bundle", "--conf", str(node.conf), "--out", str(out), *login])
    assert ended.exit_code == 0, ended.output
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    has = members(out)
    assert {*secrets.values()} <= known
    wanted = {f"configured {number}": text for number, text in enumerate(known) if len(text) >= module.SHORTEST_SECRET}
    for name, text in (*has.items(), ("output", ended.output)):
        assert in_text(secrets | wanted, text, name) == set()
    assert "test.said it=" in has["logs/canal/canal.log"]
    assert has["logs/canal/canal.log"].count("***") >= 2 * len(secrets)
    assert json.loads(has["znodes.json"])["/otter/canal/destinations/example/7/filter"]["text"] == "***"
    assert elsewhere["/otter/canal/destinations/example/7/filter"]["text"] == "***"
    assert node.address in json.loads(has["znodes.json"])["/otter/canal/destinations/example/running"]["text"]
    values = {each["key"]: each["value"] for each in json.loads(has["configuration/example.json"])}
    assert (values["canal.instance.dbUsername"], values["canal.instance.dbPassword"]) == (own, "***")
    assert json.loads(has["status.json"])["node"]["address"] == node.address
    assert json.loads(has["cluster.json"])["nodes"][0]["address"] == node.address
    assert "# TYPE canal" in has["metrics.txt"]
    assert json.loads(has["about.json"])["canal_ha"]
    assert all(name in ended.output for name in has if name != "listing.json")


@pytest.mark.real
def test_a_bundle_is_made_of_what_there_is(
    mariadb: MariaDB, zookeeper: ZooKeeper, database: str, tmp_path: Path
) -> None:
    """A node that is stopped, and a cluster seen from elsewhere, give what they can; the rest is named."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id int PRIMARY KEY)")
    hosts = f"{zookeeper.hosts}/{database}"
    with Node({"example": follow(mariadb)}, zk_servers=hosts) as node, connected(node, database) as client:
        mariadb.execute(f"INSERT INTO {database}.t VALUES (1)")
        rows(client, 1)
        node.stop()
        for number, where in enumerate((("--conf", str(node.conf)), ("--zk", hosts))):
            out = tmp_path / f"{number}.tar.gz"
            ended = CliRunner().invoke(group, ["debug", "bundle", *where, "--out", str(out)])
            assert ended.exit_code == 0, ended.output
            has = members(out)
            assert (
                "mysql-bin" in json.loads(has["znodes.json"])["/otter/canal/destinations/example/1001/cursor"]["text"]
            )
            assert ("instance.started" in has.get("logs/example/example.log", "")) is (where[0] == "--conf")
            assert ("missing  status.json: " in ended.output) is (where[0] == "--conf")
            assert "status.json" not in has
        again = CliRunner().invoke(group, ["debug", "bundle", "--zk", hosts, "--out", str(out)])
        assert isinstance(again.exception, LocalProtocolError)
        assert "File exists" in str(again.exception)


def test_a_bundle_has_the_log_of_a_destination_whose_file_is_refused(tmp_path: Path) -> None:
    """It was left out, although it is the one in trouble. The passwords of its file are hidden there, too."""
    conf, out = tmp_path / "conf", tmp_path / "made.tar.gz"
    (tmp_path / "password").write_text("from-a-file-11\n")
    texts = {
        "refused": "canal.instance.master.address = db:1\ncanal.instance.master.position = far\n"
        "canal.instance.dbPassword = plain-secret-7\n"
        f"my.own.name = ${{file:{tmp_path}/password}}\nmy.other = ${{file:{tmp_path}/nowhere}}\n"
        "canal.proxy = http://somebody:url-secret-12@127.0.0.1:1/\n",
        "unknown": "",
    }
    for name, text in texts.items():
        (conf / name).mkdir(parents=True)
        (conf / name / "instance.properties").write_text(text)
        (conf.parent / "logs" / name).mkdir(parents=True)
        (conf.parent / "logs" / name / f"{name}.log").write_text("WARN plain-secret-7 from-a-file-11 url-secret-12\n")
    (conf / "unknown" / "instance.properties").unlink()
    (conf / "unknown" / "instance.properties").mkdir()
    (conf / "canal.properties").write_text("canal.destinations = refused,unknown\n")
    ended = CliRunner().invoke(group, ["debug", "bundle", "--conf", str(conf), "--out", str(out)])
    assert ended.exit_code == 0, ended.output
    has = members(out)
    assert has["logs/refused/refused.log"] == "WARN *** *** ***\n"
    assert "logs/unknown/unknown.log" not in has
    assert "missing  logs/unknown: its file cannot be read, so nobody knows what to hide" in ended.output


def test_a_bundle_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long documents are cut, a log at its beginning; what no longer fits is named."""
    monkeypatch.setattr(module, "DOCUMENT_BYTES", 100)
    monkeypatch.setattr(module, "ALL_BYTES", 250)
    made = Bundle()
    made.hide(["the-secret"])
    made.add("a", "begin" + "x" * 200)
    made.add("b", "the-secret" * 20 + "end", tail=True)
    made.add("c", "y" * 200)
    made.add("d", "z")
    assert made.write(tmp_path / "made.tar.gz") < 2000
    has = members(tmp_path / "made.tar.gz")
    assert {name: len(text) for name, text in has.items() if name != "listing.json"} == {"a": 100, "b": 63, "c": 87}
    assert has["a"].startswith("begin")
    assert has["b"] == "***" * 20 + "end"
    assert json.loads(has["listing.json"])["missing"] == ["d: the bundle has 0 MiB already"]
    assert json.loads(has["listing.json"])["parts"][0] == ["a", 100, 105]


def test_it_needs_to_know_of_what(tmp_path: Path) -> None:
    """Without --conf and --zk there is nothing to collect. Without the configuration the bundle is not what was meant:
    it is written, the reason is named, and the command fails.
    """
    assert "give --conf, --zk, or both" in CliRunner().invoke(group, ["debug", "bundle"]).output
    out = tmp_path / "x.tar.gz"
    ended = CliRunner().invoke(group, ["debug", "bundle", "--conf", str(tmp_path / "none"), "--out", str(out)])
    assert ended.exit_code == 1
    assert "missing  configuration: " in ended.output
    assert "has nothing of the node: correct --conf" in ended.output.splitlines()[-1]
    assert "about.json" in members(out)
