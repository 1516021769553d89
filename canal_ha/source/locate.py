"""Where a binlog begins and ends, and where a new client begins to read (specification 8.2). Blocks: pool threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import CanalError, ConfigError, SourceRefused, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.flavor import Flavor, check, examine
from canal_ha.source.resume import FIRST_OFFSET
from canal_ha.source.session import Session

T = TypeVar("T")


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


class Located:
    """What a destination asks of its source outside the dumps, over one connection of its own.

    Any thread; calls wait for each other. warn(text): told when a start had to be replaced. `version`: "" until known.
    """

    def __init__(
        self, config: InstanceConfig, source: SourceConfig, warn: Callable[[str], None] = lambda text: None
    ) -> None:
        self.version = ""
        self._config = config
        self._source = source
        self._warn = warn
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._server: Flavor | None = None

    def newest(self) -> LogPosition:
        """Where the binlog ends now. Raises SourceUnavailable, SourceRefused."""
        return self._ask(lambda session, server: newest(session, server, self._config, self._source))

    def oldest(self) -> LogPosition:
        """The beginning of the oldest journal that exists. Raises SourceUnavailable, SourceRefused."""
        return self._ask(lambda session, server: oldest(session, server, self._source))

    def start(self, kept: LogPosition | None) -> LogPosition:
        """Where a new client begins: as configured, else `kept` (the oldest journal if it is purged), else newest.

        Raises SourceUnavailable, SourceRefused, ConfigError.
        """
        return self._ask(lambda session, server: self._start(session, server, kept))

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        with self._lock:
            self._forget()

    # ---- holding the lock

    def _start(self, session: Session, server: Flavor, kept: LogPosition | None) -> LogPosition:
        source = self._source
        if source.gtid and self._config.decode.gtid_on:
            raise self._not_supported("gtid", source.gtid)
        if source.timestamp_ms and not (source.journal and source.position):
            raise self._not_supported("timestamp", str(source.timestamp_ms))
        if source.journal:
            at = oldest(session, server, source)
            return replace(at, journal=source.journal, offset=source.position or FIRST_OFFSET)
        if kept is None:
            return newest(session, server, self._config, source)
        journals = [log.name for log in binary_logs(session)]
        if kept.journal in journals:
            return kept
        at = oldest(session, server, source)
        self._warn(f"{self._config.destination}: {kept.journal} is purged; the first client begins at {at}")
        return at

    def _not_supported(self, key: str, value: str) -> ConfigError:
        file = f"{self._config.destination}/instance.properties"
        return ConfigError(file, f"canal.instance.master.{key}", value, "journal.name and position instead")

    def _ask(self, question: Callable[[Session, Flavor], T]) -> T:
        with self._lock:
            reused = self._session is not None
            try:
                return question(*self._connect())
            except SourceUnavailable:
                self._forget()
                if not reused:
                    raise
            except CanalError:
                self._forget()  # settings may be changed by a person: look at them again next time
                raise
            try:
                return question(*self._connect())  # the connection was old; the server may be well
            except CanalError:
                self._forget()
                raise

    def _connect(self) -> tuple[Session, Flavor]:
        if self._session is None or self._server is None:
            self._session = Session(self._config, self._source)
            self._server = examine(self._session)
            self.version = self._server.version
            check(self._server, self._config, self._session.where.address)
        return self._session, self._server

    def _forget(self) -> None:
        if self._session is not None:
            self._session.close()
        self._session = self._server = None
