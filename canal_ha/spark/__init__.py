"""Spark as a consumer of canal: a streaming source, and ready pipelines into Parquet, Delta, MySQL and the terminal.

In: entries through the client room. Out: DataFrames of changes, tables kept equal to their source. The driver's tailer
owns the spool (segments of raw entries, durable before they are acknowledged); Spark owns the offsets, which are
segment numbers and positions, never batch ids; executors decode. Raises OptionInvalid, SpoolUnusable, SpoolFenced,
DataLoss, SchemaChanged and SinkRefused. Nothing here is imported by the rest, and importing this loads no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("canal")` known to a session. Installed packages are found by Spark itself, checkouts are not."""
    from canal_ha.spark.source import CanalSource

    spark.dataSource.register(CanalSource)
