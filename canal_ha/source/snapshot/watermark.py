"""Watermarks: a SELECT that sees every transaction which the stream has brought. Blocks; the snapshot's thread.

A server writes a transaction to its binlog before it commits it in the storage engine, so a stream can bring rows that
a SELECT does not see yet. Each kind of server has a way to wait for them:

- MariaDB tells the position up to which all transactions are committed.
- MySQL with GTIDs: a transaction owns its GTID from before it is written until it is committed (gtid_owned). GTIDs can
  be turned off at any time, so the question for them also asks for gtid_mode. It can be ON again only when no
  transaction without a GTID goes on.
- MySQL without GTIDs: the question to performance_schema.log_status waits for all commits that have begun. It needs
  the right BACKUP_ADMIN. Without it the SELECT locks its rows (FOR SHARE), and so waits for those who change them.

XA COMMIT commits behind the binlog too, and of the three only gtid_owned covers it. So the other two hold only for a
server whose counter Com_xa_commit is 0: a statement is counted before it is in the binlog, whoever runs it, also the
applier of a replica. From the first one on the SELECT locks its rows. The stream's own XA COMMITs would not do: a
stream that begins anew does not know those of a moment ago, and a counter that stands still proves nothing, because a
commit can wait for a semi-synchronous replica as long as it likes.

If the server crashes inside XA COMMIT, the counter is 0 after its start, and the binlog has rows that no SELECT sees.
XA RECOVER shows such a transaction as prepared. To ask once, when a connection begins, is enough: a crash ends it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import pymysql

from canal_ha.errors import SourceUnavailable
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.source.connection.flavor import Flavor
from canal_ha.source.connection.session import SourceSession

OWNED_WAIT_S = 2.0  # for a GTID that a session keeps without committing; then the SELECT locks its rows
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1
_ANSWERS = 4  # about an open snapshot; other sessions would have to ask at just these four moments to spoil all

Pause = Callable[[float], None]


class Visibility(Enum):
    """How a session waits for what the stream has brought; see the module."""

    CONSISTENT_SNAPSHOT = "consistent snapshot"
    OWNED_GTIDS = "gtid_owned"
    LOG_STATUS = "log_status"
    LOCKING_READ = "locking read"


@dataclass(frozen=True, slots=True)
class Reached:
    """A place in a server's binlog: everything before it was brought.

    offset: bytes.
    server: see LogPosition.
    """

    journal: str
    offset: int
    server: str

    @classmethod
    def behind(cls, at: LogPosition) -> Reached:
        """Return the place for a position. If it is consumed, the event there was brought, too."""
        return cls(at.journal, at.offset + at.consumed, at.server)

    def by(self, journal: str, offset: int) -> bool:
        """Whether a position of the same server is there or behind it."""
        return (split_journal(journal), offset) >= (split_journal(self.journal), self.offset)


def visibility(session: SourceSession, server: Flavor) -> Visibility:
    """Return the best way that the server and the account allow. Raises SourceUnavailable, SourceRefused."""
    if server.mariadb:
        return Visibility.LOCKING_READ if _prepared(session) else Visibility.CONSISTENT_SNAPSHOT
    if session.query("SHOW GLOBAL VARIABLES WHERE Variable_name = 'gtid_mode' AND Value = 'ON'"):
        return Visibility.OWNED_GTIDS
    try:
        known = session.ask(_LOG_STATUS)
    except pymysql.MySQLError:
        return Visibility.LOCKING_READ  # the right, the table or the database is missing
    return Visibility.LOG_STATUS if known and not _prepared(session) else Visibility.LOCKING_READ


def _prepared(session: SourceSession) -> bool:
    """Return whether an XA transaction is prepared, as far as the account may know."""
    try:
        return bool(session.ask("XA RECOVER"))
    except pymysql.MySQLError:
        return False  # MySQL wants the right XA_RECOVER_ADMIN


def beside_xa(session: SourceSession, way: Visibility) -> Visibility:
    """Return a way that also covers what has come by XA COMMIT before this call. Raises as `visibility`."""
    if way not in (Visibility.CONSISTENT_SNAPSHOT, Visibility.LOG_STATUS):
        return way
    counted = session.query("SHOW GLOBAL STATUS LIKE 'Com_xa_commit'")
    return way if counted and int(counted[0]["Value"]) == 0 else Visibility.LOCKING_READ


def wait_visible(session: SourceSession, way: Visibility, reached: Reached, pause: Pause) -> bool:
    """Wait until a SELECT of this session sees everything before `reached`; return whether it must lock its rows.

    session: with CONSISTENT_SNAPSHOT, its transaction is open afterwards.
    way: from `visibility` and, asked after `reached`, `beside_xa`.
    reached: what the stream had brought when this was called.
    pause: waits these seconds; raises an exception to end the wait.
    Raises SourceUnavailable, SourceRefused.
    """
    if way is Visibility.CONSISTENT_SNAPSHOT:
        consistent_snapshot(session, reached, pause)
    elif way is Visibility.OWNED_GTIDS:
        return not _await_owned(session, pause)
    elif way is Visibility.LOG_STATUS:
        session.query(_LOG_STATUS)
    return way is Visibility.LOCKING_READ


def consistent_snapshot(session: SourceSession, reached: Reached, pause: Pause) -> None:
    """Open a transaction of MariaDB that sees everything before `reached`. The arguments are those of `wait_visible`.

    The server first tells a place up to which everything is committed. A transaction that begins after this answer sees
    all of that. Asking about the open transaction instead is not safe: see `snapshot_places`.
    """
    wait_s = _FIRST_PAUSE_S
    while not reached.by(*min(_told(session), _told(session), key=_order)):
        session.query("ROLLBACK")  # else the answer stays that of a snapshot which an error left open
        pause(wait_s)
        wait_s = min(_LONGEST_PAUSE_S, wait_s * 2)
    session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")


def snapshot_places(session: SourceSession) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return two places of the binlog between which the open snapshot of a session of MariaDB stands.

    The snapshot sees every transaction before the first place, and none behind the second. Mostly both are the same.
    They differ if an answer is about another session, which asked at the same moment: the server keeps its answer in
    one variable for all sessions (binlog_snapshot_position in its sql/log.cc).
    """
    told = sorted((_told(session) for _ in range(_ANSWERS)), key=_order)
    return told[0], told[-1]


def _told(session: SourceSession) -> tuple[str, int]:
    """Return a place of the binlog before which everything is committed.

    With an open snapshot it is the snapshot's, or that of another session. The server has one variable for the file and
    one for the offset, so right after a new journal they may belong to two places. Ask twice.
    """
    rows = session.query("SHOW STATUS LIKE 'binlog_snapshot_%'")
    at = {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}
    return at["binlog_snapshot_file"], int(at["binlog_snapshot_position"])


def _order(place: tuple[str, int]) -> tuple[object, int]:
    return split_journal(place[0]), place[1]


def _await_owned(session: SourceSession, pause: Pause) -> bool:
    """Wait until every GTID that is owned now is committed; return False if one stays owned."""
    until = time.monotonic() + OWNED_WAIT_S
    left = _owned(session)
    wait_s = _FIRST_PAUSE_S
    while left and time.monotonic() < until:
        pause(wait_s)
        wait_s = min(_LONGEST_PAUSE_S, wait_s * 2)
        left &= _owned(session)
    return not left


def _owned(session: SourceSession) -> set[str]:
    """Return the GTIDs that sessions own, each with the session: uuid:number#session, or uuid:tag:number#session.

    Raises SourceUnavailable if transactions may have no GTIDs. The next connection waits for them in another way.
    """
    owned = set()
    told = session.query("SELECT @@GLOBAL.gtid_owned AS owned, @@GLOBAL.gtid_mode AS mode")[0]
    if told["mode"] != "ON":
        raise SourceUnavailable(
            f"{session.where.address}: gtid_mode is {told['mode']} now, so owned GTIDs do not tell what a SELECT sees:"
            " the snapshot connects again, and goes on without them"
        )
    text = str(told["owned"] or "")
    for of_server in text.replace("\n", "").split(","):
        prefix = ""
        for item in of_server.strip().split(":"):
            if "#" in item:
                owned.add(f"{prefix}{item}")
            else:
                prefix += f"{item}:"
    return owned


_LOG_STATUS = "SELECT LOCAL FROM performance_schema.log_status"
