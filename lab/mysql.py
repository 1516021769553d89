"""MySQL 9.7 and 5.6 (private trees of `deploy/install.sh`) and MariaDB (Debian's), one server per object.

A data directory is initialized once per version, kept in the cache, and copied for every server: a start then takes
about a second. Binary logs survive kill() because they are written, though not synced, at each commit.
"""

import fcntl
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import pymysql
from pymysql.cursors import DictCursor

from lab.ports import LOOPBACK, free_port, listens
from lab.process import Process, StartFailed, temporary_directory

RowMetadata = Literal["FULL", "MINIMAL", "NO_LOG"]

ADMIN = "admin"
"""User with all privileges; the password equals the name."""
CANAL = "canal"
"""User with canal's grants (SELECT, REPLICATION SLAVE, REPLICATION CLIENT); the password equals the name."""

_USERS = f"""\
CREATE USER '{ADMIN}'@'%' IDENTIFIED BY '{ADMIN}';
GRANT ALL PRIVILEGES ON *.* TO '{ADMIN}'@'%' WITH GRANT OPTION;
CREATE USER '{CANAL}'@'%' IDENTIFIED BY '{CANAL}';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{CANAL}'@'%';
"""


def cache_directory() -> Path:
    """Return the directory that keeps trees and templates between runs: CANAL_HA_CACHE, else ~/.cache/canal-ha."""
    return Path(os.environ.get("CANAL_HA_CACHE") or Path.home() / ".cache" / "canal-ha")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two test runs do not create the same template at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], what: str, stdin: IO[str] | int = subprocess.DEVNULL) -> str:
    """Run a command; return its output. Raises StartFailed with the output if it fails."""
    done = subprocess.run(
        command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise StartFailed(f"{what} failed with code {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


class SqlServer(Process):
    """One database server with binary logs in ROW format and FULL row images.

    row_metadata: binlog_row_metadata.
    gtid: MySQL's gtid_mode and consistency, MariaDB's strict mode (MariaDB always writes GTIDs).
    extra: further server options, which override earlier ones.
    server_id: the id in events.
    lower_names: lower_case_table_names = 1.
    """

    flavor: Literal["mysql", "mariadb"]
    status_statement = "SHOW MASTER STATUS"
    """The statement that shows the end of the binary log."""

    def __init__(
        self,
        *,
        row_metadata: RowMetadata = "FULL",
        gtid: bool = True,
        extra: Sequence[str] = (),
        server_id: int = 1,
        lower_names: bool = False,
    ) -> None:
        super().__init__(self.flavor, free_port())
        self.row_metadata = row_metadata
        self.gtid = gtid
        self.extra = tuple(extra)
        self.server_id = server_id
        self.name_options = ["--lower-case-table-names=1"] if lower_names else []
        self.data = self.directory / "data"

    # differences between the flavors

    def binary(self) -> list[str]:
        """Return the command of the server program, without options; raises StartFailed if it is not installed."""
        raise NotImplementedError

    def base_options(self) -> list[str]:
        """Return the options that every call of the program needs."""
        raise NotImplementedError

    def initialize(self, data: Path, users: Path) -> None:
        """Initialize an empty data directory and run the statements in the file `users`."""
        raise NotImplementedError

    def own_options(self) -> list[str]:
        """Return the options of this flavor only."""
        raise NotImplementedError

    # shared by the flavors

    @property
    def version(self) -> str:
        """Return the version of the program, as 9.7.4 or 10.11.19."""
        text = _run([*self.binary(), "--no-defaults", "--version"], f"{self.name} --version")
        found = re.search(r"Ver (\d+\.\d+\.\d+)", text)
        return found.group(1) if found else text.strip()

    def template(self) -> Path:
        """Return an initialized data directory of this version; create it if it is not in the cache."""
        template = cache_directory() / f"template-{self.flavor}-{self.version}-1{'-lower' * bool(self.name_options)}"
        with _locked(template.with_suffix(".lock")):
            if not template.exists():
                made = template.with_suffix(".making")
                shutil.rmtree(made, ignore_errors=True)
                users = temporary_directory("users") / "users.sql"
                users.write_text(_USERS)
                users.chmod(0o644)
                self.initialize(made, users)
                (made / "auto.cnf").unlink(missing_ok=True)  # every copy creates its own server_uuid
                made.rename(template)
        return template

    def prepare(self) -> None:
        if not self.data.exists():
            template = self.template()
            _run(["cp", "-a", "--sparse=always", str(template.resolve()), str(self.data)], "copying the template")

    def command(self) -> Sequence[str]:
        return [
            *self.binary(),
            "--no-defaults",
            *self.base_options(),
            *self.name_options,
            f"--datadir={self.data}",
            f"--bind-address={LOOPBACK}",
            f"--port={self.port}",
            f"--socket={self.directory}/s",
            f"--pid-file={self.directory}/pid",
            f"--tmpdir={self.directory}",
            f"--server-id={self.server_id}",
            "--log-bin=mysql-bin",
            "--binlog-format=ROW",
            "--binlog-row-image=FULL",
            "--sync-binlog=0",
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=64M",
            "--performance-schema=OFF",
            "--skip-name-resolve",
            "--sql-mode=NO_ENGINE_SUBSTITUTION",
            "--default-time-zone=+00:00",
            "--character-set-server=utf8mb4",
            "--max-connections=200",
            *self.own_options(),
            *self.extra,
        ]

    def ready(self) -> bool:
        if not listens(self.port):
            return False
        try:
            self.connect().close()
        except pymysql.MySQLError:
            return False
        return True

    def connect(self, **options: Any) -> "pymysql.Connection[Any]":
        """Connect as the user with all privileges, with autocommit; options are PyMySQL's and override ours."""
        return pymysql.connect(
            **{
                "host": LOOPBACK,
                "port": self.port,
                "user": ADMIN,
                "password": ADMIN,
                "charset": "utf8mb4",
                "autocommit": True,
                "connect_timeout": 10,
                **options,
            }
        )

    def execute(self, *statements: str, **options: Any) -> None:
        """Run statements in order on a new connection; options as in connect()."""
        with self.connect(**options) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def query(self, statement: str, *values: Any, **options: Any) -> list[dict[str, Any]]:
        """Run one statement on a new connection; return its rows as dicts."""
        with self.connect(cursorclass=DictCursor, **options) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def position(self) -> tuple[str, int]:
        """Return the newest journal and offset."""
        row = self.query(self.status_statement)[0]
        return str(row["File"]), int(row["Position"])

    def journals(self) -> list[str]:
        """Return the names of the existing journals, oldest first."""
        return [str(row["Log_name"]) for row in self.query("SHOW BINARY LOGS")]

    def gtid_set(self) -> str:
        """Return the GTIDs executed so far, in the server's own notation."""
        variable = "gtid_executed" if self.flavor == "mysql" else "gtid_binlog_pos"
        return str(self.query(f"SELECT @@GLOBAL.{variable} AS gtids")[0]["gtids"]).replace("\n", "")


class MySQL(SqlServer):
    """MySQL from the private tree, run by the tree's own loader, without chroot."""

    flavor: Literal["mysql", "mariadb"] = "mysql"
    status_statement = "SHOW BINARY LOG STATUS"

    def _tree(self) -> Path:
        return cache_directory() / "mysql"

    def binary(self) -> list[str]:
        tree, machine = self._tree(), platform.machine()
        libraries = tree / "usr" / "lib" / f"{machine}-linux-gnu"
        program = tree / "usr" / "sbin" / "mysqld"
        if not program.exists():
            raise StartFailed(f"MySQL is not installed at {program}; run: bash deploy/install.sh mysql")
        loaders = sorted(libraries.glob("ld-linux-*.so.*"))
        if not loaders:
            raise StartFailed(f"no loader in {libraries}; remove {tree} and run: bash deploy/install.sh mysql")
        return [str(loaders[0]), "--library-path", f"{libraries}:{libraries}/mysql/private", str(program)]

    def base_options(self) -> list[str]:
        tree = self._tree()
        options = [
            f"--basedir={tree}/usr",
            f"--lc-messages-dir={tree}/usr/share/mysql",
            "--secure-file-priv=",
            "--innodb-redo-log-capacity=64M",
        ]
        return [*options, "--user=root"] if os.geteuid() == 0 else options

    def initialize(self, data: Path, users: Path) -> None:
        _run(
            [
                *self.binary(),
                "--no-defaults",
                *self.base_options(),
                *self.name_options,
                "--initialize-insecure",
                "--disable-log-bin",
                f"--init-file={users}",
                f"--datadir={data}",
            ],
            "mysqld --initialize-insecure",
        )

    def own_options(self) -> list[str]:
        mode = "ON" if self.gtid else "OFF"
        return [
            "--mysqlx=OFF",
            f"--gtid-mode={mode}",
            f"--enforce-gtid-consistency={mode}",
            f"--binlog-row-metadata={self.row_metadata}",
        ]


class MySQL56(SqlServer):
    """MySQL 5.6, the oldest supported version, without row metadata and JSON. For the long suites."""

    flavor: Literal["mysql", "mariadb"] = "mysql"

    def _tree(self) -> Path:
        return cache_directory() / "mysql56"

    def binary(self) -> list[str]:
        program = self._tree() / "bin" / "mysqld"
        if not program.exists():
            raise StartFailed(f"MySQL 5.6 is not installed at {program}; run: bash deploy/install.sh mysql56")
        return [str(program)]

    def base_options(self) -> list[str]:
        options = [f"--basedir={self._tree()}", f"--lc-messages-dir={self._tree()}/share"]
        return [*options, "--user=root"] if os.geteuid() == 0 else options

    def initialize(self, data: Path, users: Path) -> None:
        (data / "mysql").mkdir(parents=True)
        share = self._tree() / "share"
        script = users.with_name("bootstrap.sql")
        tables = "".join((share / f"mysql_system_tables{part}.sql").read_text() for part in ("", "_data"))
        nobody = "DELETE FROM mysql.user WHERE User = '';\nFLUSH PRIVILEGES;\n"
        script.write_text(f"USE mysql;\n{tables}\n{nobody}{users.read_text()}")
        command = [*self.binary(), "--no-defaults", *self.base_options(), "--bootstrap", f"--datadir={data}"]
        with script.open() as statements:
            _run(command, "mysqld --bootstrap", statements)

    def own_options(self) -> list[str]:
        mode = "ON" if self.gtid else "OFF"
        return [f"--gtid-mode={mode}", f"--enforce-gtid-consistency={mode}", "--log-slave-updates"]


class MariaDB(SqlServer):
    """MariaDB from Debian's package; Debian's own service is not touched."""

    flavor: Literal["mysql", "mariadb"] = "mariadb"

    def binary(self) -> list[str]:
        program = shutil.which("mariadbd", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        if program is None:
            raise StartFailed("mariadbd is not installed; run: bash deploy/install.sh")
        return [program]

    def base_options(self) -> list[str]:
        return ["--user=root"] if os.geteuid() == 0 else []

    def initialize(self, data: Path, users: Path) -> None:
        data.mkdir()
        # No password and no anonymous users: those would hide 'canal'@'%' from clients on this machine.
        users.write_text("DELETE FROM mysql.global_priv WHERE User = '';\nFLUSH PRIVILEGES;\n" + users.read_text())
        _run(
            [
                "mariadb-install-db",
                "--no-defaults",
                *self.base_options(),
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--force",  # continue if the host name cannot be resolved
                f"--extra-file={users}",
                f"--datadir={data}",
            ],
            "mariadb-install-db",
        )

    def own_options(self) -> list[str]:
        return [
            "--innodb-log-file-size=64M",
            f"--gtid-strict-mode={'ON' if self.gtid else 'OFF'}",
            f"--binlog-row-metadata={self.row_metadata}",
            *([f"--plugin-dir={plugins}"] if (plugins := cache_directory() / "mariadb-plugins").exists() else []),
        ]
