"""Parquet: the log of all changes, one directory per micro-batch: `<path>/run=<checkpoint>/batch_id=<n>/`.

A batch that is repeated after a crash replaces its directory; `_SUCCESS` in it says that it is whole. Rows have the
envelope's columns, and their columns' types beside them in `layout`.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from canal_ha.errors import CanalError, SinkRefused
from canal_ha.spark.sinks.batch import Batch
from canal_ha.spark.storage import open_storage

_LAYOUT = "names ARRAY<STRING>, types ARRAY<STRING>, codes ARRAY<INT>, keys ARRAY<INT>, partial BOOLEAN"


class Parquet:
    """path: a directory that driver and executors see."""

    def __init__(self, path: str) -> None:
        self._path = path.rstrip("/")

    def check(self) -> str:
        """Try to write there."""
        try:
            storage = open_storage(self._path)
            storage.write("canal-ha-check", b"")
            storage.delete(["canal-ha-check"])
        except CanalError as error:
            raise SinkRefused(f"parquet: {error}") from error
        return f"parquet at {self._path}"

    def apply(self, batch: Batch) -> None:
        """Write the batch's directory anew."""
        path = f"{self._path}/run={batch.run}/batch_id={batch.batch_id}"
        envelope(batch.frame).write.mode("overwrite").parquet(path)


def envelope(changes: DataFrame) -> DataFrame:
    """Shape.CHANGES as the envelope."""
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
