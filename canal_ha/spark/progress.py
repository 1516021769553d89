"""Progress of a query: a live table in a terminal, else one line a batch; a summary at the end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self, TextIO

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.live import Live
from rich.table import Table


@dataclass(slots=True)
class DestinationProgress:
    """The progress of one destination.

    batches: number of batches so far.
    waiting: segments that are spooled and not read.
    lag_s: age of the newest change when it was read, s; -1 before the first.
    position: journal:offset of the newest change.
    """

    batches: int = 0
    waiting: int = 0
    lag_s: float = -1.0
    position: str = "-"


@dataclass(slots=True)
class Summary:
    """The totals of the query so far."""

    batches: int = 0
    rows: int = 0
    busy_s: float = 0.0
    destinations: dict[str, DestinationProgress] = field(default_factory=dict)

    @property
    def rows_per_s(self) -> float:
        """Rows a second, counting only the time in batches."""
        return self.rows / self.busy_s if self.busy_s else 0.0

    def add(self, progress: Mapping[str, Any], now_ms: float, written: int = 0) -> str | None:
        """Add one of Spark's progress reports; return a log line if its batch had rows.

        written: rows that tasks wrote without Spark's source, which Spark does not count.
        """
        source = progress["sources"][0]
        ends = offsets(source.get("endOffset"))
        latest = offsets(source.get("latestOffset"))
        starts = offsets(source.get("startOffset"))
        rows = int(progress.get("numInputRows") or 0) + written
        took_s = float(progress.get("durationMs", {}).get("triggerExecution", 0)) / 1000
        for name, end in ends.items():
            shown = self.destinations.setdefault(name, DestinationProgress())
            moved = starts.get(name, {}).get("seq") != end["seq"]
            shown.batches += moved
            shown.waiting = max(latest.get(name, end)["seq"] - end["seq"], 0)
            shown.position = f"{end['journal']}:{end['offset']}"
            if moved:
                shown.lag_s = max(now_ms - end["time"], 0) / 1000
        if not rows:
            return None
        self.batches += 1
        self.rows += rows
        self.busy_s += took_s
        rate = f", {_rate(rows / took_s)}" if took_s else ""
        waits = ", ".join(
            f"{name} {d.lag_s:.1f} s behind, {d.waiting} waiting" for name, d in self.destinations.items()
        )
        return f"batch {progress['batchId']}: {_count(rows, 'row')} in {took_s:.2f} s{rate}; {waits}"

    def __str__(self) -> str:
        each = ", ".join(
            f"{name}: {_count(d.batches, 'batch', 'es')} up to {d.position}" for name, d in self.destinations.items()
        )
        rate = f", {_rate(self.rows_per_s)}" if self.rows else ""
        return f"{_count(self.rows, 'row')} in {_count(self.batches, 'batch', 'es')}{rate}; {each or 'nothing read'}"


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def _rate(rows_per_s: float) -> str:
    return f"{rows_per_s:,.{0 if rows_per_s >= 10 else 1}f} rows/s"


def offsets(given: Any) -> dict[str, Any]:
    """Return the destinations in an offset of Spark's report, which may be JSON text; empty before the first."""
    if isinstance(given, str):
        given = json.loads(given)
    if not isinstance(given, dict):
        return {}
    found: dict[str, Any] = given.get("destinations", {})
    return found


class Display:
    """Shows the progress of a query; use it as a context manager. output: default is stderr."""

    def __init__(self, name: str, output: TextIO | None = None) -> None:
        self.summary = Summary()
        self._name = name
        self._console = Console(file=output or sys.stderr, highlight=False)
        self._live = Live(console=self._console, auto_refresh=False) if self._console.is_terminal else None
        self._shown = -1
        self._waits: dict[str, str] = {}
        self._written: dict[int, int] = {}

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)
        self._console.print(f"{self._name}: {self.summary}", markup=False, soft_wrap=True)

    def wrote(self, batch_id: int, rows: int) -> None:
        """Note the rows that the tasks of a micro-batch have written."""
        self._written[batch_id] = rows

    def update(self, query: StreamingQuery) -> None:
        """Show the query's progress since the last call."""
        for progress in query.recentProgress:
            report = progress if isinstance(progress, dict) else progress.jsonValue
            batch = report["batchId"]
            if batch <= self._shown or not (report.get("numInputRows") or self._written.get(batch)):
                continue
            self._shown = batch
            line = self.summary.add(report, time.time() * 1000, self._written.pop(batch, 0))
            if line is not None and self._live is None:
                self._console.print(f"{self._name}: {line}", markup=False, soft_wrap=True)
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def waits(self, reasons: Mapping[str, str]) -> None:
        """Print what destinations wait for when that changes. reasons: by destination; others have a connection."""
        for name, why in reasons.items():
            if why != self._waits.get(name):
                self._console.print(f"{self._name}: {name} waits: {why}", markup=False, soft_wrap=True)
        for name in self._waits.keys() - reasons.keys():
            self._console.print(f"{self._name}: {name} is connected", markup=False, soft_wrap=True)
        self._waits = dict(reasons)

    def _table(self) -> Table:
        table = Table(title=f"{self._name}: {_count(self.summary.rows, 'row')}, {_rate(self.summary.rows_per_s)}")
        for name in ("destination", "read up to"):
            table.add_column(name, overflow="fold")
        for name in ("batches", "waiting", "lag"):
            table.add_column(name, justify="right")
        for name, shown in self.summary.destinations.items():
            lag = f"{shown.lag_s:.1f} s" if shown.lag_s >= 0 else "-"
            table.add_row(name, shown.position, str(shown.batches), str(shown.waiting), lag)
        return table
