"""A class-data archive of Spark, so that each driver starts in half the time (java -XX:SharedArchiveFile).

`python -m tests.spark.archive FILE` creates it. `file()` creates it in the cache, once for each version of Spark and
Java.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from lab.mysql import cache_directory

SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss16m -Xlog:disable"
"""Starts faster, and leaves the processor to others."""


@lru_cache
def jvm_options() -> str:
    """Return the options of every JVM of the suite."""
    return f"{SMALL_JVM} -XX:SharedArchiveFile={file()}"


def file() -> Path:
    """Return the archive of this Spark and this Java. If it is missing, one process creates it."""
    import pyspark

    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    name = re.sub(r"[^\w.+-]+", "_", f"spark-{pyspark.__version__}-{java.splitlines()[0]}")
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    archive = cache / f"{name}.jsa"
    with (cache / "spark-archive.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            made = archive.with_suffix(".new")
            command = [sys.executable, "-m", "tests.spark.archive", str(made)]
            subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            made.rename(archive)
    return archive


def make(archive: str) -> None:
    """Run a small query and end cleanly, so that the JVM writes the classes that it has loaded."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "700m")
        .config("spark.driver.extraJavaOptions", f"{SMALL_JVM} -XX:ArchiveClassesAtExit={archive}")
        .getOrCreate()
    )
    with tempfile.TemporaryDirectory() as directory:
        query = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", 10)
            .load()
            .writeStream.option("checkpointLocation", f"{directory}/checkpoint")
            .foreachBatch(lambda frame, number: frame.write.parquet(f"{directory}/{number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(120)


if __name__ == "__main__":
    make(sys.argv[1])
