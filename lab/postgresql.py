"""PostgreSQL 15 from Debian's package, one server per object; Debian's own cluster is not touched.

The server refuses to run as root. A test run of root starts it as `nobody`, which owns the server's directory.
"""

import os
import pwd
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from lab.ports import LOOPBACK, free_port, listens
from lab.process import Process, StartFailed

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
OWNER = "owner"
"""Superuser; the password equals the name."""


class PostgreSQL(Process):
    """One server with the database `postgres`; kill() crashes it, and start() recovers what was committed.

    extra: further settings, as `name=value`.
    certificate: file of a certificate and its key, for TLS.
    """

    def __init__(self, *, extra: Sequence[str] = (), certificate: Path | None = None) -> None:
        super().__init__("postgresql", free_port())
        self.extra = tuple(extra)
        self._certificate = certificate
        self.data = self.directory / "data"
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self.directory, self._user.pw_uid, self._user.pw_gid)

    def prepare(self) -> None:
        if not (PROGRAMS / "postgres").exists():
            raise StartFailed(f"PostgreSQL is not installed at {PROGRAMS}; run: bash deploy/install.sh")
        if self.data.exists():
            return
        secret = self.directory / "password"
        secret.write_text(OWNER)
        secret.chmod(0o644)
        if self._certificate is not None:
            self._tls_file.write_bytes(self._certificate.read_bytes())
            self._tls_file.chmod(0o600)
            if self._user is not None:
                os.chown(self._tls_file, self._user.pw_uid, self._user.pw_gid)
        done = subprocess.run(
            [
                *self._as_user(),
                str(PROGRAMS / "initdb"),
                f"--pgdata={self.data}",
                f"--username={OWNER}",
                f"--pwfile={secret}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
                "--no-sync",
            ],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise StartFailed(f"initdb failed with code {done.returncode}\n{done.stdout[-3000:]}")

    def command(self) -> Sequence[str]:
        settings = (
            f"listen_addresses={LOOPBACK}",
            f"port={self.port}",
            f"unix_socket_directories={self.directory}",
            "shared_buffers=64MB",
            "max_connections=100",
            *self._tls,
            *self.extra,
        )
        # A change of the user clears the parent-death signal, so it is set again.
        guarded = [*self._as_user(), "--pdeathsig", "KILL"] if self._user else []
        return [*guarded, str(PROGRAMS / "postgres"), "-D", str(self.data), *(f"--{each}" for each in settings)]

    @property
    def _tls_file(self) -> Path:
        return self.directory / "server.pem"

    @property
    def _tls(self) -> Sequence[str]:
        if self._certificate is None:
            return ()
        return ("ssl=on", f"ssl_cert_file={self._tls_file}", f"ssl_key_file={self._tls_file}")

    def _as_user(self) -> list[str]:
        if self._user is None:
            return []
        return ["setpriv", f"--reuid={self._user.pw_uid}", f"--regid={self._user.pw_gid}", "--clear-groups"]

    def ready(self) -> bool:
        if not listens(self.port):
            return False
        try:
            self.connect().close()
        except psycopg.Error:
            return False
        return True

    def kill(self) -> None:
        """Kill at once, and wait until the sessions' processes have noticed; the next start would fail before."""
        super().kill()
        while any(_works_in(process, self.data) for process in Path("/proc").glob("[0-9]*")):
            time.sleep(0.01)

    def connect(self, **options: Any) -> "psycopg.Connection[dict[str, Any]]":
        """Connect as the superuser, with autocommit; options are psycopg's and override ours."""
        given: dict[str, Any] = {
            "host": LOOPBACK,
            "port": self.port,
            "user": OWNER,
            "password": OWNER,
            "dbname": "postgres",
            "autocommit": True,
            "connect_timeout": 10,
            **options,
        }
        return psycopg.connect(row_factory=dict_row, **given)

    def execute(self, *statements: str, **options: Any) -> None:
        """Run statements in order on a new connection; options as in connect()."""
        with self.connect(**options) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def query(self, statement: str, *values: Any, **options: Any) -> list[dict[str, Any]]:
        """Run one statement on a new connection; return its rows as dicts."""
        with self.connect(**options) as connection:
            return connection.execute(statement.encode(), values or None).fetchall()


def _works_in(process: Path, directory: Path) -> bool:
    """Return whether a process has this working directory; the server's processes have its data directory."""
    try:
        return (process / "cwd").readlink() == directory
    except OSError:
        return False
