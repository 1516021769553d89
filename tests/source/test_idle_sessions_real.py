"""Sessions that many destinations of one server use in turn, on real servers."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace

import pytest

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import CanalError, SourceUnavailable
from canal_ha.model.tell import Tell
from canal_ha.node.upstreams import Generation
from canal_ha.source.connection.idle_sessions import (
    MOMENT_S,
    MOST_AT_ONCE,
    MOST_IDLE,
    YOUNG_S,
    IdleSessions,
    SessionKind,
    SourceSessions,
)
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.connection.tables import Tables
from canal_ha.source.snapshot.source import SnapshotSource
from lab import MySQL, SqlServer
from lab.ports import LOOPBACK
from lab.proxy import Link, Network
from lab.waiting import until
from tests.source.reading import config_of, newest

pytestmark = pytest.mark.real

DESTINATIONS = 10
COLUMNS = ("a INT, b INT", "b INT, a INT")  # of one table on two servers


@pytest.fixture
def idle() -> IdleSessions:
    """Idle sessions that only this test uses."""
    return IdleSessions()


def silent(name: str, /, *, alarm: bool = False, **facts: object) -> None:
    """Report nothing."""


SILENT: Tell = silent


def connection_of(session: SourceSession) -> int:
    """Return the server's id of a session."""
    return int(session.query("SELECT CONNECTION_ID() AS id")[0]["id"])


def connections(server: SqlServer) -> set[int]:
    """Return the server's ids of the sessions of canal-ha's account."""
    return {int(row["Id"]) for row in server.query("SHOW PROCESSLIST") if row["User"] == "canal"}


def used_by(sessions: SourceSessions) -> int:
    """Return the server's id of the session that this user gets."""
    with sessions.lent() as session:
        return connection_of(session)


@dataclass(frozen=True)
class Moving:
    """An address that leads new connections to one of two servers.

    servers: both; their ids differ, and so do the columns of d.t.
    config: of a destination at the address.
    """

    servers: tuple[MySQL, MySQL]
    link: Link
    config: InstanceConfig

    def move(self) -> None:
        """Lead new connections to the second server. Those to the first one go on."""
        self.link.target = self.servers[1].port

    def reached(self, sessions: SourceSessions) -> int:
        """Return which server a user reaches: 1 or 2."""
        with sessions.lent() as session:
            return int(session.query("SELECT @@server_id AS id")[0]["id"])


@pytest.fixture(scope="module")
def two_servers() -> Iterator[tuple[MySQL, MySQL]]:
    """Yield two servers with other columns of one table."""
    with MySQL(server_id=1) as first, MySQL(server_id=2) as second:
        for server, columns in zip((first, second), COLUMNS, strict=True):
            server.execute("CREATE DATABASE d", f"CREATE TABLE d.t ({columns})")
        yield first, second


@pytest.fixture
def moving(two_servers: tuple[MySQL, MySQL]) -> Iterator[Moving]:
    """Yield an address that leads to the first server at first."""
    with Network() as network:
        link = network.link(two_servers[0].port)
        yield Moving(two_servers, link, replace(config_of(two_servers[0]), master=SourceConfig(LOOPBACK, link.port)))


def test_many_destinations_of_a_server_keep_few_sessions(source_server: SqlServer) -> None:
    """Each destination asks for positions, tables and its table history; the idle sessions stay the same few."""
    before = connections(source_server)
    config = config_of(source_server)
    generations = [
        Generation(replace(config, destination=f"d{number}"), SILENT, None) for number in range(DESTINATIONS)
    ]
    for each in generations:
        each.view.newest()
        each.tables.fetch("nowhere", "nothing")
        each.history.look(None)
    assert len(connections(source_server) - before) <= 2
    for each in generations:
        each.close()
    until(lambda: connections(source_server) <= before, what="the sessions to end")


def test_no_more_sessions_stay_than_allowed(source_server: SqlServer) -> None:
    """Many may be in use at once. The surplus stays for a moment, in which others may ask, too."""
    before, now = connections(source_server), [1000.0]
    idle, config = IdleSessions(lambda: now[0]), config_of(source_server)
    many, few = SourceSessions(config, idle=idle), SourceSessions(config, kind=SessionKind(many=True), idle=idle)
    with ExitStack() as stack:
        for _ in range(MOST_AT_ONCE + 2):
            stack.enter_context(many.lent())
        assert len(connections(source_server) - before) == MOST_AT_ONCE + 2
    until(lambda: len(connections(source_server) - before) == MOST_AT_ONCE, what="the surplus to end")
    used_by(few)
    now[0] += MOMENT_S + 1
    used_by(few)
    until(lambda: len(connections(source_server) - before) == MOST_IDLE + 1, what="the rest of the surplus to end")


def test_the_last_user_of_a_server_closes_what_is_idle_and_no_other_does(
    source_server: SqlServer, idle: IdleSessions
) -> None:
    """Who goes on with a server never has to connect to its address again because another destination stops."""
    before = connections(source_server)
    config = config_of(source_server)
    one, other = (SourceSessions(config, idle=idle) for _ in range(2))
    used = used_by(one)
    assert used_by(other) == used
    one.close()
    assert used_by(other) == used
    other.close()
    until(lambda: connections(source_server) <= before, what="the session to end")


def test_the_stop_of_a_destination_breaks_no_session_that_another_one_uses(
    source_server: SqlServer, idle: IdleSessions
) -> None:
    """A session that a destination gave back is not its own any more."""
    config, stop_signal = config_of(source_server), StopSignal()
    other = SourceSessions(config, idle=idle)
    used = used_by(SourceSessions(config, stop_signal=stop_signal, idle=idle))
    with other.lent() as session:
        assert connection_of(session) == used
        stop_signal.end()
        assert connection_of(session) == used


def test_a_destination_that_stops_takes_no_session_and_keeps_none(source_server: SqlServer, idle: IdleSessions) -> None:
    """Idle sessions stay for the others; what it uses is interrupted and closed."""
    config, stop_signal = config_of(source_server), StopSignal()
    other, stopping = SourceSessions(config, idle=idle), SourceSessions(config, stop_signal=stop_signal, idle=idle)
    used = used_by(other)
    with ThreadPoolExecutor(1) as pool:

        def hang() -> None:
            with stopping.lent() as session:
                assert connection_of(session) == used
                session.query("SELECT SLEEP(600)")

        hanging = pool.submit(hang)
        asked = "SELECT SLEEP(600)"
        until(lambda: any(row["Info"] == asked for row in source_server.query("SHOW PROCESSLIST")), what=asked)
        stop_signal.end()
        with pytest.raises(SourceUnavailable):
            hanging.result(20)
    fresh = used_by(other)
    assert fresh != used
    with pytest.raises(SourceUnavailable, match="the destination stops"), stopping.lent():
        pass
    assert used_by(other) == fresh


def test_lost_sessions_are_replaced(source_server: SqlServer, idle: IdleSessions) -> None:
    """The server may close idle sessions; whoever asks next does not notice."""
    sessions = SourceSessions(config_of(source_server), idle=idle)
    with sessions.lent() as one, sessions.lent() as two:
        lost = {connection_of(one), connection_of(two)}
    for number in lost:
        source_server.execute(f"KILL {number}")
    with sessions.lent() as one, sessions.lent() as two:
        assert not lost & {connection_of(one), connection_of(two)}


def test_one_question_waits_for_one_lost_session_only(moving: Moving, idle: IdleSessions) -> None:
    """A firewall forgot the idle connections: each of them hangs until its read time-out."""
    config = replace(moving.config, so_timeout_s=1)
    sessions = SourceSessions(config, idle=idle)
    with ExitStack() as stack:
        for _ in range(MOST_IDLE):
            stack.enter_context(SourceSessions(config, idle=idle).lent())
        assert moving.reached(sessions) == 1
    lost = {kept.session for kept in idle._idle[sessions._key]}
    moving.link.strand()
    assert moving.reached(sessions) == 1
    assert len(lost - {kept.session for kept in idle._idle[sessions._key]}) == 1


def test_a_user_that_stops_while_a_session_is_on_its_way_leaves_nothing(
    source_server: SqlServer, idle: IdleSessions
) -> None:
    """Else its sessions would be kept for nobody, for as long as the node runs."""
    stop_signal = StopSignal()

    def stop(session: SourceSession) -> None:
        stop_signal.end()
        sessions.close()

    sessions = SourceSessions(config_of(source_server), None, stop_signal, SessionKind(prepare=stop), idle)
    with suppress(CanalError), sessions.lent():
        pass
    assert not idle._users
    assert not idle._idle


@pytest.mark.parametrize("error", [CanalError("refused"), ValueError("unforeseen")])
def test_after_an_error_its_user_has_new_sessions_and_the_others_keep_theirs(
    source_server: SqlServer, idle: IdleSessions, error: Exception
) -> None:
    """Rights that somebody grants because of the error apply to new connections only."""
    config = config_of(source_server)
    failing, other = SourceSessions(config, idle=idle), SourceSessions(config, idle=idle)
    with suppress(type(error)), failing.lent() as one:
        kept = used_by(other)
        failed = connection_of(one)
        raise error
    until(lambda: failed not in connections(source_server), what="the session of the error to end")
    fresh = used_by(failing)
    assert fresh not in (failed, kept)
    assert used_by(other) in (kept, fresh)
    assert {kept, fresh} <= connections(source_server)


def test_each_kind_and_account_has_sessions_of_its_own(source_server: SqlServer, idle: IdleSessions) -> None:
    """A session with other settings, another account or another time-out is another one."""
    config = config_of(source_server)
    plain = used_by(SourceSessions(config, idle=idle))
    prepared = SessionKind(prepare=lambda session: session.query("SET SESSION sql_mode = ''"))
    with SourceSessions(config, kind=prepared, idle=idle).lent() as session:
        assert connection_of(session) != plain
        assert session.query("SELECT @@sql_mode AS mode")[0]["mode"] == ""
    assert used_by(SourceSessions(replace(config, so_timeout_s=7), idle=idle)) != plain
    with pytest.raises(CanalError), SourceSessions(replace(config, password="wrong"), idle=idle).lent():
        pass


def test_a_session_that_cannot_be_prepared_is_closed(source_server: SqlServer, idle: IdleSessions) -> None:
    """No connection is left."""
    before = connections(source_server)
    refused = SessionKind(prepare=lambda session: session.query("SET SESSION no_such_variable = 1"))
    with pytest.raises(CanalError), SourceSessions(config_of(source_server), kind=refused, idle=idle).lent():
        pass
    until(lambda: connections(source_server) <= before, what="it to end")


# ---- an address that comes to lead to another server, while connections to the former one go on


def test_who_begins_after_an_address_has_moved_takes_no_session_of_before(moving: Moving, idle: IdleSessions) -> None:
    """It would ask the former server for the columns of the new one's rows."""
    before = SourceSessions(moving.config, idle=idle)
    assert moving.reached(before) == 1
    moving.move()
    after = SourceSessions(moving.config, idle=idle)
    assert moving.reached(after) == 2
    assert moving.reached(after) == 2


def test_who_still_asks_the_former_server_takes_no_session_to_the_new_one(moving: Moving, idle: IdleSessions) -> None:
    """Its dump may read the former server as long as the connection lasts."""
    before = SourceSessions(moving.config, idle=idle)
    assert moving.reached(before) == 1
    moving.move()
    for _ in range(MOST_IDLE + 1):
        after = SourceSessions(moving.config, idle=idle)
        with after.lent(), after.lent():
            pass
        assert moving.reached(before) == 1
        after.close()
    assert moving.reached(before) == 1


def test_who_loses_his_session_goes_over_to_the_server_that_answers(moving: Moving, idle: IdleSessions) -> None:
    """As if the session were his own: nothing else answers at the address."""
    sessions = SourceSessions(moving.config, idle=idle)
    assert moving.reached(sessions) == 1
    moving.move()
    moving.link.reset()
    assert moving.reached(sessions) == 2
    assert len(idle._idle[sessions._key]) == 1


def test_the_definition_of_a_table_on_another_server_is_refused(moving: Moving) -> None:
    """A session was lost, and the address leads elsewhere: the columns there say nothing about the rows from here."""
    first, second = (str(each.query("SELECT @@server_uuid AS u")[0]["u"]) for each in moving.servers)
    tables = Tables(moving.config)
    assert (tables.fetch("d", "t", first) or "").index("`a`") < (tables.fetch("d", "t", first) or "").index("`b`")
    moving.move()
    moving.link.reset()
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="another server answers"):
            tables.fetch("d", "t", first)
        with pytest.raises(SourceUnavailable, match="another server answers"):
            tables.charset("d", first)
    assert (tables.fetch("d", "t", second) or "").index("`b`") < (tables.fetch("d", "t", second) or "").index("`a`")
    tables.close()


@contextmanager
def generation(config: InstanceConfig) -> Iterator[Generation]:
    """Yield what a destination knows of the server that answers now."""
    found = Generation(config, SILENT, None)
    yield found
    found.close()


def test_two_generations_of_an_address_that_moved_see_their_own_servers(moving: Moving) -> None:
    """One destination still reads from the former server when another one begins with the new one."""
    with generation(replace(moving.config, destination="one")) as one:
        first = one.view.newest().server
        one.tables.fetch("d", "t")
        moving.move()
        with generation(replace(moving.config, destination="two")) as two:
            second = two.view.newest().server
            assert first != second
            for _ in range(2):
                assert (one.view.newest().server, two.view.newest().server) == (first, second)
                texts = [str(each.tables.fetch("d", "t")) for each in (one, two)]
                assert texts[0].index("`a`") < texts[0].index("`b`")
                assert texts[1].index("`b`") < texts[1].index("`a`")
        assert one.view.newest().server == first


def test_a_snapshot_gets_no_columns_of_another_server(moving: Moving) -> None:
    """Another destination has a session to the former server, whose table has its columns in another order."""
    with ExitStack() as stack:
        one, two = (
            stack.enter_context(generation(replace(moving.config, destination=name))) for name in ("one", "two")
        )
        two.tables.fetch("d", "t")
        moving.move()
        source = stack.enter_context(closing(SnapshotSource(moving.config, one.tables.fetch)))
        with pytest.raises(SourceUnavailable, match="another server answers"):
            source.definition("d", "t")
        text = source.definition("d", "t")
        assert text.index("`b`") < text.index("`a`")


def test_a_dump_gets_no_tables_of_another_server(moving: Moving) -> None:
    """A destination looked at one server before its first dump, and the address leads to another one by then."""
    first, second = (str(each.query("SELECT @@server_uuid AS u")[0]["u"]) for each in moving.servers)
    with generation(moving.config) as found:
        found.history.look(None)
        found.history.view(newest(moving.servers[0]), sender=first)
        moving.move()
        with pytest.raises(SourceUnavailable, match="is not the one that sends the binlog"):
            found.history.view(newest(moving.servers[1]), sender=second)
        found.history.view(newest(moving.servers[1]), sender=second)
        with pytest.raises(SourceUnavailable, match="is not the one that sends the binlog"):
            found.history.view(newest(moving.servers[0]), sender=first)


def test_destinations_that_start_together_do_not_open_a_session_each(mysql: MySQL, idle: IdleSessions) -> None:
    """A node that takes over hundreds would log in hundreds of times, with TLS, in a few seconds."""
    config = config_of(mysql)

    def start(_: int) -> tuple[SourceSessions, int]:
        sessions = SourceSessions(config, idle=idle, older_s=YOUNG_S)
        return sessions, used_by(sessions)

    with ThreadPoolExecutor(20) as starting:
        started = list(starting.map(start, range(20)))
    assert len({connection for _, connection in started}) < 10
    for sessions, _ in started:
        sessions.close()


def test_openings_that_hang_do_not_keep_others_waiting_for_long(idle: IdleSessions) -> None:
    """A server that does not answer delays the questions to it by half a second."""
    with idle.opening("a"), idle.opening("a"), idle.opening("a"), idle.opening("b"):
        pass
    with idle.opening("a"), idle.opening("a"):
        pass
