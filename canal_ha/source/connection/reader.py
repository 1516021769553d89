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


def run(
    request: DumpRequest,
    session: SourceSession,
    config: InstanceConfig,
    source: SourceConfig,
    eater: Eater,
    opening: Callable[[Interruptible], None] = lambda connection: None,
) -> None:
    """Dump until the connection ends or `eater` raises. Return after the EOF of a non-blocking dump.

    request: the dump to ask for.
    session: lent to the library for the one question that it asks.
    config, source: the server to connect to.
    eater: takes the received bytes.
    opening: called with the connection before it connects.
    Raises SourceUnavailable, SourceRefused, and whatever `eater` raises.
    """

    def connect(**options: Any) -> Interruptible:
        """Connect for the library: first for the dump, then once more for questions."""
        if connections:
            return session.connection
        connection = DumpConnection(
            eater,
            annotate=request.mariadb,
            gtid_set=encoded(of_mysql) if of_mysql else None,
            receive_bytes=config.receive_buffer_bytes,
            defer_connect=True,
            **options,
        )
        connections.append(connection)
        opening(connection)
        connection.connect()
        return connection

    connections: list[DumpConnection] = []
    of_mariadb, of_mysql = (request.gtid, "") if request.mariadb else ("", request.gtid)
    reader = BinLogStreamReader(
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
        pymysql_wrapper=connect,
        enable_logging=False,
    )
    try:
        with session.where.translating():
            reader.fetchone()
    finally:
        vars(session.connection).pop("_get_dbms", None)  # of the library's reader, which would live as long
        for connection in connections:
            if connection.open:
                connection.close()
