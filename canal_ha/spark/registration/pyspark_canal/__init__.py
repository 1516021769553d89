"""Spark finds installed top-level modules named pyspark_* and registers their sources by itself."""

from canal_ha.spark.source import CanalSource


class DefaultSource(CanalSource):
    """`format("canal")`, under the name that Spark expects."""
