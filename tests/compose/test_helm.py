"""The Helm chart, checked without helm; tests/long/test_helm.py renders it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from canal_ha import logs
from canal_ha.config.load import load
from canal_ha.config.model import CanalConfig
from canal_ha.server import probes
from canal_ha.version import VERSION
from lab import MariaDB, Node, follow
from tests.waiting import until

pytestmark = pytest.mark.real

HELM = Path(__file__).parents[2] / "deploy" / "helm"
CHART = HELM / "canal-ha"
TEMPLATES = {path.name: path.read_text() for path in (CHART / "templates").iterdir()}
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def test_the_chart_installs_the_version_of_this_checkout() -> None:
    """A release of canal-ha changes the chart too."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == VERSION


def test_templates_use_values_that_exist_and_the_schema_names_every_value() -> None:
    """A misspelt value would silently be empty; one that the schema lacks would be refused."""
    used = {name for text in TEMPLATES.values() for name in re.findall(r"\.Values\.([\w.]+)", text)}
    for name in used:
        found: Any = VALUES
        for part in name.split("."):
            assert part in found, name
            found = found[part]
    assert set(SCHEMA["properties"]) - {"global"} == set(VALUES) == {name.partition(".")[0] for name in used}


@pytest.mark.parametrize("file", [CHART / "values.yaml", *(HELM / "examples").iterdir()], ids=lambda file: file.name)
def test_the_shipped_values_fit_the_schema(file: Path) -> None:
    """helm checks values with the same schema."""
    jsonschema.validate(yaml.safe_load(file.read_text()), SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replicas": 2},
        {"replicaCount": 0},
        {"logs": {"persistence": {"size": "much"}}},
        {"terminationGracePeriodSeconds": 5},
        {"tls": {"ports": ["https"]}},
        {"destinations": {"..": ""}},
        {"properties": {"zkServers": "a:2181"}},
    ],
)
def test_the_schema_refuses_mistakes(wrong: dict[str, Any]) -> None:
    """A misspelt key, no node, a grace period that ends before a node has handed over, a path as a destination."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(VALUES | wrong, SCHEMA)


def test_probes_ports_and_user_are_those_of_the_image() -> None:
    """The image's user writes only into volumes, and the probes ask for paths that a node answers without a login."""
    text = TEMPLATES["statefulset.yaml"]
    assert set(re.findall(r"path: (/\w+z),", text)) == {path.decode() for path in probes.PATHS}
    dockerfile = (HELM.parent / "Dockerfile").read_text()
    (user,) = set(re.findall(r"(?:runAsUser|runAsGroup|fsGroup): (\d+)", text))
    assert f"--uid {user}" in dockerfile
    (exposed,) = re.findall(r"^EXPOSE (.*)$", dockerfile, re.MULTILINE)
    assert re.findall(r"containerPort: (\d+)", text) == exposed.split()
    assert "readOnlyRootFilesystem: true" in text


def test_the_log_files_of_all_destinations_fit_into_their_volume() -> None:
    """Kubernetes evicts a pod whose logs outgrow the limit, and the audit log goes with it."""
    pattern = r'sizeLimit \| default \(printf "%dMi" \(mul (\d+) \(add (\d+) \(mul (\d+) \(len \.Values\.destinations'
    ((mib, of_node, of_destination),) = re.findall(pattern, TEMPLATES["statefulset.yaml"])
    assert VALUES["logs"]["sizeLimit"] == ""
    assert int(mib) << 20 > (logs.ROTATE_FILES + 1) * logs.ROTATE_BYTES
    assert int(of_node) == len(["canal.log", "meta.log", "audit.log"])
    assert int(of_destination) == len(["shop.log", "meta.log"])


def mounted(volume: Path, generation: str, files: dict[str, str]) -> None:
    """Put files into a directory as Kubernetes mounts a ConfigMap: links to the newest generation, changed at once."""
    for name, text in files.items():
        path = volume / generation / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (volume / "..data_tmp").symlink_to(generation)
    os.replace(volume / "..data_tmp", volume / "..data")
    for top in {name.partition("/")[0] for name in files}:
        if not (volume / top).is_symlink():
            (volume / top).symlink_to(f"..data/{top}")


def loaded(volume: Path) -> CanalConfig:
    """Return the configuration in a volume."""
    return load(volume, (), {})


def test_a_node_takes_over_a_changed_config_map(tmp_path: Path, mariadb: MariaDB) -> None:
    """The destination runs again with the new file; the directories of old and new generations are no destinations."""
    properties = {"canal.auto.scan": "true", "canal.file.data.dir": str(tmp_path)}
    with Node({"example": follow(mariadb)}, properties=properties) as node:
        main, instance = (node.conf / name for name in ("canal.properties", "example/instance.properties"))
        files = {
            "canal.properties": main.read_text() + "canal.auto.scan.interval = 0.3\n",
            "example/instance.properties": instance.read_text(),
        }
        node.stop()
        for file in (main, instance):
            file.unlink()
        instance.parent.rmdir()
        mounted(node.conf, "..2026_01_01", files)
        assert [each.destination for each in loaded(node.conf).destinations] == ["example"]
        node.start()
        changed = files["example/instance.properties"] + "canal.instance.filter.regex = shop\\\\..*\n"
        mounted(node.conf, "..2026_01_02", files | {"example/instance.properties": changed})
        until(lambda: "scan.starting" in node.log_file(), what="the new file", seconds=30)
        until(lambda: node.running() == {"example"}, what="the destination", seconds=30)
        assert not node.status()["alarms"]
