"""Runs mysql-replication for one dump over our connection; reconnecting is left to us."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymysqlreplication import BinLogStreamReader

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection.dump_connection import DumpConnection, Eater
from canal_ha.source.connection.encoded_gtids import encoded
from canal_ha.source.connection.heartbeats import HEARTBEAT_S
from canal_ha.source.connection.identity import ReplicaIdentity
from canal_ha.source.connection.session import Interruptible, SourceSession, settings

# as canal sets them (docs/protocol.md#source-session)
_SESSION = "SET SESSION net_write_timeout = 7200, net_read_timeout = 7200, wait_timeout = 9999999"

# The library warns whenever row metadata is not FULL; the names then come from our table history.
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """The dump to ask a source for.

    gtid: read what this set lacks; "" reads from journal and offset.
    blocking: wait for more at the end of the binlog; otherwise the server sends EOF there.
    heartbeat_s: how often the source reports that there is nothing new; a stream is idle only then.
    """

    server_id: int
    replica: ReplicaIdentity
    mariadb: bool
    journal: str = ""
    offset: int = 4
    gtid: str = ""
    blocking: bool = True
    heartbeat_s: float = HEARTBEAT_S


class DumpReader:
    """One dump. `read` may be called again after Lending; `close` ends the dump."""

    def __init__(
        self,
        request: DumpRequest,
        session: SourceSession,
        config: InstanceConfig,
        source: SourceConfig,
        eater: Eater,
        opening: Callable[[Interruptible], None] = lambda connection: None,
    ) -> None:
        """Connect nothing yet.

        request: the dump to ask for.
        session: lent to the library for the one question that it asks.
        config, source: the server to connect to.
        eater: takes the received bytes.
        opening: called with the connection before it connects.
        """
        self._request = request
        self._session = session
        self._config = config
        self._eater = eater
        self._opening = opening
        self._connection: DumpConnection | None = None
        of_mariadb, of_mysql = (request.gtid, "") if request.mariadb else ("", request.gtid)
        self._of_mysql = of_mysql
        self._reader = BinLogStreamReader(
            connection_settings={**settings(config, source), "init_command": _SESSION},
            server_id=request.server_id,
            log_file="" if of_mysql else request.journal or None,
            log_pos=request.offset,
            auto_position=of_mariadb or None,
            # True would send an empty file name and, without GTIDs, read everything again
            is_mariadb=bool(of_mariadb),
            resume_stream=True,
            blocking=request.blocking,
            only_events=(),
            report_slave=(request.replica.name, "", "", 0),
            slave_uuid=request.replica.uuid,
            slave_heartbeat=request.heartbeat_s,
            pymysql_wrapper=self._connect,
            enable_logging=False,
        )

    def read(self) -> None:
        """Dump until the connection ends or the eater raises. Return after the EOF of a non-blocking dump.

        Raises SourceUnavailable, SourceRefused, Lending, and whatever the eater raises.
        """
        with self._session.where.translating():
            self._reader.fetchone()

    def close(self) -> None:
        """Close the connection."""
        vars(self._session.connection).pop("_get_dbms", None)  # of the library's reader, which would live as long
        if self._connection is not None and self._connection.open:
            self._connection.close()

    def _connect(self, **options: Any) -> Interruptible:
        """Connect for the library: first for the dump, then once more for questions."""
        if self._connection is not None:
            return self._session.connection
        self._connection = DumpConnection(
            self._eater,
            annotate=self._request.mariadb,
            gtid_set=encoded(self._of_mysql) if self._of_mysql else None,
            receive_bytes=self._config.receive_buffer_bytes,
            defer_connect=True,
            **options,
        )
        self._opening(self._connection)
        self._connection.connect()
        return self._connection


def run(
    request: DumpRequest,
    session: SourceSession,
    config: InstanceConfig,
    source: SourceConfig,
    eater: Eater,
    opening: Callable[[Interruptible], None] = lambda connection: None,
) -> None:
    """Dump until the connection ends or `eater` raises, and close the connection. See DumpReader."""
    reader = DumpReader(request, session, config, source, eater, opening)
    try:
        reader.read()
    finally:
        reader.close()
