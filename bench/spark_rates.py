"""Measures rows per second from a node's port to committed Parquet, `local[2]`, in the shapes `table` and `envelope`.

For comparison Spark's own JSON file source, with a given schema, reads the same rows from local disk into Parquet.

Workload A. Rounds are interleaved; the first round of each warms up and does not count; figures are medians. For both,
the clock runs from the load of a source to Spark's report of the micro-batch that completes the rows, with the same
trigger. Our time includes the node that decodes the binlog, the network, the spool, and the start of the Python process
of each query's source; a micro-batch starts as soon as there are rows. The JSON source finds complete files, split so
that both processors are busy to the end, and reads them in one micro-batch.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench import workloads
from canal_ha.spark import register
from lab import Node, follow
from lab.process import temporary_directory

DESTINATION = "bench"
SHAPES = {
    "table": {"format": "table", "table": f"{workloads.SCHEMA}.{workloads.table_of('A')}",
              "tableSchema": "id INT, k INT, c STRING, pad STRING"},
    "envelope": {"format": "envelope"},
}  # fmt: skip
TIMEOUT_S = 600
LOOK_S = 0.1  # between two reads of a query's reports, each of which costs a millisecond
SPLIT_BYTES = 64 << 20  # bytes of JSON in a task


def ours(spark: SparkSession, settings: dict[str, str], shape: str, rows: int, directory: Path) -> float:
    """Read from a new node until all rows are in Parquet; return seconds."""
    with Node({DESTINATION: settings}) as node:
        reader = spark.readStream.format("canal").option("servers", node.address).option("destination", DESTINATION)
        reader = reader.option("spoolDir", str(directory / "spool")).option("maxRowsPerTrigger", str(rows))
        for name, value in SHAPES[shape].items():
            reader = reader.option(name, value)
        return _seconds(reader.load, rows, directory)


def theirs(spark: SparkSession, json: Path, schema: Any, rows: int, directory: Path) -> float:
    """Read JSON files into Parquet; return seconds."""
    return _seconds(lambda: spark.readStream.schema(schema).json(str(json)), rows, directory)


def _seconds(load: Callable[[], Any], rows: int, directory: Path) -> float:
    for name in ("out", "checkpoint", "spool"):
        shutil.rmtree(directory / name, ignore_errors=True)
    began = time.monotonic()
    writer = load().writeStream.format("parquet").option("path", str(directory / "out"))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).start()
    while sum(report["numInputRows"] for report in query.recentProgress) < rows:
        if not query.isActive or time.monotonic() - began > TIMEOUT_S:
            raise SystemExit(f"the query stopped: {query.exception()}")
        time.sleep(LOOK_S)
    seconds = time.monotonic() - began
    query.stop()
    return seconds


def main() -> int:
    """Run the rounds, and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=int, nargs="?", default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="default: %(default)s")
    parser.add_argument("--at-least", type=float, default=0.0, help="fail if a ratio is below this value")
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.files.maxPartitionBytes", SPLIT_BYTES)
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    register(spark)
    directory = temporary_directory("bench-spark")
    ratios = []
    with workloads.server("mariadb") as server:
        written = workloads.write(server, "A", arguments.rows)
        settings = follow(
            server,
            {
                "canal.instance.master.journal.name": written.journal,
                "canal.instance.master.position": str(written.offset),
                "canal.instance.filter.regex": written.filter,
            },
        )
        print(
            f"{arguments.rows:,} rows, {arguments.rounds} rounds, Spark {spark.version}, local[2] of {os.cpu_count()}"
        )
        print(f"\n{'rows/s, median':<16}{'canal':>12}{'JSON files':>12}{'ratio':>8}")
        for shape in arguments.shapes.split(","):
            seconds: tuple[list[float], list[float]] = ([], [])
            json = directory / f"{shape}.json"
            for number in range(arguments.rounds + 1):
                one = ours(spark, settings, shape, arguments.rows, directory)
                if number == 0:
                    made = spark.read.parquet(str(directory / "out"))
                    schema = made.schema
                    made.write.json(str(json))
                other = theirs(spark, json, schema, arguments.rows, directory)
                if number:
                    seconds[0].append(one)
                    seconds[1].append(other)
            rates = [arguments.rows / statistics.median(each) for each in seconds]
            ratios.append(rates[0] / rates[1])
            print(f"{shape:<16}{rates[0]:>12,.0f}{rates[1]:>12,.0f}{ratios[-1]:>8.2f}", flush=True)
    spark.stop()
    return 0 if min(ratios) >= arguments.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
