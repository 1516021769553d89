"""CanalSource: `format("canal")` for `spark.readStream` and `spark.read`.

Importing it loads no reactor, ZooKeeper client or Arrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from canal_ha.pipeline.options import Shape, SourceOptions, parse
from canal_ha.spark.error_text import plain_errors
from canal_ha.spark.steps import Steps, unobserved

if TYPE_CHECKING:
    from canal_ha.spark.batch import CanalBatchReader
    from canal_ha.spark.stream import CanalStreamReader


class CanalSource(DataSource):
    """A data source of the changes of destinations; options.py lists the options, shapes.py the columns."""

    steps: Steps = staticmethod(unobserved)

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "canal"

    @plain_errors
    def schema(self) -> str:
        """Return the shape's schema. A table's columns are declared, or taken from its newest rows in the spool."""
        options = self._options()
        if options.shape is not Shape.TABLE:
            from canal_ha.spark.shapes import FIXED

            return FIXED[options.shape]
        from canal_ha.spark.table_schema import table_schema

        return table_schema(options)

    @plain_errors
    def reader(self, schema: StructType) -> CanalBatchReader:
        """Return the reader of one batch: a snapshot, or a range of the binlog. Raises OptionInvalid."""
        from canal_ha.spark.batch import CanalBatchReader

        return CanalBatchReader(self._options().for_batch(), schema)

    @plain_errors
    def streamReader(self, schema: StructType) -> CanalStreamReader:
        """Return a reader of one query; Spark creates several and uses each for a part of the work.

        Raises OptionInvalid.
        """
        from canal_ha.spark.stream import CanalStreamReader

        return CanalStreamReader(self._options().for_stream(), schema, type(self).steps)

    def _options(self) -> SourceOptions:
        return parse(self.options)
