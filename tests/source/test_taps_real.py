"""When taps begin and end, on real servers, and what an operator sees of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from canal_ha.config.model import SourceConfig
from canal_ha.errors import SourceRefused
from canal_ha.source.connection.reader import DumpReader
from canal_ha.source.server import tap, tapped
from canal_ha.source.server.tap_records import TAP
from lab import MySQL, SqlServer
from lab.ports import LOOPBACK
from lab.proxy import Network
from tests.source.reading import Reading, newest
from tests.source.test_dump_real import dump_threads
from tests.source.test_tap_real import STREAMS, Streams
from tests.waiting import until

pytestmark = pytest.mark.real


@pytest.fixture
def streams(source_server: SqlServer, database: str) -> Iterator[Streams]:
    """Yield streams, none of which is open."""
    with ExitStack() as stack:
        yield Streams(source_server, database, stack)


def late(streams: Streams, **options: Any) -> Reading:
    """Return a stream that begins at the end of the binlog, not open yet."""
    return Reading(
        streams.server,
        streams.database,
        newest(streams.server),
        client_id=77,
        reads=streams._reads,
        taps=streams.taps,
        **options,
    )


def test_a_lost_connection_of_a_tap_makes_few_streams_open_dumps_of_their_own(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them did, for ten seconds: the next tap begins where they stand."""
    monkeypatch.setattr(tap, "RETRY_S", 1.0)
    streams.open(5 * STREAMS)
    streams.settle()
    time.sleep(1.0)
    own: list[object] = []

    def counted(*args: Any) -> Any:
        own.append(args)
        return DumpReader(*args)

    monkeypatch.setattr("canal_ha.source.server.dump.DumpReader", counted)
    streams.kill_dumps()
    streams.insert(5)
    streams.check()
    streams.settle()
    assert len(own) <= STREAMS
    assert not streams.failures


def test_a_bulk_load_is_sent_once_and_not_once_to_each_stream(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their queues were full at once, so all of them left the tap, which then ended because nobody followed."""
    monkeypatch.setattr(tapped, "QUEUED_BYTES", 100_000)
    streams.open(3 * STREAMS)
    streams.settle()
    (name,) = {each.dump.tap for each in streams.readings}
    for _ in range(3):
        values = ",".join(f"({number}, 0)" for number in range(streams._next, streams._next + 20_000))
        streams.server.execute(f"INSERT INTO {streams.database}.t VALUES {values}")
        streams._next += 20_000
    streams.check()
    assert {each.dump.tap for each in streams.readings} == {name}
    assert len(dump_threads(streams.server)) == 1
    assert not streams.failures


def test_a_client_that_stops_in_a_bulk_load_leaves_the_tap_and_the_others_go_on(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tap waits for it for seconds at most."""
    monkeypatch.setattr(tapped, "QUEUED_BYTES", 100_000)
    slow, *others = streams.open(2 * STREAMS)
    streams.settle()
    slow.gate.clear()
    for _ in range(3):
        values = ",".join(f"({number}, 0)" for number in range(streams._next, streams._next + 20_000))
        streams.server.execute(f"INSERT INTO {streams.database}.t VALUES {values}")
        streams._next += 20_000
    began = time.monotonic()
    streams.check(*others)
    assert time.monotonic() - began < 20
    slow.gate.set()
    streams.check()
    streams.settle()
    assert not streams.failures


def test_figures_tell_how_many_streams_follow_and_why_taps_ended(streams: Streams) -> None:
    """Only two lines of the log did."""
    streams.open(STREAMS)
    streams.settle()
    address = f"127.0.0.1:{streams.server.port}"
    assert streams.taps.figures.streams == {address: STREAMS}
    assert all(each.dump.tap.startswith("canal-ha/tap/") for each in streams.readings)
    streams.kill_dumps()
    until(lambda: streams.taps.figures.ended["lost"] == 1, what="the end of the tap")
    streams.insert(1)
    streams.check()


def test_taps_that_cannot_be_opened_are_an_alarm_until_one_is(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each attempt was a line of the log, and nothing else."""
    monkeypatch.setattr(tap, "RETRY_S", 0.2)
    user, count = f"u{streams.database[-20:]}", STREAMS + 2
    rights = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    streams.server.execute(
        f"CREATE USER '{user}'@'%' IDENTIFIED BY 'canal' WITH MAX_USER_CONNECTIONS 100",
        f"GRANT {rights if streams.server.flavor == 'mysql' else 'ALL'} ON *.* TO '{user}'@'%'",
    )
    streams.taps._streams = 100  # at first
    streams.open(count, user=user)
    streams.insert(1)
    streams.check()
    until(lambda: len(dump_threads(streams.server)) == count, what="a dump for each stream")
    streams.server.execute(f"ALTER USER '{user}'@'%' WITH MAX_USER_CONNECTIONS {count}")
    streams.taps._streams = STREAMS

    def tried() -> bool:
        streams.insert(1)
        return bool(streams.taps.alarms(time.time()))

    streams.server.execute(f"CREATE TABLE {streams.database}.other (id INT PRIMARY KEY)")
    until(tried, what="the alarm", seconds=60)
    (alarm,) = streams.taps.alarms(time.time())
    assert alarm.alarm == TAP
    assert f":{streams.server.port}: the one dump for all its streams cannot be opened: " in alarm.text
    assert streams.taps.figures.ended["unopened"] >= 3
    streams.server.execute(f"ALTER USER '{user}'@'%' WITH MAX_USER_CONNECTIONS 100")
    streams.settle()
    assert not streams.taps.alarms(time.time())
    assert sum("tap.fail" in record.getMessage() for record in caplog.records) <= 3
    assert not streams.failures


def test_a_stream_whose_account_may_not_replicate_any_more_does_not_begin_at_a_tap(database: str) -> None:
    """The tap, which began before, goes on, as each dump of its own would. MySQL refuses only what begins later."""
    with MySQL() as server, ExitStack() as stack:
        streams = Streams(server, database, stack)
        streams.open(STREAMS)
        streams.settle()
        server.execute("REVOKE REPLICATION SLAVE ON *.* FROM 'canal'@'%'")
        time.sleep(1.1)  # what the server has told a second ago counts
        with late(streams) as refused:
            error = refused.failure(SourceRefused).error
            assert "REPLICATION SLAVE" in str(error)
            assert not refused.dump.tap
        streams.insert(3)
        streams.check()


def test_streams_at_the_new_server_of_an_address_get_a_tap(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tap at the old server, whose streams go on, was the only one of the address."""
    monkeypatch.setattr(tap, "RETRY_S", 1.0)
    with MySQL() as old, MySQL() as new, Network() as network, ExitStack() as stack:
        link = network.link(old.port)
        through = SourceConfig(LOOPBACK, link.port)
        before, after = Streams(old, database, stack), Streams(new, database, stack)
        after._reads, after.taps = before._reads, before.taps
        for streams in (before, after):
            server = str(streams.server.query("SELECT @@server_uuid AS s")[0]["s"])
            streams._start = newest(streams.server).__class__(*streams.server.position(), server=server)
        before.open(STREAMS, master=through)
        before.settle()
        link.target = new.port
        after.open(STREAMS, master=through)
        after.settle()
        before.insert(3)
        before.check()
        assert len(dump_threads(old)) == 1
        assert before.taps.figures.streams == {f"{LOOPBACK}:{link.port}": 2 * STREAMS}
        names = {each.dump.tap for each in (*before.readings, *after.readings)}
        assert len(names) == 2
