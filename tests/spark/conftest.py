"""One Spark session for the suite: `local[1]`, with at most three attempts for each task."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab import MariaDB, Node, follow
from tests.spark.archive import jvm_options

Read = Callable[..., Any]
PATIENCE_S = 240  # a query starts half a dozen Python processes


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Yield the session. The source is available because the package is installed."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[1,3]")
        .appName("tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", jvm_options())
        .config("spark.driver.memory", "700m")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def node(mariadb: MariaDB, database: str) -> Iterator[Node]:
    """Run a node that follows an existing database. Its first client gets all later changes."""
    mariadb.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)")
    settings = follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})
    with Node({database: settings}) as running:
        yield running


class Stream:
    """One query's options, checkpoint and output. `run` reads up to now and returns the rows of that run."""

    def __init__(self, spark: Any, directory: Path, **options: object) -> None:
        self._spark = spark
        self.directory = directory
        self.checkpoint = directory / "checkpoint"
        self.options: dict[str, object] = {"spoolDir": directory / "spool", "availableNowQuietMs": 800, **options}
        self.batches: list[list[Any]] = []

    def frame(self, **more: object) -> Any:
        """Return the source as a DataFrame."""
        reader = self._spark.readStream.format("canal")
        for name, value in {**self.options, **more}.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def start(self, *, once: bool = False, change: Callable[[Any], Any] | None = None, **more: object) -> Any:
        """Start a query that collects each micro-batch into `batches`."""

        def collect(frame: Any, batch_id: int) -> None:
            self.batches.append(frame.collect())

        frame = self.frame(**more)
        writer = (change(frame) if change else frame).writeStream.option("checkpointLocation", str(self.checkpoint))
        if once:
            writer = writer.trigger(availableNow=True)
        return writer.foreachBatch(collect).start()

    def run(self, change: Callable[[Any], Any] | None = None, **more: object) -> list[Any]:
        """Read up to now and return the rows in the order of their batches."""
        self.batches = []
        assert self.start(once=True, change=change, **more).awaitTermination(PATIENCE_S), "the query does not end"
        return self.rows

    @property
    def rows(self) -> list[Any]:
        """The rows received so far, or in the last run."""
        return [row for batch in self.batches for row in batch]


@pytest.fixture
def stream(spark: Any, tmp_path: Path) -> Callable[..., Stream]:
    """Return a function that makes streams of this session in the test's directory."""

    def make(**options: object) -> Stream:
        return Stream(spark, tmp_path, **options)

    return make
