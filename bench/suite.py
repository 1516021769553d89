"""The measurements on one database: the readers of each workload."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pymysql

from bench import measure, peers
from bench.measure import Sample, Samples
from bench.workloads import Written
from lab import Node, SqlServer, follow
from lab.process import StartFailed

DESTINATION, CLIENT_ID = "bench", 1001
COUNT, ARROW, ROWS = (f"bench.readers.{name}" for name in ("count", "arrow", "rows"))
BATCH_SIZES = (1000, 3000, 10_000)  # kilobytes; the fastest one is used
SLOW = {"mysql-replication": {"A": 0.05, "B": 0.05}, "rows": {"A": 0.25, "B": 0.5}}
"""The share of a workload's rows for slow readers; it is enough for a rate."""


@dataclass(slots=True)
class Suite:
    """The measurements on one database. peers: the installed ones."""

    server: SqlServer
    peers: frozenset[str]
    rounds: int
    say: measure.Say
    samples: Samples
    batch_sizes: dict[str, int] = field(default_factory=dict)

    @property
    def database(self) -> str:
        return self.server.flavor

    # ---- a workload

    def run(self, written: Written) -> None:
        """Measure ingest, and for A and B all readers with a client."""
        place = (self.server.port, written.journal, written.offset, written.rows)
        takes = {
            "ingest": self.ingest(written),
            "discard": self._reader("discard", written, measure.python("bench.readers.discard", *place)),
        }
        if "go" in self.peers:
            takes["go-mysql"] = self._reader("go-mysql", written, peers.go("count", self.server, written, written.rows))
        if "mysqlbinlog" in self.peers:
            takes["mysqlbinlog"] = lambda: self._mysqlbinlog(written)
        measure.in_turns(takes, self.rounds, self.samples, self.say, before=self._silence)
        if written.workload not in SLOW["rows"]:
            return
        size = self._best("canal-ha", written, lambda size, rows: self.through_node(COUNT, written, rows, size))
        # Arrow batches of many megabytes no longer fit into the processor's caches, so its size can be another one
        arrow = self._best("Arrow", written, lambda size, rows: self.through_node(ARROW, written, rows, size))
        takes = {
            "count": lambda: self.through_node(COUNT, written, written.rows, size),
            "arrow": lambda: self.through_node(ARROW, written, written.rows, arrow),
        }
        if "java" in self.peers and self.database == "mariadb":
            best = self._best("java", written, lambda size, rows: self._java(written, rows, size))
            takes["java"] = lambda: self._java(written, written.rows, best)
        measure.in_turns(takes, self.rounds, self.samples, self.say, before=self._silence)
        rows = self._few("rows", written)
        takes = {"rows": lambda: self.through_node(ROWS, written, rows, size)}
        if "mysql-replication" in self.peers:
            takes["mysql-replication"] = self.mysql_replication(written, self._few("mysql-replication", written))
        measure.in_turns(takes, self.rounds, self.samples, self.say, before=self._silence)

    def _silence(self) -> None:
        """End dumps whose reader has gone.

        A server notices that late, and MariaDB lets the next replica with the same server id wait for it.
        """
        for _ in range(100):
            threads = self.server.query("SHOW PROCESSLIST")
            dumps = [row["Id"] for row in threads if "Binlog Dump" in row["Command"]]
            if not dumps:
                return
            for thread in dumps:
                with suppress(pymysql.MySQLError):  # the dump ended by itself
                    self.server.execute(f"KILL {thread}")
            time.sleep(0.05)

    def _few(self, reader: str, written: Written) -> int:
        return max(int(written.rows * SLOW[reader][written.workload]), 1)

    def _best(self, name: str, written: Written, take: Callable[[int, int], Sample]) -> int:
        """Return the batch size that reads a quarter of the rows fastest."""
        try:
            rates = {size: take(size, max(written.rows // 4, 1)).rate for size in BATCH_SIZES}
        except (measure.ReaderFailed, StartFailed):  # reported by the measurement
            return BATCH_SIZES[0]
        best = max(rates, key=lambda size: rates[size])
        self.batch_sizes[f"{self.database} {written.workload} {name}"] = best
        return best

    # ---- readers

    def ingest(self, written: Written, ssl_mode: str = "DISABLED") -> measure.Take:
        """Return the reader from MySQL to the store, in one process."""
        place = (self.server.port, written.journal, written.offset)
        command = measure.python("bench.readers.ingest", *place, written.rows, written.filter, ssl_mode)
        return self._reader("ingest", written, command)

    def mysql_replication(self, written: Written, rows: int) -> measure.Take:
        """Return mysql-replication on the first part of the rows."""
        return self._reader("mysql-replication", written, peers.mysql_replication(self.server, written, rows))

    def _reader(self, name: str, written: Written, command: list[str]) -> measure.Take:
        def take() -> Sample:
            found = measure.run_reader(command)
            return Sample(
                self.database,
                written.workload,
                name,
                int(found["rows"]),
                found["seconds"],
                found.get("cpu_s", 0.0),
                int(found.get("memory_bytes", 0)),
            )

        return take

    def _mysqlbinlog(self, written: Written) -> Sample:
        directory = Path(tempfile.mkdtemp(prefix="canal-ha-raw-", dir="/dev/shm"))
        try:
            began = time.perf_counter()
            done = subprocess.run(
                peers.mysqlbinlog(self.server, written, directory), capture_output=True, text=True, check=False
            )
            seconds = time.perf_counter() - began
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        if done.returncode:
            raise measure.ReaderFailed(done.stderr)
        return Sample(self.database, written.workload, "mysqlbinlog", written.rows, seconds)

    def through_node(
        self, module: str, written: Written, rows: int, batch_size: int, environment: Mapping[str, str] | None = None
    ) -> Sample:
        """Return a reader with a new node and a client; the sample's costs are the node's, and the client's."""
        with Node({DESTINATION: settings(self.server, written)}, environment=environment) as node:
            command = measure.python(module, node.address, DESTINATION, CLIENT_ID, rows, batch_size)
            found, used, memory = measure.through(node, lambda: measure.run_reader(command))
        name = module.rpartition(".")[2]
        return Sample(self.database, written.workload, name, rows, found["seconds"], used, memory, found["cpu_s"])

    def _java(self, written: Written, rows: int, batch_size: int) -> Sample:
        """Return a reader with canal's server and its client."""
        with peers.JavaServer(self.server, written) as canal:
            command = peers.java_count(canal.port, rows, batch_size)
            found, used, memory = measure.through(canal, lambda: measure.run_reader(command))
        return Sample(self.database, written.workload, "java", rows, found["seconds"], used, memory)


def settings(server: SqlServer, written: Written) -> dict[str, str]:
    """Return the instance.properties of a destination that starts at a workload and reads its table without TLS."""
    return follow(
        server,
        {
            "canal.instance.master.journal.name": written.journal,
            "canal.instance.master.position": str(written.offset),
            "canal.instance.filter.regex": written.filter,
            "canal.instance.master.sslMode": "DISABLED",  # as the peers read
        },
    )
