"""Spark Connect and Spark Declarative Pipelines, on a real Connect server: what works, and what a user reads if not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from canal_ha.errors import OptionInvalid
from canal_ha.spark import pipeline, pipeline_file, register
from lab import MariaDB, Node
from tests.spark.connect_server import PROGRAMS, ConnectServer, python_path

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly("the same source in a classic session, in test_source.py and test_existing.py"),
]
WAIT_S = 240


@pytest.fixture(scope="module")
def server() -> Iterator[ConnectServer]:
    with ConnectServer() as running:
        yield running


@pytest.fixture(scope="module")
def connected(server: ConnectServer) -> Iterator[Any]:
    """Yield a Connect session, with the source registered as docs/spark.md says."""
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession.builder.remote(server.url).create()
    register(session)
    yield session
    session.stop()


def options(node: Node, database: str, directory: Path) -> dict[str, str]:
    """Return the options of a stream."""
    return {
        "servers": node.address,
        "destination": database,
        "clientId": "7",
        "spoolDir": f"{directory}/spool",
        "availableNowQuietMs": "800",
    }


def run_once(connected: Any, given: Mapping[str, str], directory: Path) -> list[tuple[str, str]]:
    """Run a query up to now. Return operation and key of the rows that all runs have written."""
    writer = connected.readStream.format("canal").options(**given).load().writeStream.format("parquet")
    places = {"path": f"{directory}/out", "checkpointLocation": f"{directory}/checkpoint"}
    query = writer.options(**places).trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_S)
    assert query.exception() is None
    rows = connected.read.parquet(f"{directory}/out").collect()
    return sorted((row["op"], row["key"]["id"]) for row in rows)


def test_a_stream_continues_where_its_last_query_ended(
    connected: Any, mariadb: MariaDB, node: Node, database: str, tmp_path: Path
) -> None:
    """Each change once, over three queries of a Connect session."""
    given = options(node, database, tmp_path)
    assert run_once(connected, given, tmp_path) == []  # creates the client id
    mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 1), (2, 2)")
    assert run_once(connected, given, tmp_path) == [("insert", "1"), ("insert", "2")]
    mariadb.execute(f"DELETE FROM {database}.t WHERE id = 1")
    assert run_once(connected, given, tmp_path) == [("delete", "1"), ("insert", "1"), ("insert", "2")]


def test_a_batch_has_each_existing_row_once(connected: Any, mariadb: MariaDB, node: Node, database: str) -> None:
    """With the columns of the table."""
    mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 10), (2, 20)")
    given = {
        "servers": node.address,
        "destination": database,
        "snapshot": f"{database}.t",
        "format": "table",
        "table": f"{database}.t",
    }
    rows = connected.read.format("canal").options(**given).load().select("id", "v").collect()
    assert sorted(map(tuple, rows)) == [(1, 10), (2, 20)]


def test_a_wrong_option_reaches_the_user_of_a_connect_session(connected: Any, node: Node, database: str) -> None:
    """As the sentence that a classic session shows."""
    reader = connected.readStream.format("canal").options(servers=node.address, destination=database)
    with pytest.raises(Exception, match="spoolDir"):
        reader.load().writeStream.format("noop").trigger(availableNow=True).start().awaitTermination(WAIT_S)


def written(directory: Path, given: Mapping[str, str]) -> Path:
    """Write a pipeline's file, which needs nothing of Spark's settings."""
    file = directory / "shop.yaml"
    source = {name: value for name, value in given.items() if name != "spoolDir"}
    source["clientId"] = int(given["clientId"])  # type: ignore[assignment]  # YAML wants a number
    target = {"type": "delta", "path": f"{directory}/lake"}
    body = {"name": "shop", "engine": "spark", "state": f"{directory}/state", "source": source, "target": target}
    file.write_text(json.dumps(body))
    return file


def test_a_pipeline_refuses_a_connect_session(connected: Any, node: Node, database: str, tmp_path: Path) -> None:
    """Before it reads or writes anything. The error says why, and what to use instead."""
    given = options(node, database, tmp_path)
    given.pop("availableNowQuietMs")
    described = pipeline_file.load(written(tmp_path, given))
    with pytest.raises(OptionInvalid, match=r"session of Spark Connect: .* JVM .*canal-ha pipeline run.*readStream"):
        pipeline.run(connected, described, once=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shop.yaml"]


# ---- spark-pipelines run

HEAD = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
"""
TABLES = """
@dp.table
def changes_of_{database}():
    return spark.readStream.format("canal").options(**{stream}).load()

@dp.materialized_view
def rows_of_{database}():
    return spark.read.format("canal").options(**{batch}).load()
"""
REFUSED = """
from canal_ha.spark import pipeline, pipeline_file

pipeline.run(spark, pipeline_file.load("{file}"), once=True)
"""


def declared(server: ConnectServer, directory: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run `spark-pipelines run` with one file of definitions; return its exit code and its output."""
    (directory / "transformations").mkdir(exist_ok=True)
    (directory / "transformations" / "tables.py").write_text(text)
    spec = directory / "spark-pipeline.yml"
    spec.write_text(
        f"name: shop\ndatabase: default\nstorage: file://{directory}/storage\n"
        "libraries:\n  - glob:\n      include: transformations/**\n"
    )
    command = [str(PROGRAMS / "spark-pipelines"), "run", "--remote", server.url, "--spec", str(spec)]
    output: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = {**os.environ, **python_path()}
    return subprocess.run(command, cwd=directory, env=environment, timeout=WAIT_S, check=False, **output)


def test_declared_tables_follow_their_source(
    server: ConnectServer, connected: Any, mariadb: MariaDB, node: Node, database: str, tmp_path: Path
) -> None:
    """A streaming table has each change once over two runs; a materialized view has the rows of now."""
    batch = {
        "servers": node.address,
        "destination": database,
        "snapshot": f"{database}.t",
        "format": "table",
        "table": f"{database}.t",
    }
    text = HEAD + TABLES.format(database=database, stream=options(node, database, tmp_path), batch=batch)
    mariadb.execute(f"INSERT INTO {database}.t VALUES (9, 9)")
    first = declared(server, tmp_path, text)
    assert first.returncode == 0, first.stdout
    mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 1)", f"UPDATE {database}.t SET v = 2 WHERE id = 1")
    mariadb.execute(f"DELETE FROM {database}.t WHERE id = 9")
    again = declared(server, tmp_path, text)
    assert again.returncode == 0, again.stdout
    changes = connected.table(f"default.changes_of_{database}").collect()
    found = sorted((row["position"]["offset"], row["op"], row["key"]["id"]) for row in changes)
    assert [each[1:] for each in found] == [("insert", "9"), ("insert", "1"), ("update", "1"), ("delete", "9")]
    rows = connected.table(f"default.rows_of_{database}").select("id", "v").collect()
    assert sorted(map(tuple, rows)) == [(1, 2)]


def test_a_declared_pipeline_that_runs_one_of_ours_reads_why_not(
    server: ConnectServer, node: Node, database: str, tmp_path: Path
) -> None:
    """Spark's command ends with the sentence and an exit code."""
    given = options(node, database, tmp_path)
    given.pop("availableNowQuietMs")
    done = declared(server, tmp_path, HEAD + REFUSED.format(file=written(tmp_path, given)))
    assert done.returncode != 0
    assert "a pipeline cannot run in a session of Spark Connect" in done.stdout
