"""`canal-ha config` on files: which values count, where they come from, and what a node would refuse."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from canal_ha.cli.main import group
from canal_ha.errors import ConfigError
from tests.cli.test_main import PROGRAM

MAIN = """\
canal.ip = 127.0.0.1
canal.destinations = a,b
canal.instance.stream.max = 5
canal.instance.b.lazy = true
"""
A = """\
canal.instance.master.address = ${env:DB_HOST:db}:3306
# a comment
canal.instance.dbPassword = hush
canal.instance.stream.max = 7
canal.instance.tsdb.url = jdbc:mysql://db/tsdb?user=u&password=hush
"""
B = "canal.instance.master.address = db:3306\n"


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Write a configuration directory with two destinations and return it."""
    made = tmp_path / "conf"
    for name, text in (("canal.properties", MAIN), ("a/instance.properties", A), ("b/instance.properties", B)):
        file = made / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return made


def run(*arguments: str | Path) -> Result:
    """Run `canal-ha config`, and check that no exception left it."""
    result = CliRunner().invoke(group, ["config", *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def document(*arguments: str | Path) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_every_value_has_its_place(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance file wins over canal.properties, the environment over files, --set over all. Secrets are hidden."""
    monkeypatch.setenv("CANAL_INSTANCE_GTIDON", "true")
    shown = document("show", "--conf", conf, "--effective", "--set", "canal.port=7")
    assert list(shown) == ["node", "destination a", "destination b"]
    node, a, b = ({each["key"]: (each["value"], each["origin"]) for each in shown[scope]} for scope in shown)
    assert node["canal.port"] == ("7", "--set")
    assert node["canal.ip"] == ("127.0.0.1", f"{conf}/canal.properties:1")
    assert node["canal.metrics.pull.port"] == ("11112", "default")
    assert a["canal.instance.stream.max"] == ("7", f"{conf}/a/instance.properties:4")
    assert b["canal.instance.stream.max"] == ("5", f"{conf}/canal.properties:3")
    assert a["canal.instance.gtidon"] == ("true", "environment CANAL_INSTANCE_GTIDON")
    assert a["canal.instance.dbPassword"] == ("***", f"{conf}/a/instance.properties:3")
    assert a["canal.instance.master.address"] == ("***", f"{conf}/a/instance.properties:1")
    assert a["canal.instance.tsdb.url"] == ("***", f"{conf}/a/instance.properties:5")
    assert a["canal.instance.tsdb.dir"] == ("../conf/a", "default")
    assert a["canal.instance.global.lazy"] == ("false", "default")
    assert b["canal.instance.b.lazy"] == ("true", f"{conf}/canal.properties:4")
    assert "hush" not in json.dumps(shown)


def test_what_somebody_has_set(conf: Path) -> None:
    """Without --effective the defaults are left out; the text is that of a properties file."""
    lines = run("show", "--conf", conf, "--destination", "b").stdout.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "# destination b",
        f"canal.instance.b.lazy = true # {conf}/canal.properties:4",
        f"canal.instance.stream.max = 5 # {conf}/canal.properties:3",
        f"canal.instance.master.address = db:3306 # {conf}/b/instance.properties:1",
    ]
    (conf / "b/instance.properties").write_text("canal.instance.master.address = :::\n")
    result = run("show", "--conf", conf, "--destination", "b")
    assert result.exit_code == 1
    assert f"b cannot be used: {conf}/b/instance.properties:1: canal.instance.master.address" in result.stderr


def test_keys_of_kafka_and_unknown_keys_are_shown_too(conf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were left out, so nobody saw which brokers a node uses. What can be a password is hidden."""
    monkeypatch.setenv("CANAL_MQ_SERVERS", "old:9092")
    with (conf / "canal.properties").open("a") as file:
        file.write("kafka.linger.ms = 5\nkafka.sasl.jaas.config = hush\nkafka.ssl.key.password = hush\nours = hush\n")
        file.write("canal.isntance.x = 1\nkafka.acks =\n")
    with (conf / "a/instance.properties").open("a") as file:
        file.write("canal.instance.dbUsrname = ${ours}\ncanal.instance.filter.regxe = .*\n")
    shown = document("show", "--conf", conf, "--set", "kafka.linger.ms=7")
    node, a, b = ({each["key"]: (each["value"], each["origin"]) for each in shown[scope]} for scope in shown)
    main = f"{conf}/canal.properties"
    assert node["kafka.linger.ms"] == ("7", "--set")
    assert node["kafka.sasl.jaas.config"] == ("***", f"{main}:6")
    assert node["kafka.ssl.key.password"] == ("***", f"{main}:7")
    assert node["ours"] == ("***", f"{main}:8")
    assert node["canal.isntance.x"] == ("1", f"{main}:9")
    assert node["canal.mq.servers"] == ("old:9092", "environment CANAL_MQ_SERVERS")
    assert "kafka.acks" not in node
    assert a["canal.instance.filter.regxe"] == (".*", f"{conf}/a/instance.properties:7")
    assert a["canal.instance.dbUsrname"][0] == "***"
    assert not {"canal.instance.b.lazy", "ours"} & {*a}
    assert "canal.instance.b.lazy" not in node
    assert not {"kafka.linger.ms", "canal.instance.filter.regxe"} & {*b}
    assert "hush" not in json.dumps(shown)


def test_validate_says_what_a_node_would_do(conf: Path) -> None:
    """0: it runs everything, also with unknown keys; 1: it refuses a destination; 2: it does not start."""
    result = run("validate", "--conf", conf)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, f"{conf}: valid, destinations: a, b")
    with (conf / "a/instance.properties").open("a") as file:
        file.write("canal.instance.dbUsrname = x\n")
    result = run("validate", "--conf", conf)
    assert result.exit_code == 0
    assert (
        f"warning  node           {conf}/a/instance.properties:6: unknown key canal.instance.dbUsrname" in result.stdout
    )
    (conf / "b/instance.properties").write_text(B + "canal.instance.filter.regex = (\n")
    found = document("validate", "--conf", conf)
    assert found["exit_code"] == run("validate", "--conf", conf).exit_code == 1
    assert {key: found["problems"][-1][key] for key in ("verdict", "scope", "file", "line", "key")} == {
        "verdict": "FAILED",
        "scope": "b",
        "file": f"{conf}/b/instance.properties",
        "line": 2,
        "key": "canal.instance.filter.regex",
    }
    for bad in ("canal.port = eleven", "canal.ip = 0.0.0.0", "canal.accounts.file = nowhere.toml"):
        (conf / "canal.properties").write_text(f"{MAIN}{bad}\n")
        assert run("validate", "--conf", conf).exit_code == 2
    assert run("validate", "--conf", conf / "nowhere").exit_code == 2


def test_a_node_whose_files_are_missing_is_started_again(conf: Path) -> None:
    """The exit code is 1, which systemd retries: the file system may be mounted late. A wrong value is 2."""
    (conf / "canal.properties").write_text(MAIN.replace("a,b", "gone"))
    command = [PROGRAM, "server", "--conf", str(conf)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    assert result.stderr == (
        f"canal-ha: {conf}/gone/instance.properties does not exist; canal.instance.master.address = '': expected"
        f" host:port or [IPv6 address]:port; restore the file, or remove gone from"
        f" canal.destinations in {conf}/canal.properties\n"
    )
    (conf / "canal.properties").write_text(MAIN.replace("a,b", "gone,a"))
    (conf / "a/instance.properties").write_text("canal.instance.master.address = :::\n")
    assert isinstance(CliRunner().invoke(group, command[1:]).exception, ConfigError)  # main() ends with 2
