"""Targets in databases: the pipeline's process and the target's server are killed, and no row is lost or doubled."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from lab import MariaDB, MySQL, Node, follow
from lab.postgresql import PostgreSQL
from tests.pipeline.driver import Pipeline, described, run_once
from tests.pipeline.sql_copies import KINDS, SqlCopies
from tests.pipeline.test_engine import create, source, writing

pytestmark = pytest.mark.real
SERVERS = {"postgresql": PostgreSQL, "mysql": MySQL, "mariadb": MariaDB}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_equal_the_source_after_two_kills(kind: str, mysql: MySQL, database: str, tmp_path: Path) -> None:
    """One of the process and one of the target's server, while rows are written."""
    killed(kind, mysql, database, tmp_path, ["process", "server"])


@pytest.mark.nightly("test_rows_equal_the_source_after_two_kills")
@pytest.mark.parametrize("mode", ["mirror", "changelog"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_equal_the_source_after_forty_kills(
    kind: str, mode: str, mysql: MySQL, database: str, tmp_path: Path
) -> None:
    """Twenty of the process and twenty of the target's server, at random moments."""
    killed(kind, mysql, database, tmp_path, ["process", "server"] * 20, mode)


def killed(kind: str, origin: MySQL, database: str, directory: Path, victims: list[str], mode: str = "mirror") -> None:
    """Copy a table that is written all the time, kill the victims, and compare.

    kind: one of SERVERS.
    origin: the source.
    database: of the table.
    directory: of the pipeline.
    victims: `process` or `server`, in order.
    mode: of the target.
    """
    random, name = Random(len(victims)), create(origin, database)
    with SERVERS[kind]() as server, Node({database: follow(origin)}) as node:
        copies = SqlCopies(server, database)
        options = {"tables": (f"{database}.a",), **copies.options()}
        pipeline = described(directory, source(node, database, snapshot=name), copies.kind, mode, **options)
        with writing(origin, name):
            process = Pipeline(pipeline)
            for victim in victims:
                time.sleep(random.uniform(0.3, 2))
                if victim == "server":
                    server.kill()
                    time.sleep(random.uniform(0, 0.5))
                    server.start()
                else:
                    process.process.kill()
                    process.process.wait()
                    process = Pipeline(pipeline)
            time.sleep(1)
            assert process.process.poll() is None, process.tail()
            process.__exit__()
        run_once(pipeline)
        expected = origin.query(f"SELECT * FROM {name} ORDER BY id")
        assert len(expected) > 20
        if mode == "mirror":
            assert copies.rows("a") == expected
        else:
            rows = copies.rows("a", order="_commit, _entry, _row, _op")
            assert [row for row in replayed(rows) if row["id"] is not None] == expected


def replayed(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return the table that a log of changes leads to. A change that came twice or in another order fails."""
    found: dict[object, dict[str, object]] = {}
    for row in rows:
        own = {name: value for name, value in row.items() if not name.startswith("_")}
        if row["_op"] == "delete":
            assert found.pop(own["id"]) == own
        elif row["_op"] != "ddl":
            assert (own["id"] in found) == (row["_op"] == "update") or row["_op"] == "read", row
            found[own["id"]] = own
    return sorted(found.values(), key=lambda row: str(row["id"]).zfill(9))
