"""The cluster with a Spark job that copies the table into Delta.

The running node is killed under writes. The copy continues and ends equal to the database's table.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from deploy.demo import show
from deploy.demo.cluster import Demonstration, name
from deploy.demo.standalone import DESTINATION
from deploy.demo.workload import COMPARED, SCHEMA, TABLE, SteadyWrites, Writer, comparable
from lab import SqlServer, StartFailed, ZooKeeper, lake
from lab.node import PROGRAM
from lab.process import spawn, temporary_directory

PATIENCE_S = 300.0  # a JVM and six Python processes start first: half a minute, or minutes on a busy machine

FILE = """\
name = "demo"
checkpoint = "{directory}/checkpoint"
tables = ["{schema}.*"]
trigger = "1 second"
[source]
zkServers = "{hosts}"
destination = "{destination}"
spoolDir = "{directory}/spool"
[[sink]]
type = "delta"
path = "{directory}/lake"
[spark]
master = "local[1]"
"""


class Job:
    """A `canal-ha pipeline run FILE` whose output is captured."""

    def __init__(self, hosts: str) -> None:
        directory = temporary_directory("spark")
        self.file = directory / "demo.toml"
        self.file.write_text(FILE.format(directory=directory, hosts=hosts, destination=DESTINATION, schema=SCHEMA))
        self._lake = directory / "lake" / SCHEMA / TABLE
        self._log = directory / "job.log"
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        with self._log.open("wb") as log:
            command = [PROGRAM, "pipeline", "run", str(self.file)]
            self.process = spawn(command, stdout=log, stderr=log, env=environment, start_new_session=True)

    def table(self) -> dict[str, tuple[object, ...]]:
        """Return the copy: key -> the compared columns; empty before the first batch."""
        return {str(row["id"]): tuple(_compared(row)) for row in lake.rows(self._lake)}

    def wait_for(self, expected: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
        """Wait until the copy is as expected, or the timeout; return the copy."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.table()) != expected and time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise StartFailed(f"the Spark job ended\n{self.lines(-20)}")
            time.sleep(0.5)
        return found

    def lines(self, last: int) -> str:
        """Return the first `last` lines about batches; if negative, the last lines of any kind."""
        lines = self._log.read_text(errors="replace").splitlines()
        if last < 0:
            return "\n".join(lines[last:])
        return "\n".join([line for line in lines if line.startswith("demo: ")][-last:])

    def end(self) -> bool:
        """Stop it with SIGTERM; return whether it ended in an orderly way."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return bool(self.process.wait(60) == 0)
        except subprocess.TimeoutExpired:
            return False

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def _compared(row: dict[str, object]) -> Iterator[object]:
    return (comparable(column, row[column]) for column in COMPARED)


def run(server: SqlServer, zookeeper: ZooKeeper) -> bool:
    """Run the demonstration; return whether the copy equals the table."""
    with ExitStack() as stack:
        play = Demonstration(server, zookeeper, stack)
        first = play.start_nodes()
        connection, other_connection = (stack.enter_context(server.connect()) for _ in range(2))
        writer = Writer(connection, show.statement)
        job = stack.enter_context(Job(play.hosts))
        show.headline(f"a Spark job: canal-ha pipeline run {Path(job.file).name}")
        show.say(job.file.read_text().rstrip())
        writer.create()
        for _ in writer.story():
            time.sleep(0.2)
        show.headline("steady writes, until the first batches are in the Delta table")
        with SteadyWrites(writer, other_connection, rows=10, pause_s=0.03):
            _until_copied(job)
            show.headline(f"kill -9 {first.pid}      ({name(first)} crashes under writes)")
            first.kill()
            taker = play.pair.running(PATIENCE_S)
            show.say(f"{name(taker)} runs the destination; the job finds it through ZooKeeper and continues.")
            time.sleep(4)
        expected = writer.table()
        show.headline("writes stopped: the Delta table compared with the database's table")
        found = job.wait_for(expected)
        orderly = job.end()
        show.say(job.lines(8))
        show.headline("verdict")
        show.figure("rows in the database", len(expected))
        show.figure("rows in the Delta table", len(found))
        show.figure("rows that differ", len({*expected.items()} ^ {*found.items()}))
        good = found == expected and orderly
        show.say("\nPASSED" if good else f"\nFAILED\n{job.lines(-20)}\n{play.pair.log_tails()}")
        return good


def _until_copied(job: Job) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not job.table():
        if job.process.poll() is not None:
            raise StartFailed(f"the Spark job ended with code {job.process.returncode}\n{job.lines(-20)}")
        if time.monotonic() > deadline:
            raise StartFailed(f"the Spark job copied nothing within {PATIENCE_S:.0f} s\n{job.lines(-20)}")
        time.sleep(0.5)
