"""The ends of a binlog, and where a new client begins (docs/protocol.md#start). Blocks: pool threads."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import SourceRefused
from canal_ha.model.position import LogPosition
from canal_ha.source.connection.flavor import Flavor, binary_logs
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.positions.resume import FIRST_OFFSET
from canal_ha.source.positions.scan import Scanner, mariadb_set


@dataclass(frozen=True, slots=True)
class BinlogEnd:
    """Where a binlog ended.

    asked_at: when that was asked, monotonic seconds.
    server: the server's settings then.
    began_ms: when the newest journal was created, ms since 1970; 0 if nobody has asked.
    """

    asked_at: float
    server: Flavor
    newest: LogPosition
    began_ms: int = 0


def newest(session: SourceSession, server: Flavor, config: InstanceConfig, source: SourceConfig) -> LogPosition:
    """Return the current end of the binlog; its time is the server's clock. Raises SourceUnavailable, SourceRefused."""
    rows = session.query(server.status_statement)
    if not rows:
        raise SourceRefused(
            f"{session.where.address}: '{server.status_statement}' returned nothing: the binary log is off; start"
            " the server with log-bin=mysql-bin under [mysqld]"
        )
    journal, offset = str(rows[0]["File"]), int(rows[0]["Position"])
    gtid = ""
    if config.decode.gtid_on and server.mariadb:
        gtid = mariadb_set(session, journal, offset)
    elif config.decode.gtid_on:
        gtid = str(rows[0].get("Executed_Gtid_Set") or "").replace("\n", "")
    now = session.query("SELECT UNIX_TIMESTAMP() AS now")[0]["now"]
    return LogPosition.on(server.read_at(source), journal, offset, int(now) * 1000, gtid)


def oldest(session: SourceSession, server: Flavor, source: SourceConfig) -> LogPosition:
    """The beginning of the oldest journal that exists. Raises SourceUnavailable, SourceRefused."""
    return LogPosition.on(server.read_at(source), binary_logs(session)[0].name, FIRST_OFFSET)


def is_configured(config: InstanceConfig, source: SourceConfig) -> bool:
    """Whether the configuration says where to start."""
    return bool(source.journal or source.timestamp_ms or (source.gtid and config.decode.gtid_on))


def configured(scanner: Scanner) -> LogPosition | None:
    """Return the configured start; None if there is none.

    Raises SourceUnavailable, SourceRefused, and PositionLost if that position is purged.
    """
    source = scanner.source
    if source.gtid and scanner.config.decode.gtid_on:
        at = scanner.lacking(source.gtid)
        end = newest(scanner.session, scanner.server, scanner.config, source)
        return replace(at or end, gtid=source.gtid)
    if source.journal and source.position:
        return replace(_begin(scanner, source.journal), offset=source.position)
    if source.timestamp_ms:
        return at_time(scanner, source.timestamp_ms, source.journal)
    return _begin(scanner, source.journal) if source.journal else None


def at_time(scanner: Scanner, timestamp_ms: int, journal: str = "") -> LogPosition:
    """Return a boundary before everything committed at this time or later; the oldest one if nothing is older.

    scanner: of the source.
    timestamp_ms: ms since 1970.
    journal: search only this one; "" for all.
    Event times are whole seconds and can be a second out of order when commits are written together, so up to two
    seconds more are read. Source: docs/protocol.md#time-search.
    """
    target_ms = timestamp_ms - 1000
    if not journal:
        logs = binary_logs(scanner.session)
        first_behind = bisect_right(logs, target_ms, key=lambda log: scanner.began_ms(log.name))
        if first_behind == 0:
            return _begin(scanner, logs[0].name)
        journal = logs[first_behind - 1].name
    return scanner.boundary(journal, lambda passed: passed.timestamp_ms >= target_ms)


def at_boundary(scanner: Scanner, inside: LogPosition) -> LogPosition:
    """Return the boundary at or before a position inside a transaction."""
    return scanner.boundary(inside.journal, lambda passed: passed.position > inside.offset)


def _begin(scanner: Scanner, journal: str) -> LogPosition:
    return LogPosition.on(scanner.binlog_server, journal, FIRST_OFFSET)
