"""Sessions that many destinations of one server use in turn, on real servers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace

import pytest

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, SourceUnavailable
from canal_ha.model.tell import Tell
from canal_ha.node.upstreams import Generation
from canal_ha.source.connection.idle_sessions import MOST_IDLE, OLD_S, IdleSessions, SessionKind, SourceSessions
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.stop_signal import StopSignal
from lab import SqlServer
from lab.waiting import until
from tests.source.reading import config_of

pytestmark = pytest.mark.real

DESTINATIONS = 10


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The clock of the idle sessions."""
    return Clock()


@pytest.fixture
def idle(clock: Clock) -> IdleSessions:
    """Idle sessions that only this test uses."""
    return IdleSessions(clock)


def silent(name: str, /, *, alarm: bool = False, **facts: object) -> None:
    """Report nothing."""


SILENT: Tell = silent


def connection_of(session: SourceSession) -> int:
    """Return the server's id of a session."""
    return int(session.query("SELECT CONNECTION_ID() AS id")[0]["id"])


def connections(server: SqlServer) -> set[int]:
    """Return the server's ids of the sessions of canal-ha's account."""
    return {int(row["Id"]) for row in server.query("SHOW PROCESSLIST") if row["User"] == "canal"}


def sessions_of(
    config: InstanceConfig, idle: IdleSessions, clock: Clock, stop_signal: StopSignal | None = None
) -> SourceSessions:
    """Return the sessions of another destination."""
    return SourceSessions(config, stop_signal=stop_signal, idle=idle, clock=clock)


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


def test_no_more_sessions_stay_than_allowed(source_server: SqlServer, idle: IdleSessions, clock: Clock) -> None:
    """Many may be in use at once; the surplus is closed."""
    before = connections(source_server)
    config = config_of(source_server)
    with ExitStack() as stack:
        for _ in range(DESTINATIONS):
            stack.enter_context(sessions_of(config, idle, clock).lent())
        assert len(connections(source_server) - before) == DESTINATIONS
    until(lambda: len(connections(source_server) - before) == MOST_IDLE, what="the surplus to end")


def test_the_stop_of_a_destination_breaks_no_session_that_another_one_uses(
    source_server: SqlServer, idle: IdleSessions, clock: Clock
) -> None:
    """A session that a destination gave back is not its own any more."""
    config, stop_signal = config_of(source_server), StopSignal()
    with sessions_of(config, idle, clock, stop_signal).lent() as session:
        used = connection_of(session)
    with sessions_of(config, idle, clock).lent() as session:
        assert connection_of(session) == used
        stop_signal.end()
        assert connection_of(session) == used


def test_a_destination_that_stops_takes_no_session_and_keeps_none(
    source_server: SqlServer, idle: IdleSessions, clock: Clock
) -> None:
    """Idle sessions stay for the others; what it uses is interrupted and closed."""
    config, stop_signal = config_of(source_server), StopSignal()
    with sessions_of(config, idle, clock).lent() as session:
        used = connection_of(session)
    stopping = sessions_of(config, idle, clock, stop_signal)
    with ThreadPoolExecutor(1) as pool:

        def hang() -> None:
            with stopping.lent() as session:
                session.query("SELECT SLEEP(600)")

        hanging = pool.submit(hang)
        asked = "SELECT SLEEP(600)"
        until(lambda: any(row["Info"] == asked for row in source_server.query("SHOW PROCESSLIST")), what=asked)
        stop_signal.end()
        with pytest.raises(SourceUnavailable):
            hanging.result(20)
    with sessions_of(config, idle, clock).lent() as session:
        fresh = connection_of(session)
    assert fresh != used
    with pytest.raises(SourceUnavailable, match="the destination stops"), stopping.lent():
        pass
    with sessions_of(config, idle, clock).lent() as session:
        assert connection_of(session) == fresh


def test_lost_sessions_are_replaced(source_server: SqlServer, idle: IdleSessions, clock: Clock) -> None:
    """The server may close idle sessions; whoever asks next does not notice."""
    config = config_of(source_server)
    with sessions_of(config, idle, clock).lent() as one, sessions_of(config, idle, clock).lent() as two:
        lost = {connection_of(one), connection_of(two)}
    for number in lost:
        source_server.execute(f"KILL {number}")
    with sessions_of(config, idle, clock).lent() as one, sessions_of(config, idle, clock).lent() as two:
        assert not lost & {connection_of(one), connection_of(two)}


@pytest.mark.parametrize("error", [CanalError("refused"), ValueError("unforeseen")])
def test_after_an_error_no_idle_session_is_used_again(
    source_server: SqlServer, idle: IdleSessions, clock: Clock, error: Exception
) -> None:
    """Rights that somebody grants because of the error apply to new connections only."""
    config = config_of(source_server)
    sessions = sessions_of(config, idle, clock)
    with suppress(type(error)), sessions.lent() as one:
        with sessions.lent() as two:
            before = {connection_of(one), connection_of(two)}
        raise error
    until(lambda: not before & connections(source_server), what="both to end")


def test_an_old_session_is_closed(source_server: SqlServer, idle: IdleSessions, clock: Clock) -> None:
    """When it is asked for, and when another one of any kind is given back."""
    config = config_of(source_server)
    with sessions_of(config, idle, clock).lent() as session:
        old = connection_of(session)
    clock.now += OLD_S + 1
    with sessions_of(config, idle, clock).lent() as session:
        second = connection_of(session)
    assert second != old
    clock.now += OLD_S + 1
    with sessions_of(config, idle, clock).lent(SessionKind(many=True)):
        pass
    until(lambda: not {old, second} & connections(source_server), what="both to end")


def test_each_kind_and_account_has_sessions_of_its_own(
    source_server: SqlServer, idle: IdleSessions, clock: Clock
) -> None:
    """A session with other settings, another account or another time-out is another one."""
    config = config_of(source_server)
    with sessions_of(config, idle, clock).lent() as session:
        plain = connection_of(session)
    prepared = SessionKind(prepare=lambda session: session.query("SET SESSION sql_mode = ''"))
    with sessions_of(config, idle, clock).lent(prepared) as session:
        assert connection_of(session) != plain
        assert session.query("SELECT @@sql_mode AS mode")[0]["mode"] == ""
    with sessions_of(replace(config, so_timeout_s=7), idle, clock).lent() as session:
        assert connection_of(session) != plain
    with pytest.raises(CanalError), sessions_of(replace(config, password="wrong"), idle, clock).lent():
        pass
    with sessions_of(config, idle, clock).lent() as session:
        assert connection_of(session) == plain


def test_a_session_that_cannot_be_prepared_is_closed(
    source_server: SqlServer, idle: IdleSessions, clock: Clock
) -> None:
    """No connection is left."""
    before = connections(source_server)
    refused = SessionKind(prepare=lambda session: session.query("SET SESSION no_such_variable = 1"))
    with pytest.raises(CanalError), sessions_of(config_of(source_server), idle, clock).lent(refused):
        pass
    until(lambda: connections(source_server) <= before, what="it to end")
