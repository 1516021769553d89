"""docker-compose.ha.yml, deploy/Dockerfile and the systemd unit, checked without containers."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from canal_ha.config.load import load
from lab.node import PROGRAM

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
    found: dict[str, Any] = json.loads(done.stdout)["services"]
    return found


def test_the_cluster_has_all_its_parts_and_watches_their_health(services: dict[str, Any]) -> None:
    """Three nodes wait for three ZooKeepers and a database. Each has a health check and is restarted."""
    consumers = {"client", "spark"}
    assert set(services) == {*ZOOKEEPERS, *NODES, "mysql", *consumers}
    for name, service in services.items():
        if name not in consumers:
            assert service["healthcheck"]["test"]
            assert service["restart"] == "unless-stopped"
        assert ":" in service["image"] or service["image"] in ("canal-ha", "canal-ha-spark")
    for name in NODES:
        assert {other: how["condition"] for other, how in services[name]["depends_on"].items()} == dict.fromkeys(
            (*ZOOKEEPERS, "mysql"), "service_healthy"
        )
    ports = [port["published"] for name in NODES for port in services[name]["ports"]]
    assert len(set(ports)) == len(ports)


def test_the_zookeepers_form_one_ensemble(services: dict[str, Any]) -> None:
    """Each ZooKeeper has its own number in the same list, and its data on a volume."""
    for number, name in enumerate(ZOOKEEPERS, 1):
        environment = services[name]["environment"]
        assert int(environment["ZOO_MY_ID"]) == number
        assert environment["ZOO_SERVERS"].split() == [
            f"server.{at}={other}:2888:3888;2181" for at, other in enumerate(ZOOKEEPERS, 1)
        ]
        assert any("/data" in str(volume) for volume in services[name]["volumes"])


def test_the_nodes_settings_are_ones_that_a_node_knows(services: dict[str, Any]) -> None:
    """The configuration loads without a warning from the shipped conf and the service's environment."""
    for name in NODES:
        environment = services[name]["environment"]
        config = load(ROOT / "conf", (), environment)
        assert config.zk_servers == ",".join(f"{zookeeper}:2181" for zookeeper in ZOOKEEPERS)
        (instance,) = config.destinations
        assert instance.master.host in services
        assert config.warnings == ()
        # an unknown key in the environment gives no warning
        known = (ROOT / "conf/canal.properties").read_text() + (ROOT / "conf/example/instance.properties").read_text()
        assert all(re.search(rf"^#?{re.escape(key)} =", known, re.MULTILINE) for key in environment)
    assert (ROOT / "deploy/compose/mysql.sql").exists()


def test_commands_of_services_and_health_checks_exist(services: dict[str, Any]) -> None:
    """canal-ha has all options of these commands."""
    commands = [services["client"]["command"], services["canal1"]["healthcheck"]["test"][2:]]
    commands += [
        json.loads(text) for text in re.findall(r"^(?:CMD| +CMD) (\[.*\])$", DOCKERFILE.read_text(), re.MULTILINE)
    ]
    for command in commands:
        subcommand, *rest = command[1:] if command[0] == "canal-ha" else command
        help_text = subprocess.run([PROGRAM, subcommand, "--help"], capture_output=True, text=True, check=True).stdout
        for option in (word for word in rest if word.startswith("--")):
            assert option in help_text, f"{subcommand} {option}"


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
