"""What a node refuses before it writes the file of a destination."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from canal_ha.config.model import CanalConfig
from canal_ha.errors import PlacementRefused
from canal_ha.instance.embedded import Embedded
from canal_ha.node.destination_files import NodeFiles
from canal_ha.node.hosting import Hosting
from canal_ha.server.audit import Audit

NODE = "10.0.0.1:11111"


def refusal(work: Coroutine[Deferred[Any], Any, Any]) -> str:
    """Return the text of a refusal."""
    found: list[Any] = []
    Deferred.fromCoroutine(work).addErrback(found.append)
    found[0].trap(PlacementRefused)
    return str(found[0].getErrorMessage())


def files_of(conf: Path, **settings: Any) -> NodeFiles:
    config, clock = CanalConfig(conf, (), main_file=conf / "canal.properties", **settings), Clock()
    hosting = Hosting(config, clock, Embedded(), Audit(clock, lambda line: None))
    return NodeFiles(NODE, clock, hosting, lambda: config, tuple, None)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "is no name of a destination"),
        ("..", "is no name of a destination"),
        ("a b", "is no name of a destination"),
        ("a,b", "cannot be called"),
        (".hidden", "cannot be called"),
        ("Spring", "cannot be called"),
        ("x" * 129, "is no name of a destination"),
    ],
)
def test_a_name_that_is_no_directory_of_its_own_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    """Neither an addition nor a removal leaves the configuration directory."""
    files = files_of(tmp_path)
    assert reason in refusal(files.add(name, "", dry_run=False))
    assert reason in refusal(files.remove(name, purge=True, dry_run=False))
    assert list(tmp_path.iterdir()) == []


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    """JSON can say it, and no file can have it."""
    assert "is no UTF-8" in refusal(files_of(tmp_path).add("shop", "a = \ud800", dry_run=False))


def test_the_destinations_of_a_program_are_the_programs(tmp_path: Path) -> None:
    """A node without files of its own changes none."""
    files = files_of(tmp_path, given={"canal.port": "1"})
    assert "change its destinations in the program" in refusal(files.add("shop", "", dry_run=False))
