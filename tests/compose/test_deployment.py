"""docker-compose.ha.yml, deploy/Dockerfile and the systemd unit, checked without containers."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import NoAuthError

from canal_ha.config.load import load
from canal_ha.server import probes
from lab import MariaDB, Node, ZooKeeper
from lab.node import PROGRAM
from lab.zookeeper import session

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
UNIT = ROOT / "deploy" / "systemd" / "canal-ha@.service"
NODES = ("canal1", "canal2", "canal3")
ZOOKEEPERS = ("zk1", "zk2", "zk3")
YAML_TO_JSON = "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)"


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    """Return the services of all profiles, as docker-compose reads them."""
    text = subprocess.run(
        ["docker-compose", "-f", "docker-compose.ha.yml", "--profile", "client", "--profile", "spark", "config"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    # Debian's docker-compose depends on the YAML parser of Debian's Python
    done = subprocess.run(
        ["/usr/bin/python3", "-c", YAML_TO_JSON], input=text, capture_output=True, text=True, check=True
    )
    # `config` doubles each dollar, as the file has to
    found: dict[str, Any] = json.loads(done.stdout.replace("$$", "$"))["services"]
    return found


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory that deploy/compose/secrets.sh has filled."""
    directory = tmp_path_factory.mktemp("secrets")
    subprocess.run(["bash", "deploy/compose/secrets.sh", str(directory)], cwd=ROOT, check=True, capture_output=True)
    return directory


def environment_of(service: dict[str, Any], secrets: Path) -> dict[str, str]:
    """Return the environment of a node's container, with the secrets of a directory."""
    return {key: text.replace("/canal/secrets", str(secrets)) for key, text in service["environment"].items()}


def test_the_cluster_has_all_its_parts_and_watches_their_health(services: dict[str, Any]) -> None:
    """Three nodes wait for three ZooKeepers and a database. Each has a health check and is restarted."""
    short = {"client", "spark", "secrets"}
    assert set(services) == {*ZOOKEEPERS, *NODES, "mysql", *short}
    for name, service in services.items():
        if name not in short:
            assert service["healthcheck"]["test"]
            assert service["restart"] == "unless-stopped"
        assert ":" in service["image"] or service["image"] in ("canal-ha", "canal-ha-spark")
    for name in NODES:
        assert {other: how["condition"] for other, how in services[name]["depends_on"].items()} == dict.fromkeys(
            (*ZOOKEEPERS, "mysql"), "service_healthy"
        ) | {"secrets": "service_completed_successfully"}


def test_only_the_nodes_are_published_and_only_to_this_machine(services: dict[str, Any]) -> None:
    """Each node's port for clients has a number of its own on 127.0.0.1. Databases and ZooKeepers have none."""
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {
        name: [f"127.0.0.1:{port}:11111/tcp"] for name, port in zip(NODES, (11111, 11121, 11131), strict=True)
    }


def test_secrets_are_random_files_for_their_owner_that_git_ignores(services: dict[str, Any], secrets: Path) -> None:
    """The script makes each file that the services mount, keeps existing ones, and none is in the compose file."""
    mounted = {secret["source"] for service in services.values() for secret in service.get("secrets", ())}
    assert {file.name for file in secrets.iterdir()} == mounted
    assert {file.stat().st_mode & 0o777 for file in secrets.iterdir()} == {0o600}
    assert secrets.stat().st_mode & 0o777 == 0o700
    before = {file: file.read_text() for file in secrets.iterdir()}
    assert len(set(before.values())) == len(before)
    subprocess.run(["bash", "deploy/compose/secrets.sh", str(secrets)], cwd=ROOT, check=True, capture_output=True)
    assert {file: file.read_text() for file in secrets.iterdir()} == before
    ignored = ["git", "check-ignore", "-q", "deploy/compose/secrets/zookeeper"]
    assert subprocess.run(ignored, cwd=ROOT).returncode == 0
    assert "deploy/compose/secrets" in (ROOT / ".dockerignore").read_text().splitlines()
    for service in services.values():
        for key, text in (service.get("environment") or {}).items():
            if re.search("PASSWORD|dbPassword|auth", key):
                assert re.fullmatch(r"\$\{file:/canal/secrets/\S+\}|/run/secrets/\S+", text), key


def test_a_node_with_these_accounts_serves_the_client_and_no_stranger(
    services: dict[str, Any], secrets: Path, zookeeper: ZooKeeper, mariadb: MariaDB, database: str
) -> None:
    """The client's command of the compose file gets a row. Without an account the status and the znodes are closed."""
    user = f"{database}_canal"[-30:]
    password = (secrets / "mysql-canal").read_text().strip()
    mariadb.execute(
        f"CREATE USER {user} IDENTIFIED BY '{password}'",
        f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        f"CREATE DATABASE IF NOT EXISTS {database}",
        f"CREATE TABLE {database}.orders (id INT PRIMARY KEY)",
    )
    journal, offset = mariadb.position()
    servers = f"{zookeeper.hosts}/compose-{database}"
    environment = environment_of(services["canal1"], secrets) | {
        "canal.ip": "127.0.0.1",
        "canal.admin.http.bind": "127.0.0.1",
        "canal.zkServers": servers,
        "canal.instance.master.address": mariadb.address,
        "canal.instance.dbUsername": user,
        "canal.instance.filter.regex": rf"{database}\..*",
        "canal.instance.master.journal.name": journal,
        "canal.instance.master.position": str(offset),
    }
    operator = ("operator", (secrets / "operator.password").read_text().strip())
    node = Node({"example": {}}, environment=environment, login=operator, wait_for={"example"})
    with node:
        mariadb.execute(f"INSERT INTO {database}.orders VALUES (7)")
        command = [part.replace("/canal/secrets", str(secrets)) for part in services["client"]["command"]]
        command = [f"--zk={servers}" if part.startswith("--zk=") else part for part in command]
        limits = ["--max-rows=2", "--idle-exit=30", f"--filter={database}\\.orders"]
        done = subprocess.run([PROGRAM, *command, *limits], capture_output=True, text=True, timeout=60)
        assert done.stdout, done.stderr + node.log_file() + node.log_file("example")
        statement, row = (json.loads(line) for line in done.stdout.splitlines())
        assert (statement["type"], row["after"]) == ("QUERY", {"id": 7})
        status = [PROGRAM, "status", "--url", f"http://127.0.0.1:{node.admin_port}", "--json"]
        with_token = {**os.environ, "CANAL_HA_TOKEN_FILE": environment["CANAL_HA_TOKEN_FILE"]}
        assert subprocess.run(status, env=with_token, capture_output=True).returncode == 0
        assert subprocess.run(status, capture_output=True).returncode != 0
        with session(servers) as stranger, pytest.raises(NoAuthError):
            stranger.get("/otter/canal/destinations/example/1001/cursor")


def test_the_zookeepers_form_one_ensemble(services: dict[str, Any]) -> None:
    """Each ZooKeeper has its own number in the same list, and its data on a volume."""
    for number, name in enumerate(ZOOKEEPERS, 1):
        environment = services[name]["environment"]
        assert int(environment["ZOO_MY_ID"]) == number
        assert environment["ZOO_SERVERS"].split() == [
            f"server.{at}={other}:2888:3888;2181" for at, other in enumerate(ZOOKEEPERS, 1)
        ]
        assert any("/data" in str(volume) for volume in services[name]["volumes"])


def test_the_nodes_settings_are_ones_that_a_node_knows(services: dict[str, Any], secrets: Path) -> None:
    """The configuration loads without a warning from the shipped conf and the service's environment."""
    for name in NODES:
        environment = environment_of(services[name], secrets)
        config = load(ROOT / "conf", (), environment)
        assert config.zk_servers == ",".join(f"{zookeeper}:2181" for zookeeper in ZOOKEEPERS)
        (instance,) = config.destinations
        assert instance.master.host in services
        assert config.warnings == ()
        # an unknown key in the environment gives no warning
        known = (ROOT / "conf/canal.properties").read_text() + (ROOT / "conf/example/instance.properties").read_text()
        assert all(
            re.search(rf"^#?{re.escape(key)} =", known, re.MULTILINE) for key in environment if key.startswith("canal.")
        )
    assert (ROOT / "deploy/compose/mysql.sql").exists()


def test_commands_of_services_and_health_checks_exist(services: dict[str, Any]) -> None:
    """canal-ha has all options of these commands."""
    commands = [services["client"]["command"], services["canal1"]["healthcheck"]["test"][1:]]
    commands += [
        json.loads(text) for text in re.findall(r"^(?:CMD| +CMD) (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    ]
    for command in commands:
        if command[:2] == ["python", "-c"]:
            assert re.search(rf"({'|'.join(path.decode() for path in probes.PATHS)})(\?strict)?'", command[2])
            compile(command[2], "health check", "exec")
            continue
        subcommand, *rest = command[1:] if command[0] == "canal-ha" else command
        help_text = subprocess.run([PROGRAM, subcommand, "--help"], capture_output=True, text=True, check=True).stdout
        for option in (word for word in rest if word.startswith("--")):
            assert option.partition("=")[0] in help_text, f"{subcommand} {option}"


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, with continuation lines joined."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE))
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in text.splitlines()) if word]


def test_the_image_is_built_from_what_is_here_and_runs_as_nobody_special() -> None:
    """Copied files exist, base images have tags, and the last stage is not root and stops on SIGTERM."""
    found = instructions()
    known = {
        "FROM",
        "RUN",
        "WORKDIR",
        "COPY",
        "USER",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
    }
    assert {word for word, _ in found} == known
    for word, rest in found:
        if word == "COPY":
            *sources, _ = [part for part in shlex.split(rest) if not part.startswith("--")]
            assert all((ROOT / source).exists() for source in sources)
        if word == "FROM":
            assert ":" in rest.split()[0]
    last = found[max(at for at, (word, _) in enumerate(found) if word == "FROM") :]
    assert dict(last)["USER"] not in ("", "root")
    assert json.loads(dict(last)["ENTRYPOINT"]) == ["canal-ha"]
    assert dict(last)["STOPSIGNAL"] == "SIGTERM"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """`systemd-analyze verify` reports nothing if the unit has the path of the installed program."""
    unit = tmp_path / UNIT.name
    text = UNIT.read_text()
    assert "/opt/canal-ha/venv/bin/canal-ha" in text
    unit.write_text(text.replace("/opt/canal-ha/venv/bin/canal-ha", PROGRAM))
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_finds_the_unit_confined(tmp_path: Path) -> None:
    """`systemd-analyze security` gives it less than 2 of 10; a service without any protection has 9.6."""
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text())
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
