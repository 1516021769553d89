"""Schemathesis asks a real node for all that its own description allows, and for what it does not allow."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import MariaDB, Node, ZooKeeper, follow
from lab.gate import ACCOUNTS, PASSWORD
from lab.waiting import until

pytestmark = pytest.mark.long

PROPERTIES = {
    "canal.accounts.file": "../conf/accounts.toml",
    "canal.zookeeper.auth": "canal:x",
    "canal.auto.scan": "true",
    "canal.auto.scan.interval": "1",
}
ENDING = ("pause_of_a_destination", "removal_of_a_destination")
"""Operations after which the destination does not run any more."""


@pytest.fixture
def node(zookeeper: ZooKeeper, mariadb: MariaDB, database: str) -> Iterator[Node]:
    """A node of a cluster that runs one destination."""
    hosts = f"{zookeeper.hosts}/described{database}"
    made = Node(
        {"example": follow(mariadb)},
        zk_servers=hosts,
        properties=PROPERTIES,
        login=("admin", PASSWORD),
        wait_for=["example"],
    )
    (made.conf / "accounts.toml").write_text(ACCOUNTS)
    with made:
        yield made


@pytest.mark.parametrize("named", [False, True], ids=["any destination", "the destination that runs"])
def test_every_answer_is_as_described(node: Node, tmp_path: Path, named: bool) -> None:
    """No answer has an undocumented status, type or field, and what the description allows is never a bad request."""
    program = Path(sys.executable).with_name("schemathesis")
    assert program.exists(), "Schemathesis is missing: bash deploy/install.sh browser"
    settings = '[parameters]\n"path.destination" = "example"\n' if named else ""
    (tmp_path / "schemathesis.toml").write_text(settings)
    left_out = [part for name in ENDING for part in ("--exclude-operation-id", name)] if named else []
    done = subprocess.run(
        [
            program,
            "--config-file",
            tmp_path / "schemathesis.toml",
            "run",
            f"http://127.0.0.1:{node.admin_port}/api/v1/openapi.json",
            "--auth",
            f"admin:{PASSWORD}",
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "30", "--seed", "1"),
            *("--request-timeout", "90", "--suppress-health-check", "all", "--no-color"),
            *left_out,
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken" not in node.log_file()
    until(lambda: node.status()["node"])
    if named:
        assert node.running() == {"example"}
