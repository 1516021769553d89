"""Whose progress a target has."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.errors import SinkRefused
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.progress_owner import ProgressOwner, foreign
from tests.pipeline.given import portion

ZK = "zk1:2181,zk2:2181/shop"
MINE = ProgressOwner("p", 1001, ZK)
DONE = Progress("r", 7, LogPosition("bin.000003", 500), 10_000, owner=MINE)
CURSOR = LogPosition("bin.000003", 500)
WHERE = "pipeline p, client id 1001 of d"


def test_a_progress_keeps_its_owner() -> None:
    """In the text that a target stores, and in later commits; earlier versions stored none."""
    assert Progress.from_json(DONE.after(CURSOR, 1).to_json()).owner == MINE
    assert Progress.from_json(replace(DONE, owner=None).to_json()).owner is None


@pytest.mark.parametrize(
    ("progress", "mine", "cursor"),
    [
        (None, MINE, CURSOR),
        (replace(DONE, owner=None), MINE, CURSOR),
        (DONE, MINE, CURSOR),
        (DONE, MINE, None),
        (DONE, ProgressOwner("p"), CURSOR),
        (DONE, ProgressOwner("p", 1001, "zk2:2181,zk3:2181/shop"), CURSOR),
        (DONE, ProgressOwner("p", 1001, "zk9:2181"), replace(CURSOR, mark="pipeline r commit 7")),
        (DONE, ProgressOwner("p", 1002, ZK), replace(CURSOR, mark="pipeline r commit 5")),
        (replace(DONE, given_up="pipeline q commit 9"), ProgressOwner("p", 1001, "zk9:2181"),
         replace(CURSOR, mark="pipeline q commit 9")),
        (DONE, ProgressOwner("p", 1002, "zk9:2181"), None),
    ],
)  # fmt: skip
def test_a_pipeline_goes_on_although_servers_move(
    progress: Progress | None, mine: ProgressOwner, cursor: LogPosition | None
) -> None:
    """As long as one server stays, or the cursor has the mark of its own commit."""
    assert foreign(progress, mine, WHERE, cursor) is None


@pytest.mark.parametrize(
    ("mine", "cursor", "way"),
    [
        (ProgressOwner("q", 1001, ZK), replace(CURSOR, mark="pipeline r commit 7"), "give it the name 'p' back"),
        (ProgressOwner("q"), None, "another path"),
        (ProgressOwner("p", 1002, ZK), CURSOR, "give it client id 1001 back"),
        (ProgressOwner("p", 1001, "zk9:2181"), CURSOR, "list one of zk1:2181,zk2:2181/shop beside"),
        (ProgressOwner("p", 1001, "zk9:2181"), replace(CURSOR, mark="pipeline s commit 7"), "Give each pipeline"),
    ],
)
def test_two_pipelines_do_not_share_a_progress(mine: ProgressOwner, cursor: LogPosition | None, way: str) -> None:
    """The error names both, and says what to do."""
    found = foreign(DONE, mine, WHERE, cursor)
    assert isinstance(found, SinkRefused)
    for text in (WHERE, f"of pipeline 'p' (client id 1001 at {ZK})", f"this is {mine}", way):
        assert text in str(found)


def test_a_process_that_is_overtaken_names_both_pipelines() -> None:
    """The one whose commit the target has, and its own."""
    stored = replace(DONE, owner=replace(MINE, client_id=1002))
    with pytest.raises(SinkRefused, match=r"the target is at pipeline r commit 7 of pipeline 'p' \(client id 1002 at"):
        lacks(stored, portion(4, 100, [], run="r"), "delta: /lake")
