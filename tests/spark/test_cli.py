"""`canal-ha pipeline`: its output before, during and after a run."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from canal_ha.model.position import LogPosition
from canal_ha.spark import submit as submitted
from canal_ha.spark.cursor import mark as mark_of
from canal_ha.spark.progress import Display, Summary, offsets
from canal_ha.spark.spool import SpoolWriter
from canal_ha.spark.steps import unobserved
from canal_ha.spark.storage import open_storage
from canal_ha.zookeeper import tree
from lab import MariaDB, Node, ZooKeeper, follow
from lab.zookeeper import session
from tests.spark.archive import jvm_options
from tests.spark.running import write_pipeline

PROGRAM = str(Path(sys.executable).with_name("canal-ha"))


def report(batch: int, rows: int, seq: int, latest: int) -> dict[str, Any]:
    """Return Spark's report of a micro-batch."""

    def at(number: int) -> dict[str, Any]:
        return {"destinations": {"d": {"seq": number, "journal": "bin.000001", "offset": number, "time": 5000}}}

    source = {"startOffset": at(seq - 1), "endOffset": at(seq), "latestOffset": at(latest)}
    return {"batchId": batch, "numInputRows": rows, "durationMs": {"triggerExecution": 500}, "sources": [source]}


def test_a_line_a_batch_and_a_summary() -> None:
    """The line has the rows, the rate, the lag and the number of waiting segments."""
    summary = Summary()
    assert (
        summary.add(report(0, 100, 3, 5), 7000) == "batch 0: 100 rows in 0.50 s, 200 rows/s; d 2.0 s behind, 2 waiting"
    )
    assert summary.add(report(1, 0, 4, 5), 8000) is None
    assert str(summary) == "100 rows in 1 batch, 200 rows/s; d: 2 batches up to bin.000001:4"
    assert str(Summary()) == "0 rows in 0 batches; nothing read"


def test_offsets_come_as_text_too() -> None:
    """Versions of Spark report offsets as objects, texts or null."""
    assert offsets('{"v":1,"destinations":{"d":{"seq":1}}}') == {"d": {"seq": 1}}
    assert offsets(None) == offsets("null") == {}


def test_where_there_is_no_terminal_lines_are_printed() -> None:
    """Each batch is one line, and the summary comes last."""

    class Query:
        recentProgress = (report(0, 10, 1, 1),)

    output = io.StringIO()
    with Display("name", output) as display:
        display.update(Query())  # type: ignore[arg-type]
        display.update(Query())  # type: ignore[arg-type]
    lines = output.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("name: batch 0: 10 rows")
    assert lines[1].startswith("name: 10 rows in 1 batch,")


def test_what_a_destination_waits_for_is_printed_once() -> None:
    """A pipeline that waits its turn says so, and when it goes on."""
    output = io.StringIO()
    display = Display("name", output)
    turns: list[dict[str, str]] = [{}, {"a": "client 7 is active at x"}, {"a": "client 7 is active at x"}, {}, {}]
    for reasons in turns:
        display.waits(reasons)
    assert output.getvalue().splitlines() == ["name: a waits: client 7 is active at x", "name: a is connected"]


def test_check_names_each_part_that_is_wrong(tmp_path: Path) -> None:
    """The exit code is 1, and each part has one line."""
    source = {"servers": "127.0.0.1:1", "destination": "d", "spoolDir": str(tmp_path / "spool")}
    file = write_pipeline(
        tmp_path / "p.toml", source, [{"type": "parquet", "path": str(tmp_path / "out")}], tables=["*"]
    )
    result = CliRunner().invoke(group, ["pipeline", "check", str(file)])
    assert result.exit_code == 1
    lines = {line.split()[1]: line for line in result.output.splitlines()}
    assert lines["servers"].startswith("FAIL")
    assert "127.0.0.1:1" in lines["servers"]
    assert lines["spool"].startswith("ok")
    assert lines["sink"].startswith("ok")


@pytest.mark.spark
@pytest.mark.nightly("tests/docs: test_lake_table runs the command; the tests below: status")
def test_run_then_status_then_spark_submit(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """`run --once` ends by itself and prints one line for each batch; status shows the same without Spark.

    spark-submit with the same file continues where the run ended.
    """
    with Node({database: follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})}) as node:
        file = write_pipeline(
            tmp_path / "p.toml",
            {"servers": node.address, "destination": database, "spoolDir": str(tmp_path / "spool")},
            [{"type": "console"}],
            tables=[f"{database}.t"],
        )
        mariadb.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {database}.t VALUES (1, 10), (2, NULL)",
        )
        done = subprocess.run(
            [PROGRAM, "pipeline", "run", "--once", str(file)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert f"insert  {database}.t  id=2, v=None" in done.stdout
        assert "test: batch 0: 4 rows" in done.stderr
        assert f"{database}: 1 batch up to mysql-bin" in done.stderr
        shown = CliRunner().invoke(group, ["pipeline", "status", str(file)])
        assert f"test: {database}: batch 0 ended at mysql-bin" in shown.output
        assert "0 segments wait" in shown.output
        mariadb.execute(f"INSERT INTO {database}.t VALUES (3, 30)")
        done = submit(str(file), "--once")
        assert done.returncode == 0, done.stderr
        assert [line for line in done.stdout.splitlines() if "insert" in line] == [f"insert  {database}.t  id=3, v=30"]
        assert "test: 1 row in 1 batch," in done.stdout
        shown = CliRunner().invoke(group, ["pipeline", "status", str(file)])
        assert f"test: {database}: batch 1 ended at mysql-bin" in shown.output


@pytest.mark.spark
@pytest.mark.nightly("tests/cli/test_pipeline.py: what Spark gets of a YAML file; the test above: the command")
def test_a_yaml_file_runs_on_spark(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """Its first line names the engine. State holds spool and checkpoint, and status finds them."""
    with Node({database: follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})}) as node:
        file = tmp_path / "shop.yaml"
        file.write_text(
            f"name: shop\nengine: spark\nstate: {tmp_path}/state\ntables: {database}.t\n"
            f"source: {{servers: '{node.address}', destination: {database}}}\n"
            f"target: {{type: parquet, path: {tmp_path}/changes}}\n"
        )
        mariadb.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {database}.t VALUES (1, 10), (2, NULL)",
        )
        done = subprocess.run(
            [PROGRAM, "pipeline", "run", "--once", str(file)], capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.splitlines()[0] == "shop: engine: spark (engine in the file)"
        written = pyarrow.dataset.dataset(tmp_path / "changes" / database / "t").to_table()
        assert sorted(written["_op"].to_pylist()) == ["ddl", "insert", "insert"]
        assert {path.name for path in (tmp_path / "state").iterdir()} == {"checkpoint", "spool"}
        shown = CliRunner().invoke(group, ["pipeline", "plan", str(file)])
        assert f"{database}: batch 0 ended at mysql-bin" in shown.output


@pytest.mark.spark
def test_a_target_that_refuses_ended_a_pipeline_with_a_traceback(
    mariadb: MariaDB, database: str, tmp_path: Path
) -> None:
    """Py4J logged the lines of the program before the command said what is wrong."""
    with Node({database: follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})}) as node:
        file = tmp_path / "shop.yaml"
        file.write_text(
            f"name: shop\nengine: spark\nstate: {tmp_path}/state\ntables: {database}.t\n"
            f"source: {{servers: '{node.address}', destination: {database}, snapshot: initial}}\n"
            "target: {type: delta, path: /proc/nothing}\n"
        )
        mariadb.execute(
            f"CREATE DATABASE {database}",
            f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
            f"INSERT INTO {database}.t VALUES (1)",
        )
        done = subprocess.run([PROGRAM, "pipeline", "run", str(file)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("canal-ha: shop: delta: /proc/nothing")
    assert "Traceback" not in done.stderr


def test_status_ends_with_1_while_a_destination_has_a_problem(tmp_path: Path) -> None:
    """A script can use the exit code."""
    source = {"servers": "127.0.0.1:1", "destination": "d", "spoolDir": str(tmp_path / "spool")}
    file = write_pipeline(tmp_path / "p.toml", source, [{"type": "console"}], tables=["*"])
    writer = SpoolWriter(open_storage(source["spoolDir"], "d", "1001"), "d", 10, unobserved)
    for problem, code in (("canal: changes are missing", 1), ("", 0)):
        writer.tell(problem)
        shown = CliRunner().invoke(group, ["pipeline", "status", str(file)])
        assert shown.exit_code == code
        assert problem in shown.output
        assert "  spool: 0 segments" in shown.output


@pytest.mark.real
def test_check_fails_for_a_client_id_that_another_spool_uses(
    zookeeper: ZooKeeper, database: str, tmp_path: Path
) -> None:
    """The check fails before any run. A client id of this spool, or without a cursor, is accepted."""
    source = {"zkServers": zookeeper.hosts, "destination": database, "spoolDir": str(tmp_path / "spool")}
    file = write_pipeline(tmp_path / "p.toml", source, [{"type": "console"}], tables=["*"])

    def checked() -> list[str]:
        result = CliRunner().invoke(group, ["pipeline", "check", str(file)])
        return [line for line in result.output.splitlines() if "client id" in line]

    [none] = checked()
    assert none.startswith("ok")
    writer = SpoolWriter(open_storage(source["spoolDir"], database, "1001"), database, 10, unobserved)
    with session(zookeeper.hosts) as nodes:
        path = tree.cursor(database, 1001)
        nodes.ensure_path(path)
        for mark, word in ((mark_of(writer.manifest), "ok"), ("spool other writer none segment 9", "FAIL")):
            nodes.set(path, LogPosition("bin.000001", 4, mark=mark).to_json(with_type=True).encode())
            [line] = checked()
            assert line.startswith(word), line
        assert f"client id 1001 of {database} is in use by another spool" in line


def submit(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run spark-submit with the installed file and its own settings. It writes Python's stderr to stdout."""
    program = Path(sys.executable).with_name("spark-submit")
    settings = ["--master", "local[1]", "--conf", "spark.ui.enabled=false", "--driver-memory", "700m"]
    return subprocess.run(
        [program, *settings, "--driver-java-options", jvm_options(), submitted.__file__, *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )


@pytest.mark.spark
def test_spark_submit_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    """The command prints one sentence and exits with code 1 before it makes a session."""
    done = submit(str(tmp_path / "no.toml"))
    assert done.returncode == 1
    [line] = done.stdout.splitlines()
    assert line.endswith("no.toml cannot be read: No such file or directory")
