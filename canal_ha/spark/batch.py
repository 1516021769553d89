"""The batch reader of the source: one task for each destination, which reads from the node itself.

A plan fixes the bounds of a range, so a task that is tried again reads the same changes. A snapshot begins again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from canal_ha.pipeline.options import SourceOptions
from canal_ha.spark.compatible import arrow_schema
from canal_ha.spark.error_text import plain_errors
from canal_ha.spark.private_reads import PlannedRead, filter_of, frames, plan

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class CanalBatchPartition(InputPartition):
    """The work of one task."""

    planned: PlannedRead


class CanalBatchReader(DataSourceReader):
    """The reader of one DataFrame. Each action on the DataFrame plans and reads anew."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @plain_errors
    def partitions(self) -> list[CanalBatchPartition]:
        """Fix what is read: the end of the binlog is that of this moment."""
        from canal_ha.pipeline.destinations import resolve  # imports that executors do not need

        return [CanalBatchPartition(plan(self._options, name)) for name in resolve(self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a destination's rows in the query's shape. `position.seq` counts blocks of entries."""
        from canal_ha.spark.arrow import SegmentReading, entries_to_arrow

        assert isinstance(partition, CanalBatchPartition)
        options, planned = self._options, partition.planned
        schema = arrow_schema(self._schema)
        reading = SegmentReading(
            options.shape, schema, options.table, options.evolution, options.time_zone, filter_of(options)
        )
        for seq, block in enumerate(frames(options, planned)):
            yield from entries_to_arrow(block, planned.destination, seq, f"block {seq}", reading, "")
