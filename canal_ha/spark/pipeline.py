"""Pipelines: one query from a source into sinks, described by a file.

from canal_ha.spark import pipeline, pipeline_file
pipeline.run(spark, pipeline_file.load("conf/pipeline/shop.toml"))
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from types import FrameType
from typing import Any

import javaproperties
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from canal_ha.config.model import TlsConfig
from canal_ha.errors import OptionInvalid, PipelineFailed, SpoolUnusable
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.pipeline_file import AVAILABLE_NOW, SECRET_NAMES, Pipeline
from canal_ha.spark.progress import Display, Summary
from canal_ha.spark.read_again import read_again
from canal_ha.spark.sinks.batch import MicroBatch, TableTarget
from canal_ha.spark.source import CanalSource
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.storage import open_storage

POLL_S = 1
COPIES = ("delta", "mysql")  # sinks whose tables follow those of the source
_JAVA = "spark.driver.extraJavaOptions"
_STACK = "-Xss16m"
"""Stack size of the JVM's threads. When a query stops inside a sink, Spark 4.3 (StreamExecution.PROXY_ERROR) searches
the error's text with a pattern that recurs for every character. 4 MB are too little for the usual text; the log then
gets 1,024 lines of stack trace.
"""
_SUBMIT = "PYSPARK_SUBMIT_ARGS"
_REDACTION = "spark.redaction.regex"
_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
}


def sinks_of(pipeline: Pipeline) -> list[TableTarget]:
    """Create the sinks of a pipeline, in the file's order. A sink's library is imported only if it is used."""
    made: list[TableTarget] = []
    for kind, given in pipeline.sinks:
        match kind:
            case "parquet":
                from canal_ha.spark.sinks.parquet import Parquet

                made.append(Parquet(given["path"]))
            case "delta":
                from canal_ha.spark.sinks.delta import Delta

                made.append(Delta(given["path"], pipeline.options.time_zone, given.get("storage")))
            case "mysql":
                from canal_ha.spark.sinks.mysql import MySQL

                tls = TlsConfig(
                    given.get("sslMode", "PREFERRED"),
                    given.get("sslCa", ""),
                    given.get("sslCert", ""),
                    given.get("sslKey", ""),
                )
                password, databases = _password(pipeline, given), given["databases"]
                places = given["database"], given["stateDatabase"]
                made.append(MySQL(given["address"], given["user"], password, *places, databases, tls))
            case "console":
                from canal_ha.spark.sinks.console import Console

                made.append(Console(**given))
            case _:
                raise OptionInvalid(
                    f"{pipeline.file}: no sink has the type {kind!r}; use parquet, delta, mysql or console"
                )
    return made


def _password(pipeline: Pipeline, given: object) -> str:
    assert isinstance(given, dict)
    file = given.get("passwordFile")
    if file is None:
        return str(given.get("password", ""))
    try:
        return Path(file).read_text().strip()
    except OSError as error:
        raise OptionInvalid(f"{pipeline.file}: passwordFile = {file!r} cannot be read: {error.strerror}") from error


def start(
    spark: SparkSession, pipeline: Pipeline, *, once: bool = False, source: type[CanalSource] = CanalSource
) -> StreamingQuery:
    """Start the query.

    spark: the session.
    pipeline: what to run.
    once: stop when every change written before the start is read.
    source: the data source; tests pass one that observes steps.
    """
    spark.dataSource.register(source)
    steps = source.steps
    sinks = sinks_of(pipeline)
    options = pipeline.options
    has_copies = any(kind in COPIES for kind, _ in pipeline.sinks)
    reader = spark.readStream.format("canal")
    for name, value in pipeline.source.items():
        reader = reader.option(name, value)

    def spooled(destination: str) -> Manifest:
        manifest = newest_manifest(open_storage(options.spool_dir, destination, str(options.client_id)))
        if manifest is None:
            raise SpoolUnusable(f"the spool of {destination} is missing in {options.spool_dir}")
        return manifest

    def write(frame: DataFrame, batch_id: int) -> None:
        run = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert run is not None  # Spark sets it for every micro-batch
        batch = MicroBatch(
            frame.where(chosen(pipeline)).persist(),
            batch_id,
            run,
            pipeline.keys,
            pipeline.takes,
            spooled,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        try:
            for sink in sinks:
                sink.apply(batch)
                steps("sink")
            if options.snapshot and has_copies:
                for destination, tables in batch.arrived.items():
                    read_again(options, destination, tables)
        finally:
            batch.frame.unpersist()
        steps("commit")

    make_private(spark, pipeline.checkpoint)
    writer = reader.load().writeStream.queryName(pipeline.name).option("checkpointLocation", pipeline.checkpoint)
    if once or pipeline.trigger == AVAILABLE_NOW:
        writer = writer.trigger(availableNow=True)
    elif pipeline.trigger:
        writer = writer.trigger(processingTime=pipeline.trigger)
    return writer.foreachBatch(write).start()


def make_private(spark: SparkSession, checkpoint: str) -> None:
    """Create a missing checkpoint for the driver's user alone, with Hadoop's file system, as Spark does."""
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs  # PySpark has no public interface to file systems
    place = hadoop.Path(checkpoint)
    files = place.getFileSystem(context._jsc.hadoopConfiguration())
    if not files.exists(place):
        files.mkdirs(place, hadoop.permission.FsPermission("700"))


def chosen(pipeline: Pipeline) -> Column:
    """Return the condition for rows of the pipeline's tables, and for statements that may name several tables."""
    name = f.concat_ws(".", "schema", "table")
    patterns = [name.rlike(_regex(pattern)) for pattern in pipeline.tables]
    several = f.coalesce(f.col("ddl").rlike(r"(?is)^\s*(drop|rename|truncate)\b.*,"), f.lit(False))
    return reduce(lambda left, right: left | right, [*patterns, several])


def _regex(pattern: str) -> str:
    kept = {"*": ".*", "?": "."}
    return (
        "^" + "".join(kept.get(letter) or (letter if letter.isalnum() else f"\\{letter}") for letter in pattern) + "$"
    )


def run(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool = False,
    source: type[CanalSource] = CanalSource,
    display: Display | None = None,
) -> Summary:
    """Run the query until it ends, or until SIGTERM or Ctrl-C.

    spark: the session.
    pipeline: what to run.
    once: stop when every change written before the start is in the sinks.
    source: the data source; tests pass one that observes steps.
    display: shows the progress; None: on standard error.
    Raises PipelineFailed.
    """
    shown = display or Display(pipeline.name)
    query = start(spark, pipeline, once=once, source=source)
    with shown, _stopping(query):
        try:
            while not query.awaitTermination(POLL_S):
                shown.update(query)
            shown.update(query)
        except StreamingQueryException as error:
            raise PipelineFailed(f"{pipeline.name}: {reason(error)}") from error
        finally:
            with contextlib.suppress(Exception):  # the JVM may have ended
                query.stop()
    return shown.summary


def reason(error: Exception) -> str:
    """Return our error text from Spark's message, or the first line if there is none."""
    lines = [line.strip() for line in str(error).splitlines()]
    for line in lines:
        found = line.find("canal_ha.errors.")
        if found >= 0:
            return line[found:].partition(": ")[2]
    return lines[0] if lines else repr(error)


@contextlib.contextmanager
def _stopping(query: StreamingQuery) -> Iterator[None]:
    """Stop the query on SIGTERM and SIGINT within the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        threading.Thread(target=query.stop, daemon=True).start()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def session(pipeline: Pipeline) -> SparkSession:
    """Return spark-submit's session, or else a new one with the file's settings."""
    builder = SparkSession.builder.appName(f"canal-ha {pipeline.name}")
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder = builder.master(pipeline.master)
    settings = {**_SETTINGS, **pipeline.spark}
    java = settings.get(_JAVA, "")
    if "log4j2.configurationFile" not in java:
        quiet = Path(__file__).with_name("log4j2.properties").as_uri()
        java = f"-Dlog4j2.configurationFile={quiet} {java}"
    if "-Xss" not in java:
        java = f"{_STACK} {java}"
    settings[_JAVA] = java.rstrip()
    if pipeline.secrets:
        hidden = "|".join(re.escape(name) for name in pipeline.secrets)
        settings.setdefault(_REDACTION, f"{SECRET_NAMES}|{hidden}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    if SparkContext._gateway is not None:  # an earlier session's JVM still runs: its command line is written
        for name, value in pipeline.secrets.items():
            builder = builder.config(name, value)
    with _hidden(pipeline.secrets):
        return builder.getOrCreate()


@contextlib.contextmanager
def _hidden(secrets: Mapping[str, str]) -> Iterator[None]:
    """Pass settings to a JVM that starts within the block in a file, because `ps` shows its command line."""
    if not secrets:
        yield
        return
    before = os.environ.get(_SUBMIT)
    with tempfile.NamedTemporaryFile("w", prefix="canal-ha-", suffix=".properties") as file:  # mode 0600
        file.write(javaproperties.dumps(secrets))
        file.flush()
        options = f"--properties-file {shlex.quote(file.name)} --load-spark-defaults"
        os.environ[_SUBMIT] = f"{options} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SUBMIT]
            else:
                os.environ[_SUBMIT] = before
