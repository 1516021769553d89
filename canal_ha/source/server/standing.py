"""Whether a standby has everything that was read from the other server. Blocks.

A standby that lacks some of it, and does not write itself, has nothing new to deliver: an automatic switch to it gains
nothing, and hides that its replication has stopped. A server that writes itself has taken over: it never gets the rest.
It takes writes, replicates no more, and has rows of its own behind all others. Statements show nothing: ANALYZE TABLE,
FLUSH or CREATE USER enter the binlog of a standby, too. Rows that it wrote before the other server did show nothing
either: that is an old master which has become a standby.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from functools import cache, partial

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import SourceRefused, StandbyBehind
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import Interruptible, SourceSession
from canal_ha.source.positions import gtids
from canal_ha.source.positions.last_transaction import LastTransaction, last_transaction
from canal_ha.source.positions.scan import Scanner


def check_standing(
    config: InstanceConfig,
    newest: LogPosition | None,
    read: Collection[LogPosition],
    opening: Callable[[Interruptible], None],
) -> str:
    """Check whether a server has, or never gets, what the other one had.

    config: of the destination; its master is the server to check.
    newest: where the other server's binlog ended when it was asked last, at the time of its clock; None if unknown.
    read: positions of the other server up to which streams have read.
    opening: called with each connection before it connects.
    Return why nobody can tell; "" if the server passes. Raises StandbyBehind, SourceUnavailable, SourceRefused.
    """
    session = SourceSession(config, config.master, opening=opening)
    try:
        server = examine(session)
        scanner = Scanner(session, server, config, config.master, opening)
        address = session.where.address
        try:
            rows = session.query(server.replication_statement)
        except SourceRefused as error:
            rows = []
            unseen = f"{address}: its replication cannot be seen: {error}; on MariaDB grant REPLICA MONITOR"
        else:
            if not rows:
                return ""  # no replica (any more)
            unseen = f"{address}: it does not replicate from the server that was read"
        had = [at for at in (newest, *read) if at is not None]
        sources = [row for row in rows if _source(row) in {at.server for at in had}]
        last = cache(partial(last_transaction, scanner))
        if config.decode.gtid_on:
            lacks = any(at.gtid and gtids.lags(scanner, at.gtid) for at in had)
        elif sources or not had:
            lacks = any(_applied(row).order < at.order for row in sources for at in had)
        elif server.mariadb:  # its replicas keep the times of commits
            own = last().origin == server.server_id
            lacks = not own and any(last().timestamp_ms < at.timestamp_ms for at in read)
        else:
            return unseen
        if not lacks:
            return "" if config.decode.gtid_on or sources or not had else unseen
        reason = _why_not_taken_over(scanner, sources or rows, had, last)
        if not reason:
            return "" if rows else unseen
        raise StandbyBehind(
            f"{address}: it lacks transactions that the other server had, and it has not taken over: {reason}"
            f" ({', '.join(_state(row) for row in rows) or 'its replication cannot be seen'}); let it catch up, or"
            " promote it, or switch by hand:"
            f" canal-ha source switch --destination {config.destination}"
        )
    finally:
        session.close()


def _why_not_taken_over(
    scanner: Scanner,
    rows: Sequence[dict[str, object]],
    had: Collection[LogPosition],
    last: Callable[[], LastTransaction],
) -> str:
    """Return why a server that lacks transactions does not count as a new master; "" if it does.

    rows: of its replication; () if that cannot be seen.
    had: see check_standing.
    last: returns its newest transaction. It is asked last, because it reads the binlog.
    """
    setting = scanner.session.query("SHOW GLOBAL VARIABLES LIKE 'read_only'")
    if any(str(row["Value"]).upper() not in ("OFF", "0") for row in setting):
        return "it is read_only"
    if not all(_has_stopped(row) for row in rows):
        return "a thread of its replication runs"
    newest = last()
    if newest.origin != scanner.server.server_id:
        return "its newest rows are not its own"
    for at in had:
        is_in = gtids.is_in(scanner, newest, at.gtid or "") if scanner.config.decode.gtid_on else None
        if is_in:
            return "the other server had its newest rows, too"
        if is_in is None and newest.timestamp_ms <= at.timestamp_ms:
            return (
                f"by the clocks of both servers, which may differ, its newest rows of {_utc(newest.timestamp_ms)} are"
                f" not newer than what was read, of {_utc(at.timestamp_ms)}"
            )
    return ""


def _utc(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _value(row: dict[str, object], name: str) -> str:
    """Return a column of SHOW REPLICA STATUS under its new name or its old one."""
    old = name.replace("Replica", "Slave").replace("Source", "Master")
    return str(row.get(name) if name in row else row.get(old) or "")


def _source(row: dict[str, object]) -> str:
    uuid = _value(row, "Source_UUID")
    return uuid or _value(row, "Source_Server_Id")


def _applied(row: dict[str, object]) -> LogPosition:
    return LogPosition(_value(row, "Relay_Source_Log_File"), int(_value(row, "Exec_Source_Log_Pos") or 0))


def _has_stopped(row: dict[str, object]) -> bool:
    """Return whether both threads were stopped. One alone also stops at an error."""
    return _value(row, "Replica_IO_Running") == _value(row, "Replica_SQL_Running") == "No"


def _state(row: dict[str, object]) -> str:
    error = _value(row, "Last_SQL_Error") or _value(row, "Last_IO_Error")
    return (
        f"IO thread {_value(row, 'Replica_IO_Running')}, SQL thread {_value(row, 'Replica_SQL_Running')}, applied up to"
        f" {_value(row, 'Relay_Source_Log_File')}:{_value(row, 'Exec_Source_Log_Pos')}{error and ': ' + error}"
    )
