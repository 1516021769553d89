"""Batch: one micro-batch as sinks see it, folded only if one of them asks. Sink: what a target has to offer.

What a target has is told by segments of a spool, number and writer, not by the numbers of micro-batches: a checkpoint
that is restored to an older one cuts the same changes into other batches, under numbers that the target has seen. A
spool that is restored issues numbers again, but under another writer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from canal_ha.errors import DataLoss
from canal_ha.spark.fold import ChangeRow, TableChanges, fold
from canal_ha.spark.lineage import ReportedProgress
from canal_ha.spark.manifest import Manifest


class MicroBatch:
    """frame: rows of Shape.CHANGES, cached; batch_id: Spark's; run: identity of the query's checkpoint; takes: whether
    a table, by schema and name, is among those chosen: a statement may name others too; manifest: of a destination's
    spool, as it is now; fail_on_data_loss: the query's.
    """

    def __init__(
        self,
        frame: DataFrame,
        batch_id: int,
        run: str,
        keys: Mapping[str, Sequence[str]],
        takes: Callable[[str, str], bool],
        manifest: Callable[[str], Manifest],
        *,
        fail_on_data_loss: bool = True,
    ) -> None:
        self.frame = frame
        self.batch_id = batch_id
        self.run = run
        self._keys = keys
        self._takes = takes
        self._manifest = manifest
        self._fail_on_data_loss = fail_on_data_loss

    @cached_property
    def tables(self) -> dict[str, TableChanges]:
        """What happened to each table. Raises SinkRefused."""
        return self._fold(self.changes)

    @cached_property
    def ends(self) -> dict[str, ReportedProgress]:
        """By spool, what a target has when it has this batch: up to the last segment that something is in."""
        ends = {}
        for destination, manifest in self._manifests.items():
            seq = max(change.seq for change in self.changes if change.destination == destination)
            ends[manifest.spool] = ReportedProgress(seq, manifest.lineage.writer_of(seq))
        return ends

    def ends_after(self, done: Mapping[str, ReportedProgress]) -> dict[str, ReportedProgress]:
        """By spool, what a target has when it had this before: no less than that. Raises DataLoss."""
        bounds = self._bounds(done)
        return {
            manifest.spool: done[manifest.spool]
            if bounds.get(destination, -1) >= self.ends[manifest.spool].seq
            else self.ends[manifest.spool]
            for destination, manifest in self._manifests.items()
        }

    def after(self, done: Mapping[str, ReportedProgress]) -> dict[str, TableChanges]:
        """What happened to each table behind the segments that a target has, by spool. Raises SinkRefused, DataLoss."""
        bounds = self._bounds(done)
        changes = [change for change in self.changes if change.seq > bounds.get(change.destination, -1)]
        return self.tables if len(changes) == len(self.changes) else self._fold(changes)

    @cached_property
    def changes(self) -> list[ChangeRow]:
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
        return [ChangeRow(*values) for values in rows]

    @cached_property
    def _manifests(self) -> dict[str, Manifest]:
        """The spool of each destination that has changes here."""
        return {name: self._manifest(name) for name in sorted({change.destination for change in self.changes})}

    def _bounds(self, done: Mapping[str, ReportedProgress]) -> dict[str, int]:
        """By destination, the last segment of the spool that a target has.

        A target that has more than the spool outlived a spool that was restored. Segments of later writers are new to
        it, and repeat what it has if they begin where the spool ended. Raises DataLoss where nobody knows that.
        """
        bounds = {}
        for name, manifest in self._manifests.items():
            claim = done.get(manifest.spool)
            if claim is None:
                continue
            bounds[name], known = manifest.lineage.covered(claim, manifest.next_seq)
            if known or not self._fail_on_data_loss:
                continue
            new = {change.seq for change in self.changes if change.destination == name and change.seq > bounds[name]}
            if not manifest.lineage.follow(sorted(new)):
                raise DataLoss(
                    f"canal: a target of {name} has changes up to segment {claim.seq} of writer {claim.writer}, which"
                    f" the spool {manifest.spool} lacks: it was restored from an older copy, and the server did not"
                    " tell whether its cursor is behind that. Load the copy again, or set failOnDataLoss=false to go on"
                )
        return bounds

    def _fold(self, changes: Sequence[ChangeRow]) -> dict[str, TableChanges]:
        folded = fold(changes, self._keys)
        return {name: changes for name, changes in folded.items() if self._takes(changes.schema, changes.table)}


class TableTarget(Protocol):
    """One target."""

    def check(self) -> str:
        """Whether it can be written; says in a few words what it is. Raises SinkRefused or what its client raises."""

    def apply(self, batch: MicroBatch) -> None:
        """Write a batch, or the part of it that the target has not."""
