"""IdleSessions: sessions for questions that nobody uses now, shared by all destinations of the process. Any thread.

A server may have a thousand destinations. Each asks it something now and then, and needs no session in between. The
number of sessions in use has no limit, because a user that has one may need another.

An address can come to lead to another server, while connections to the former one go on. So a user that has asked a
server takes only sessions to that server. Before its first question it takes only sessions that are younger than
itself. A destination that starts also takes sessions that are up to YOUNG_S older: that is as if it had started a
moment earlier. A user goes over to the server to which the address leads now when it finds no session and opens one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection.flavor import AskedServer, asked_server
from canal_ha.source.connection.known_only import NotKnown, may_wait
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.stop_signal import StopSignal

MOST_IDLE = 3  # of one kind, for one account of one server
MOST_AT_ONCE = 20  # for a moment, because those who ask together would open new ones again and again
MOMENT_S = 5.0
MOST_OPENING = 2  # of one kind: who waits for one of them may find an idle session then
OPENING_S = 0.5  # how long to wait for them
YOUNG_S = 1.0  # by how much a session may be older than a destination that starts: hundreds start within seconds


@dataclass(frozen=True, slots=True)
class SessionKind:
    """What the sessions that replace each other have in common.

    many: allow several statements in one question.
    prepare: called with each new session.
    """

    many: bool = False
    prepare: Callable[[SourceSession], object] = lambda session: None


PLAIN = SessionKind()


@dataclass(frozen=True, slots=True)
class KeptSession:
    """A session.

    server: which server it leads to.
    began_s: monotonic seconds at which it began to connect.
    used_s: at which it was used last, if it is idle.
    """

    session: SourceSession
    server: AskedServer
    began_s: float
    used_s: float = 0.0


class IdleSessions:
    """See the module. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # never held while a server is asked
        self._idle: dict[Hashable, list[KeptSession]] = {}
        self._opening: defaultdict[Hashable, threading.BoundedSemaphore] = defaultdict(
            lambda: threading.BoundedSemaphore(MOST_OPENING)
        )
        self._users: Counter[tuple[Hashable, AskedServer]] = Counter()
        self._crowded: set[tuple[Hashable, AskedServer]] = set()  # that may have too many sessions

    def take(self, key: Hashable, server: AskedServer | None, since_s: float) -> KeptSession | None:
        """Return the session that was used last; None if there is none. It may be lost.

        key: the account at an address, and the kind.
        server: to which it has to lead; None for any.
        since_s: it began later.
        """
        with self._lock:
            sessions = self._idle.get(key, [])
            for found in reversed(sessions):
                if found.began_s > since_s and server in (None, found.server):
                    sessions.remove(found)
                    return found
        return None

    @contextmanager
    def opening(self, key: Hashable) -> Iterator[None]:
        """Wait before a session is opened while others are, but not long: a server may not answer."""
        with self._lock:
            few = self._opening[key]
        mine = few.acquire(timeout=OPENING_S)
        try:
            yield
        finally:
            if mine:
                few.release()

    def put(self, key: Hashable, used: KeptSession) -> None:
        """Keep a session for the next one who asks, if anybody may."""
        surplus = [used]
        with self._lock:
            if self._users[key, used.server]:
                self._idle.setdefault(key, []).append(replace(used, used_s=self._clock()))
                self._crowded.add((key, used.server))
                surplus = [each for place in tuple(self._crowded) for each in self._taken_out(*place)]
        _close(surplus)

    def _taken_out(self, key: Hashable, server: AskedServer) -> list[KeptSession]:
        """Take out the sessions to a server that are too many, those that were used last excepted."""
        sessions, now = self._idle.get(key, []), self._clock()
        of_server = [each for each in sessions if each.server == server]
        surplus = of_server[:-MOST_AT_ONCE]
        surplus += [each for each in of_server[len(surplus) : -MOST_IDLE] if now - each.used_s > MOMENT_S]
        for each in surplus:
            sessions.remove(each)
        if len(of_server) - len(surplus) <= MOST_IDLE:
            self._crowded.discard((key, server))
        return surplus

    def join(self, key: Hashable, server: AskedServer) -> None:
        """Count one more user of sessions to this server."""
        with self._lock:
            self._users[key, server] += 1

    def leave(self, key: Hashable, server: AskedServer) -> None:
        """Count one user less. Close the sessions that have no user any more."""
        unused: list[KeptSession] = []
        with self._lock:
            self._users[key, server] -= 1
            if not self._users[key, server]:
                del self._users[key, server]
                sessions = self._idle.pop(key, [])
                unused = [each for each in sessions if each.server == server]
                if others := [each for each in sessions if each.server != server]:
                    self._idle[key] = others
        _close(unused)


def _close(sessions: list[KeptSession]) -> None:
    for each in sessions:
        each.session.close()


OF_PROCESS = IdleSessions()


class SourceSessions:
    """The sessions of one user of a server: what asks it for one purpose of one destination. Any thread.

    server: the one that was asked last; None before the first question.
    """

    def __init__(
        self,
        config: InstanceConfig,
        source: SourceConfig | None = None,
        stop_signal: StopSignal | None = None,
        kind: SessionKind = PLAIN,
        idle: IdleSessions = OF_PROCESS,
        older_s: float = 0.0,
    ) -> None:
        """Open nothing yet.

        config: of the destination.
        source: the configured master unless given.
        stop_signal: interrupts the sessions that are in use when the destination stops.
        kind: of the sessions.
        idle: where the sessions come from, and where they go.
        older_s: by how much a session may be older than this user, before its first question.
        """
        self.server: AskedServer | None = None
        self._config = config
        self._source = source or config.master
        self._stop_signal = stop_signal or StopSignal()
        self._kind = kind
        self._idle = idle
        self._key = account_of(self._config, self._source), kind
        self._lock = threading.Lock()
        self._since_s = time.monotonic() - older_s

    @contextmanager
    def lent(self) -> Iterator[SourceSession]:
        """Yield a session for the caller alone. If an error leaves the block, this user has only new ones after that.

        Rights that somebody grants because of the error apply to new connections only.

        Raises SourceUnavailable, SourceRefused.
        """
        with self.lent_with_server() as used:
            yield used.session

    @contextmanager
    def lent_with_server(self) -> Iterator[KeptSession]:
        """Yield what `lent` does, with the server that answers on it."""
        if not may_wait():
            raise NotKnown
        used = self._taken()
        if used is None:
            with self._idle.opening(self._key):
                used = self._taken() or self._new()
        answered = False
        try:
            self._goes_to(used.server)
            yield used
            answered = True
        finally:
            if not answered:
                self._since_s = time.monotonic()
            goes_on = self._stop_signal.released(used.session.connection)
            if goes_on and answered:
                self._idle.put(self._key, used)
            else:
                used.session.close()
            if not goes_on:
                self._goes_to(None)  # `close` may have come before this user went to the server

    def close(self) -> None:
        """Leave the sessions to the others. What nobody else uses is closed; the next question opens a new one."""
        self._goes_to(None)
        self._since_s = time.monotonic()

    def _goes_to(self, server: AskedServer | None) -> None:
        with self._lock:
            if server == self.server:
                return
            former, self.server = self.server, server
            if server:
                self._idle.join(self._key, server)
        if former:
            self._idle.leave(self._key, former)

    def _taken(self) -> KeptSession | None:
        while found := self._idle.take(self._key, self.server, self._since_s):
            try:
                self._stop_signal.opened(found.session.connection)
            except BaseException:
                self._idle.put(self._key, found)
                raise
            if found.session.alive():
                return found
            self._stop_signal.released(found.session.connection)
            self._since_s = time.monotonic()  # the others may be lost, too, and each may hang until its read time-out
        return None

    def _new(self) -> KeptSession:
        began_s = time.monotonic()
        session = SourceSession(self._config, self._source, opening=self._stop_signal.opened, many=self._kind.many)
        try:
            server = asked_server(session)
            self._kind.prepare(session)
        except BaseException:
            self._stop_signal.released(session.connection)
            session.close()
            raise
        return KeptSession(session, server, began_s)


def account_of(config: InstanceConfig, source: SourceConfig) -> Hashable:
    """Return the address, and as whom it is asked: the same for destinations that can use each other's sessions."""
    return source.host, source.port, source.tls, config.username, config.password, config.so_timeout_s
