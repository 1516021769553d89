"""The goals, as ratios of medians within one run or as processor time, and their measured values."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench.latency import PACES, Latency
from bench.measure import Sample, Samples


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal.

    ours, peer: readers. wanted: workload -> ratio. at_most: smaller is better. what: compared value of a sample.
    """

    title: str
    ours: str
    peer: str
    wanted: Mapping[str, float]
    what: Callable[[Sample], float]
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """The most processor time that a row may take.

    wanted: workload -> nanoseconds.
    what: the seconds of a sample.
    """

    title: str
    reader: str
    wanted: Mapping[str, float]
    what: Callable[[Sample], float]


@dataclass(frozen=True, slots=True)
class Reached:
    """The result of a goal on one workload and database.

    value: a ratio, or a number of the unit; None if not measured.
    """

    title: str
    workload: str
    database: str
    wanted: float
    at_most: bool
    value: float | None
    unit: str = ""

    @property
    def good(self) -> bool | None:
        if self.value is None:
            return None
        return self.value <= self.wanted if self.at_most else self.value >= self.wanted


def _rate(sample: Sample) -> float:
    return sample.rate


def _memory(sample: Sample) -> float:
    return sample.memory_bytes


def _cpu(sample: Sample) -> float:
    """Return the sample's value for this many rows."""
    return sample.cpu_s / sample.rows


GOALS = (
    Goal("ingest beside go-mysql's syncer (parsed rows)", "ingest", "go-mysql", {"A": 3, "B": 4}, _rate),
    Goal("ingest beside what the database sends, thrown away", "ingest", "discard", {"A": 0.75, "B": 1}, _rate),
    Goal("ingest beside `mysqlbinlog --raw` to memory, wall", "ingest", "mysqlbinlog", {"A": 0.9, "B": 3}, _rate),
    Goal("end to end to Arrow beside go-mysql's syncer alone", "arrow", "go-mysql", {"A": 1.6, "B": 3.5}, _rate),
    Goal("end to end beside the Java server with its Java client", "count", "java", {"A": 6, "B": 12}, _rate),
    Goal(
        "end to end to Python rows, every value read, beside mysql-replication iterating rows",
        "rows",
        "mysql-replication",
        {"A": 8, "B": 20},
        _rate,
    ),
    Goal("server's peak memory beside the Java server's", "count", "java", {"A": 0.15, "B": 0.15}, _memory, True),
    Goal("server's processor time beside the Java server's", "count", "java", {"A": 0.15, "B": 0.15}, _cpu, True),
    Goal("ingest of wide rows beside go-mysql's syncer", "ingest", "go-mysql", {"C": 2, "D": 2, "E": 2}, _rate),
)
BOUNDS = (
    Bound("processor of the node", "count", {"A": 350, "B": 1200}, lambda sample: sample.cpu_s),
    Bound("processor of a client that makes Arrow", "arrow", {"A": 150}, lambda sample: sample.client_cpu_s),
)
ONLY_MARIADB = frozenset({"java"})  # it cannot log in to MySQL 9
LATENCY_AT_MOST = {"median": 1.3, "99th percentile": 1.5}
SPARK_AT_LEAST = 1.0


def reached(samples: Samples, latencies: list[Latency], spark: float | None, databases: list[str]) -> list[Reached]:
    """Return the results of all goals, in the order of the table."""
    rows: list[Reached] = []
    for goal in GOALS:
        for workload, wanted in goal.wanted.items():
            for database in databases:
                if database == "mariadb" or goal.peer not in ONLY_MARIADB:
                    found = ratio(samples, goal, workload, database)
                    rows.append(Reached(goal.title, workload, database, wanted, goal.at_most, found))
    for bound in BOUNDS:
        for workload, wanted in bound.wanted.items():
            for database in databases:
                found = nanoseconds(samples, bound, workload, database)
                rows.append(Reached(bound.title, workload, database, wanted, True, found, "ns a row"))
    for pace in PACES:
        for name, value in (("median", _p50), ("99th percentile", _p99)):
            title = f"latency, commit to client, at {pace:,} transactions/s, {name}, beside go-mysql's syncer"
            for database in databases:
                found = _latency_ratio([each for each in latencies if each.pace == pace], database, value)
                rows.append(Reached(title, "paced", database, LATENCY_AT_MOST[name], True, found))
    title = "Spark: committed Parquet, shape `table`, beside Spark's JSON source on the same rows"
    rows.append(Reached(title, "A", "mariadb", SPARK_AT_LEAST, False, spark))
    return rows


def ratio(samples: Samples, goal: Goal, workload: str, database: str) -> float | None:
    """Return our value divided by the peer's; None unless both were measured."""
    ours = samples.median(database, workload, goal.ours, goal.what)
    peer = samples.median(database, workload, goal.peer, goal.what)
    return ours / peer if ours is not None and peer else None


def nanoseconds(samples: Samples, bound: Bound, workload: str, database: str) -> float | None:
    """Return the processor time of a row; None unless it was measured."""
    seconds = samples.median(database, workload, bound.reader, lambda sample: bound.what(sample) / sample.rows)
    return seconds * 1e9 if seconds else None


def _p50(latency: Latency) -> float:
    return latency.p50_ms


def _p99(latency: Latency) -> float:
    return latency.p99_ms


def _latency_ratio(latencies: list[Latency], database: str, what: Callable[[Latency], float]) -> float | None:
    values = [
        [what(latency) for latency in latencies if (latency.database, latency.reader) == (database, reader)]
        for reader in ("canal-ha", "go-mysql")
    ]
    if not all(values):
        return None
    ours, peer = map(statistics.median, values)
    return ours / peer if peer > 0 else None
