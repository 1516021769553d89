"""MicroBatch: one micro-batch for the sinks, folded on demand. TableTarget: the interface of a sink.

A large micro-batch is folded in portions, so that the driver's memory does not grow with it. A portion ends with a
transaction, unless a transaction is larger than a portion.

A target's progress is stored as number and writer of a segment, not as the number of a micro-batch. A checkpoint that
is restored to an older one splits the same changes into other batches, under numbers that the target already has. A
spool that is restored issues numbers again, but under another writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from canal_ha.errors import DataLoss
from canal_ha.spark.entries import DDL
from canal_ha.spark.fold import ChangeRow, TableChanges, fold
from canal_ha.spark.lineage import ReportedProgress
from canal_ha.spark.manifest import Manifest, SegmentInfo
from canal_ha.spark.portions import split

SEGMENT = "segment"


class MicroBatch:
    """One micro-batch.

    frame: cached rows of Shape.CHANGES, and the column SEGMENT: position.seq.
    batch_id: Spark's number of the batch.
    run: identity of the query's checkpoint.
    keys: key columns of tables without a primary key.
    takes: returns whether the pipeline includes a table (schema, name); a statement may name other tables too.
    manifest: returns the current manifest of a destination's spool.
    segments: the segments of the batch, by destination.
    fail_on_data_loss: the query's option.
    """

    def __init__(
        self,
        frame: DataFrame,
        batch_id: int,
        run: str,
        keys: Mapping[str, Sequence[str]],
        takes: Callable[[str, str], bool],
        manifest: Callable[[str], Manifest],
        segments: Mapping[str, Sequence[SegmentInfo]],
        *,
        fail_on_data_loss: bool = True,
    ) -> None:
        self.frame = frame
        self.batch_id = batch_id
        self.run = run
        self._keys = keys
        self._takes = takes
        self._manifest = manifest
        self._segments = segments
        self._fail_on_data_loss = fail_on_data_loss

    @property
    def portions(self) -> Iterator[MicroBatch]:
        """The parts to fold and write one after the other, each with its own end; the batch itself if it is small."""
        if not self._is_large:
            yield self
            return
        for destination, segments in self._segments.items():
            for part in split(segments):
                chosen = f.col(SEGMENT).between(part[0].seq, part[-1].seq) & (f.col("destination") == destination)
                yield MicroBatch(
                    self.frame.where(chosen),
                    self.batch_id,
                    self.run,
                    self._keys,
                    self._takes,
                    self._manifest,
                    {destination: part},
                    fail_on_data_loss=self._fail_on_data_loss,
                )

    @property
    def _is_large(self) -> bool:
        segments = [segment for each in self._segments.values() for segment in each]
        return len(split(segments)) > 1

    @cached_property
    def tables(self) -> dict[str, TableChanges]:
        """The folded changes by table. Raises SinkRefused."""
        return self._fold(self.changes)

    @property
    def arrived(self) -> dict[str, tuple[str, ...]]:
        """The tables that statements of this batch gave the rows of other tables, by destination.

        Those that had other rows before come first.
        """
        return {
            destination: tuple(each.name for each in sorted(tables, key=lambda each: not each.emptied) if each.arrived)
            for destination, tables in self._of_statements.items()
            if any(each.arrived for each in tables)
        }

    @property
    def emptied(self) -> dict[str, tuple[str, ...]]:
        """The tables that statements of this batch emptied, dropped, or gave another name, by destination."""
        return {
            destination: tuple(each.name for each in tables if each.emptied)
            for destination, tables in self._of_statements.items()
            if any(each.emptied for each in tables)
        }

    @cached_property
    def _of_statements(self) -> dict[str, list[TableChanges]]:
        """What the statements of this batch change, by destination."""
        frame = self.frame.where(f.col("op") == DDL) if self._is_large else None
        every = [each for each in (self.changes if frame is None else collected(frame)) if each.op == DDL]
        return {
            destination: list(self._fold([each for each in every if each.destination == destination]).values())
            for destination in sorted({each.destination for each in every})
        }

    @cached_property
    def ends(self) -> dict[str, ReportedProgress]:
        """A target's progress after this batch, by spool."""
        ends = {}
        for destination, manifest in self._manifests.items():
            seq = max(change.seq for change in self.changes if change.destination == destination)
            ends[manifest.spool] = ReportedProgress(seq, manifest.lineage.writer_of(seq))
        return ends

    def ends_after(self, done: Mapping[str, ReportedProgress]) -> dict[str, ReportedProgress]:
        """Return a target's progress after this batch, by spool; never less than `done`. Raises DataLoss."""
        bounds = self._bounds(done)
        return {
            manifest.spool: done[manifest.spool]
            if bounds.get(destination, -1) >= self.ends[manifest.spool].seq
            else self.ends[manifest.spool]
            for destination, manifest in self._manifests.items()
        }

    def after(self, done: Mapping[str, ReportedProgress]) -> dict[str, TableChanges]:
        """Fold the changes after a target's progress, which is given by spool. Raises SinkRefused and DataLoss."""
        bounds = self._bounds(done)
        changes = [change for change in self.changes if change.seq > bounds.get(change.destination, -1)]
        return self.tables if len(changes) == len(self.changes) else self._fold(changes)

    @cached_property
    def changes(self) -> list[ChangeRow]:
        """All rows, in order of position within a destination."""
        return collected(self.frame)

    @cached_property
    def _manifests(self) -> dict[str, Manifest]:
        """The manifest of each destination with changes in this batch."""
        return {name: self._manifest(name) for name in sorted({change.destination for change in self.changes})}

    def _bounds(self, done: Mapping[str, ReportedProgress]) -> dict[str, int]:
        """Return the last segment that a target has, by destination.

        A target is ahead of the spool if the spool was restored from an older copy. Segments of later writers are then
        new to the target, and repeat its last changes if those writers began where the spool ended. Raises DataLoss if
        that is unknown.
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
                    " report whether its cursor is after that. Load the copy again, or set failOnDataLoss=false to"
                    " continue"
                )
        return bounds

    def _fold(self, changes: Sequence[ChangeRow]) -> dict[str, TableChanges]:
        folded = fold(changes, self._keys)
        return {name: changes for name, changes in folded.items() if self._takes(changes.schema, changes.table)}


def collected(frame: DataFrame) -> list[ChangeRow]:
    """Return all rows of a frame, in order of position within a destination."""
    table: pa.Table = frame.toArrow()
    position = table["position"].combine_chunks()
    order = [table["destination"], *(position.field(name) for name in ("seq", "entry", "row"))]
    names = ["destination", "seq", "entry", "row"]
    rank = pa.table(dict(zip(names, order, strict=True)))
    table = table.take(pc.sort_indices(rank, sort_keys=[(name, "ascending") for name in names]))
    places = table["position"].to_pylist()
    where = [f"{place['journal']}:{place['offset']}" for place in places]
    numbers = [place["seq"] for place in places]
    layouts = table["layout"].combine_chunks().dictionary_encode()
    known = [*layouts.dictionary.to_pylist(), None]  # rows share the text of their layout
    columns = [table[name].to_pylist() for name in ("op", "schema", "table")]
    columns.append([known[-1 if at is None else at] for at in layouts.indices.to_pylist()])
    columns += [table[name].to_pylist() for name in ("before", "after", "ddl")]
    rows = zip(*columns, where, table["destination"].to_pylist(), numbers, strict=True)
    return [ChangeRow(*values) for values in rows]


class TableTarget(Protocol):
    """The interface of a sink."""

    def check(self) -> str:
        """Check that the target is writable; return a short description. Raises SinkRefused or its client's errors."""

    def apply(self, batch: MicroBatch) -> None:
        """Write the part of a batch that the target does not have yet."""
