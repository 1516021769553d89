"""Console: prints the first rows of each batch, one line each."""

from __future__ import annotations

import sys

from canal_ha.spark.fold import ChangeRow, layout_of
from canal_ha.spark.sinks.batch import MicroBatch

ROWS = 20


class Console:
    """A sink that prints rows. rows: largest number of lines a batch."""

    def __init__(self, rows: int = ROWS) -> None:
        self._rows = rows

    def check(self) -> str:
        """Return a description; the console is always writable."""
        return f"console, {self._rows} rows a batch"

    def apply(self, batch: MicroBatch) -> None:
        """Print a batch; a batch that Spark repeats after a crash is printed again."""
        changes = batch.changes
        lines = [line(change) for change in changes[: self._rows]]
        if len(changes) > self._rows:
            lines.append(f"... and {len(changes) - self._rows} more")
        sys.stdout.write("".join(f"{text}\n" for text in (f"-- batch {batch.batch_id}", *lines)))
        sys.stdout.flush()


def line(change: ChangeRow) -> str:
    """Format one change."""
    if change.layout is None:
        return f"ddl     {change.ddl}"
    names = layout_of(change.layout).names
    image = change.after if change.after is not None else change.before
    values = ", ".join(f"{name}={text}" for name, text in zip(names, image or (), strict=True))
    return f"{change.op:7} {change.schema}.{change.table}  {values}"
