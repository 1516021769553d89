"""The regular looks of many destinations at one real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from canal_ha.instance.alarms import Outlook
from canal_ha.model.position import LogPosition
from canal_ha.node.upstreams import Upstreams
from lab import SqlServer
from tests.source.reading import config_of, newest

pytestmark = pytest.mark.real

DESTINATIONS = 20
CLIENT_ID = 1001


def silent(name: str, /, *, alarm: bool = False, **facts: object) -> None:
    """Report nothing."""


@pytest.fixture
def destinations(source_server: SqlServer, tmp_path: Path) -> Iterator[list[Upstreams]]:
    """Many destinations of the server, which have looked at it once."""
    config = replace(config_of(source_server), tsdb_dir=str(tmp_path))
    found = [Upstreams(replace(config, destination=f"d{number}"), silent) for number in range(DESTINATIONS)]
    for each in found:
        look(each, newest(source_server))
    yield found
    for each in found:
        each.close()


def look(destination: Upstreams, cursor: LogPosition) -> Outlook:
    """Look at the server as an instance does; return the outlook of the cursor of a client."""
    destination.newest()
    destination.keep_house((cursor,))
    return destination.outlook({CLIENT_ID: cursor})[CLIENT_ID]


def questions(server: SqlServer) -> int:
    """Return how many statements the server has had."""
    return int(server.query("SHOW GLOBAL STATUS LIKE 'Questions'")[0]["Value"])


def test_the_looks_of_many_destinations_are_one_question(
    source_server: SqlServer, destinations: list[Upstreams]
) -> None:
    """The server is asked once for all of them, while nothing changes."""
    cursor = newest(source_server)
    for each in destinations:
        look(each, cursor)
    before = questions(source_server)
    for each in destinations:
        look(each, cursor)
    assert questions(source_server) - before < 3 * DESTINATIONS


def test_a_journal_that_is_newer_than_the_last_answer_is_not_gone(
    source_server: SqlServer, destinations: list[Upstreams]
) -> None:
    """A cursor that has moved into a new journal just now makes no alarm."""
    for each in destinations:
        look(each, newest(source_server))
        source_server.execute("FLUSH BINARY LOGS")
        assert look(each, newest(source_server)).purge_in_s != 0.0


def test_each_destination_sees_that_a_journal_is_gone(source_server: SqlServer, destinations: list[Upstreams]) -> None:
    """Also if another one has looked just before."""
    for each in destinations:
        look(each, newest(source_server))
    gone = replace(newest(source_server), journal="gone.000001")
    assert {look(each, gone).purge_in_s for each in destinations} == {0.0}
