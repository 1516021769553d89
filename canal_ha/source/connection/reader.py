"""mysql-replication, set up so that it drives one dump over our connection and leaves reconnecting to us."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pymysqlreplication import BinLogStreamReader

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection.dump_connection import DumpConnection
from canal_ha.source.connection.identity import ReplicaIdentity
from canal_ha.source.connection.session import Interruptible, SourceSession, settings

HEARTBEAT_S = 1.0  # the source says every second that there is nothing new: that is what makes "idle" known
# as canal sets them (docs/protocol.md#source-session)
_SESSION = "SET SESSION net_write_timeout = 7200, net_read_timeout = 7200, wait_timeout = 9999999"

# The library warns whenever row metadata is not FULL; names come from our table history then.
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """What to ask a source for. gtid: "" reads from journal and offset, else from what this set lacks.

    blocking: wait for more at the end of the binlog; otherwise the server says EOF there.
    """

    server_id: int
    replica: ReplicaIdentity
    mariadb: bool
    journal: str = ""
    offset: int = 4
    gtid: str = ""
    blocking: bool = True


def run(
    request: DumpRequest,
    session: SourceSession,
    config: InstanceConfig,
    source: SourceConfig,
    eat: Callable[[memoryview], Iterable[bytes]],
    opening: Callable[[Interruptible], None] = lambda connection: None,
) -> None:
    """Dump until the connection ends or `eat` raises. session: lent to the library for the one question that it asks.

    opening: called with the connection before it connects. Returns when the library was shown the EOF.
    Raises SourceUnavailable, SourceRefused, and what `eat` raises.
    """

    def connect(**options: Any) -> Interruptible:
        """The library connects for the dump first, then once more for questions."""
        if connections:
            return session.connection
        connection = DumpConnection(
            eat,
            annotate=request.mariadb,
            receive_bytes=config.receive_buffer_bytes,
            defer_connect=True,
            **options,
        )
        connections.append(connection)
        opening(connection)
        connection.connect()
        return connection

    connections: list[DumpConnection] = []
    reader = BinLogStreamReader(
        connection_settings={**settings(config, source), "init_command": _SESSION},
        server_id=request.server_id,
        log_file=request.journal or None,
        log_pos=request.offset,
        auto_position=request.gtid or None,
        # True would send an empty file name and, without GTIDs, read everything again
        is_mariadb=request.mariadb and bool(request.gtid),
        resume_stream=True,
        blocking=request.blocking,
        only_events=(),
        report_slave=(request.replica.name, "", "", 0),
        slave_uuid=request.replica.uuid,
        slave_heartbeat=HEARTBEAT_S,
        pymysql_wrapper=connect,
        enable_logging=False,
    )
    try:
        with session.where.translating():
            reader.fetchone()
    finally:
        for connection in connections:
            if connection.open:
                connection.close()
