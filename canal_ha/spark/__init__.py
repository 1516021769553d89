"""Spark as a consumer of canal: a streaming source, and pipelines into the targets of canal_ha.pipeline and into sinks.

In: entries through the client room. Out: DataFrames of changes, and tables that follow their source. The driver's
    tailer owns the spool (segments of raw entries, durable before they are acknowledged); Spark owns the offsets, which
    are segment numbers and positions, never batch ids; executors decode. Raises OptionInvalid, SpoolUnusable,
    SpoolFenced, DataLoss, SchemaChanged and SinkRefused. No other room imports this one, and importing this module
    loads no pyspark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("canal")` in a session. Spark finds installed packages itself, but not checkouts."""
    from canal_ha.spark.source import CanalSource

    spark.dataSource.register(CanalSource)
