"""Whether a standby has everything that was read from the other server. Blocks.

A standby that lacks some of it, and does not write itself, has nothing new to deliver: an automatic switch to it gains
nothing, and hides that its replication has stopped. A server that writes itself has taken over: it never gets the rest.
What it wrote before the other server did counts for nothing: that is an old master which has become a standby.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from canal_ha.config.model import InstanceConfig
from canal_ha.errors import SourceRefused, StandbyBehind
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import examine
from canal_ha.source.connection.session import Interruptible, SourceSession
from canal_ha.source.positions import gtids
from canal_ha.source.positions.last_transaction import last_transaction
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
        last = None
        if config.decode.gtid_on:
            lacks = any(at.gtid and gtids.lags(scanner, at.gtid) for at in had)
        elif sources or not had:
            lacks = any(_applied(row).order < at.order for row in sources for at in had)
        elif server.mariadb:  # its replicas keep the times of commits
            last = last_transaction(scanner)
            lacks = last.origin != server.server_id and any(last.timestamp_ms < at.timestamp_ms for at in read)
        else:
            return unseen
        if not lacks:
            return "" if config.decode.gtid_on or sources or not had else unseen
        state = ", ".join(_state(row) for row in rows)
        if not (rows and all(_runs(row) for row in rows)):
            last = last or last_transaction(scanner)
            if last.origin == server.server_id and all(at.timestamp_ms < last.timestamp_ms for at in had):
                return ""
        raise StandbyBehind(
            f"{address}: it lacks transactions that the other server had, and it does not write itself"
            f" ({state or 'its replication cannot be seen'}); let it catch up, or promote it, or switch by hand:"
            f" canal-ha source switch --destination {config.destination}"
        )
    finally:
        session.close()


def _value(row: dict[str, object], name: str) -> str:
    """Return a column of SHOW REPLICA STATUS under its new name or its old one."""
    old = name.replace("Replica", "Slave").replace("Source", "Master")
    return str(row.get(name) if name in row else row.get(old) or "")


def _source(row: dict[str, object]) -> str:
    uuid = _value(row, "Source_UUID")
    return uuid or _value(row, "Source_Server_Id")


def _applied(row: dict[str, object]) -> LogPosition:
    return LogPosition(_value(row, "Relay_Source_Log_File"), int(_value(row, "Exec_Source_Log_Pos") or 0))


def _runs(row: dict[str, object]) -> bool:
    return _value(row, "Replica_IO_Running") != "No" and _value(row, "Replica_SQL_Running") == "Yes"


def _state(row: dict[str, object]) -> str:
    error = _value(row, "Last_SQL_Error") or _value(row, "Last_IO_Error")
    return (
        f"IO thread {_value(row, 'Replica_IO_Running')}, SQL thread {_value(row, 'Replica_SQL_Running')}, applied up to"
        f" {_value(row, 'Relay_Source_Log_File')}:{_value(row, 'Exec_Source_Log_Pos')}{error and ': ' + error}"
    )
