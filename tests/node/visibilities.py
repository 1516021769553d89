"""Servers on which a snapshot learns in different ways what a SELECT sees."""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.source.snapshot.watermark import Visibility
from lab import MariaDB, MySQL, SqlServer


def mysql_with_gtids() -> SqlServer:
    """Commits in the order of the binlog, the default."""
    return MySQL()


def mysql_out_of_order() -> SqlServer:
    """Commits in any order."""
    return MySQL(extra=["--binlog-order-commits=OFF"])


def mysql_without_gtids() -> SqlServer:
    """The account has no right to log_status: SELECTs lock their rows."""
    return MySQL(gtid=False)


def mysql_log_status() -> SqlServer:
    """The account has the right to log_status."""
    return MySQL(gtid=False, extra=["--performance-schema=ON"])


def grant_log_status(server: SqlServer) -> None:
    """Give the account the rights to log_status."""
    server.execute("GRANT BACKUP_ADMIN ON *.* TO canal", "GRANT SELECT ON performance_schema.log_status TO canal")


WAYS: dict[Callable[[], SqlServer], Visibility] = {
    mysql_with_gtids: Visibility.OWNED_GTIDS,
    mysql_out_of_order: Visibility.OWNED_GTIDS,
    mysql_without_gtids: Visibility.LOCKING_READ,
    mysql_log_status: Visibility.LOG_STATUS,
    MariaDB: Visibility.CONSISTENT_SNAPSHOT,
}
