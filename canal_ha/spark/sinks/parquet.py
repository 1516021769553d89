"""Parquet: a log of all changes, one directory per micro-batch: `<path>/run=<checkpoint>/batch_id=<n>/`.

A batch that Spark repeats after a crash replaces its directory; `_SUCCESS` marks it as complete. Directories of batches
after the first one that a driver writes are older than a restored checkpoint: their changes are delivered again, so
they are removed. Rows have the envelope's columns, and `layout` with the types of their columns.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from canal_ha.errors import CanalError, SinkRefused
from canal_ha.spark.sinks.batch import MicroBatch
from canal_ha.spark.storage import local_path, open_storage

_DIRECTORY = "batch_id="
_LAYOUT = "names ARRAY<STRING>, types ARRAY<STRING>, codes ARRAY<INT>, keys ARRAY<INT>, partial BOOLEAN"


class Parquet:
    """A sink for Parquet files. path: a directory that driver and executors share."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")
        self._begun = False

    def check(self) -> str:
        """Write a test file; return a description. Raises SinkRefused."""
        try:
            local = local_path(self._path)
            if local is not None:
                local.mkdir(parents=True, exist_ok=True)  # as Spark would: others may read it if the umask lets them
            storage = open_storage(self._path)
            storage.write("canal-ha-check", b"")
            storage.delete(["canal-ha-check"])
        except (CanalError, OSError) as error:
            raise SinkRefused(f"parquet: {error}") from error
        return f"parquet at {self._path}"

    def apply(self, batch: MicroBatch) -> None:
        """Write the batch's directory, replacing an existing one."""
        run = f"{self._path}/run={batch.run}"
        if not self._begun:
            forget_after(batch.frame.sparkSession, run, batch.batch_id)
            self._begun = True
        envelope(batch.frame).write.mode("overwrite").parquet(f"{run}/{_DIRECTORY}{batch.batch_id}")


def forget_after(spark: SparkSession, run: str, batch_id: int) -> None:
    """Remove the directories of later batches with Hadoop's file system, which Spark uses for writing."""
    context = spark.sparkContext
    jvm: Any = context._jvm  # PySpark has no public interface to file systems
    place = jvm.org.apache.hadoop.fs.Path(run)
    files = place.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(place):
        return
    for status in files.listStatus(place):
        number = status.getPath().getName().removeprefix(_DIRECTORY)
        if number.isdigit() and int(number) > batch_id:
            files.delete(status.getPath(), True)


def envelope(changes: DataFrame) -> DataFrame:
    """Convert Shape.CHANGES to the envelope."""
    layout = f.from_json("layout", _LAYOUT)
    names = layout["names"]
    image = f.coalesce("after", "before")
    key = f.map_from_arrays(
        f.transform(layout["keys"], lambda at: f.get(names, at)),
        f.transform(layout["keys"], lambda at: f.get(image, at)),
    )
    return changes.select(
        "op",
        "ts",
        "destination",
        "schema",
        "table",
        key.alias("key"),
        f.map_from_arrays(names, "before").alias("before"),
        f.map_from_arrays(names, "after").alias("after"),
        "position",
        "ddl",
        "layout",
    )
