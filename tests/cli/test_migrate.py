"""`canal-ha migrate`: what becomes of each setting and file of a Java deployer."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from canal_ha.cli.check import ports
from canal_ha.cli.main import group
from canal_ha.config import differences
from canal_ha.config.keys import BY_NAME
from canal_ha.config.listeners import admin_port_refusal
from canal_ha.config.load import load
from canal_ha.config.migration import LOOPBACK
from canal_ha.errors import ConfigError

STOCK = Path(__file__).parents[1] / "config" / "stock"
META = (
    '{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"example","filter":""},"cursor":{"identity":'
    '{"slaveId":-1,"sourceAddress":{"address":"127.0.0.1","port":3306}},"postion":{"gtid":"","included":false,'
    '"journalName":"mysql-bin.000007","position":4711,"serverId":1,"timestamp":1700000000000}}}],'
    '"destination":"example"}'
)
LOGIN = ("canal.user = canal", "canal.passwd = e3619321c1a937c46a0d8bd1dac39f93b27d4458")


@pytest.fixture
def deployer(tmp_path: Path) -> Path:
    """Return the directory of a deployer with canal's stock files, a cursor and an H2 history."""
    root = tmp_path / "deployer"
    shutil.copytree(STOCK, root / "conf")
    (root / "bin").mkdir()
    (root / "bin" / "startup.sh").write_text('JAVA_OPTS="$JAVA_OPTS -Dcanal.conf=$canal_conf -DappName=otter-canal"\n')
    (root / "conf" / "spring").mkdir()
    (root / "conf" / "spring" / "file-instance.xml").write_text("<beans/>")
    (root / "conf" / "example" / "meta.dat").write_text(META)
    (root / "conf" / "example" / "h2.mv.db").write_bytes(b"H:2")
    return root


def run(*arguments: str | Path) -> Result:
    """Run `canal-ha migrate`; an error of ours is raised, and its exit code is that of the command line."""
    result = CliRunner().invoke(group, ["migrate", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit | ConfigError), result.exception
    return result


def document(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def notes(root: Path, outcome: str = "") -> dict[str, dict[str, Any]]:
    """Return the notes by key or, of files, by file."""
    found = document(root)["notes"]
    return {each["key"] or each["file"]: each for each in found if outcome in ("", each["outcome"])}


def add(root: Path, *lines: str, file: str = "canal.properties") -> None:
    with (root / "conf" / file).open("a") as out:
        out.write("\n" + "".join(f"{line}\n" for line in lines))


def content(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return the files below a directory, with their times."""
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_stock_files_need_one_line(deployer: Path, tmp_path: Path) -> None:
    """Every setting has a line of the report; the only refusal is the open port; the result is loaded as it is."""
    before = content(deployer)
    result = run(deployer, "--to", tmp_path / "conf")
    assert result.exit_code == 1
    refused = notes(deployer, "refused")
    assert list(refused) == ["canal.ip"]
    assert refused["canal.ip"]["change"] == f"canal.ip = {LOOPBACK}"
    assert (refused["canal.ip"]["file"], refused["canal.ip"]["line"]) == ("conf/canal.properties", 2)
    every = notes(deployer)
    for path in (STOCK / "canal.properties", STOCK / "example" / "instance.properties"):
        keys = [line.partition("=")[0].strip() for line in path.read_text().splitlines() if line[:1] not in "# "]
        assert [key for key in keys if key and key not in every] == []
    assert every["canal.port"]["outcome"] == "same"
    assert every["canal.instance.tsdb.url"]["outcome"] == "differs"
    assert every["canal.instance.parser.parallel"]["outcome"] == "ignored"
    assert every["rocketmq.producer.group"]["outcome"] == "ignored"
    assert every["canal.instance.dbPassword"]["value"] == "***"
    assert "client 1001 continues at mysql-bin.000007:4711" in every["conf/example/meta.dat"]["text"]
    assert "history of table definitions is not read" in every["conf/example/h2.mv.db"]["text"]
    config = load(tmp_path / "conf", [], {})
    list(ports(config))
    assert (config.ip, [each.destination for each in config.destinations]) == (LOOPBACK, ["example"])
    assert (tmp_path / "conf" / "example" / "meta.dat").read_text() == META
    assert not (tmp_path / "conf" / "example" / "h2.mv.db").exists()
    assert not (tmp_path / "conf" / "spring").exists()
    assert stat.S_IMODE((tmp_path / "conf" / "example" / "instance.properties").stat().st_mode) == 0o600
    assert content(deployer) == before


def test_a_deployer_with_a_password_needs_no_change(deployer: Path) -> None:
    """Nothing is refused, so the exit code is 0; --conf of a node may name the deployer's own conf too."""
    add(deployer, *LOGIN)
    assert run(deployer).exit_code == 0
    assert run(deployer / "conf").exit_code == 0
    assert notes(deployer)["canal.passwd"]["value"] == "***"


@pytest.mark.parametrize("layout", ["canal.properties", "canal_local.properties"])
def test_the_password_that_canal_ships_for_canal_admin_is_replaced(deployer: Path, tmp_path: Path, layout: str) -> None:
    """The port stays, for the accounts of the node. On loopback, as canal's other stock lines end there, it is kept."""
    add(deployer, (STOCK / "admin" / layout).read_text())
    kept = notes(deployer)
    assert [key for key, each in kept.items() if each["outcome"] == "refused"] == ["canal.ip"]
    assert kept["canal.admin.passwd"]["outcome"] == "differs"
    assert "on loopback only" in kept["canal.admin.passwd"]["text"]
    add(deployer, *LOGIN)
    refused = notes(deployer, "refused")
    assert list(refused) == ["canal.admin.passwd"]
    found = refused["canal.admin.passwd"]
    assert (found["value"], found["change"]) == ("***", "canal.admin.passwd =")
    assert "stays closed" in found["text"]
    assert run(deployer, "--to", tmp_path / "conf").exit_code == 1
    config = load(tmp_path / "conf", [], {})
    assert (config.admin_port, config.admin_passwd, config.ip) == (11110, "", "")
    assert admin_port_refusal(config) is None
    list(ports(config))


def test_a_password_of_canal_admin_that_cannot_be_read_has_no_line(deployer: Path) -> None:
    """Only a person knows what it should be."""
    add(deployer, "canal.admin.passwd = admin")
    found = document(deployer)
    assert found["exit_code"] == 2
    assert [(each["key"], each["change"]) for each in found["notes"] if each["outcome"] == "refused"] == [
        ("canal.admin.passwd", "")
    ]


@pytest.mark.parametrize(
    ("lines", "key", "change"),
    [
        (["canal.serverMode = rocketMQ"], "canal.serverMode", "canal.serverMode = tcp"),
        (["canal.serverMode = pulsarMQ"], "canal.serverMode", "canal.serverMode = tcp"),
        (
            ["canal.zkServers = zk1:2181", *LOGIN],
            "canal.instance.global.spring.xml",
            "canal.instance.global.spring.xml = classpath:spring/default-instance.xml",
        ),
        (
            [
                "canal.zkServers = zk1:2181",
                *LOGIN,
                "canal.instance.example.spring.xml = classpath:spring/file-instance.xml",
            ],
            "canal.instance.example.spring.xml",
            "canal.instance.example.spring.xml = classpath:spring/default-instance.xml",
        ),
        (
            ["canal.instance.tsdb.url = jdbc:postgresql://db/canal"],
            "canal.instance.tsdb.url",
            "canal.instance.tsdb.url =",
        ),
        (["canal.serverMode = kafka", "kafka.acks = 1"], "kafka.acks", "kafka.acks = all"),
    ],
)
def test_a_refused_line_has_the_line_to_write(
    deployer: Path, tmp_path: Path, lines: list[str], key: str, change: str
) -> None:
    """The reason is the loader's own, and with the changes the loader accepts the files."""
    add(deployer, *lines)
    with pytest.raises(ConfigError):
        load(deployer / "conf", [], {})
    refused = notes(deployer, "refused")
    assert refused[key]["change"] == change
    assert refused[key]["line"]
    assert run(deployer, "--to", tmp_path / "conf").exit_code == 1
    config = load(tmp_path / "conf", [], {})
    list(ports(config))
    text = (tmp_path / "conf" / refused[key]["file"].removeprefix("conf/")).read_text()
    assert f"# canal-ha migrate: replaces line {refused[key]['line']}\n{change}\n" in text


def test_a_node_of_a_cluster_is_not_hidden_on_its_own_machine(deployer: Path, tmp_path: Path) -> None:
    """Nobody but a person closes its open port: on loopback the other machines could not reach it."""
    add(deployer, "canal.zkServers = zk1:2181")
    found = notes(deployer, "refused")["canal.ip"]
    assert found["change"] == ""
    assert "set canal.accounts.file, or canal.user and canal.passwd" in found["text"]
    assert run(deployer, "--to", tmp_path / "conf").exit_code == 2


def test_other_queues_are_refused_with_the_alternatives(deployer: Path) -> None:
    """kafka works; the others have a way too."""
    add(deployer, "canal.serverMode = rabbitMQ")
    text = notes(deployer, "refused")["canal.serverMode"]["text"]
    assert "a pipeline that sends rows over HTTP" in text
    assert "connect the queue to Kafka" in text
    add(deployer, "canal.serverMode = kafka")
    found = notes(deployer)
    assert found["canal.serverMode"]["outcome"] == "differs"
    assert found["kafka.acks"]["outcome"] == "same"
    assert found["kafka.retries"]["outcome"] == "differs"


def test_an_encrypted_password_is_refused_with_what_to_do(deployer: Path, tmp_path: Path) -> None:
    """No line cures it, so the exit code is 2; the files are written, for a person to go on with."""
    instance = "example/instance.properties"
    add(deployer, "canal.instance.enableDruid = true", "canal.instance.pwdPublicKey = MFwwDQYJ", file=instance)
    found = document(deployer)
    assert found["exit_code"] == 2
    refused = {each["key"]: each for each in found["notes"] if each["outcome"] == "refused"}
    assert "canal.instance.dbPassword = ${file:PATH}" in refused["canal.instance.enableDruid"]["text"]
    assert "MFwwDQYJ" not in json.dumps(found)
    result = run(deployer, "--to", tmp_path / "conf")
    assert result.exit_code == 2
    assert "correct there what is refused" in result.stdout
    assert "canal.instance.enableDruid = true" in (tmp_path / "conf" / instance).read_text()
    add(deployer, "canal.instance.enableDruid = false", file=instance)
    assert document(deployer)["exit_code"] == 1


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (["canal.port = 1111111"], "canal.port"),
        (["canal.user = canal"], "canal.passwd"),
        (["canal.destinations = example,missing"], "canal.instance.master.address"),
        (["canal.instance.filter.black.field = users"], "canal.instance.filter.black.field"),
    ],
)
def test_what_only_a_person_knows_has_no_line(deployer: Path, lines: list[str], key: str) -> None:
    """The exit code is 2, and the reason is the loader's."""
    add(deployer, *lines)
    found = document(deployer)
    assert found["exit_code"] == 2
    refused = {each["key"]: each for each in found["notes"] if each["outcome"] == "refused"}
    assert key in refused
    assert not refused[key]["change"]
    assert refused[key]["text"]


def test_manager_mode_without_files_names_what_is_missing(deployer: Path) -> None:
    """canal-admin keeps the files in its own database."""
    shutil.rmtree(deployer / "conf" / "example")
    add(
        deployer, "canal.destinations =", "canal.admin.manager = 127.0.0.1:8089", "canal.instance.global.mode = manager"
    )
    found = notes(deployer)
    assert found["canal.admin.manager"]["outcome"] == "ignored"
    assert "canal-admin" in found["conf"]["text"]
    assert run(deployer).exit_code == 2


def test_options_of_the_java_process_are_taken_over(deployer: Path, tmp_path: Path) -> None:
    """They override the files in canal, and so they do in the result; secrets among them are not shown."""
    (deployer / "bin" / "startup.sh").write_text(
        '#JAVA_OPTS=-Dcanal.port=1\nJAVA_OPTS="-Dcanal.port=12345 -Dcanal.conf=$c -Dcanal.instance.dbPassword=hush"\n'
    )
    result = run(deployer, "--to", tmp_path / "conf", "--json")
    assert "hush" not in result.stdout
    assert '"change": "canal.port = 12345"' in result.stdout
    config = load(tmp_path / "conf", [], {})
    assert (config.port, [each.password for each in config.destinations]) == (12345, ["hush"])


def test_a_directory_without_a_deployer_is_refused(tmp_path: Path) -> None:
    """The error says what to give."""
    result = run(tmp_path)
    assert isinstance(result.exception, ConfigError)  # exit code 2
    assert "give the directory of canal's deployer" in str(result.exception)


def test_a_target_with_files_or_inside_the_source_is_refused(deployer: Path, tmp_path: Path) -> None:
    """Nothing is overwritten, and the source stays as it is."""
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    before = content(deployer)
    for target in (tmp_path / "full", tmp_path / "full" / "file", deployer / "new", deployer):
        result = run(deployer, "--to", target)
        assert result.exit_code == 2
        assert "--to" in result.stderr
    assert content(deployer) == before


def test_a_directory_behind_a_link_is_read(deployer: Path, tmp_path: Path) -> None:
    """canal follows links, also one that leads in a circle."""
    (deployer / "conf" / "example").rename(tmp_path / "elsewhere")
    (deployer / "conf" / "example").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "circle").symlink_to(deployer / "conf")
    assert run(deployer, "--to", tmp_path / "conf").exit_code == 1
    assert [each.destination for each in load(tmp_path / "conf", [], {}).destinations] == ["example"]


def test_every_difference_is_one_of_a_known_key() -> None:
    """A key that no longer exists has no difference."""
    known = {*BY_NAME, "kafka.retries"}
    assert set(differences._DIFFERENCES) <= known
