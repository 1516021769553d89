"""The SELECTs of a snapshot that run on the server, and their end there, by a thread of its own if the snapshot stops.

A server does not notice that a client has gone before it sends rows. A SELECT whose condition keeps few rows runs on
until then, perhaps for hours. So another connection ends it: KILL QUERY, which an account may do to its own sessions.

The id of a session can belong to another one meanwhile: the server was restarted, or another one has its address. So
each SELECT has a comment with a random number, and only a session that shows it is ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from secrets import token_hex

import pymysql

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import CanalError, SourceUnavailable
from canal_ha.source.connection.session import SourceSession

MOST_S = 5.0  # for each answer of the server that ends the SELECTs
_LOOKS = 5  # for a SELECT that the server has not begun when it is looked for
_LOOK_S = 0.1
_SHOWN = "SELECT info AS info FROM information_schema.processlist WHERE id = %s"


@dataclass(frozen=True, slots=True)
class RunningSelect:
    """A SELECT that may run.

    config: its master is the server.
    session: the id of the session there.
    comment: in front of the statement.
    """

    config: InstanceConfig
    session: int
    comment: str

    def end(self) -> None:
        """End it on the server, if it runs and the server answers. Blocks for a bounded time."""
        _end((self,))


class RunningSelects:
    """The SELECTs of one snapshot. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[RunningSelect] = set()
        self._over = False

    def begin(self, config: InstanceConfig, session: SourceSession) -> RunningSelect:
        """Return a SELECT that this session is about to run. Raises SourceUnavailable after `end`."""
        number: int = session.connection.thread_id()  # type: ignore[no-untyped-call] # PyMySQL's
        select = RunningSelect(config, number, f"/* canal-ha snapshot {token_hex(8)} */ ")
        with self._lock:
            if self._over:
                raise SourceUnavailable("the snapshot is stopping: no SELECT begins")
            self._running.add(select)
        return select

    def over(self, select: RunningSelect) -> bool:
        """Forget a SELECT, because it is over, or its session is closed. Return False if `end` ends it."""
        with self._lock:
            known = select in self._running
            self._running.discard(select)
            return known

    @contextmanager
    def of(self, config: InstanceConfig, session: SourceSession) -> Iterator[RunningSelect]:
        """Yield a SELECT that is over behind the context. If the connection broke, end it on the server."""
        select = self.begin(config, session)
        try:
            yield select
        except BaseException as error:
            if self.over(select) and not _of_the_server(error):
                select.end()
            raise
        self.over(select)

    def end(self) -> None:
        """End all SELECTs on the server, let none begin any more, and return at once.

        The sessions must be interrupted already. A process that exits waits for the end, for a bounded time.
        """
        with self._lock:
            self._over = True
            running = tuple(self._running)
            self._running.clear()
        if running:
            # not a daemon: a node that stops would exit before
            threading.Thread(target=_end, args=(running,), name="end-of-snapshot", daemon=False).start()


def _of_the_server(error: BaseException) -> bool:
    """Return whether the server has sent this error, so that nothing runs there."""
    number = error.args[0] if isinstance(error, pymysql.MySQLError) and error.args else 0
    return isinstance(number, int) and (1000 <= number < 2000 or number >= 3000)


def _end(selects: Collection[RunningSelect]) -> None:
    """End SELECTs on their servers, if these answer. Blocks for a bounded time."""
    for config in {each.config.master: each.config for each in selects}.values():
        short = replace(config, so_timeout_s=min(config.so_timeout_s, MOST_S))
        with suppress(CanalError, pymysql.MySQLError), closing(SourceSession(short, short.master)) as session:
            for each in selects:
                if each.config.master == config.master:
                    _end_one(session, each)


def _end_one(session: SourceSession, select: RunningSelect) -> None:
    """End a SELECT once the server shows that its session runs it; do nothing if the session is gone."""
    for _ in range(_LOOKS):
        shown = session.ask(_SHOWN, select.session)
        if not shown:
            return
        if str(shown[0]["info"] or "").startswith(select.comment.strip()):
            with suppress(pymysql.MySQLError):  # the session has ended meanwhile
                session.ask(f"KILL QUERY {select.session}")
            return
        time.sleep(_LOOK_S)
