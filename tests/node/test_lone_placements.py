"""Destinations of a node without ZooKeeper: a file keeps a pause, and there is nowhere to move them."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from canal_ha.cluster.placement import Placed
from canal_ha.config.model import CanalConfig, InstanceConfig, SourceConfig
from canal_ha.errors import PlacementRefused
from canal_ha.instance.embedded import Embedded
from canal_ha.node.hosting import Hosting
from canal_ha.node.lone_placements import LonePlacements
from canal_ha.server.audit import Audit

NODE = "10.0.0.1:11111"


def done(work: Coroutine[Deferred[Any], Any, Any]) -> Any:
    """Return the answer, or the text of the refusal."""
    found: list[Any] = []
    Deferred.fromCoroutine(work).addBoth(found.append)
    (answer,) = found
    if hasattr(answer, "trap"):
        answer.trap(PlacementRefused)
        return answer.getErrorMessage()
    return answer


def test_a_pause_is_a_file_that_keeps_the_destination_stopped(tmp_path: Path) -> None:
    """A dry run changes nothing, and neither does a second pause or resumption."""
    clock = Clock()
    hosting = Hosting(CanalConfig(tmp_path, ()), clock, Embedded(), Audit(clock, lambda line: None))
    hosting.configured["d0"] = InstanceConfig("d0", SourceConfig("127.0.0.1"), data_dir=tmp_path, lazy=True)
    placements, file = LonePlacements(NODE, hosting), tmp_path / "d0" / "paused"
    assert done(placements.resume("d0", dry_run=False)) == "d0 is not paused"
    assert done(placements.pause("d0", dry_run=True)) == ""
    assert not file.exists()
    assert done(placements.pause("d0", dry_run=False)) == ""
    assert file.exists()
    assert done(placements.pause("d0", dry_run=False)) == "d0 is paused already"
    assert done(placements.placed()) == [Placed("d0", members={NODE: True}, paused=True)]
    done(hosting.start_alone("d0"))
    assert not hosting.runs("d0")
    assert done(placements.resume("d0", dry_run=True)) == ""
    assert file.exists()
    assert done(placements.resume("d0", dry_run=False)) == ""
    assert not file.exists()


def test_without_zookeeper_there_is_no_other_node(tmp_path: Path) -> None:
    """Moves, and destinations that nobody configured, are refused with the reason."""
    clock = Clock()
    hosting = Hosting(CanalConfig(tmp_path, ()), clock, Embedded(), Audit(clock, lambda line: None))
    placements = LonePlacements(NODE, hosting)
    assert "this node has no cluster" in done(placements.move("d0", NODE, dry_run=False))
    assert "this node has no cluster" in done(placements.rebalance(dry_run=False))
    assert "this node has no destination d0" in done(placements.pause("d0", dry_run=False))
