"""A cursor whose position is lost is replaced as the configuration says, unless an operator moves it meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest
from twisted.internet.defer import Deferred

from canal_ha.config.model import WhenLost
from canal_ha.errors import PositionLost
from canal_ha.model.get_request import GetRequest
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from tests.instance.test_embedded import NoRows
from tests.instance.test_stop import IDENTITY, Bench, OpenFeeds
from tests.instance.test_stream import now

LATEST = LogPosition("mysql-bin.000009", 4)
EDIT = LogPosition("mysql-bin.000002", 154)


def searching(monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, Deferred[LogPosition]]:
    """Return an instance that looks for another cursor, and what answers it."""
    bench = Bench(position_lost=WhenLost.LATEST)
    monkeypatch.setattr(bench.clock, "callFromThread", lambda call, *args: call(*args))
    bench.acknowledged()
    return bench, lose(bench)


def lose(bench: Bench) -> Deferred[LogPosition]:
    """Let the client read until its position is lost. Return what answers the search for another one."""
    now(bench.embedded.get(IDENTITY, GetRequest(1, 0.0)))
    (feed,) = OpenFeeds.open
    bench.held = []
    feed.request.failed(PositionLost("the journal is purged"), None)
    (answer,) = bench.held
    bench.held = None
    return answer


def test_a_lost_cursor_goes_where_the_configuration_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says so."""
    bench, answer = searching(monkeypatch)
    answer.callback(LATEST)
    assert bench.instance.meta.cursor(1001) == LATEST
    assert "cursor.moved_past_lost" in [name for name, _ in bench.events]


@pytest.mark.parametrize("edited", [False, True], ids=["over HTTP", "in ZooKeeper"])
def test_an_operators_move_counts_although_the_node_was_replacing_the_lost_cursor(
    edited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the client would skip the rows between. A later loss is replaced again."""
    bench, answer = searching(monkeypatch)
    if edited:
        moved = EDIT
        bench.instance.cursor_replaced(1001, moved)
    else:
        _, moved = now(bench.embedded.move_cursor("example", 1001, Place.parse("latest"), dry_run=False))
        assert moved == NoRows().newest()
    answer.callback(LATEST)
    assert bench.instance.meta.cursor(1001) == moved
    assert "cursor.moved_past_lost" not in [name for name, _ in bench.events]
    lose(bench).callback(LATEST)
    assert bench.instance.meta.cursor(1001) == LATEST


def test_an_acknowledgement_while_the_node_was_replacing_a_lost_cursor_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has subscribed with another filter, and could read after all. A later loss is replaced again."""
    bench, answer = searching(monkeypatch)
    now(bench.embedded.subscribe(replace(IDENTITY, filter=r"shop\..*")))
    bench.instance.meta.move(1001, EDIT)
    answer.callback(LATEST)
    assert bench.instance.meta.cursor(1001) == EDIT
    lose(bench).callback(LATEST)
    assert bench.instance.meta.cursor(1001) == LATEST


def test_a_stream_whose_journal_is_purged_has_the_alarm_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the alarm of a purge that is about to come, beside the error of the one that has come."""
    bench = Bench()
    monkeypatch.setattr(bench.clock, "callFromThread", lambda call, *args: call(*args))
    bench.acknowledged()
    now(bench.embedded.get(IDENTITY, GetRequest(1, 0.0)))
    (feed,) = OpenFeeds.open
    feed.request.failed(PositionLost("the journal is purged"), None)
    (stream,) = bench.instance.status().streams
    assert (stream.state, stream.alarms) == ("failed", ("lost",))
