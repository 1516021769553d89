"""Formats a run as Markdown: goals with measured values, medians, latency, scaling, machine."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from bench.goals import Reached
from bench.latency import PACES, Latency
from bench.measure import Samples
from bench.scaling import COUNTS, Scaling
from bench.workloads import WORKLOADS

NAMES = {"mariadb": "MariaDB", "mysql": "MySQL"}
READERS = {
    "discard": "what the database sends, thrown away",
    "ingest": "canal-ha: MySQL to store",
    "go-mysql": "go-mysql's syncer, rows parsed",
    "mysqlbinlog": "`mysqlbinlog --raw` to memory",
    "count": "canal-ha: end to end, client counts",
    "arrow": "canal-ha: end to end, client makes Arrow",
    "java": "canal (Java): end to end, client counts",
    "rows": "canal-ha: end to end, Python rows, every value read",
    "mysql-replication": "mysql-replication, rows iterated",
}


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a run. missing: peer -> why it is not installed. rows: of workload A."""

    date: str
    rows: int
    rounds: int
    seconds: float
    machine: dict[str, str]
    versions: dict[str, str]
    databases: list[str]
    missing: dict[str, str]
    batch_sizes: dict[str, int]
    samples: Samples
    latencies: list[Latency]
    scalings: list[Scaling]
    goals: list[Reached]

    def as_json(self) -> dict[str, object]:
        return {
            **{name: getattr(self, name) for name in ("date", "rows", "rounds", "seconds", "machine", "versions")},
            **{name: getattr(self, name) for name in ("databases", "missing", "batch_sizes")},
            **self.samples.as_json(),
            "latency": [asdict(latency) for latency in self.latencies],
            "scaling": [asdict(scaling) for scaling in self.scalings],
            "goals": [{**asdict(goal), "good": goal.good} for goal in self.goals],
        }


def goals_table(goals: Sequence[Reached]) -> str:
    """Return one row for a goal and workload, with one column for each database."""
    rows = []
    seen: dict[tuple[str, str], list[Reached]] = {}
    for goal in goals:
        seen.setdefault((goal.title, goal.workload), []).append(goal)
    for (title, workload), found in seen.items():
        sign = "≤" if found[0].at_most else "≥"
        measured = [f"{NAMES[one.database]} {_number(one.value)}{_mark(one)}" for one in found]
        rows.append((title, workload, f"{sign} {found[0].wanted:g} {found[0].unit}".rstrip(), ", ".join(measured)))
    return _table(("goal", "workload", "wanted", "measured"), rows)


def medians_table(run: Run, database: str) -> str:
    """Return rows a second by reader and workload, with the range of the rounds."""
    rows = []
    for reader, name in READERS.items():
        cells = []
        for workload in WORKLOADS:
            rates = [sample.rate for sample in run.samples.of(database, workload, reader)]
            cells.append(
                f"{_short(statistics.median(rates))} ({_short(min(rates))}-{_short(max(rates))})" if rates else ""
            )
        if any(cells):
            rows.append((name, *cells))
    return _table((NAMES[database], *WORKLOADS), rows)


def nanoseconds_table(run: Run) -> str:
    """Return the wall time a row up to each stage, and the processor time of the node."""
    rows = []
    for database in run.databases:
        for reader, name in READERS.items():
            cells = []
            for workload in ("A", "B"):
                wall = run.samples.median(database, workload, reader, lambda sample: sample.seconds * 1e9 / sample.rows)
                cells.append("" if wall is None else f"{wall:,.0f}")
            if any(cells):
                rows.append((NAMES[database], name, *cells))
        used = [
            run.samples.median(database, workload, "count", lambda sample: sample.cpu_s * 1e9 / sample.rows)
            for workload in ("A", "B")
        ]
        if any(used):
            rows.append((NAMES[database], "canal-ha: processor of the node", *(f"{one or 0:,.0f}" for one in used)))
    return _table(("database", "ns a row", "A", "B"), rows)


def costs_table(run: Run) -> str:
    """Return processor time and memory of the server between the database and a counting client."""
    rows = []
    for database in run.databases:
        for workload in ("A", "B"):
            for reader in ("count", "java"):
                cpu = run.samples.median(database, workload, reader, lambda sample: sample.cpu_s)
                memory = run.samples.median(database, workload, reader, lambda sample: sample.memory_bytes)
                if cpu is not None and memory is not None:
                    count = run.samples.of(database, workload, reader)[0].rows
                    name = "canal (Java)" if reader == "java" else "canal-ha"
                    rows.append((NAMES[database], workload, name, f"{count:,}", f"{cpu:.2f}", f"{memory / 1e6:.0f}"))
    return _table(("database", "workload", "server", "rows", "processor, s", "peak memory, MB"), rows)


def latency_table(run: Run) -> str:
    """Return the latency, as medians of the rounds."""
    rows = []
    for database in run.databases:
        for pace, reader in itertools.product(PACES, ("canal-ha", "go-mysql")):
            found = [one for one in run.latencies if (one.database, one.pace, one.reader) == (database, pace, reader)]
            if found:
                columns = ("p50_ms", "p99_ms", "answered_p50_ms")
                medians = [statistics.median(getattr(one, column) for one in found) for column in columns]
                rows.append((NAMES[database], f"{pace:,}", reader, *(f"{value:.2f}" for value in medians)))
    header = ("database", "transactions/s", "through", "p50, ms", "p99, ms", "p50 from the answer, ms")
    return _table(header, rows)


def scaling_table(run: Run) -> str:
    """Return the scaling, as medians of the rounds."""
    rows = []
    for database in run.databases:
        for kind in ("destinations", "client ids"):
            for count in COUNTS:
                found = [one for one in run.scalings if (one.database, one.kind, one.count) == (database, kind, count)]
                if found:
                    rate = statistics.median(one.rows / one.seconds for one in found)
                    cpu = statistics.median(one.cpu_s * 1e6 / one.rows for one in found)
                    memory = statistics.median(one.memory_bytes for one in found)
                    rows.append(
                        (
                            NAMES[database],
                            f"{count} {kind if count > 1 else kind[:-1]}",
                            _short(rate),
                            f"{cpu:.2f}",
                            f"{memory / 1e6:.0f}",
                        )
                    )
    return _table(("database", "read at once", "rows/s together", "node's µs a row", "node's peak memory, MB"), rows)


def markdown(run: Run, picture: str) -> str:
    """Return the report. picture: file name of the scaling's picture."""
    about = [
        f"Taken on {run.date}: {run.machine['cores']} cores of {run.machine['processor']}, {run.machine['memory']},"
        f" {run.machine['system']}; everything on this one machine, over loopback.",
        "; ".join(f"{name} {version}" for name, version in run.versions.items()) + ".",
        f"Workload A has {run.rows:,} rows, the others their share of it; {run.rounds} rounds, readers in turns, each a"
        f" fresh process, medians. The run took {run.seconds / 60:.0f} minutes.",
        "Batch sizes in kilobytes, the best one of three: "
        + ", ".join(f"{name} {size:,}" for name, size in run.batch_sizes.items())
        + ".",
        *(f"Not there: {name}: {reason}" for name, reason in run.missing.items()),
        *(f"Without figures: {name}." for name in run.samples.failed),
    ]
    parts = [
        "\n\n".join(about),
        "**Goals.** Ratios of medians, and processor time as a median; ✗ marks what is not reached, - what was not"
        " measured.",
        goals_table(run.goals),
        "**Rows a second** (B: transactions), median and range of the rounds.",
        *(medians_table(run, database) for database in run.databases),
        "**Nanoseconds a row**, connecting included; on workload B a row is a transaction.",
        nanoseconds_table(run),
        "**What the server costs** while a client counts.",
        costs_table(run),
        "**Latency** from sending COMMIT to the client that has parsed the row;"
        " the client is a process of its own, behind a node or behind a process with go-mysql's syncer.",
        latency_table(run),
        "**Scaling.**",
        scaling_table(run),
        f"![rows a second over destinations and client ids]({picture})",
    ]
    return "\n\n".join(parts) + "\n"


def _mark(goal: Reached) -> str:
    return " ✗" if goal.good is False else ""


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.0f}"


def _short(rate: float) -> str:
    """Format a rate, e.g. 1.25 M, 310 k or 950."""
    for unit, size in ((" M", 1e6), (" k", 1e3)):
        if rate >= size:
            return f"{rate / size:.3g}{unit}"
    return f"{rate:.0f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table with columns that are also aligned in a terminal."""
    lines = [head, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)
