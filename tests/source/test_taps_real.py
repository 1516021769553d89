"""When taps begin and end, on real servers, and what an operator sees of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from canal_ha.config.model import SourceConfig, TlsConfig
from canal_ha.errors import SourceRefused
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.reader import DumpReader
from canal_ha.source.server import tap, tapped
from canal_ha.source.server.tap_records import TAP
from lab import MySQL, SqlServer
from lab.ports import LOOPBACK
from lab.proxy import Network
from tests.source.reading import Reading, config_of, newest
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
    read = tap.Tap._read

    def late(self: tap.Tap) -> None:
        time.sleep(0.5)
        read(self)

    monkeypatch.setattr(tap.Tap, "_read", late)
    streams.kill_dumps()
    streams.insert(5)  # the binlog goes on before the next tap has connected
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
            streams._start = LogPosition(*streams.server.position(), server=server)
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


def test_streams_that_stay_at_the_old_server_keep_no_tap_from_those_at_the_new_one(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt asked for the server of the first stream, which the address does not lead to any more."""
    monkeypatch.setattr(tap, "RETRY_S", 0.5)
    with MySQL() as old, MySQL() as new, Network() as network, ExitStack() as stack:
        link = network.link(old.port)
        before, after = Streams(old, database, stack), Streams(new, database, stack)
        after._reads, after.taps = before._reads, before.taps
        before.taps._streams = 100  # at first
        for streams in (before, after):
            server = str(streams.server.query("SELECT @@server_uuid AS s")[0]["s"])
            streams._start = LogPosition(*streams.server.position(), server=server)
            link.target = streams.server.port
            streams.open(STREAMS, master=SourceConfig(LOOPBACK, link.port))
            streams.insert(1)
            streams.check()
            until(lambda: all(each.dump.lent for each in streams.readings), what="streams that the reactor reads")  # noqa: B023
        before.taps._streams = STREAMS
        new.execute(f"CREATE TABLE {database}.other (id INT PRIMARY KEY)")
        after.settle()
        before.insert(3)
        before.check()
        assert not any(each.dump.tap for each in before.readings)
        assert not before.failures
        assert not after.failures


def test_streams_do_not_wait_one_after_the_other_for_a_tap_that_hangs(streams: Streams) -> None:
    """Few wait at once, so a thousand streams took minutes."""
    one = tap.Tap(
        config_of(streams.server),
        config_of(streams.server).master,
        newest(streams.server),
        streams._reads,
        lambda begun: None,
        lambda ended, reason, error: None,
    )
    one._made_at -= tap.OPENS_S
    began = time.monotonic()
    for _ in range(100):
        assert not one.opened(lambda: None)
    assert time.monotonic() - began < 5


def test_streams_of_two_accounts_have_a_tap_each(streams: Streams) -> None:
    """An account gets no bytes that another one may read."""
    user = f"u{streams.database[-20:]}"
    rights = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
    streams.server.execute(
        f"CREATE USER '{user}'@'%' IDENTIFIED BY 'canal'",
        f"GRANT {rights if streams.server.flavor == 'mysql' else 'ALL'} ON *.* TO '{user}'@'%'",
    )
    streams.open(STREAMS)
    streams.open(STREAMS, user=user)

    def at_taps() -> bool:
        streams.insert(1)
        streams.check()
        return all(each.dump.tap for each in streams.readings)

    until(at_taps, what="streams at taps", seconds=30)
    one, other = ({each.dump.tap for each in part} for part in (streams.readings[:STREAMS], streams.readings[STREAMS:]))
    assert len(one) == len(other) == 1
    assert one != other
    assert streams.taps.figures.streams == {f"127.0.0.1:{streams.server.port}": 2 * STREAMS}


def test_a_tap_that_connects_while_the_node_stops_leaves_no_dump(streams: Streams) -> None:
    """Its thread may wait for the server meanwhile."""
    with Network() as network:
        link = network.link(streams.server.port)
        streams.taps._streams = 100  # at first
        streams._start = LogPosition(*streams.server.position(), address=LOOPBACK, port=link.port)
        streams.open(STREAMS, master=SourceConfig(LOOPBACK, link.port))
        streams.insert(1)
        streams.check()
        until(lambda: all(each.dump.lent for each in streams.readings), what="streams that the reactor reads")
        streams.taps._streams = STREAMS
        link.delay(0.3)  # for each step of the connection
        streams.server.execute(f"CREATE TABLE {streams.database}.other (id INT PRIMARY KEY)")
        until(lambda: len(streams.taps._taps) == 1, what="a tap that connects", seconds=30)
        closed = threading.Event()
        streams._reads.soon(streams.taps.close)
        streams._reads.soon(closed.set)
        assert closed.wait(10)
        link.delay(0.0)
        time.sleep(1.0)
        streams.insert(1)
        streams.check()
        until(lambda: len(dump_threads(streams.server)) == STREAMS, what="the dumps of the streams")
        assert streams.taps.figures.streams == {}
        assert streams.taps.figures.ended["unopened"] == 0


@pytest.mark.parametrize("mode", ["PREFERRED", "DISABLED"])
def test_a_dump_that_is_killed_inside_a_bulk_load_loses_and_repeats_nothing(
    streams: Streams, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The tap waits for full queues at that moment, and TLS has decrypted more than was read."""
    monkeypatch.setattr(tapped, "QUEUED_BYTES", 100_000)
    monkeypatch.setattr(tap, "RETRY_S", 0.5)
    streams.open(2 * STREAMS, tls=TlsConfig(mode))
    streams.settle()
    for _ in range(4):
        values = ",".join(f"({number}, 0)" for number in range(streams._next, streams._next + 20_000))
        streams.server.execute(f"INSERT INTO {streams.database}.t VALUES {values}")
        streams._next += 20_000
        time.sleep(0.1)
        streams.kill_dumps()
    streams.check()
    streams.settle()
