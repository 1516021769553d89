"""Snapshots through a Spark session: as a batch, and as the begin of a stream into a Delta mirror."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from canal_ha.spark import pipeline, pipeline_file
from lab import MySQL, Node, follow, lake
from tests.beside import beside
from tests.spark.running import write_pipeline

pytestmark = [
    pytest.mark.spark,
    pytest.mark.nightly("test_private_reads.py, test_tailer.py: the same without Spark; test_delta.py: the sink"),
]

ROWS = 3000


def test_batches_and_a_mirror_from_the_first_row(spark: Any, mysql: MySQL, database: str, tmp_path: Path) -> None:
    """A batch is the table, with its types. A range has each change once. Neither leaves anything on the node.

    A pipeline with snapshot = "initial" ends when its copy equals the table, which changes all the time. When another
    table takes its name, as gh-ost does it, the copy gets the rows of that table.
    """
    table = f"{database}.t"
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v BIGINT UNSIGNED, amount DECIMAL(9,2), words VARCHAR(99))",
    )
    begin = ":".join(map(str, mysql.position()))
    rows = ", ".join(f"({number}, {number}, {number}.25, REPEAT('ü', {number % 90}))" for number in range(ROWS))
    mysql.execute(f"INSERT INTO {table} VALUES {rows}")
    with Node({database: follow(mysql, {"canal.instance.memory.buffer.size": "100"})}) as node:

        def batch(**options: object) -> list[Any]:
            reader = spark.read.format("canal").option("servers", node.address).option("destination", database)
            for name, value in options.items():
                reader = reader.option(name, str(value))
            found: list[Any] = reader.load().collect()
            return found

        found = batch(snapshot=table, format="table", table=table)
        columns = ("id", "v", "amount", "words")
        assert {row["_op"] for row in found} == {"read"}
        assert sorted(tuple(row[name] for name in columns) for row in found) == [
            tuple(row[name] for name in columns) for row in mysql.query(f"SELECT * FROM {table} ORDER BY id")
        ]
        mysql.execute(f"UPDATE {table} SET v = 7 WHERE id < 2", f"DELETE FROM {table} WHERE id = 2")
        changes = batch(startingOffsets=begin, filter=rf"{database}\..*")
        assert [row["op"] for row in changes] == ["insert"] * ROWS + ["update"] * 2 + ["delete"]
        places = [(row["position"]["seq"], row["position"]["entry"], row["position"]["row"]) for row in changes]
        assert places == sorted(set(places))
        [destination] = node.status()["destinations"]
        assert destination["streams"] == []
        with pytest.raises(Exception, match=r"mysql-bin\.999999.*does not exist"):
            batch(startingOffsets="mysql-bin.999999:4")

        file = write_pipeline(
            tmp_path / "p.toml",
            {"servers": node.address, "destination": database, "spoolDir": str(tmp_path / "spool"),
             "filter": f"{database}[.].*", "snapshot": "initial", "availableNowQuietMs": 500},
            [{"type": "delta", "path": str(tmp_path / "lake")}],
            tables=[table],
        )  # fmt: skip

        def write(stopping: threading.Event) -> None:
            random = Random(1)
            with mysql.connect() as connection, connection.cursor() as cursor:
                while not stopping.wait(0.005):
                    number = random.randrange(ROWS + 100)
                    if random.random() < 0.2:
                        cursor.execute(f"DELETE FROM {table} WHERE id = {number}")
                    else:
                        cursor.execute(f"REPLACE INTO {table} VALUES ({number}, {random.randrange(99)}, 1, 'new')")

        with beside(write):
            pipeline.run(spark, pipeline_file.load(file), once=True)
        [destination] = node.status()["destinations"]
        [stream] = destination["streams"]
        assert stream["snapshot"]["phase"] == "done"
        pipeline.run(spark, pipeline_file.load(file), once=True)

        def copy() -> list[Any]:
            return sorted(lake.rows(tmp_path / "lake" / database / "t"), key=lambda row: int(row["id"]))

        assert copy() == mysql.query(f"SELECT * FROM {table} ORDER BY id")
        mysql.execute(
            f"USE {database}",
            "CREATE TABLE _t_gho LIKE t",
            "ALTER TABLE _t_gho ADD COLUMN extra INT DEFAULT 5",
            "INSERT INTO _t_gho (id, v, amount, words) SELECT * FROM t WHERE id <> 9",
            "RENAME TABLE t TO _t_del, _t_gho TO t",
            "UPDATE t SET v = 8 WHERE id < 20",
        )
        for _ in range(2):  # the first run meets the statement and asks for the rows
            pipeline.run(spark, pipeline_file.load(file), once=True)
        assert copy() == mysql.query(f"SELECT * FROM {table} ORDER BY id")
