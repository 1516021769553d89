"""IdleSessions: sessions for questions that nobody uses now, shared by all destinations of the process. Any thread.

A server may have a thousand destinations. Each of them asks it something now and then, and needs no session of its own
meanwhile. There is no limit on the sessions in use, because whoever has one may need another.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.stop_signal import StopSignal

MOST_IDLE = 3  # of one kind, for one account of one server
OLD_S = 60.0  # an older session is closed: rights granted later apply to new connections only


@dataclass(frozen=True, slots=True)
class SessionKind:
    """What the sessions that replace each other have in common.

    many: allow several statements in one question.
    prepare: called with each new session.
    """

    many: bool = False
    prepare: Callable[[SourceSession], object] = lambda session: None


PLAIN = SessionKind()


class IdleSessions:
    """See the module. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # never held while a server is asked
        self._idle: defaultdict[Hashable, list[tuple[SourceSession, float]]] = defaultdict(list)  # with their begin

    def take(self, key: Hashable) -> tuple[SourceSession, float] | None:
        """Return the session that was used last, and when it began; None if there is none. It may be lost."""
        with self._lock:
            sessions = self._idle.get(key)
            return sessions.pop() if sessions else None

    def put(self, key: Hashable, session: SourceSession, began_s: float) -> None:
        """Keep a session for the next one who asks. began_s: as `take` returned it."""
        now = self._clock()
        with self._lock:
            self._idle[key].append((session, began_s))
            surplus = self._taken_out(lambda began: now - began > OLD_S)
            surplus += [self._idle[key].pop(0) for _ in range(len(self._idle[key]) - MOST_IDLE)]
        _close(surplus)

    def drop(self, key: Hashable) -> None:
        """Close those that are idle now."""
        with self._lock:
            sessions = self._idle.pop(key, [])
        _close(sessions)

    def _taken_out(self, old: Callable[[float], bool]) -> list[tuple[SourceSession, float]]:
        found = [each for sessions in self._idle.values() for each in sessions if old(each[1])]
        if found:
            for key, sessions in [*self._idle.items()]:
                self._idle[key] = [each for each in sessions if not old(each[1])]
        return found


def _close(sessions: list[tuple[SourceSession, float]]) -> None:
    for session, _ in sessions:
        session.close()


OF_PROCESS = IdleSessions()


class SourceSessions:
    """The sessions of one destination for questions to one server. Any thread."""

    def __init__(
        self,
        config: InstanceConfig,
        source: SourceConfig | None = None,
        stop_signal: StopSignal | None = None,
        idle: IdleSessions = OF_PROCESS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open nothing yet.

        config: of the destination.
        source: the configured master unless given.
        stop_signal: interrupts the sessions that are in use when the destination stops.
        idle: where the sessions come from, and where they go.
        clock: seconds, monotonic.
        """
        self._config = config
        self._source = source or config.master
        self._stop_signal = stop_signal or StopSignal()
        self._idle = idle
        self._clock = clock

    @contextmanager
    def lent(self, kind: SessionKind = PLAIN) -> Iterator[SourceSession]:
        """Yield a session for the caller alone. It is closed, with those that are idle, if an error leaves the block.

        Raises SourceUnavailable, SourceRefused.
        """
        key = account_of(self._config, self._source), kind
        found = self._idle.take(key)
        while found is not None and not self._enters(key, *found):
            found = self._idle.take(key)
        session, began_s = found or (self._new(kind), self._clock())
        answered = False
        try:
            yield session
            answered = True
        finally:
            if self._stop_signal.released(session.connection) and answered:
                self._idle.put(key, session, began_s)
            else:
                session.close()
            if not answered:
                self._idle.drop(key)

    def close(self, kind: SessionKind = PLAIN) -> None:
        """Close those of a kind that are idle. Other destinations of the server open new ones."""
        self._idle.drop((account_of(self._config, self._source), kind))

    def _enters(self, key: Hashable, session: SourceSession, began_s: float) -> bool:
        """Return whether a session that was idle can be used. If not, it is closed, with those beside it."""
        try:
            self._stop_signal.opened(session.connection)
        except BaseException:
            self._idle.put(key, session, began_s)
            raise
        if self._clock() - began_s <= OLD_S and session.alive():
            return True
        self._stop_signal.released(session.connection)
        session.close()
        self._idle.drop(key)
        return False

    def _new(self, kind: SessionKind) -> SourceSession:
        session = SourceSession(self._config, self._source, opening=self._stop_signal.opened, many=kind.many)
        try:
            kind.prepare(session)
        except BaseException:
            session.close()
            raise
        return session


def account_of(config: InstanceConfig, source: SourceConfig) -> Hashable:
    """Return the server, and as whom it is asked: the same for destinations that can use each other's sessions."""
    return source.host, source.port, source.tls, config.username, config.password, config.so_timeout_s
