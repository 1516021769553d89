"""The regular looks of many destinations at one real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from canal_ha.config.model import SourceConfig
from canal_ha.instance.alarms import Outlook
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.node.upstreams import Upstreams
from canal_ha.source.connection.idle_sessions import YOUNG_S
from canal_ha.source.positions.scan import Scanner
from lab import MySQL, SqlServer
from lab.ports import LOOPBACK
from lab.proxy import Network
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
    if not destination.keep_house((cursor,), at_once=True):
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


def test_a_long_search_of_one_destination_delays_the_looks_of_none(
    source_server: SqlServer, destinations: list[Upstreams], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its own looks nor those of the others, who wait for answers of each other."""
    searches, found = threading.Event(), threading.Event()
    boundary = Scanner.boundary

    def slowly(scanner: Scanner, *args: object) -> LogPosition:
        searches.set()
        assert found.wait(60)
        return boundary(scanner, *args)  # type: ignore[arg-type]  # as they came

    monkeypatch.setattr(Scanner, "boundary", slowly)
    cursor = newest(source_server)
    at_ms = int(source_server.query("SELECT UNIX_TIMESTAMP() AS now")[0]["now"]) * 1000
    with ThreadPoolExecutor(DESTINATIONS + 1) as pool:
        search = pool.submit(destinations[0].find, Place(timestamp_ms=at_ms))
        try:
            assert searches.wait(20)
            looks = [pool.submit(look, each, cursor) for each in destinations]
            for each in looks:
                each.result(10)
            assert not search.done()
        finally:
            found.set()
        assert search.result(20).journal


def test_destinations_of_an_address_that_moved_each_see_their_own_server(tmp_path: Path) -> None:
    """An answer of the new server is none for a destination that still asks the former one, and the other way round."""
    with MySQL(server_id=1) as first, MySQL(server_id=2) as second, Network() as network:
        link = network.link(first.port)
        config = replace(config_of(first), master=SourceConfig(LOOPBACK, link.port), tsdb_dir=str(tmp_path))
        before = [Upstreams(replace(config, destination=f"b{number}"), silent) for number in range(3)]
        former = {each.newest().server for each in before}
        link.target = second.port
        time.sleep(YOUNG_S)  # a destination that starts takes sessions that began just now
        after = [Upstreams(replace(config, destination=f"a{number}"), silent) for number in range(3)]
        now = {each.newest().server for each in after}
        assert (len(former), len(now), len(former | now)) == (1, 1, 2)
        for _ in range(3):
            with ThreadPoolExecutor(6) as pool:
                seen = list(pool.map(lambda each: each.newest().server, [*before, *after]))
            assert seen == [*former] * 3 + [*now] * 3
        for each in (*before, *after):
            each.close()
