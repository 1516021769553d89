"""Pipelines: one query from a source into sinks, described by a file.

from canal_ha.spark import pipeline, pipeline_file
pipeline.run(spark, pipeline_file.load("conf/pipeline/shop.toml"))
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial, reduce
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
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.target import wants_exact
from canal_ha.spark import commits
from canal_ha.spark import offsets as o
from canal_ha.spark.commits import SegmentRange, Terms
from canal_ha.spark.compatible import HAS_LIMITS
from canal_ha.spark.error_text import spare_tracebacks
from canal_ha.spark.manifest import Manifest, SegmentInfo
from canal_ha.spark.pipeline_file import AVAILABLE_NOW, SECRET_NAMES, Pipeline
from canal_ha.spark.progress import Display, Summary
from canal_ha.spark.read_again import read_again
from canal_ha.spark.sinks.batch import SEGMENT, MicroBatch, TableTarget
from canal_ha.spark.source import CanalSource
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.steps import Steps
from canal_ha.spark.storage import open_storage
from canal_ha.spark.waits import told

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
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    once: bool = False,
    source: type[CanalSource] = CanalSource,
    wrote: Callable[[int, int], None] = lambda batch_id, rows: None,
) -> StreamingQuery:
    """Start the query.

    spark: the session.
    pipeline: what to run.
    once: stop when every change written before the start is read.
    source: the data source; tests pass one that observes steps.
    wrote: called with the number of a micro-batch and of its rows, if tasks have written them.
    Raises OptionInvalid, also for a session of Spark Connect.
    """
    if not isinstance(spark, SparkSession):  # a session of Connect has another class
        raise OptionInvalid(
            f"{pipeline.file}: a pipeline cannot run in a session of Spark Connect: it reads Spark's checkpoint through"
            " the JVM of its driver. Run `canal-ha pipeline run` or spark-submit where the driver is, or read the"
            ' stream with spark.readStream.format("canal") and write it with a sink of Spark'
        )
    spark.dataSource.register(source)
    options = pipeline.options
    reader = spark.readStream.format("canal")
    for name, value in pipeline.source.items():
        reader = reader.option(name, value)

    def spooled(destination: str) -> Manifest:
        manifest = newest_manifest(open_storage(options.spool_dir, destination, str(options.client_id)))
        if manifest is None:
            raise SpoolUnusable(f"the spool of {destination} is missing in {options.spool_dir}")
        return manifest

    if pipeline.described is None:
        write = _to_sinks(spark, pipeline, spooled, source.steps)
    else:
        reader = reader.option("exact", _checked_target(spark, pipeline.described))
        write = _to_target(spark, pipeline, pipeline.described, spooled, source.steps, wrote)
    ends = once or pipeline.trigger == AVAILABLE_NOW
    if ends and not HAS_LIMITS:
        raise OptionInvalid(
            f"{pipeline.file}: Spark {spark.version} cannot end a query by itself (--once, trigger ="
            f" {AVAILABLE_NOW!r}): use Spark 4.2 or later, or an interval as the trigger"
        )
    make_private(spark, pipeline.checkpoint)
    writer = reader.load().writeStream.queryName(pipeline.name).option("checkpointLocation", pipeline.checkpoint)
    if ends:
        writer = writer.trigger(availableNow=True)
    elif pipeline.trigger:
        writer = writer.trigger(processingTime=pipeline.trigger)
    return writer.foreachBatch(write).start()


def _to_sinks(
    spark: SparkSession, pipeline: Pipeline, spooled: Callable[[str], Manifest], steps: Steps
) -> Callable[[DataFrame, int], None]:
    """Return what writes a micro-batch of a TOML file: the driver folds it, and its sinks write it."""
    sinks = sinks_of(pipeline)
    options = pipeline.options
    has_copies = any(kind in COPIES for kind, _ in pipeline.sinks)

    def write(frame: DataFrame, batch_id: int) -> None:
        run = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert run is not None  # Spark sets it for every micro-batch
        batch = MicroBatch(
            frame.where(chosen(pipeline)).withColumn(SEGMENT, f.col("position.seq")).persist(),
            batch_id,
            run,
            pipeline.keys,
            pipeline.takes,
            spooled,
            planned(spark, pipeline, batch_id, spooled),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        try:
            for sink in sinks:
                sink.apply(batch)
                steps("sink")
            if options.snapshot and has_copies:
                arrived, emptied = batch.arrived, batch.emptied
                for destination in dict.fromkeys([*arrived, *emptied]):
                    read_again(options, destination, arrived.get(destination, ()), emptied.get(destination, ()))
        finally:
            batch.frame.unpersist()
        steps("commit")

    return write


def _to_target(
    spark: SparkSession,
    pipeline: Pipeline,
    described: Description,
    spooled: Callable[[str], Manifest],
    steps: Steps,
    wrote: Callable[[int, int], None],
) -> Callable[[DataFrame, int], None]:
    """Return what writes a micro-batch of a YAML file: tasks read the spool, so Spark's rows stay unread."""
    options = pipeline.options
    terms = Terms(
        replace(described, source={}, spark={}, hidden=frozenset()),
        options.time_zone,
        options.fail_on_data_loss,
        bool(options.snapshot),
    )

    def write(frame: DataFrame, batch_id: int) -> None:
        ranges = [
            SegmentRange(
                name,
                open_storage(options.spool_dir, name, str(options.client_id)).uri,
                segments[0].seq - 1,
                segments[-1].seq,
            )
            for name, segments in planned(spark, pipeline, batch_id, spooled).items()
            if segments
        ]
        if not ranges:
            return
        done = spark.sparkContext.parallelize(ranges, len(ranges)).map(partial(commits.write, terms)).collect()
        for each in done:
            if each.problem is not None:
                raise each.problem
        steps("sink")
        for each in done:
            if each.read_again or each.gone:
                read_again(options, each.destination, each.read_again, each.gone)
        wrote(batch_id, sum(each.rows for each in done))
        steps("commit")

    return write


def _checked_target(spark: SparkSession, described: Description) -> str:
    """Open the target of a YAML file, and return the source's option `exact`. Raises OptionInvalid."""
    if spark.sparkContext.getConf().get("spark.speculation") == "true":
        raise OptionInvalid(
            f"{described.file}: spark.speculation = true: two tasks would write a destination at once; set it to false"
        )
    target = open_target(described)
    target.close()
    return str(wants_exact(target)).lower()


def planned(
    spark: SparkSession, pipeline: Pipeline, batch_id: int, manifest: Callable[[str], Manifest]
) -> dict[str, tuple[SegmentInfo, ...]]:
    """Return the segments of a micro-batch by destination, as Spark's checkpoint bounds it.

    spark: the session.
    pipeline: what runs.
    batch_id: number of the micro-batch.
    manifest: returns the current manifest of a destination's spool.
    """
    end = _bound(spark, pipeline.checkpoint, batch_id)
    start = _bound(spark, pipeline.checkpoint, batch_id - 1) if batch_id else {}
    manifests = {name: manifest(name) for name in end}
    return o.plan(start, end, manifests, fail_on_data_loss=pipeline.options.fail_on_data_loss)


def _bound(spark: SparkSession, checkpoint: str, batch_id: int) -> o.Offsets:
    """Read the end of a planned micro-batch with Hadoop's file system, with which Spark has written it."""
    context: Any = spark.sparkContext
    java = context._jvm  # PySpark has no public interface to file systems
    place = java.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets/{batch_id}")
    stream = place.getFileSystem(context._jsc.hadoopConfiguration()).open(place)
    try:
        text = java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
    finally:
        stream.close()
    return o.from_json(json.loads(text.splitlines()[2]))  # lines: version, metadata, one per source


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
    Raises OptionInvalid and PipelineFailed.
    """
    spare_tracebacks()
    shown = display or Display(pipeline.name)
    query = start(spark, pipeline, once=once, source=source, wrote=shown.wrote)
    with shown, _stopping(query):
        try:
            while not query.awaitTermination(POLL_S):
                shown.update(query)
                shown.waits(waiting(pipeline.options))
            shown.update(query)
        except StreamingQueryException as error:
            raise PipelineFailed(f"{pipeline.name}: {reason(error)}") from error
        finally:
            with contextlib.suppress(Exception):  # the JVM may have ended
                query.stop()
    return shown.summary


def waiting(options: SourceOptions) -> dict[str, str]:
    """Return what the drivers of destinations without a connection wait for; of those that are named, not of globs."""
    names = [] if options.globs else options.destinations
    storages = {name: open_storage(options.spool_dir, name, str(options.client_id)) for name in names}
    now_ms = time.time_ns() // 1_000_000
    return {name: why for name, storage in storages.items() if (why := told(storage, now_ms))}


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
