"""CanalSource: `spark.readStream.format("canal")`. Importing it loads no reactor, no ZooKeeper client, no Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from canal_ha.spark.error_text import plain_errors
from canal_ha.spark.options import Shape, SourceOptions, parse
from canal_ha.spark.steps import Steps, unobserved

if TYPE_CHECKING:
    from canal_ha.spark.stream import CanalStreamReader


class CanalSource(DataSource):
    """Changes of one or several destinations; options.py lists the options, shapes.py the columns."""

    steps: Steps = staticmethod(unobserved)

    @classmethod
    def name(cls) -> str:
        """What follows `format`."""
        return "canal"

    @plain_errors
    def schema(self) -> str:
        """By shape; a table's columns are declared, or those of its newest rows in the spool."""
        options = self._options()
        if options.shape is not Shape.TABLE:
            from canal_ha.spark.shapes import FIXED

            return FIXED[options.shape]
        from canal_ha.spark.table_schema import table_schema

        return table_schema(options)

    @plain_errors
    def streamReader(self, schema: StructType) -> CanalStreamReader:
        """The reader of one query; Spark makes several and uses each for a part."""
        from canal_ha.spark.stream import CanalStreamReader

        return CanalStreamReader(self._options(), schema, type(self).steps)

    def _options(self) -> SourceOptions:
        return parse(self.options)
