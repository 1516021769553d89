"""The peers of the benchmarks: canal's Java server, go-mysql, mariadb-binlog, mysql-replication.

`install.sh` in this directory installs them where these functions find them. The functions return command lines;
running one that is not installed raises FileNotFoundError.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench import measure
from bench.workloads import Written
from lab import MySQL, Process, SqlServer, free_port
from lab.mysql import ADMIN, cache_directory
from lab.ports import LOOPBACK, listens

NAMES = ("java", "go", "mysqlbinlog", "mysql-replication")
JAVA_HEAP = ("-Xms2g", "-Xmx3g")  # as canal's own startup.sh on Java 17
HERE = Path(__file__).parent


def installed() -> Path:
    """Return the directory of install.sh's results."""
    return cache_directory() / "bench"


def _java(*options: str) -> list[str]:
    directory = installed() / "java"
    return [
        "java",
        *options,
        "-Dfile.encoding=UTF-8",
        f"-Dlogback.configurationFile={HERE / 'java' / 'logback.xml'}",
        "-cp",
        f"{directory}/classes:{directory}/lib/*",
    ]


class JavaServer(Process):
    """Return the command of canal's server, with a destination `bench` that starts at a workload."""

    start_timeout_s = 120.0

    def __init__(self, server: SqlServer, written: Written) -> None:
        super().__init__("canal", free_port())
        source = [str(server.port), ADMIN, ADMIN, written.journal, str(written.offset)]
        self._arguments = [str(self.port), *source, written.filter.replace(r"\\", "\\")]

    def command(self) -> Sequence[str]:
        return [*_java(*JAVA_HEAP, "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=250"), "Server", *self._arguments]

    def ready(self) -> bool:
        return listens(self.port)


def java_count(port: int, rows: int, batch_size: int) -> list[str]:
    """Return the command of canal's client. batch_size: kilobytes."""
    return [*_java("-Xmx1g"), "Count", str(port), "bench", str(rows), str(batch_size)]


def java_arrivals(port: int, rows: int, batch_size: int, file: str) -> list[str]:
    """Return the command of canal's client that polls, and records when rows arrive. batch_size: kilobytes."""
    return [*_java("-Xmx1g"), "Arrivals", str(port), "bench", str(rows), str(batch_size), file]


def go(mode: str, server: SqlServer, written: Written, last: int) -> list[str]:
    """Return the command of go-mysql's syncer. mode: count (`last` is a number of rows) or relay (`last` is a port)."""
    program = installed() / "bench-go"
    if not program.exists():
        raise FileNotFoundError(f"{program} does not exist; run: bash bench/peers/install.sh go")
    position = [written.journal, str(written.offset)]
    return [str(program), mode, server.flavor, str(server.port), ADMIN, ADMIN, *position, str(last)]


def mysqlbinlog(server: SqlServer, written: Written, directory: Path) -> list[str]:
    """Return the command of the database's program that copies a workload's journals into a directory."""
    if isinstance(server, MySQL):
        *loader, daemon = server.binary()
        program = [*loader, str(Path(daemon).parent.parent / "bin" / "mysqlbinlog"), "--no-defaults"]
        program += ["--get-server-public-key"]
    else:
        program = ["mariadb-binlog", "--no-defaults"]
    return [
        *program,
        "--raw",
        "--read-from-remote-server",
        f"--host={LOOPBACK}",
        f"--port={server.port}",
        f"--user={ADMIN}",
        f"--password={ADMIN}",
        f"--result-file={directory}/",
        *written.journals,
    ]


def mysql_replication(server: SqlServer, written: Written, rows: int) -> list[str]:
    """Return the command of mysql-replication, which is in the virtual environment as canal-ha's driver."""
    return measure.python("bench.peers.mysql_replication", server.port, written.journal, written.offset, rows)
