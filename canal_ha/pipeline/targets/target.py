"""The interface of a target."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress


class PipelineTarget(Protocol):
    """A place that rows are written to. One thread for each destination; destinations share a target."""

    def check(self) -> str:
        """Check that the target can be written; return a short description.

        Raises SinkRefused and TargetUnavailable.
        """

    def stored(self, destination: str) -> Progress | None:
        """Return the progress of the newest commit; None before the first. Changes nothing, and stops no process.

        Raises SinkRefused and TargetUnavailable.
        """

    def progress(self, destination: str) -> Progress | None:
        """Take the destination over: complete what a dead process left, and return the progress, as `stored` does.

        From now on, an older process with this pipeline may be refused. Raises SinkRefused and TargetUnavailable.
        """

    def commit(self, portion: Portion) -> None:
        """Write a portion and its progress so that both are there after a crash, or neither.

        Tables that cannot be committed together are written first, each with the portion's progress, and the target's
        progress last. If a portion comes again after a crash, a table that has it leaves it out.
        Raises SinkRefused if it can never be written, TargetUnavailable if a later try may succeed.
        """

    def close(self) -> None:
        """Release connections and files."""


@runtime_checkable
class OwnedTables(Protocol):
    """A target that writes only into tables of its own."""

    def check_table(self, destination: str, schema: str, table: str, *, merges: bool) -> None:
        """Check that a table may get rows of a destination, if it exists. Changes nothing.

        schema, table: its names, after the transforms.
        merges: a route with `merge: true` leads to it.
        Raises SinkRefused and TargetUnavailable.
        """


def wants_exact(target: PipelineTarget) -> bool:
    """Return whether a target needs values in the exact form: all but those whose attribute `exact` is False."""
    return bool(getattr(target, "exact", True))
