"""deploy/rolling-restart.sh and deploy/failover-drill.sh against nodes on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.nodes import LocalNode, Stuck, everything_runs
from lab import MySQL, Node, ZooKeeper, follow
from tests.waiting import until

pytestmark = pytest.mark.real

DEPLOY = Path(__file__).parents[2] / "deploy"
VENV = Path(sys.prefix)


@pytest.fixture
def nodes(zookeeper: ZooKeeper, mysql: MySQL, database: str) -> Iterator[list[LocalNode]]:
    """Two nodes with three destinations."""
    started = [
        Node(
            {name: follow(mysql) for name in ("a", "b", "c")},
            zk_servers=f"{zookeeper.hosts}/scripts-{database}",
            properties={"canal.zookeeper.session.timeout": "2000"},
        )
        for _ in range(2)
    ]
    here: list[LocalNode] = []
    try:
        for node in started:
            node.start()
        here = [LocalNode(node.conf) for node in started]
        until(lambda: everything_runs(here), seconds=30.0, what="the first race")
        yield here
    finally:
        for local in here:
            if (process := local.process()) is not None:  # started by a script; nothing else ends it
                os.kill(process.pid, signal.SIGKILL)
        for node in started:
            node.__exit__()


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script, and return its result."""
    return subprocess.run(
        ["bash", str(DEPLOY / script), *arguments],
        env={**os.environ, "CANAL_HA_VENV": str(VENV)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def processes(nodes: list[LocalNode]) -> list[int]:
    """Return the process ids of the nodes."""
    return [process.pid for node in nodes if (process := node.process()) is not None]


def test_a_rolling_restart_restarts_all_and_leaves_everything_running(nodes: list[LocalNode]) -> None:
    """Both nodes have a new process, and all destinations run. With a node down, the script restarts none."""
    before = processes(nodes)
    conf = [str(node.conf) for node in nodes]
    done = run("rolling-restart.sh", *conf)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    after = processes(nodes)
    assert len(after) == 2
    assert not set(before) & set(after)
    assert everything_runs(nodes)

    nodes[0].kill()
    until(lambda: nodes[0].process() is None, what="the end of the first node")
    done = run("rolling-restart.sh", *conf)
    assert done.returncode == 1
    assert "no node was restarted" in done.stderr
    assert processes(nodes) == after[1:]


def test_a_drill_measures_a_fail_over_and_brings_the_node_back(nodes: list[LocalNode]) -> None:
    """The drill succeeds with an orderly stop and with a crash, and both nodes run afterwards."""
    conf = [str(node.conf) for node in nodes]
    for options in (["--orderly"], []):
        before = processes(nodes)
        done = run("failover-drill.sh", *options, "a", *conf)
        print(done.stdout)
        assert done.returncode == 0, done.stderr
        assert all(node.runs() is not None for node in nodes)
        assert len(set(before) & set(processes(nodes))) == 1
        until(lambda: everything_runs(nodes), seconds=30.0, what="all destinations' running")
    done = run("failover-drill.sh", "nobody", *conf)
    assert (done.returncode, "none of these nodes runs nobody" in done.stderr) == (1, True)


def test_a_node_that_still_answers_has_not_ended(nodes: list[LocalNode]) -> None:
    """A drill once took the answer of a node that was stopping for that of a new process, and left it stopped."""
    node = nodes[0]
    assert node.process() is not None
    with pytest.raises(Stuck, match="waited 0 s for the end of"):
        node.wait_for_end(0.3)
    node.terminate()
    node.wait_for_end(30.0)
    assert node.process() is None
