"""Where a binlog begins and ends, and where a new client begins to read (specification 8.2). Blocks: pool threads."""

from __future__ import annotations

from dataclasses import dataclass, replace

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import ConfigError, SourceRefused
from canal_ha.model.position import LogPosition
from canal_ha.source.flavor import Flavor
from canal_ha.source.resume import FIRST_OFFSET
from canal_ha.source.session import Session


@dataclass(frozen=True, slots=True)
class BinaryLog:
    """One journal that exists. size_bytes: so far."""

    name: str
    size_bytes: int


def binary_logs(session: Session) -> tuple[BinaryLog, ...]:
    """The journals that exist, oldest first; never none. Raises SourceUnavailable, SourceRefused."""
    rows = session.query("SHOW BINARY LOGS")
    if not rows:
        raise SourceRefused(f"{session.where.address}: there are no binary logs (SHOW BINARY LOGS is empty)")
    return tuple(BinaryLog(str(row["Log_name"]), int(row["File_size"])) for row in rows)


def newest(session: Session, server: Flavor, config: InstanceConfig, source: SourceConfig) -> LogPosition:
    """Where the binlog ends now; its time is the server's clock. Raises SourceUnavailable, SourceRefused."""
    rows = session.query(server.status_statement)
    if not rows:
        raise SourceRefused(
            f"{session.where.address}: '{server.status_statement}' has no answer: the binary log is off; start the"
            " server with log-bin=mysql-bin under [mysqld]"
        )
    journal, offset = str(rows[0]["File"]), int(rows[0]["Position"])
    gtid = ""
    if config.decode.gtid_on and server.mariadb:
        gtid = str(session.query("SELECT BINLOG_GTID_POS(%s, %s) AS gtid", journal, offset)[0]["gtid"] or "")
    elif config.decode.gtid_on:
        gtid = str(rows[0].get("Executed_Gtid_Set") or "").replace("\n", "")
    now = session.query("SELECT UNIX_TIMESTAMP() AS now")[0]["now"]
    return LogPosition(
        journal=journal,
        offset=offset,
        timestamp_ms=int(now) * 1000,
        server_id=server.server_id,
        gtid=gtid,
        address=source.host,
        port=source.port,
    )


def oldest(session: Session, server: Flavor, source: SourceConfig) -> LogPosition:
    """The beginning of the oldest journal that exists. Raises SourceUnavailable, SourceRefused."""
    return LogPosition(
        journal=binary_logs(session)[0].name,
        offset=FIRST_OFFSET,
        server_id=server.server_id,
        address=source.host,
        port=source.port,
    )


def configured(session: Session, server: Flavor, config: InstanceConfig, source: SourceConfig) -> LogPosition | None:
    """The start that the configuration names, None when it names none.

    Raises ConfigError for a start that cannot be looked up.
    """
    if source.gtid and config.decode.gtid_on:
        raise _not_supported(config, "gtid", source.gtid)
    if source.timestamp_ms and not (source.journal and source.position):
        raise _not_supported(config, "timestamp", str(source.timestamp_ms))
    if not source.journal:
        return None
    at = oldest(session, server, source)
    return replace(at, journal=source.journal, offset=source.position or FIRST_OFFSET)


def _not_supported(config: InstanceConfig, key: str, value: str) -> ConfigError:
    file = f"{config.destination}/instance.properties"
    return ConfigError(file, f"canal.instance.master.{key}", value, "journal.name and position instead")
