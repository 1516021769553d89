"""The bound on large events: held by threads, and by dumps of a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from canal_ha.source.connection.large_events import LargeEvents
from canal_ha.source.server.dump import DumpFailed
from lab import SqlServer
from tests.source.reading import Reading, newest

MIB = 1 << 20


def go_on() -> None:
    """Want to wait."""


def test_no_more_threads_than_places() -> None:
    """Of many threads, each gets a place, and never more have one than there are places."""
    large = LargeEvents(places=2)
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        assert large.enter(go_on)
        inside.append(number)
        most.append(len(inside))
        time.sleep(0.01)
        inside.remove(number)
        large.leave()

    threads = [threading.Thread(target=partial(work, number)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 20
    assert max(most) == 2


def test_whoever_keeps_a_place_delays_others_but_does_not_stop_them() -> None:
    """After the longest wait a stream goes on without a place."""
    large = LargeEvents(places=1, wait_s=0.2)
    assert large.enter(go_on)
    began = time.monotonic()
    assert not large.enter(go_on)
    assert 0.2 <= time.monotonic() - began < 5
    large.leave()
    assert large.enter(go_on)


def test_a_stop_ends_the_wait() -> None:
    """What `go_on` raises ends the wait, and takes no place."""
    large = LargeEvents(places=1)
    assert large.enter(go_on)

    def stopped() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        large.enter(stopped)
    large.leave()
    assert large.enter(stopped)


def large_row(server: SqlServer, database: str) -> None:
    """Create a table and commit a row of 24 MiB."""
    half = f"REPEAT('x', {12 * MIB})"
    server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v LONGTEXT, w LONGTEXT)",
        f"INSERT INTO {database}.t VALUES (1, {half}, {half})",
    )


@pytest.mark.real
def test_a_full_ring_keeps_no_place(source_server: SqlServer, database: str) -> None:
    """Streams whose clients take nothing hold decoded rows and no place, so another stream receives its row."""
    large = LargeEvents(places=1, wait_s=3600)
    start = newest(source_server)
    with (
        Reading(source_server, database, start, client_id=1, large=large) as first,
        Reading(source_server, database, start, client_id=2, large=large) as second,
        Reading(source_server, database, start, client_id=3, large=large) as third,
    ):
        first.gate.clear()
        second.gate.clear()
        large_row(source_server, database)
        assert third.wait_rows(1) == ["1"]
        assert first.blocked.wait(30)
        assert second.blocked.wait(30)


@pytest.mark.real
def test_an_event_is_received_once_there_is_room_for_it(source_server: SqlServer, database: str) -> None:
    """A stream whose ring is full asks for no place, and receives no large event."""
    large = LargeEvents(places=1, wait_s=3600)
    room = threading.Event()
    asked = threading.Event()

    def await_room() -> None:
        asked.set()
        room.wait()

    start = newest(source_server)
    with (
        Reading(source_server, database, start, client_id=1, large=large, await_room=await_room) as waiting,
        Reading(source_server, database, start, client_id=2, large=large) as other,
    ):
        try:
            large_row(source_server, database)
            assert other.wait_rows(1) == ["1"]
            assert asked.wait(30)
            assert waiting.dump.received_bytes < 10 * MIB
            assert not waiting.rows()
        finally:
            room.set()
        assert waiting.wait_rows(1) == ["1"]


class Once(LargeEvents):
    """Calls `then` after the first place is taken."""

    def __init__(self, then: Callable[[], None]) -> None:
        super().__init__(places=1, wait_s=3600)
        self._then = iter([then])

    def enter(self, go_on: Callable[[], None]) -> bool:
        entered = super().enter(go_on)
        for then in self._then:
            then()
        return entered


@pytest.mark.real
def test_a_connection_lost_inside_a_large_event_leaves_its_place(source_server: SqlServer, database: str) -> None:
    """The stream connects again and receives the row with the only place."""

    def kill() -> None:
        for row in source_server.query("SHOW PROCESSLIST"):
            if "Binlog Dump" in str(row["Command"]):
                source_server.execute(f"KILL {row['Id']}")

    large = Once(kill)
    with Reading(source_server, database, newest(source_server), large=large) as reading:
        large_row(source_server, database)
        assert reading.wait_rows(1) == ["1"]
        assert any(isinstance(event, DumpFailed) for event in reading.events)
    assert large.enter(go_on)
