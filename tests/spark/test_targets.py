"""YAML pipelines on Spark, with real parts: their tasks write into the targets of canal_ha.pipeline."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.dataset as dataset
import pytest
from pyiceberg.catalog import load_catalog

from canal_ha.spark import pipeline, pipeline_file
from lab import MariaDB, MySQL, Node, follow, lake
from lab.kafka import Kafka
from lab.postgresql import PostgreSQL
from tests.pipeline.lake_writer import options as catalog
from tests.pipeline.receiver import Receiver
from tests.pipeline.sql_copies import SqlCopies
from tests.pipeline.test_engine import create, selected, source, writing
from tests.pipeline.test_history_real import logged, shown
from tests.pipeline.test_lake_real import replayed
from tests.spark.archive import jvm_options
from tests.spark.running import Driver

pytestmark = pytest.mark.spark


def written(
    directory: Path, source: Mapping[str, object], tables: str, target: Mapping[str, Any], **more: Any
) -> pipeline_file.Pipeline:
    """Write a pipeline's file, and return what Spark runs. more: further keys of the file."""
    body = {
        "name": "shop",
        "engine": "spark",
        "state": f"{directory}/state",
        "tables": tables,
        "source": {"availableNowQuietMs": 500, **source},
        "target": target,
        "spark": {
            "master": "local[1]",
            "settings": {
                "spark.driver.extraJavaOptions": jvm_options(),
                "spark.executor.extraJavaOptions": jvm_options(),
                "spark.driver.memory": "700m",
            },
        },
        **more,
    }
    file = directory / "shop.yaml"
    file.write_text(json.dumps(body))  # JSON is YAML
    return pipeline_file.load(file)


def test_a_yaml_pipeline_transforms_and_mirrors_on_executors(
    spark: Any, mariadb: MariaDB, node: Node, database: str, tmp_path: Path
) -> None:
    """The driver sees no row. The second run continues, and columns follow their ALTER TABLE."""
    t, copy = f"{database}.t", tmp_path / "lake" / database / "p"
    described = written(
        tmp_path,
        {"servers": node.address, "destination": database},
        f"{database}.*",
        {"type": "delta", "path": f"{tmp_path}/lake"},
        transforms=[{"mask": {"tables": t, "columns": "name"}}, {"rename": {"tables": t, "to": f"{database}.p"}}],
    )
    mariadb.execute(f"ALTER TABLE {t} ADD name TEXT", f"INSERT INTO {t} VALUES (1, 1, 'ann'), (2, 2, NULL)")
    assert pipeline.run(spark, described, once=True).rows >= 3
    mariadb.execute(f"DELETE FROM {t} WHERE id = 1", f"ALTER TABLE {t} DROP v", f"UPDATE {t} SET name = 'bob'")
    assert pipeline.run(spark, described, once=True).rows >= 3
    assert lake.rows(copy) == [{"id": 2, "name": "***"}]


# ---- every target


class Place:
    """A target for a test. options: of the target; `operations` and `copies` read what it has."""

    def __init__(self, kind: str, mode: str, database: str, directory: Path, server: Any) -> None:
        self.kind = kind
        self.mode = mode
        self._database = database
        self._directory = directory
        self._server = server
        self._sql = SqlCopies(server, database) if kind in ("postgresql", "mysql") else None

    @property
    def target(self) -> dict[str, Any]:
        """The target in the file."""
        own: dict[str, Any] = {"path": f"{self._directory}/{self.kind}"}
        if self._sql is not None:
            own = self._sql.options()
            if self.kind == "mysql":
                own["databases"] = [f"copy_{self._database}"]
        elif self.kind == "iceberg":
            own = catalog(self._directory)
        elif self.kind == "kafka":
            own = {"servers": self._server.address, "format": "debezium-json", "timeout": 20}
        elif self.kind == "http":
            own = {"url": self._server.url}
        return {"type": self.kind, "mode": self.mode, **own}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a lake table or a copy."""
        if self._sql is not None:
            return self._sql.rows(table) if self.mode == "mirror" else self._sql.rows(table, order="_op, id")
        if self.kind == "iceberg":
            access = dict(catalog(self._directory)["catalog"])
            loaded = load_catalog(access.pop("name"), **access).load_table((self._database, table))
            found: list[dict[str, Any]] = loaded.scan().to_arrow().to_pylist()
            return found
        if self.kind == "parquet":
            return list(dataset.dataset(self._directory / "parquet" / self._database / table).to_table().to_pylist())
        return lake.rows(self._directory / "delta" / self._database / table)

    def operations(self) -> list[str]:
        """Return the first letter of each row's operation in a log or a queue."""
        if self.kind == "kafka":
            values = [each.value() for each in self._server.messages(f"{self._database}.t")]
            return sorted(json.loads(value)["op"] for value in values if value is not None)
        if self.kind == "http":
            found = [json.loads(line) for line in self._server.distinct()]
            return sorted({"insert": "c"}.get(each["op"], each["op"][0]) for each in found if each["op"] != "ddl")
        found = [row["_op"] for row in self.rows("t") if row["_op"] != "ddl"]
        return sorted({"insert": "c"}.get(op, op[0]) for op in found)


@contextmanager
def place(kind: str, mode: str, database: str, directory: Path, kafka: Kafka | None, mysql: MySQL) -> Iterator[Place]:
    """Yield a target, with its server."""
    server: Any = None
    if kind == "postgresql":
        with PostgreSQL() as server:
            yield Place(kind, mode, database, directory, server)
    elif kind == "http":
        with Receiver() as server:
            yield Place(kind, mode, database, directory, server)
    else:
        server = {"kafka": kafka, "mysql": mysql}.get(kind)
        yield Place(kind, mode, database, directory, server)


@pytest.mark.nightly("the test above; tests/pipeline: each target without Spark; test_commits.py: tasks without Spark")
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("delta", "changelog"),
        ("parquet", "changelog"),
        ("iceberg", "mirror"),
        ("iceberg", "changelog"),
        ("delta", "scd2"),
        ("iceberg", "scd2"),
        ("mysql", "mirror"),
        ("mysql", "changelog"),
        ("postgresql", "mirror"),
        ("postgresql", "changelog"),
        ("kafka", "events"),
        ("http", "events"),
    ],
)
def test_each_target_and_mode_on_spark(
    kind: str,
    mode: str,
    spark: Any,
    mariadb: MariaDB,
    mysql: MySQL,
    node: Node,
    database: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Two runs, the second with an update and a delete."""
    kafka = request.getfixturevalue("kafka") if kind == "kafka" else None
    with place(kind, mode, database, tmp_path, kafka, mysql) as there:
        origin = {"servers": node.address, "destination": database}
        described = written(tmp_path, origin, f"{database}.t", there.target)
        mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 1), (2, 2)")
        pipeline.run(spark, described, once=True)
        mariadb.execute(f"UPDATE {database}.t SET v = 3 WHERE id = 2", f"DELETE FROM {database}.t WHERE id = 1")
        pipeline.run(spark, described, once=True)
        if mode == "mirror":
            assert there.rows("t") == [{"id": 2, "v": 3}]
        elif mode == "scd2":
            versions = sorted(there.rows("t"), key=lambda row: row["valid_position"])
            found = [(row["id"], row["v"], row["is_current"], row["valid_to"] is None) for row in versions]
            assert found == [(1, 1, False, False), (2, 2, False, False), (2, 3, True, True)]
        else:
            assert there.operations() == ["c", "c", "d", "u"]


@pytest.mark.nightly("test_commits.py: tasks that come again; tests/pipeline: targets of killed pipelines")
@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        ("delta", "changelog"),
        ("iceberg", "mirror"),
        ("iceberg", "scd2"),
        ("mysql", "mirror"),
        ("postgresql", "mirror"),
    ],
)
def test_targets_equal_the_source_whatever_moment_the_driver_is_killed_at(
    kind: str, mode: str, mysql: MySQL, database: str, tmp_path: Path
) -> None:
    """With its executors, five times, while rows are written. Mirrors begin with a snapshot."""
    random, name = Random(len(kind)), create(mysql, database)
    begin = mysql.position()
    with (
        place(kind, mode, database, tmp_path, None, mysql) as there,
        Node({database: follow(mysql, {"canal.instance.filter.regex": rf"{database}\..*"})}) as node,
    ):
        snapshot = {"snapshot": "initial"} if mode == "mirror" else {}
        described = written(tmp_path, source(node, database, **snapshot), name, there.target)
        file, log = Path(described.file), tmp_path / "driver.log"
        with Driver(file, once=True, log=log) as driver:
            assert driver.wait(300) == 0, driver.tail()
        with writing(mysql, name):
            for _ in range(5):
                with Driver(file, log=log):
                    time.sleep(random.uniform(8, 20))
        with Driver(file, once=True, log=log) as driver:
            assert driver.wait(300) == 0, driver.tail()
        if mode == "scd2":
            versions = shown(sorted(there.rows("a"), key=lambda row: row["valid_position"]))
            assert versions
            assert versions == logged(mysql, name, begin)
            return
        if mode == "changelog":
            assert replayed(there.rows("a")) == selected(mysql, name)
            return
        found = sorted((row["id"], row["name"]) for row in there.rows("a"))
    assert found
    assert found == [(row["id"], row["name"]) for row in mysql.query(f"SELECT id, name FROM {name} ORDER BY id")]
