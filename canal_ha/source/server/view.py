"""View: questions about a source's positions, apart from the dumps. Any thread; calls block, and searches wait for each
other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from canal_ha.config.model import InstanceConfig, SourceConfig, WhenLost
from canal_ha.errors import PositionLost
from canal_ha.model.excerpt import excerpt
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import AskedServer, Flavor, binary_logs, check, examine, expiry
from canal_ha.source.connection.idle_sessions import SourceSessions
from canal_ha.source.connection.known_only import NotKnown, may_wait
from canal_ha.source.connection.recent_answers import RECENT_S, together
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.positions import gtids, locate, lost
from canal_ha.source.positions.scan import Scanner

T = TypeVar("T")


_TABLES = (
    "SELECT table_schema AS s, table_name AS t FROM information_schema.tables WHERE table_type = 'BASE TABLE'"
    " AND table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY 1, 2"
)


class _AnotherServer(Exception):
    """Another server has answered than the one whose answer was to be shared."""

    def __init__(self, answer: object) -> None:
        self.answer = answer


class View:
    """Positions of one source, over a session that nobody else uses now.

    config: of the destination.
    source: the configured master unless given.
    warn: called with a text when a start had to be replaced.
    stop_signal, older_s: see SourceSessions.

    version: of the server; "" until it is known.
    """

    def __init__(
        self,
        config: InstanceConfig,
        source: SourceConfig | None = None,
        *,
        warn: Callable[[str], None] = lambda text: None,
        stop_signal: StopSignal | None = None,
        older_s: float = 0.0,
    ) -> None:
        self.version = ""
        self._config = config
        self._source = source or config.master
        self._warn = warn
        stop_signal = stop_signal or StopSignal()
        self._opening = stop_signal.opened
        self._sessions = SourceSessions(config, self._source, stop_signal, older_s=older_s)
        self._searching = threading.Lock()  # a search reads journals; other questions do not wait for it
        self._began_ms: dict[str, int] = {}  # by journal

    def newest(self) -> LogPosition:
        """Return the current end of the binlog. Raises SourceUnavailable, SourceRefused."""
        return self._ask(lambda session, server: locate.newest(session, server, self._config, self._source))

    def end(self, recent_s: float | None = None) -> locate.BinlogEnd:
        """Return where the binlog ends.

        recent_s: how long ago the server may have told it, to any destination; None: ask now, for this one alone.
        Raises SourceUnavailable, SourceRefused.
        """

        def ask(session: SourceSession, server: Flavor) -> locate.BinlogEnd:
            asked_at = time.monotonic()
            return locate.BinlogEnd(asked_at, server, locate.newest(session, server, self._config, self._source))

        end = self._recently("end", ask, recent_s)
        self.version = end.server.version
        check(end.server, self._config, self._source.address)
        return end

    def oldest(self) -> LogPosition:
        """Return the beginning of the oldest journal. Raises SourceUnavailable, SourceRefused."""
        return self._ask(lambda session, server: locate.oldest(session, server, self._source))

    def folds_names(self) -> bool:
        """Return whether table names compare without case on the server. Raises SourceUnavailable, SourceRefused."""
        return self._ask(lambda session, server: server.folds_names)

    def tables(self) -> Sequence[tuple[str, str]]:
        """Return schema and name of every base table that the account sees, without the server's own schemas."""
        return self._ask(lambda session, server: [(row["s"], row["t"]) for row in session.query(_TABLES)])

    def start(self, kept: LogPosition | None) -> LogPosition:
        """Return where a new client begins: as configured, else `kept` (if purged, the oldest journal), else newest.

        Raises SourceUnavailable, SourceRefused, PositionLost.
        """
        if kept is not None and not locate.is_configured(self._config, self._source) and self._is_there(kept):
            return kept
        return self._search(lambda session, server: self._start(session, server, kept))

    def _is_there(self, at: LogPosition) -> bool:
        """Whether the server had the journal of a position a moment ago, as far as somebody has asked."""
        return at.journal in self._journals(RECENT_S)[0]

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        """Return where to continue when the journal of a cursor is gone. Raises SourceUnavailable, SourceRefused."""
        return self._search(lambda session, server: self._instead(session, server, cursor, when))

    def find(self, place: Place) -> LogPosition:
        """Return the transaction boundary for a place.

        Raises SourceUnavailable, SourceRefused, and PositionLost if the position does not exist (any more).
        """
        return self._search(lambda session, server: self._find(session, server, place))

    def reach(self, at: LogPosition) -> str:
        """Describe whether the binlog still has this position, and how far it is from the end."""
        return self._ask(lambda session, server: lost.reach(binary_logs(session), at))

    def kept_for(
        self, cursors: Mapping[int, LogPosition], recent_s: float | None = None
    ) -> dict[int, tuple[float, float]]:
        """Return for each client id the seconds until its cursor's journal may be purged, and the source's expiry.

        cursors: by client id.
        recent_s: as for `end`.
        0.0: the journal is purged; -1.0: no purge is foreseen. Raises SourceUnavailable, SourceRefused.
        """

        names, expiry_s, now_s = self._journals(recent_s)
        if recent_s is not None and any(each.journal and each.journal not in names for each in cursors.values()):
            return self.kept_for(cursors)  # its journal may be newer than the answer
        kept: dict[int, tuple[float, float]] = {}
        for client_id, cursor in cursors.items():
            if cursor.journal not in names:
                kept[client_id] = (0.0 if cursor.journal else -1.0, expiry_s)
                continue
            behind = names[names.index(cursor.journal) + 1 :]
            purge_in_s = -1.0
            if behind and expiry_s:  # the expiry of a journal counts from the start of the next one
                purge_in_s = max(0.1, self._began_s(behind[0], recent_s) + expiry_s - now_s)
            kept[client_id] = (purge_in_s, expiry_s)
        self._began_ms = {name: began for name, began in self._began_ms.items() if name in names}
        return kept

    def _journals(self, recent_s: float | None) -> tuple[list[str], float, float]:
        """Return the journals, how long the server keeps them, and what time it is there, in seconds."""

        def ask(session: SourceSession, server: Flavor) -> tuple[list[str], float, float]:
            return ([log.name for log in binary_logs(session)], *expiry(session))

        return self._recently("journals", ask, recent_s)

    def close(self) -> None:
        """Use no session any more; the next question opens a new one."""
        self._sessions.close()

    # ---- inside

    def _start(self, session: SourceSession, server: Flavor, kept: LogPosition | None) -> LogPosition:
        at = locate.configured(Scanner(session, server, self._config, self._source, self._opening))
        if at is not None:
            return at
        if kept is None:
            return locate.newest(session, server, self._config, self._source)
        if kept.journal in [log.name for log in binary_logs(session)]:
            return kept
        at = locate.oldest(session, server, self._source)
        self._warn(f"{self._config.destination}: {kept.journal} is purged; the first client begins at {at}")
        return at

    def _instead(self, session: SourceSession, server: Flavor, cursor: LogPosition, when: WhenLost) -> LogPosition:
        if when is WhenLost.LATEST:
            return locate.newest(session, server, self._config, self._source)
        start_ms = cursor.timestamp_ms - self._config.fallback_interval_s * 1000
        if when is WhenLost.EARLIEST or start_ms <= 0:
            return locate.oldest(session, server, self._source)
        return locate.at_time(Scanner(session, server, self._config, self._source, self._opening), start_ms)

    def _find(self, session: SourceSession, server: Flavor, place: Place) -> LogPosition:
        if place.end == "earliest":
            return locate.oldest(session, server, self._source)
        newest = locate.newest(session, server, self._config, self._source)
        if place.end:
            return newest
        scanner = Scanner(session, server, self._config, self._source, self._opening)
        if place.gtid:
            if gtids.lags(scanner, place.gtid):
                wanted = excerpt(place.gtid)
                raise PositionLost(f"{session.where.address}: {wanted} is not completely executed; give an older set")
            return scanner.lacking(place.gtid) or replace(newest, gtid=place.gtid)
        if place.timestamp_ms:
            return locate.at_time(scanner, place.timestamp_ms)
        return locate.at_boundary(
            scanner, lost.existing(session, replace(newest, journal=place.journal, offset=place.offset))
        )

    def _search(self, question: Callable[[SourceSession, Flavor], T]) -> T:
        if not may_wait():
            raise NotKnown
        with self._searching:
            return self._ask(question)

    def _ask(self, question: Callable[[SourceSession, Flavor], T]) -> T:
        return self._answered(question)[1]

    def _answered(self, question: Callable[[SourceSession, Flavor], T]) -> tuple[AskedServer, T]:
        with self._sessions.lent_with_server() as used:
            server = examine(used.session)
            self.version = server.version
            check(server, self._config, used.session.where.address)
            return used.server, question(used.session, server)

    def _recently(self, name: str, question: Callable[[SourceSession, Flavor], T], recent_s: float | None) -> T:
        """Ask a question that other destinations may ask the same server. recent_s: as for `end`."""
        server = self._sessions.server
        if recent_s is None or server is None:
            return self._ask(question)

        def ask() -> T:
            asked, answer = self._answered(question)
            if asked != server:
                raise _AnotherServer(answer)
            return answer

        try:
            return together(self._config, self._source, (name, server), ask, recent_s)
        except _AnotherServer as found:
            answer: T = found.answer  # type: ignore[assignment]  # of the question
            return answer

    def _began_s(self, journal: str, recent_s: float | None) -> float:
        began_ms = self._began_ms.get(journal)
        if began_ms is None:

            def ask(session: SourceSession, server: Flavor) -> int:
                return Scanner(session, server, self._config, self._source, self._opening).began_ms(journal)

            began_ms = self._began_ms[journal] = self._recently(f"began {journal}", ask, recent_s)
        return began_ms / 1000
