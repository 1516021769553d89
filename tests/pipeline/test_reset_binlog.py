"""Rows after RESET BINARY LOGS are new, also in the second of the last commit, and before a row from the future."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from canal_ha.errors import TargetUnavailable
from canal_ha.pipeline.engine import PipelineEngine
from canal_ha.pipeline.targets.delta import DeltaTables
from lab import MariaDB, MySQL, Node, SqlServer, follow
from tests.pipeline.copies import copied
from tests.pipeline.driver import Pipeline, described, run_once
from tests.pipeline.test_engine import create, selected, source
from tests.waiting import until

pytestmark = pytest.mark.real

PAST, FUTURE = 1_700_000_000, 2_120_000_000  # s since 1970


def insert(server: SqlServer, name: str, second: int, keys: Sequence[int]) -> None:
    """Insert rows, each in a transaction of this second."""
    rows = [f"INSERT INTO {name} (id, name) VALUES ({key}, 'x')" for key in keys]
    server.execute(f"SET timestamp = {second}", *rows)


@pytest.mark.parametrize("make", [MySQL, MariaDB])
@pytest.mark.parametrize("second", [PAST, FUTURE], ids=["same second", "future"])
def test_rows_after_a_reset_are_not_taken_for_known(make: type[SqlServer], second: int, tmp_path: Path) -> None:
    """The new binlog has them at positions that the target has had."""
    with make() as server, Node({"shop": follow(server, {"canal.instance.position.lost": "earliest"})}) as node:
        name = create(server, "shop")
        pipeline = described(tmp_path, source(node, "shop", snapshot=name), "copies", tables=(name,))

        def follows() -> bool:
            return copied(tmp_path / "copies", name) == selected(server, name)

        insert(server, name, second, range(5))
        run_once(pipeline)
        server.execute("FLUSH BINARY LOGS")  # the node notices a reset if the journal is gone
        with Pipeline(pipeline):
            insert(server, name, second, range(5, 40))
            until(follows)
        node.stop()
        server.execute("RESET BINARY LOGS AND GTIDS" if server.flavor == "mysql" else "RESET MASTER")
        node.start()
        insert(server, name, PAST, range(50, 55))
        with Pipeline(pipeline, crash=1) as process:
            process.wait()
        with Pipeline(pipeline):
            until(follows)
            insert(server, name, PAST, range(60, 100))
            until(follows)


class Failing(DeltaTables):
    """Fails at the table b, once, behind the commit of the table a. armed: from now on."""

    armed = False

    def uri(self, schema: str, name: str) -> str:
        if self.armed and name == "b":
            self.armed = False
            raise TargetUnavailable("the store is gone")
        return super().uri(schema, name)


def test_a_commit_after_a_reset_that_fails_between_two_tables_doubles_no_row(tmp_path: Path) -> None:
    """The next try must find the run that has begun with the new binlog, and not begin another one."""
    with MySQL() as server, Node({"shop": follow(server, {"canal.instance.position.lost": "earliest"})}) as node:
        tables = ("shop.a", "shop.b")
        server.execute("CREATE DATABASE shop", *(f"CREATE TABLE {name} (id INT PRIMARY KEY)" for name in tables))
        pipeline = described(tmp_path, source(node, "shop"), "delta", "changelog", tables=tables)
        target = Failing(f"{tmp_path}/delta", {}, {}, pipeline="test", mode="changelog", evolve="evolve")

        def write(*keys: int) -> None:
            rows = ", ".join(f"({key})" for key in keys)
            server.execute("BEGIN", *(f"INSERT INTO {name} VALUES {rows}" for name in tables), "COMMIT")

        def ids(name: str) -> list[int]:
            place = f"{tmp_path}/delta/shop/{name}"
            rows = DeltaTable(place).to_pyarrow_table().to_pylist() if DeltaTable.is_deltatable(place) else []
            return sorted(row["id"] for row in rows if row["_op"] != "ddl")

        def run(*keys: int, then: Sequence[int] = ()) -> None:
            engine = PipelineEngine(pipeline, target)
            thread = threading.Thread(target=engine.run)
            thread.start()
            try:
                until(lambda: bool(engine.states and engine.states[0].progress), what="the pipeline to begin")
                if then:
                    write(*then)
                until(lambda: ids("b") == list(keys), what="the rows of the second table")
            finally:
                engine.stop()
                thread.join()

        before = [*range(1, 50)]
        server.execute("FLUSH BINARY LOGS")  # the node notices a reset if the journal is gone
        run(*before, then=before)
        node.stop()
        server.execute("RESET BINARY LOGS AND GTIDS")
        node.start()
        write(100, 101)
        target.armed = True
        run(*before, 100, 101)
        assert not target.armed
        assert ids("a") == [*before, 100, 101]
