"""zk/acl.sh, as the README tells operators to use it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from kazoo.exceptions import NoAuthError

from lab import ZooKeeper
from lab import zookeeper as lab_zookeeper
from tests.zookeeper.stage import RealStage

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).parents[2] / "zk" / "acl.sh"


def test_the_script_closes_the_tree(zookeeper: ZooKeeper) -> None:
    """Afterwards only a session with the digest can read the tree, such as that of a node configured with it."""
    stage = RealStage(zookeeper.hosts, auth="canal:secret")
    open_stage = RealStage(zookeeper.hosts)
    open_stage.hosts = stage.hosts
    session = open_stage.session()
    open_stage.do(lambda: session.ensure("/otter/canal/destinations/example"))
    done = subprocess.run(
        ["bash", str(SCRIPT), stage.hosts],
        env={**os.environ, "ZK_AUTH": "canal:secret"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "digest,'canal" in done.stdout
    with lab_zookeeper.session(stage.hosts) as stranger, pytest.raises(NoAuthError):
        stranger.get("/otter/canal/destinations/example")
    member = stage.session()
    assert stage.do(lambda: member.get("/otter/canal/destinations/example")) is not None
    stage.close()
    open_stage.close()
