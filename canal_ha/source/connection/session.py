"""An ordinary connection for questions to a source. It turns PyMySQL's errors into ours.

Only one thread may use it at a time; any thread may call `interrupt`.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
from pymysql.constants import CLIENT, CR, ER
from pymysql.cursors import DictCursor

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.errors import CanalError, SourceRefused, SourceUnavailable
from canal_ha.source.connection.tls import Connection, secured

CONNECT_TIMEOUT_S = 5.0  # docs/protocol.md#source-session

_GRANTS = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT"
_NO_LOGIN = {ER.ACCESS_DENIED_ERROR, ER.HOST_NOT_PRIVILEGED}
_NO_RIGHT = {
    ER.ACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
}
_ACCOUNT = {
    1820: "ALTER USER",
    1862: "ALTER USER",
    3118: "ALTER USER … ACCOUNT UNLOCK",
    4151: "ALTER USER … ACCOUNT UNLOCK",
}
_TLS_WANTED = 3159


class Interruptible(Connection):
    """A connection whose blocked reader another thread can wake; the reader's thread closes it."""

    _sock: socket.socket | None
    ctx: ssl.SSLContext | None

    def _force_close(self) -> None:
        """Close it for good, and free what TLS holds: the library's events keep the connection until a collection."""
        super()._force_close()  # type: ignore[misc] # missing in its stubs
        self.ctx = None

    def interrupt(self) -> None:
        """Shut both directions down now, so that the reader sees the end of the stream."""
        sock = self._sock
        if sock is not None:
            with suppress(OSError):
                # not SSLSocket's own shutdown, which would drop the TLS state while the reader uses it
                socket.socket.shutdown(sock, socket.SHUT_RDWR)


class Where:
    """The address and account of a source, for error messages."""

    def __init__(self, config: InstanceConfig, source: SourceConfig) -> None:
        self.address = f"{source.host}:{source.port}"
        self.username = config.username
        self.account = ""  # as the server knows it, 'canal'@'%'; "" before login

    def error(self, errno: int, text: str) -> CanalError:
        """Return our error for an error of the server or of PyMySQL."""
        head = f"{self.address}: {text} ({errno})"
        account = self.account or f"'{self.username}'@'%'"
        grant = f"GRANT {_GRANTS} ON *.* TO {account}"
        if not self.account and errno in _NO_LOGIN:
            return SourceRefused(
                f"{head}; check canal.instance.dbUsername and canal.instance.dbPassword, or run:"
                f" CREATE USER {account} IDENTIFIED BY '<dbPassword>'; {grant}"
            )
        if errno in _NO_RIGHT:
            return SourceRefused(f"{head}; run: {grant}")
        if errno in _ACCOUNT:
            return SourceRefused(f"{head}; run {_ACCOUNT[errno]} for {account}")
        if errno == CR.CR_AUTH_PLUGIN_ERR:
            return SourceRefused(head)
        if errno == _TLS_WANTED:
            return SourceRefused(f"{head}; set canal.instance.master.sslMode = REQUIRED")
        return SourceUnavailable(head)

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Turn PyMySQL's errors into ours."""
        try:
            yield
        except pymysql.MySQLError as error:
            if isinstance(reason := getattr(error, "original_exception", None), ssl.SSLError):
                raise SourceRefused(
                    f"{self.address}: TLS failed: {reason}; mend the server's TLS or the certificates in"
                    " canal.instance.master.ssl.*. With sslMode = DISABLED the connection has no TLS"
                ) from error
            errno = error.args[0] if error.args and isinstance(error.args[0], int) else 0
            raise self.error(errno, str(error.args[-1]) if error.args else type(error).__name__) from error


class SourceSession:
    """A session that is connected once constructed. Raises SourceUnavailable, SourceRefused.

    opening: called with the connection before it connects, so that it can be interrupted from then on.
    many: allow several statements in one question.
    """

    def __init__(
        self,
        config: InstanceConfig,
        source: SourceConfig,
        *,
        opening: Callable[[Interruptible], None] = lambda connection: None,
        many: bool = False,
    ) -> None:
        self.where = Where(config, source)
        flags = CLIENT.MULTI_STATEMENTS if many else 0
        self.connection = Interruptible(
            defer_connect=True, cursorclass=DictCursor, client_flag=flags, **settings(config, source)
        )
        opening(self.connection)
        with self.where.translating():
            self.connection.connect()
        user, _, host = str(self.query("SELECT CURRENT_USER() AS account")[0]["account"]).rpartition("@")
        self.where.account = f"'{user}'@'{host}'"

    @property
    def encrypted(self) -> bool:
        """Whether the connection uses TLS."""
        return isinstance(self.connection._sock, ssl.SSLSocket)

    def query(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Run one statement and return its rows, columns by name. Raises SourceUnavailable, SourceRefused."""
        with self.where.translating():
            return self.ask(sql, *values)

    def ask(self, sql: str, *values: object) -> list[dict[str, Any]]:
        """Run `query`, but raise PyMySQL's own errors."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, values or None)
            return list(cursor.fetchall())

    def ask_all(self, sql: str) -> Iterator[list[dict[str, Any]]]:
        """Run several statements, separated by `;`, and yield the rows of each. Raises PyMySQL's errors.

        The server runs nothing behind a statement that fails.
        """
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            yield list(cursor.fetchall())
            while cursor.nextset():
                yield list(cursor.fetchall())

    def alive(self) -> bool:
        """Return whether the server still answers; close the connection if not."""
        try:
            self.query("SELECT 1")
        except CanalError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self.connection.open:
            self.connection.close()


def settings(config: InstanceConfig, source: SourceConfig) -> dict[str, Any]:
    """Return PyMySQL's options for this source."""
    return {
        "host": source.host,
        "port": source.port,
        "user": config.username,
        "password": config.password.encode(),  # PyMySQL would encode text as Latin-1
        "charset": "utf8mb4",
        "autocommit": True,
        # with the server's own settings, answers may lack rows, or SELECTs of many rows be refused
        "init_command": "SET SESSION sql_select_limit = 18446744073709551615, sql_big_selects = 1",
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": config.so_timeout_s,
        "write_timeout": config.so_timeout_s,
        "program_name": "canal-ha",
        **secured(source.tls),
    }
