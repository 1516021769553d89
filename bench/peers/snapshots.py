"""The peers of bench.snapshot, which also read a whole table: Debezium's embedded engine and mydumper."""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from bench import measure
from bench.peers import HERE, JAVA_HEAP, installed
from bench.workloads import SCHEMA, Written
from lab import MySQL, SqlServer
from lab.mysql import ADMIN
from lab.ports import LOOPBACK

NAMES = ("debezium", "mydumper")
THREADS = (1, 4)
RANGES = 16  # of the key, which mydumper's threads share


def install(names: Iterable[str]) -> dict[str, str]:
    """Install peers that are missing; return why for those that cannot be installed."""
    failed = {}
    for name in names:
        done = subprocess.run(["bash", str(HERE / "install.sh"), name], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            failed[name] = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    return failed


def takes(server: SqlServer, written: Written, names: Iterable[str]) -> dict[str, measure.Take]:
    """Return the installed peers, each with one thread and with several, on a workload's table."""
    makers = {"debezium": _debezium, "mydumper": _mydumper}
    found = {}
    for name in names:
        for threads in THREADS:
            reader = f"{name}, {threads} thread{'s' if threads > 1 else ''}"
            found[reader] = makers[name](server, written, reader, threads)
    return found


def _debezium(server: SqlServer, written: Written, reader: str, threads: int) -> measure.Take:
    """Return Debezium's initial snapshot."""
    directory = installed() / "debezium"
    command = [
        *("java", *JAVA_HEAP, "-cp", f"{directory}/classes:{directory}/lib/*", "Snapshot"),
        *(server.flavor, str(server.port), ADMIN, ADMIN, f"{SCHEMA}.{written.table}", str(threads)),
    ]

    def take() -> measure.Sample:
        found = measure.run_reader(command)
        return _sample(server, written, reader, int(found["rows"]), found["seconds"], found["cpu_s"])

    return take


def _mydumper(server: SqlServer, written: Written, reader: str, threads: int) -> measure.Take:
    """Return mydumper, which writes INSERT statements into files in memory."""

    def take() -> measure.Sample:
        if isinstance(server, MySQL):  # mydumper divides a table by an EXPLAIN, whose older format it reads
            server.execute("SET GLOBAL explain_format = 'TRADITIONAL'")
        directory = Path(tempfile.mkdtemp(prefix="canal-ha-dump-", dir="/dev/shm"))
        command = [
            *(str(installed() / "mydumper" / "run"), f"--host={LOOPBACK}", f"--port={server.port}"),
            *(f"--user={ADMIN}", f"--password={ADMIN}", f"--threads={threads}", f"--outputdir={directory}"),
            *(f"--database={SCHEMA}", f"--regex=^{SCHEMA}\\.{written.table}$", f"--rows={written.rows // RANGES}"),
        ]
        try:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            seconds = time.perf_counter() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if done.returncode:
                raise measure.ReaderFailed(done.stderr)
            rows = sum(file.read_bytes().count(b"\n(") for file in directory.glob("*.sql"))  # one row a line
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return _sample(server, written, reader, rows, seconds, used)

    return take


def _sample(
    server: SqlServer, written: Written, reader: str, rows: int, seconds: float, cpu_s: float
) -> measure.Sample:
    """Return a sample. Raises ReaderFailed if the reader has not read the whole table."""
    if rows != written.rows:
        raise measure.ReaderFailed(f"{reader} read {rows:,} rows of {written.rows:,}")
    return measure.Sample(server.flavor, written.workload, reader, rows, seconds, cpu_s)
