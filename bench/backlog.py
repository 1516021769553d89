"""Measures how long `canal-ha pipeline run` takes to copy a backlog of single-row transactions into Delta.

The runs are repeated on MariaDB and on MySQL.

Each run has a new node, spool, checkpoint and lake. The clock starts with the command and stops when the lake holds
every row. The pipeline is then stopped with SIGTERM, and the ids in the lake are compared with those written. The node
has its default configuration, except for the place to start from. MariaDB annotates its transactions.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from bench import workloads
from lab import MariaDB, MySQL, Node, SqlServer, follow, lake
from lab.node import PROGRAM
from lab.process import spawn, temporary_directory

DESTINATION = "bench"
QUICK = ("--innodb-flush-log-at-trx-commit=0", "--innodb-doublewrite=OFF")  # faster writes; the binlog is the same
SERVERS: dict[str, Callable[[], SqlServer]] = {
    "mariadb": lambda: MariaDB(extra=QUICK),
    "mysql": lambda: MySQL(extra=QUICK),
}
LOOK_S = 0.5
PIPELINE = """\
name = "backlog"
checkpoint = "{directory}/checkpoint"
tables = ["{table}"]
trigger = "1 second"
[source]
servers = "{servers}"
destination = "{destination}"
spoolDir = "{directory}/spool"
[[sink]]
type = "delta"
path = "{directory}/lake"
[spark]
master = "local[2]"
"spark.driver.memory" = "2g"
"spark.ui.enabled" = "false"
"""


def run(server: SqlServer, written: workloads.Written, timeout_s: float) -> float:
    """Run once; return seconds. Raises SystemExit if the copy is late or differs."""
    directory = temporary_directory("bench-backlog")
    table = f"{workloads.SCHEMA}.{written.table}"
    settings = {
        "canal.instance.master.journal.name": written.journal,
        "canal.instance.master.position": str(written.offset),
    }
    with Node({DESTINATION: follow(server, settings)}) as node:
        file = directory / "pipeline.toml"
        file.write_text(
            PIPELINE.format(directory=directory, table=table, servers=node.address, destination=DESTINATION)
        )
        log = directory / "pipeline.log"
        began = time.monotonic()
        with log.open("wb") as output:
            process = spawn([PROGRAM, "pipeline", "run", str(file)], stdout=output, stderr=output)
        try:
            copy = directory / "lake" / workloads.SCHEMA / written.table
            while len(ids := [row["id"] for row in lake.rows(copy, "id")]) < written.rows:
                if process.poll() is not None or time.monotonic() - began > timeout_s:
                    tail = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
                    raise SystemExit(f"{len(ids):,} of {written.rows:,} rows after {timeout_s:.0f} s\n{tail}")
                time.sleep(LOOK_S)
            seconds = time.monotonic() - began
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        except subprocess.TimeoutExpired:
            raise SystemExit("the pipeline does not stop on SIGTERM") from None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    rows = server.query(f"SELECT id FROM {table} ORDER BY id")
    if sorted(ids) != [row["id"] for row in rows]:
        raise SystemExit("the lake holds other ids than the source")
    return seconds


def main() -> int:
    """Run all; print the seconds of each run, and medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="?", default=60_000)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--databases", default=",".join(SERVERS), help="default: %(default)s")
    parser.add_argument("--timeout", type=float, default=180.0, help="longest run in seconds; default: %(default)s")
    arguments = parser.parse_args()
    for name in arguments.databases.split(","):
        with SERVERS[name]() as server:
            written = workloads.write(server, "B", arguments.rows)
            seconds = []
            for number in range(1, arguments.runs + 1):
                seconds.append(run(server, written, arguments.timeout))
                print(f"{name} {number:>2}: {written.rows:,} rows, complete after {seconds[-1]:.1f} s", flush=True)
            print(f"{name}: {len(seconds)} of {arguments.runs} complete, median {statistics.median(seconds):.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
