"""A real pipeline with random secrets from files: none of them is in a process, a log, the spool or Spark's files."""

from __future__ import annotations

import itertools
import os
import secrets
import sys
from pathlib import Path

import pytest

from canal_ha.wire.scramble import secret_of
from lab import MariaDB, Node, follow
from lab.node import PROGRAM
from lab.process import spawn
from tests import leaks
from tests.spark.archive import jvm_options
from tests.spark.conftest import PATIENCE_S
from tests.waiting import until

EVENTS = "SparkListenerSQLExecutionStart"  # has the plan of a micro-batch
FILE = """
name = "secrets"
checkpoint = "{here}/checkpoint"
tables = ["{database}.t"]
[source]
servers = "{server}"
destination = "{database}"
spoolDir = "{here}/spool"
user = "reader"
password = "${{file:secrets/reader}}"
[[sink]]
type = "mysql"
address = "{target}"
user = "{database}"
password = "${{file:secrets/sink}}"
database = "copy_{{schema}}"
stateDatabase = "state_{database}"
[[sink]]
type = "delta"
path = "{here}/lake"
storage = {{ AWS_SECRET_ACCESS_KEY = "${{file:secrets/storage}}" }}
[spark]
master = "local[1]"
"spark.driver.memory" = "700m"
"spark.driver.extraJavaOptions" = "{java}"
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "file://{here}/events"
"spark.hadoop.fs.s3a.secret.key" = "${{file:secrets/object}}"
"spark.example.setting" = "<${{file:secrets/setting}}>"
"spark.example.token" = "{token}"
"""


@pytest.mark.spark
@pytest.mark.nightly("test_options.py: what Spark gets; tests/node/test_secrets.py: a node")
def test_no_secret_of_a_pipeline_leaves_its_file(mariadb: MariaDB, database: str, tmp_path: Path) -> None:
    """Passwords of the source and of a sink, keys of object stores, and settings of Spark; one is in the file itself.

    The checkpoint is for the driver's user alone.
    """
    names = ("reader", "sink", "storage", "object", "setting", "token")
    known = {name: f"s3cret-{secrets.token_hex(12)}" for name in names}
    folder = tmp_path / "secrets"
    folder.mkdir()
    for name, text in known.items():
        (folder / name).write_text(f"{text}\n")
    (tmp_path / "events").mkdir()
    mariadb.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)",
        f"CREATE USER '{database}'@'%' IDENTIFIED BY '{known['sink']}'",
        f"GRANT ALL ON *.* TO '{database}'@'%'",
    )
    node = Node(
        {database: follow(mariadb, {"canal.instance.filter.regex": rf"{database}\..*"})},
        properties={"canal.accounts.file": "../conf/accounts.toml"},
        login=("reader", known["reader"]),
    )
    (node.conf / "accounts.toml").write_text(
        f'[accounts.reader]\nroles = ["read"]\ndestinations = ["*"]\n'
        f'passwords = ["{secret_of(known["reader"]).hex()}"]\n'
    )
    made = "SELECT 1 FROM information_schema.tables WHERE table_schema = %s"
    file = tmp_path / "pipeline.toml"
    with node, (tmp_path / "driver.log").open("wb") as log:
        file.write_text(
            FILE.format(
                here=tmp_path,
                database=database,
                server=node.address,
                target=mariadb.address,
                java=jvm_options(),
                token=known["token"],
            )
        )
        with spawn(
            [PROGRAM, "pipeline", "run", str(file)],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        ) as driver:
            numbers = itertools.count(1)

            def copied() -> bool:
                assert driver.poll() is None, (tmp_path / "driver.log").read_text()
                mariadb.execute(f"INSERT INTO {database}.t VALUES ({next(numbers)})")
                return bool(mariadb.query(made, f"copy_{database}"))

            until(copied, what="a row in the copy", seconds=PATIENCE_S)
            found = leaks.in_processes(known)
            driver.terminate()
            driver.wait(60)
    given = {file, *folder.iterdir()}
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path not in given]
    events = [path.read_text() for path in files if (tmp_path / "events") in path.parents]
    assert any(EVENTS in text for text in events)
    assert any("spark.example.setting" in text for text in events)
    assert found | leaks.in_files(known, files) == set()
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o700
