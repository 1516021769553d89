"""Batch: one micro-batch as sinks see it, folded only if one of them asks. Sink: what a target has to offer."""

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
    a table, by schema and name, is among those chosen: a statement may name others too.
    """

    def __init__(
        self,
        frame: DataFrame,
        batch_id: int,
        run: str,
        keys: Mapping[str, Sequence[str]],
        takes: Callable[[str, str], bool],
    ) -> None:
        self.frame = frame
        self.batch_id = batch_id
        self.run = run
        self._keys = keys
        self._takes = takes

    @cached_property
    def tables(self) -> dict[str, TableChanges]:
        """What happened to each table. Raises SinkRefused."""
        folded = fold(self.changes, self._keys)
        return {name: changes for name, changes in folded.items() if self._takes(changes.schema, changes.table)}

    @cached_property
    def changes(self) -> list[Change]:
        """All rows, in position order within a destination."""
        table: pa.Table = self.frame.toArrow()
        position = table["position"].combine_chunks()
        order = [table["destination"], *(position.field(name) for name in ("seq", "entry", "row"))]
        names = ["destination", "seq", "entry", "row"]
        rank = pa.table(dict(zip(names, order, strict=True)))
        table = table.take(pc.sort_indices(rank, sort_keys=[(name, "ascending") for name in names]))
        where = [f"{place['journal']}:{place['offset']}" for place in table["position"].to_pylist()]
        columns = [table[name].to_pylist() for name in ("op", "schema", "table", "layout", "before", "after", "ddl")]
        return [Change(*values) for values in zip(*columns, where, strict=True)]


class Sink(Protocol):
    """One target."""

    def check(self) -> str:
        """Whether it can be written; says in a few words what it is. Raises SinkRefused or what its client raises."""

    def apply(self, batch: Batch) -> None:
        """Write a batch, unless it was written before."""
