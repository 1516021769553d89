"""Two pipelines with one target, on real servers: none goes on from the other's progress."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.errors import SinkRefused
from canal_ha.pipeline import inspection
from canal_ha.pipeline.description import Description
from lab import MySQL, Node, follow
from lab.ports import LOOPBACK
from tests.pipeline.copies import copied
from tests.pipeline.driver import described, run_once
from tests.pipeline.lake_writer import options as iceberg_options
from tests.pipeline.sql_copies import SqlCopies
from tests.pipeline.test_engine import create, source

pytestmark = pytest.mark.real


def pipelines(
    kind: str, mysql: MySQL, node: Node, database: str, directory: Path, names: tuple[str, str], tables: tuple[str, str]
) -> list[Description]:
    """Return two pipelines of one destination into one target, with client ids of their own, which begin now."""
    options: dict[str, Any] = {}
    if kind == "iceberg":
        options = iceberg_options(directory / "lake")
    elif kind == "mysql":
        options = SqlCopies(mysql, database).options()
    found = []
    for client_id, name, table in zip((1001, 1002), names, tables, strict=True):
        connector = SimpleConnector(LOOPBACK, node.port, database, client_id, filter=r".*\..*")
        connector.connect()
        connector.disconnect()
        made = described(directory, source(node, database, clientId=client_id), kind, tables=(table,), **options)
        found.append(replace(made, name=name, state=str(directory / f"state{client_id}")))
    return found


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("delta", ("orders", "users")),
        ("delta", ("both", "both")),
        ("iceberg", ("both", "both")),
        ("mysql", ("both", "both")),
        ("copies", ("both", "both")),
    ],
)
def test_a_second_pipeline_with_the_same_target_misses_no_rows_but_names_the_first(
    kind: str, names: tuple[str, str], mysql: MySQL, database: str, tmp_path: Path
) -> None:
    """Other tables, another name or another client id: the first one's progress is not the second one's."""
    name = create(mysql, database)
    other = f"{database}.b"
    mysql.execute(f"CREATE TABLE {other} LIKE {name}")
    with Node({database: follow(mysql)}) as node:
        first, second = pipelines(kind, mysql, node, database, tmp_path, names, (name, other))
        mysql.execute(f"INSERT INTO {other} (id) VALUES (1)", f"INSERT INTO {name} (id) VALUES (1)")
        run_once(first)
        theirs = rf"of pipeline '{names[0]}' \(client id 1001 at {node.address}\)"
        mine = rf"this is pipeline '{names[1]}' \(client id 1002 at {node.address}\)"
        with pytest.raises(SinkRefused, match=rf"{theirs}, and {mine}.*Give each pipeline a"):
            run_once(second)
        mysql.execute(f"INSERT INTO {name} (id) VALUES (2)")
        run_once(first)
        if kind == "copies":
            assert len(copied(tmp_path / kind, name)) == 2


@pytest.mark.parametrize("kind", ["delta", "iceberg", "mysql"])
def test_a_check_tells_a_table_of_another_pipeline(kind: str, mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Without a run, and only if the pipeline names the table and no destination of it may write it."""
    name = create(mysql, database)
    mysql.execute(f"CREATE DATABASE {database}x", f"CREATE TABLE {database}x.t (id INT PRIMARY KEY)")
    with Node({database: follow(mysql), f"{database}x": follow(mysql)}) as node:
        first, second = pipelines(kind, mysql, node, database, tmp_path, ("one", "two"), (name, name))
        mysql.execute(f"INSERT INTO {name} (id) VALUES (1)")
        assert not [part for part in inspection.check(first) if part.problem]
        run_once(first)
        assert not [part for part in inspection.check(first) if part.problem]
        both = replace(first, source={**first.source, "destination": f"{database}x,{database}"})
        assert not [part for part in inspection.check(both) if part.problem]
        other = replace(second, source={**second.source, "destination": f"{database}x"})
        [found] = [part for part in inspection.check(other) if part.problem]
        assert (found.part, found.says) == ("table", name)
        assert "pipeline 'one'" in found.problem or "from pipeline one" in found.problem
