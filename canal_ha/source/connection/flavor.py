"""Flavor: the kind of a server, and whether its binlog can be used. Checks are pure; `examine` asks the server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import SourceRefused
from canal_ha.model.position import BinlogServer, LogPosition
from canal_ha.source.connection.identity import Replica
from canal_ha.source.connection.session import SourceSession

_WORKERS = ("replica_parallel_workers", "slave_parallel_workers")
_KEEPS_ORDER = ("replica_preserve_commit_order", "slave_preserve_commit_order")
_VARIABLES = (
    "version",
    "version_comment",
    "server_id",
    "server_uuid",
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "lower_case_table_names",
    *_WORKERS,
    *_KEEPS_ORDER,
)


@dataclass(frozen=True, slots=True)
class Flavor:
    """A server and its binlog settings. uuid: "" on MariaDB. A variable that the version lacks is ""."""

    version: str
    mariadb: bool
    number: tuple[int, int, int]
    server_id: int
    uuid: str = ""
    log_bin: bool = True
    binlog_format: str = ""
    row_image: str = ""
    row_metadata: str = ""
    keeps_order: bool = True  # whether, as a replica, it commits in its source's order
    folds_names: bool = False  # whether table names compare without case (lower_case_table_names)
    lowers_names: bool = False  # whether they are stored in lower case, too

    @property
    def identity(self) -> str:
        """Identity of the server's binlog: see LogPosition.server."""
        return self.uuid or str(self.server_id)

    def read_at(self, source: SourceConfig) -> BinlogServer:
        """Return this server as positions name it. source: the address at which it is read."""
        return BinlogServer(source.host, source.port, self.server_id, self.identity)

    @property
    def status_statement(self) -> str:
        """The statement that shows the end of the binlog: journal and offset."""
        if self.mariadb:
            return "SHOW BINLOG STATUS" if self.number >= (10, 5, 2) else "SHOW MASTER STATUS"
        return "SHOW BINARY LOG STATUS" if self.number >= (8, 4, 0) else "SHOW MASTER STATUS"

    @property
    def replication_statement(self) -> str:
        """The statement that shows what the server itself replicates."""
        return "SHOW REPLICA STATUS" if not self.mariadb and self.number >= (8, 0, 22) else "SHOW SLAVE STATUS"

    @property
    def replicas_statement(self) -> str:
        """The statement that lists the registered replicas."""
        if self.mariadb:
            return "SHOW REPLICA HOSTS" if self.number >= (10, 5, 1) else "SHOW SLAVE HOSTS"
        return "SHOW REPLICAS" if self.number >= (8, 0, 22) else "SHOW SLAVE HOSTS"


@dataclass(frozen=True, slots=True)
class AskedServer:
    """What tells a server from another one behind the same address. identity: as Flavor has it."""

    identity: str
    hostname: str
    port: str
    datadir: str


def asked_server(session: SourceSession) -> AskedServer:
    """Return which server answers on a session. Raises SourceUnavailable, SourceRefused."""
    wanted = "'server_uuid', 'server_id', 'hostname', 'port', 'datadir'"
    rows = session.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({wanted})")
    values = {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}
    identity = values.get("server_uuid") or values.get("server_id", "")
    return AskedServer(identity, *(values.get(name, "") for name in ("hostname", "port", "datadir")))


@dataclass(frozen=True, slots=True)
class BinaryLog:
    """An existing journal. size_bytes: its current size; a server shows 0 for a file that it cannot open."""

    name: str
    size_bytes: int

    def may_contain(self, offset: int) -> bool:
        """Return whether the journal has this offset, or may have it because its size is unknown."""
        return offset <= self.size_bytes or self.size_bytes == 0


def may_contain(logs: Iterable[BinaryLog], at: LogPosition) -> bool:
    """Return whether the journals have this position, or may have it."""
    return any(log.name == at.journal and log.may_contain(at.offset) for log in logs)


def examine(session: SourceSession) -> Flavor:
    """Return the server's flavor. Raises SourceUnavailable, SourceRefused."""
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    rows = session.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    return flavor({str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows})


def flavor(variables: dict[str, str]) -> Flavor:
    """Return a Flavor made from global variables. variables: names in lower case."""
    version = variables.get("version", "")
    return Flavor(
        version=version,
        mariadb="mariadb" in f"{version} {variables.get('version_comment', '')}".lower(),
        number=parse_version(version),
        server_id=int(variables.get("server_id", "0")),
        uuid=variables.get("server_uuid", ""),
        log_bin=variables.get("log_bin", "ON").upper() in ("ON", "1"),
        binlog_format=variables.get("binlog_format", "").upper(),
        row_image=variables.get("binlog_row_image", "").upper(),
        keeps_order=_keeps_order(variables),
        folds_names=variables.get("lower_case_table_names", "0") != "0",
        lowers_names=variables.get("lower_case_table_names") == "1",
        row_metadata=variables.get("binlog_row_metadata", "").upper(),
    )


def _keeps_order(variables: dict[str, str]) -> bool:
    """Return False if several appliers commit as they please. MariaDB's never do within a domain."""
    one_worker = all(variables.get(name, "0") in ("0", "1") for name in _WORKERS)
    return one_worker or any(variables.get(name, "").upper() in ("ON", "1") for name in _KEEPS_ORDER)


def parse_version(text: str) -> tuple[int, int, int]:
    """Parse `10.11.19-MariaDB-0+deb12u1` into (10, 11, 19); missing parts are 0."""
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def check(server: Flavor, config: InstanceConfig, address: str) -> None:
    """Raise SourceRefused, with the statement to run, if the binlog lacks what canal-ha needs.

    server: its settings.
    config: of the destination.
    address: host:port, for the message.

    Only ROW is accepted, whatever canal.instance.binlog.format says: the binlog does not contain rows that logged
    statements changed, so they would be lost silently.
    """
    if not server.log_bin:
        raise SourceRefused(
            f"{address}: the binary log is off (log_bin); start the server with log-bin=mysql-bin, binlog_format=ROW"
            " and a server-id under [mysqld]: it cannot be switched on at run time"
        )
    if server.binlog_format not in ("", "ROW"):
        raise SourceRefused(
            f"{address}: Unsupported BinlogFormat {server.binlog_format}; run: SET GLOBAL binlog_format = ROW"
            " (sessions that are connected keep the old format until they reconnect)"
        )
    if config.binlog_images and server.row_image and server.row_image not in config.binlog_images:
        raise SourceRefused(
            f"{address}: Unsupported BinlogImage {server.row_image}; run: SET GLOBAL binlog_row_image ="
            f" {config.binlog_images[0]}, or add {server.row_image} to canal.instance.binlog.image"
        )


def replicas(session: SourceSession, server: Flavor) -> tuple[Replica, ...]:
    """Return the replicas of this source; () if the account may not list them (MariaDB needs one more right)."""
    try:
        rows = session.query(server.replicas_statement)
    except SourceRefused:
        return ()
    return tuple(
        Replica(
            server_id=int(row.get("Server_Id") or row.get("Server_id") or 0),
            host=str(row.get("Host") or ""),
            uuid=str(row.get("Replica_UUID") or row.get("Slave_UUID") or ""),
        )
        for row in rows
    )


def binary_logs(session: SourceSession) -> tuple[BinaryLog, ...]:
    """Return the existing journals, oldest first, at least one. Raises SourceUnavailable, SourceRefused."""
    rows = session.query("SHOW BINARY LOGS")
    if not rows:
        raise SourceRefused(f"{session.where.address}: there are no binary logs (SHOW BINARY LOGS is empty)")
    return tuple(BinaryLog(str(row["Log_name"]), int(row["File_size"])) for row in rows)


def expiry(session: SourceSession) -> tuple[float, float]:
    """Return how long journals are kept, seconds (0.0: forever), and the server's clock, seconds since 1970.

    Raises SourceUnavailable, SourceRefused.
    """
    wanted = "'binlog_expire_logs_seconds', 'expire_logs_days', 'binlog_expire_logs_auto_purge'"
    rows = session.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({wanted})")
    values = {str(row["Variable_name"]).lower(): str(row["Value"]) for row in rows}
    seconds = float(values.get("binlog_expire_logs_seconds") or 0)
    seconds = seconds or float(values.get("expire_logs_days") or 0) * 86400
    if values.get("binlog_expire_logs_auto_purge", "ON").upper() in ("OFF", "0"):
        seconds = 0.0
    return seconds, float(session.query("SELECT UNIX_TIMESTAMP() AS now")[0]["now"])
