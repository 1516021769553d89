"""Delta and Parquet behind a real server and node, while the pipeline and the node are killed."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable

from canal_ha.pipeline.description import Description
from lab import MySQL, Node, follow
from tests.pipeline.copies import text
from tests.pipeline.driver import Pipeline, described, run_once
from tests.pipeline.test_engine import create, selected, source, writing

pytestmark = pytest.mark.real


def kill_at_random(node: Node, pipeline: Description, seed: int, times: int = 6) -> None:
    """Run a pipeline and kill it several times, sometimes with the node."""
    random = Random(seed)
    for killed in range(times):
        with Pipeline(pipeline) as process:
            time.sleep(1.4 + random.random())
            if killed % 2:
                node.kill()
                node.start()
                time.sleep(random.random())
            process.process.kill()


def kill_and_change_columns(mysql: MySQL, name: str, node: Node, pipeline: Description) -> None:
    """Copy a table of `create` while it is written and the pipeline is killed; then change its columns, and copy it."""
    run_once(pipeline)
    with writing(mysql, name):
        kill_at_random(node, pipeline, 2, 2)
    mysql.execute(
        f"ALTER TABLE {name} ADD note VARCHAR(9) DEFAULT 'n', MODIFY id BIGINT",
        f"INSERT INTO {name} (id, money) VALUES (3000000000, 1)",
        f"ALTER TABLE {name} DROP at, RENAME COLUMN name TO title",
        f"UPDATE {name} SET money = 7 WHERE id % 5 = 1",
    )
    run_once(pipeline)


def replayed(changes: list[dict[str, Any]]) -> list[str]:
    """Return the rows that a log of changes leaves, as `selected` does. Raises AssertionError for a doubled change."""
    places = [(c["_position"]["journal"], c["_position"]["offset"], c["_position"]["row"], c["_op"]) for c in changes]
    assert len(places) == len(set(places))
    found: dict[Any, str] = {}
    for _, change in sorted(zip(places, changes, strict=True), key=lambda pair: (pair[0][:3], pair[0][3] != "delete")):
        if change["_op"] == "delete":
            found.pop(change["id"])
        elif change["_op"] != "ddl":
            own = {name: value for name, value in change.items() if not name.startswith("_")}
            assert change["_op"] == "update" or change["id"] not in found
            found[change["id"]] = text(own)
    return sorted(found.values())


def test_a_delta_copy_is_exact_whatever_is_killed(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Each row equals the source's, and columns were added, dropped and widened meanwhile."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), "delta", tables=(name,))
        kill_and_change_columns(mysql, name, node, pipeline)
        mirror = DeltaTable(f"{tmp_path}/delta/{database}/a").to_pyarrow_table().to_pylist()
        assert sorted(text(row) for row in mirror) == selected(mysql, name)
        assert len(mirror) > 10


@pytest.mark.nightly("test_engine.py kills pipelines and nodes; test_delta.py and test_parquet.py interrupt commits")
@pytest.mark.parametrize("kind", ["delta", "parquet"])
def test_a_log_has_each_change_once(mysql: MySQL, database: str, tmp_path: Path, kind: str) -> None:
    """Replayed, it gives the source's rows."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(tmp_path, source(node, database), kind, "changelog", tables=(name,))
        run_once(pipeline)
        with writing(mysql, name):
            kill_at_random(node, pipeline, 3)
        run_once(pipeline)
        where = f"{tmp_path}/{kind}/{database}/a"
        log = (DeltaTable(where).to_pyarrow_table() if kind == "delta" else ds.dataset(where).to_table()).to_pylist()
        assert replayed(log) == selected(mysql, name)
        assert len(log) > 100


def test_rows_of_a_snapshot_come_once(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """Also if the pipeline dies between commits and acknowledgements, and nothing else happens at the source."""
    name = create(mysql, database)
    count = 20_000
    for at in range(0, count, 5000):
        rows = ", ".join(f"({number}, 1, NULL, 'x')" for number in range(at, at + 5000))
        mysql.execute(f"INSERT INTO {name} VALUES {rows}")
    with Node({database: follow(mysql)}) as node:
        pipeline = described(
            tmp_path, source(node, database, snapshot="initial"), "parquet", "changelog", tables=(name,)
        )
        place = tmp_path / "parquet" / database / "a"
        for crash in (1, 1):
            with Pipeline(pipeline, crash=crash) as process:
                assert process.wait() < 0
        run_once(pipeline)
        log = ds.dataset(place).to_table()
        assert log.num_rows == count
        assert sorted(log.column("id").to_pylist()) == list(range(count))


@pytest.mark.nightly("tests/pipeline/test_engine.py: transactions larger than a portion")
def test_a_transaction_of_a_million_rows_in_bounded_memory(mysql: MySQL, database: str, tmp_path: Path) -> None:
    """The process needs less than 900 MB, most of it delta-rs's, although the transaction has 200 MB."""
    name = create(mysql, database)
    with Node({database: follow(mysql)}) as node:
        pipeline = described(
            tmp_path, {"servers": node.address, "destination": database}, "delta", "changelog", tables=(name,)
        )
        run_once(pipeline)
        digits = " UNION ALL ".join(f"SELECT {digit} d" for digit in range(10))
        tables = ", ".join(f"({digits}) t{power}" for power in range(6))
        number = " + ".join(f"t{power}.d * {10**power}" for power in range(6))
        mysql.execute(f"INSERT INTO {name} SELECT {number}, 1, NOW(3), 'aaaaaaaaaaaaaaa' FROM {tables}")
        begun = time.monotonic()
        with Pipeline(pipeline, once=True) as process:
            status = Path(f"/proc/{process.process.pid}/status")
            peak = 0
            while process.process.poll() is None:
                lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
                peak = max(peak, *(int(line.split()[1]) for line in lines), 0)
                time.sleep(0.2)
            assert process.wait() == 0, process.tail()
        print(f"{time.monotonic() - begun:.1f} s, {peak >> 10} MB")
        rows = DeltaTable(f"{tmp_path}/delta/{database}/a").to_pyarrow_table(columns=["id"])
        assert rows.num_rows == 1_000_000
        assert peak < 900 << 10
