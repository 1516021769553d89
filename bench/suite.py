"""What is measured on one database: which readers take turns on which workload."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench import measure, peers
from bench.measure import Sample, Samples
from bench.paced import TABLE
from bench.workloads import SCHEMA, Written
from tests.real import Node, SqlServer, follow, free_port
from tests.real.ports import LOOPBACK
from tests.real.process import StartFailed, spawn

DESTINATION, CLIENT_ID = "bench", 1001
COUNT, ARROW, ROWS = (f"bench.readers.{name}" for name in ("count", "arrow", "rows"))
BATCH_SIZES = (1000, 10_000)  # kilobytes; the better one is taken
SLOW = {"mysql-replication": {"A": 0.05, "B": 0.05}, "rows": {"A": 0.25, "B": 0.5}}
"""The share of a workload's rows that slow readers are given; a rate needs no more."""
COUNTS = (1, 2, 4, 8)
PACE = 1000  # transactions a second
WARM_UP = 1000  # of them, not judged


@dataclass(frozen=True, slots=True)
class Latency:
    """From sending a COMMIT to the client that has parsed its row. late: transactions the writer began late.

    answered_p50_ms: from the COMMIT's answer, which may come after the row.
    """

    database: str
    reader: str
    p50_ms: float
    p99_ms: float
    answered_p50_ms: float
    late: int


@dataclass(frozen=True, slots=True)
class Scaling:
    """So many destinations, or client ids of one, read at once through one node. seconds: until the last was done."""

    database: str
    kind: str
    count: int
    rows: int
    seconds: float
    cpu_s: float
    memory_bytes: int


@dataclass(slots=True)
class Suite:
    """One database under measurement. peers: those that are installed."""

    server: SqlServer
    peers: frozenset[str]
    rounds: int
    say: measure.Say
    samples: Samples
    batch_sizes: dict[str, int] = field(default_factory=dict)
    latencies: list[Latency] = field(default_factory=list)
    scalings: list[Scaling] = field(default_factory=list)

    @property
    def database(self) -> str:
        return self.server.flavor

    # ---- a workload

    def run(self, written: Written) -> None:
        """Ingest; and for A and B everything that has a client."""
        takes = {"ingest": self.ingest(written)}
        if "go" in self.peers:
            takes["go-mysql"] = self._reader("go-mysql", written, peers.go("count", self.server, written, written.rows))
        if "mysqlbinlog" in self.peers:
            takes["mysqlbinlog"] = lambda: self._mysqlbinlog(written)
        measure.in_turns(takes, self.rounds, self.samples, self.say)
        if written.workload not in SLOW["rows"]:
            return
        size = self._best("canal-ha", written, lambda size, rows: self.through_node(COUNT, written, rows, size))
        takes = {
            "count": lambda: self.through_node(COUNT, written, written.rows, size),
            "arrow": lambda: self.through_node(ARROW, written, written.rows, size),
        }
        if "java" in self.peers and self.database == "mariadb":
            best = self._best("java", written, lambda size, rows: self._java(written, rows, size))
            takes["java"] = lambda: self._java(written, written.rows, best)
        measure.in_turns(takes, self.rounds, self.samples, self.say)
        rows = self._few("rows", written)
        takes = {"rows": lambda: self.through_node(ROWS, written, rows, size)}
        if "mysql-replication" in self.peers:
            takes["mysql-replication"] = self.mysql_replication(written, self._few("mysql-replication", written))
        measure.in_turns(takes, self.rounds, self.samples, self.say)

    def _few(self, reader: str, written: Written) -> int:
        return max(int(written.rows * SLOW[reader][written.workload]), 1)

    def _best(self, name: str, written: Written, take: Callable[[int, int], Sample]) -> int:
        """The batch size with which a quarter of the rows are read fastest."""
        try:
            rates = {size: take(size, max(written.rows // 4, 1)).rate for size in BATCH_SIZES}
        except (measure.ReaderFailed, StartFailed):  # told where it is measured
            return BATCH_SIZES[0]
        best = max(rates, key=lambda size: rates[size])
        self.batch_sizes[f"{self.database} {written.workload} {name}"] = best
        return best

    # ---- readers

    def ingest(self, written: Written) -> measure.Take:
        """MySQL to store, in one process."""
        place = (self.server.port, written.journal, written.offset)
        command = measure.python("bench.readers.ingest", *place, written.rows, written.filter)
        return self._reader("ingest", written, command)

    def mysql_replication(self, written: Written, rows: int) -> measure.Take:
        """mysql-replication, on the first of the rows."""
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

    def _settings(self, journal: str, offset: int, tables: str, **more: str) -> dict[str, str]:
        return follow(
            self.server,
            {
                "canal.instance.master.journal.name": journal,
                "canal.instance.master.position": str(offset),
                "canal.instance.filter.regex": tables,
                **{name.replace("_", "."): value for name, value in more.items()},
            },
        )

    def through_node(
        self, module: str, written: Written, rows: int, batch_size: int, environment: Mapping[str, str] | None = None
    ) -> Sample:
        """A fresh node and a client of it. What the sample says of cost is the node's."""
        settings = self._settings(written.journal, written.offset, written.filter)
        with Node({DESTINATION: settings}, environment=environment) as node:
            command = measure.python(module, node.address, DESTINATION, CLIENT_ID, rows, batch_size)
            found, used, memory = measure.through(node, lambda: measure.run_reader(command))
        name = module.rpartition(".")[2]
        return Sample(self.database, written.workload, name, rows, found["seconds"], used, memory)

    def _java(self, written: Written, rows: int, batch_size: int) -> Sample:
        """The same with canal's server and its client."""
        with peers.JavaServer(self.server, written) as canal:
            command = peers.java_count(canal.port, rows, batch_size)
            found, used, memory = measure.through(canal, lambda: measure.run_reader(command))
        return Sample(self.database, written.workload, "java", rows, found["seconds"], used, memory)

    # ---- scaling

    def scale(self, written: Written, rows: int) -> None:
        """1 to 8 destinations, 1 to 8 client ids, each reading so many rows."""
        began = time.monotonic()
        takes: list[tuple[str, list[str], list[int]]] = []
        for count in COUNTS:
            takes.append(("destinations", [f"d{number}" for number in range(count)], [CLIENT_ID] * count))
            takes.append(("client ids", [DESTINATION] * count, [CLIENT_ID + number for number in range(count)]))
        for _ in range(max(self.rounds // 2, 1)):
            for kind, names, ids in takes:
                try:
                    self.scalings.append(self._together(kind, written, names, ids, rows))
                except (measure.ReaderFailed, StartFailed) as error:
                    self.samples.failed[f"{len(ids)} {kind}"] = str(error)
        self.say(f"1 to {COUNTS[-1]} destinations and client ids: {time.monotonic() - began:.0f} s")

    def _together(self, kind: str, written: Written, names: list[str], ids: list[int], rows: int) -> Scaling:
        settings = self._settings(written.journal, written.offset, written.filter)
        with Node(dict.fromkeys(names, settings)) as node:
            start = time.monotonic() + 0.5 + 0.5 * len(ids)  # by then all of Python is there
            commands = [
                measure.python(COUNT, node.address, name, client_id, rows, BATCH_SIZES[0], start)
                for name, client_id in zip(names, ids, strict=True)
            ]
            answers, used, memory = measure.through(node, lambda: measure.run_readers(commands))
        seconds = max(answer["ended"] for answer in answers) - start
        return Scaling(self.database, kind, len(ids), rows * len(ids), seconds, used, memory)

    # ---- latency

    def latency(self, rows: int) -> None:
        """Single-row transactions at an even pace: through a node, and through go-mysql's syncer, to a client."""
        began = time.monotonic()
        self.server.execute(
            f"CREATE DATABASE IF NOT EXISTS {SCHEMA}",
            f"CREATE TABLE {SCHEMA}.{TABLE} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, text VARCHAR(20) NOT NULL)",
        )
        arrangements: Mapping[str, Callable[[Written, int], Latency]] = {
            "canal-ha": self._node_latency,
            **({"go-mysql": self._go_latency} if "go" in self.peers else {}),
        }
        rounds = self.rounds // 2 + 1  # each has thousands of transactions
        for _ in range(rounds):
            for name, take in arrangements.items():
                self.server.execute(f"TRUNCATE TABLE {SCHEMA}.{TABLE}", "FLUSH BINARY LOGS")
                journal, offset = self.server.position()
                written = Written("paced", TABLE, rows, journal, offset, (journal,), 0)
                try:
                    self.latencies.append(take(written, rows))
                except (measure.ReaderFailed, StartFailed) as error:
                    self.samples.failed[f"latency of {name}"] = str(error)
        self.say(f"latency: {rounds} rounds, {time.monotonic() - began:.0f} s")

    def _node_latency(self, written: Written, rows: int) -> Latency:
        settings = self._settings(
            written.journal, written.offset, written.filter, canal_instance_memory_batch_mode="ITEMSIZE"
        )
        with Node({DESTINATION: settings}) as node:
            return self._paced("canal-ha", "canal", node.address, rows)

    def _go_latency(self, written: Written, rows: int) -> Latency:
        port = free_port()
        relay = spawn(peers.go("relay", self.server, written, port), stderr=subprocess.DEVNULL)
        try:
            return self._paced("go-mysql", "lines", f"{LOOPBACK}:{port}", rows)
        finally:
            relay.kill()
            relay.wait()

    def _paced(self, reader: str, kind: str, address: str, rows: int) -> Latency:
        with tempfile.TemporaryDirectory() as directory:
            files = [f"{directory}/{name}" for name in ("arrived", "committed")]
            arrivals = measure.start_reader(measure.python("bench.readers.arrivals", kind, address, rows, files[0]))
            time.sleep(1)  # the client is there before the first row, which need not be so: its place is fixed
            writer = measure.run_reader(measure.python("bench.paced", self.server.port, PACE, rows, files[1]))
            measure.finish(arrivals)
            arrived, committed = (_array(Path(file)) for file in files)
        judged = range(WARM_UP + 1, rows + 1)
        delays = [(arrived[number] - committed[number]) / 1e6 for number in judged]
        after_answers = [(arrived[number] - committed[rows + 1 + number]) / 1e6 for number in judged]
        return Latency(
            self.database,
            reader,
            p50_ms=measure.percentile(delays, 0.5),
            p99_ms=measure.percentile(delays, 0.99),
            answered_p50_ms=measure.percentile(after_answers, 0.5),
            late=int(writer["late"]),
        )


def _array(file: Path) -> array[int]:
    numbers: array[int] = array("q")
    numbers.frombytes(file.read_bytes())
    return numbers
