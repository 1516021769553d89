"""Found by Spark among the installed top-level modules named pyspark_*, and registered without a call."""

from canal_ha.spark.source import CanalSource


class DefaultSource(CanalSource):
    """`format("canal")`, under the name that Spark looks for."""
