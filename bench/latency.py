"""Latency: single-row transactions at an even pace, from COMMIT to a client, through a node and through go-mysql."""

from __future__ import annotations

import subprocess
import tempfile
import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench import measure, peers
from bench.paced import TABLE
from bench.suite import DESTINATION, Suite, settings
from bench.workloads import SCHEMA, Written
from lab import Node, SqlServer, free_port
from lab.ports import LOOPBACK
from lab.process import StartFailed, spawn

PACES = (1000, 5000)  # transactions a second
WARM_UP = 1000  # transactions that are not counted


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency from sending a COMMIT to the client that has parsed its row.

    pace: transactions a second.
    late: number of transactions that the writer began late.
    answered_p50_ms: measured from the COMMIT's answer, which may come after the row.
    """

    database: str
    reader: str
    p50_ms: float
    p99_ms: float
    answered_p50_ms: float
    late: int
    pace: int = PACES[0]


def latency(suite: Suite, rows: int) -> list[Latency]:
    """Measure single-row transactions at each pace, through a node and through go-mysql's syncer.

    rows: transactions at the slowest pace; a faster one takes the same time.
    """
    began = time.monotonic()
    found: list[Latency] = []
    arrangements: Mapping[str, Callable[[Suite, Written, int], Latency]] = {
        "canal-ha": _node,
        **({"go-mysql": _go} if "go" in suite.peers else {}),
    }
    rounds = suite.rounds // 2 + 1  # each round has thousands of transactions
    for pace in PACES * rounds:
        for name, take in arrangements.items():
            try:
                found.append(take(suite, begin(suite.server, rows * pace // PACES[0]), pace))
            except (measure.ReaderFailed, StartFailed) as error:
                suite.samples.failed[f"latency of {name} at {pace:,} transactions/s"] = str(error)
    suite.say(f"latency: {rounds} rounds, {time.monotonic() - began:.0f} s")
    return found


def begin(server: SqlServer, rows: int) -> Written:
    """Empty the table, in a new journal; return the transactions that are to come."""
    server.execute(
        f"CREATE DATABASE IF NOT EXISTS {SCHEMA}",
        f"CREATE TABLE IF NOT EXISTS {SCHEMA}.{TABLE}"
        " (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, text VARCHAR(20) NOT NULL)",
        f"TRUNCATE TABLE {SCHEMA}.{TABLE}",
        "FLUSH BINARY LOGS",
    )
    journal, offset = server.position()
    return Written("paced", TABLE, rows, journal, offset, (journal,), 0)


def _node(suite: Suite, written: Written, pace: int) -> Latency:
    with Node({DESTINATION: settings(suite.server, written)}) as node:
        return paced(suite, "canal-ha", "canal", node.address, written.rows, pace=pace)


def _go(suite: Suite, written: Written, pace: int) -> Latency:
    port = free_port()
    relay = spawn(peers.go("relay", suite.server, written, port), stderr=subprocess.DEVNULL)
    try:
        return paced(suite, "go-mysql", "lines", f"{LOOPBACK}:{port}", written.rows, pace=pace)
    finally:
        relay.kill()
        relay.wait()


def paced(
    suite: Suite,
    reader: str,
    kind: str,
    address: str,
    rows: int,
    environment: Mapping[str, str] | None = None,
    *,
    pace: int = PACES[0],
) -> Latency:
    """Write transactions and measure when their rows reach a client of bench.readers.arrivals.

    reader: its name.
    kind, address: see bench.readers.arrivals.
    rows: number of transactions.
    environment: more variables for bench.readers.arrivals.
    pace: transactions a second.
    """
    return observed(
        suite,
        reader,
        lambda file: measure.python("bench.readers.arrivals", kind, address, rows, file),
        rows,
        environment,
        pace=pace,
    )


def observed(
    suite: Suite,
    reader: str,
    command: Callable[[str], list[str]],
    rows: int,
    environment: Mapping[str, str] | None = None,
    *,
    pace: int = PACES[0],
    connects_s: float = 1.0,
) -> Latency:
    """Write transactions and measure when their rows arrive.

    reader: its name.
    command: of the client, which writes when rows arrive into a file; see bench.readers.arrivals.
    rows: number of transactions.
    environment: more variables for the client.
    pace: transactions a second.
    connects_s: until the first row; not required, because the client's position is fixed.
    """
    with tempfile.TemporaryDirectory() as directory:
        files = [f"{directory}/{name}" for name in ("arrived", "committed")]
        arrivals = measure.start_reader(command(files[0]), environment)
        time.sleep(connects_s)
        writer = measure.run_reader(measure.python("bench.paced", suite.server.port, pace, rows, files[1]))
        measure.finish(arrivals)
        arrived, committed = (_array(Path(file)) for file in files)
    judged = range(WARM_UP + 1, rows + 1)
    delays = [(arrived[number] - committed[number]) / 1e6 for number in judged]
    after_answers = [(arrived[number] - committed[rows + 1 + number]) / 1e6 for number in judged]
    return Latency(
        suite.database,
        reader,
        p50_ms=measure.percentile(delays, 0.5),
        p99_ms=measure.percentile(delays, 0.99),
        answered_p50_ms=measure.percentile(after_answers, 0.5),
        late=int(writer["late"]),
        pace=pace,
    )


def _array(file: Path) -> array[int]:
    numbers: array[int] = array("q")
    numbers.frombytes(file.read_bytes())
    return numbers
