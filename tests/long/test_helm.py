"""The Helm chart, rendered by helm and checked with Kubernetes' schemas."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import yaml

from canal_ha.cli.status import command as status
from canal_ha.config.load import load
from lab.certificates import Authority
from lab.mysql import cache_directory
from tests.compose.test_helm import CHART, HELM

pytestmark = pytest.mark.long

TOOLS = cache_directory() / "kubernetes"
PRODUCTION = ("--values", str(HELM / "examples" / "production.yaml"))
OPEN = ("--set", "insecure=true")


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm."""
    return subprocess.run([str(TOOLS / "bin/helm"), *arguments], capture_output=True, text=True)


def rendered(*values: str, chart: Path = CHART) -> str:
    """Return the manifests with some values."""
    done = helm("template", "r", str(chart), "--namespace", "prod", "--kube-version", "1.34.0", *values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(*values: str) -> dict[str, Any]:
    """Return the manifests by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all(rendered(*values)) if each}


def conform(manifests: str) -> subprocess.CompletedProcess[str]:
    """Check manifests strictly. A ServiceMonitor is no kind of Kubernetes' own."""
    schemas = f"{TOOLS}/schemas/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"
    command = [str(TOOLS / "bin/kubeconform"), "-strict", "-skip", "ServiceMonitor", "-schema-location", schemas]
    return subprocess.run(command, input=manifests, capture_output=True, text=True)


@pytest.mark.parametrize(
    "values",
    [
        OPEN,
        PRODUCTION,
        (*PRODUCTION, "--set", "podDisruptionBudget.maxUnavailable=50%", "--set", "priorityClassName=high"),
        (*OPEN, "--set-json", 'tolerations=[{"key":"a","operator":"Exists"}]', "--set-json", 'nodeSelector={"a":"b"}'),
        (*OPEN, "--set-json", 'podLabels={"a":"b"}', "--set-json", 'podAnnotations={"c":"d"}'),
        (*OPEN, "--set", "logs.persistence.enabled=true", "--set", "logs.persistence.storageClass=fast"),
        (*OPEN, "--set-json", 'imagePullSecrets=[{"name":"x"}]', "--set", "podDisruptionBudget.enabled=false"),
    ],
)
def test_what_helm_renders_fits_the_schemas_of_kubernetes(values: tuple[str, ...]) -> None:
    """`helm lint` and kubeconform find nothing, and no field that Kubernetes does not know."""
    done = helm("lint", "--strict", "--kube-version", "1.34.0", str(CHART), *values)
    assert done.returncode == 0, done.stdout + done.stderr
    done = conform(rendered(*values))
    assert done.returncode == 0, done.stdout


def test_the_logs_are_on_a_volume_that_grows_with_the_destinations_or_outlives_the_pod() -> None:
    """A limit of one's own counts. With a claim there is no other volume of that name."""

    def volumes(found: dict[str, Any]) -> dict[str, Any]:
        return {each["name"]: each for each in found["StatefulSet"]["spec"]["template"]["spec"]["volumes"]}

    two = ("--set", "destinations.a=x", "--set", "destinations.b=x")
    assert volumes(objects(*OPEN, *two))["logs"]["emptyDir"] == {"sizeLimit": "8400Mi"}
    own = (*OPEN, *two, "--set", "logs.sizeLimit=5Gi")
    assert volumes(objects(*own))["logs"]["emptyDir"] == {"sizeLimit": "5Gi"}
    found = objects(*OPEN, "--set", "logs.persistence.enabled=true", "--set", "logs.persistence.size=9Gi")
    assert "logs" not in volumes(found)
    (claim,) = found["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert (claim["metadata"]["name"], claim["spec"]["resources"]["requests"]) == ("logs", {"storage": "9Gi"})


def test_kubeconform_would_find_a_misspelt_field() -> None:
    """The schemas are strict."""
    done = conform(rendered(*OPEN).replace("runAsNonRoot: true", "runAsNonRot: true"))
    assert done.returncode == 1
    assert "'runAsNonRot' not allowed" in done.stdout


def test_a_chart_without_accounts_says_what_to_set() -> None:
    """It is not installed open by accident; and a mistake in a value is refused with its name."""
    done = helm("template", "r", str(CHART), "--kube-version", "1.34.0")
    assert "set secretName to a Secret with a file of accounts" in done.stderr
    done = helm("template", "r", str(CHART), "--kube-version", "1.34.0", *OPEN, "--set", "replicas=2")
    assert "replicas" in done.stderr


@pytest.mark.parametrize("values", [OPEN, PRODUCTION])
def test_a_node_understands_the_rendered_configuration(values: tuple[str, ...], tmp_path: Path) -> None:
    """It loads without a warning about a key, with every path in a volume that the pod mounts."""
    found = objects(*values)
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = [each["mountPath"] for each in container["volumeMounts"]]
    data = found["ConfigMap"]["data"]
    (volume,) = (each["configMap"] for each in pod["volumes"] if each["name"] == "conf")
    authority = Authority(tmp_path)
    certificate = authority.sign("node").read_text()
    (tmp_path / "secrets").mkdir()
    for name in ("mysql-ca.pem", "tls.crt", "tls.key", "ca.crt", "mysql-canal", "zookeeper", "accounts.toml"):
        text = {"mysql-canal": "geheim", "zookeeper": "canal:geheim", "accounts.toml": ""}.get(name, certificate)
        (tmp_path / "secrets" / name).write_text(text)
    for item in volume["items"]:
        file = tmp_path / "conf" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        text = data[item["key"]]
        assert all(any(path.startswith(mount) for mount in mounts) for path in _paths(text))
        for directory in ("secrets", "tls"):
            text = text.replace(f"/canal/{directory}/", f"{tmp_path}/secrets/")
        file.write_text(text)
    address = next(each["value"] for each in container["env"] if each["name"] == "canal.register.ip")
    config = load(tmp_path / "conf", (), {"canal.register.ip": address})
    assert config.warnings == ()
    assert config.register_ip.startswith(f"$(POD_NAME).{found['Service']['metadata']['name']}.")
    assert found["StatefulSet"]["spec"]["serviceName"] == found["Service"]["metadata"]["name"]
    assert {each.destination for each in config.destinations} == ({"ledger", "shop"} if values is PRODUCTION else set())


def _paths(properties: str) -> list[str]:
    """Return the absolute paths in a properties file."""
    return [word for word in properties.replace("${file:", " ").replace("}", " ").split() if word.startswith("/")]


def test_numbers_and_switches_of_a_values_file_reach_the_node(tmp_path: Path) -> None:
    """A large number keeps its digits, and `false` and an empty text override the chart's own lines."""
    values = tmp_path / "values.yaml"
    values.write_text(
        "insecure: true\ndestinations: {shop: ''}\nproperties:\n  canal.max.frame.bytes: 33554432\n"
        "  canal.auto.scan: false\n  canal.auto.scan.interval: 0.5\n  canal.destinations: ''\n"
    )
    text = objects("--values", str(values))["ConfigMap"]["data"]["canal.properties"]
    assert len(set(text.split("\n"))) == len(text.split("\n"))
    (tmp_path / "canal.properties").write_text(text)
    config = load(tmp_path, (), {})
    assert config.max_frame_bytes == 33554432
    assert (config.auto_scan, config.auto_scan_interval_s) == (False, 0.5)
    assert config.destinations == ()
    assert config.zk_servers == "zookeeper:2181"


def notes(tmp_path: Path, *values: str) -> str:
    """Return what helm prints after an installation. Only templates are rendered without a cluster."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    text = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "notes.yaml").write_text(f"kind: Notes\ntext: |\n{indent(text, '  ')}")
    made = (yaml.safe_load(each) for each in re.split("^---$", rendered(*values, chart=chart), flags=re.MULTILINE))
    (found,) = (each["text"] for each in made if each and each["kind"] == "Notes")
    return str(found)


@pytest.mark.parametrize(
    ("values", "logins"),
    [
        (OPEN, ""),
        (
            PRODUCTION,
            "--zk-auth-file /canal/secrets/zookeeper --token-file /canal/secrets/monitoring.token"
            " --tls-ca /canal/tls/ca.crt",
        ),
        (
            ("--set", "secretName=x", "--set-json", 'properties={"canal.zookeeper.tls":true}'),
            "--zk-tls --user NAME --password-file FILE",
        ),
        (
            (*OPEN, "--set-json", 'properties={"canal.zookeeper.sasl":"a:b","canal.zookeeper.tls.ca":"/canal/x"}'),
            "--zk-sasl-file FILE --zk-tls-ca /canal/x",
        ),
    ],
    ids=["open", "production", "accounts without a token", "a password in the values"],
)
def test_the_notes_print_a_status_command_with_the_logins_that_it_needs(
    values: tuple[str, ...], logins: str, tmp_path: Path
) -> None:
    """`canal-ha status` has the options; a password that is written into the values is not printed."""
    (command,) = re.findall("canal-ha status (.*)", notes(tmp_path, *values))
    found = shlex.split(command)
    assert found[0] == "--zk"
    assert found[2:] == logins.split()
    assert {each for each in found if each.startswith("--")} <= {name for each in status.params for name in each.opts}
