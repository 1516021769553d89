"""Batch: one micro-batch as sinks see it, folded only if one of them asks. Sink: what a target has to offer.

What a target has is told by segment numbers of a spool, not by the numbers of micro-batches: a checkpoint that is
restored to an older one cuts the same changes into other batches, under numbers that the target has seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from canal_ha.spark.fold import Change, TableChanges, fold


class Batch:
    """frame: rows of Shape.CHANGES, cached; batch_id: Spark's; run: identity of the query's checkpoint; takes: whether
    a table, by schema and name, is among those chosen: a statement may name others too; spool: identity of a
    destination's spool.
    """

    def __init__(
        self,
        frame: DataFrame,
        batch_id: int,
        run: str,
        keys: Mapping[str, Sequence[str]],
        takes: Callable[[str, str], bool],
        spool: Callable[[str], str],
    ) -> None:
        self.frame = frame
        self.batch_id = batch_id
        self.run = run
        self._keys = keys
        self._takes = takes
        self._spool = spool

    @cached_property
    def tables(self) -> dict[str, TableChanges]:
        """What happened to each table. Raises SinkRefused."""
        return self._fold(self.changes)

    @cached_property
    def ends(self) -> dict[str, int]:
        """By spool, what a target has when it has this batch: the last segment that something is in."""
        ends: dict[str, int] = {}
        for destination, spool in self._spools.items():
            ends[spool] = max(change.seq for change in self.changes if change.destination == destination)
        return ends

    def after(self, done: Mapping[str, int]) -> dict[str, TableChanges]:
        """What happened to each table behind the segments that a target has, by spool. Raises SinkRefused."""
        bounds = {name: done[spool] for name, spool in self._spools.items() if spool in done}
        changes = [change for change in self.changes if change.seq > bounds.get(change.destination, -1)]
        return self.tables if len(changes) == len(self.changes) else self._fold(changes)

    @cached_property
    def changes(self) -> list[Change]:
        """All rows, in position order within a destination."""
        table: pa.Table = self.frame.toArrow()
        position = table["position"].combine_chunks()
        order = [table["destination"], *(position.field(name) for name in ("seq", "entry", "row"))]
        names = ["destination", "seq", "entry", "row"]
        rank = pa.table(dict(zip(names, order, strict=True)))
        table = table.take(pc.sort_indices(rank, sort_keys=[(name, "ascending") for name in names]))
        places = table["position"].to_pylist()
        where = [f"{place['journal']}:{place['offset']}" for place in places]
        numbers = [place["seq"] for place in places]
        columns = [table[name].to_pylist() for name in ("op", "schema", "table", "layout", "before", "after", "ddl")]
        rows = zip(*columns, where, table["destination"].to_pylist(), numbers, strict=True)
        return [Change(*values) for values in rows]

    @cached_property
    def _spools(self) -> dict[str, str]:
        """The spool of each destination that has changes here."""
        return {name: self._spool(name) for name in sorted({change.destination for change in self.changes})}

    def _fold(self, changes: Sequence[Change]) -> dict[str, TableChanges]:
        folded = fold(changes, self._keys)
        return {name: changes for name, changes in folded.items() if self._takes(changes.schema, changes.table)}


class Sink(Protocol):
    """One target."""

    def check(self) -> str:
        """Whether it can be written; says in a few words what it is. Raises SinkRefused or what its client raises."""

    def apply(self, batch: Batch) -> None:
        """Write a batch, or the part of it that the target has not."""
