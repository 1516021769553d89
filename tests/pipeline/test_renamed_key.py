"""A statement renames a column that `keys` of the pipeline's file names, and rows come before and behind it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from canal_ha.errors import SinkRefused
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.given_key import KeyNames
from canal_ha.pipeline.messages.debezium_json import DebeziumJson
from canal_ha.pipeline.messages.queue_message import MessageOrigin
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.messages.row_changes import RowOperations
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import ChangeReader
from lab import MySQL, Node, follow
from tests.pipeline.driver import described, run_once
from tests.pipeline.test_engine import source
from tests.spark import entries as made

NOTHING = Progress("run", 0, LogPosition("", 0), 0)
KEYS = [("k",), ("k2",)]


@contextmanager
def copied_by_key(mysql: MySQL, table: str, rows: str, tmp_path: Path, *mode: str) -> Iterator[Description]:
    """Create a table with the key k that a pipeline into Delta has copied; yield the pipeline.

    table: `schema.table`; the schema is created, too.
    rows: its first rows, as VALUES.
    mode: of the target, as `described` has it.
    """
    database = table.partition(".")[0]
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k INT NOT NULL UNIQUE, v INT)",
        f"INSERT INTO {table} VALUES {rows}",
    )
    with Node({database: follow(mysql)}) as node:
        reading = source(node, database, snapshot=table)
        pipeline = described(tmp_path, reading, "delta", *mode, tables=(table,), keys={table: ("k",)})
        run_once(pipeline)
        yield pipeline


def rows_around(renaming: str) -> bytes:
    """Return rows with the key k, a statement, and rows with the key k2."""
    before, after = ([(name, "int(11)", 4, False), ("v", "int(11)", 4, False)] for name in ("k", "k2"))
    return made.frames(
        [
            made.rows(1, "INSERT", [(None, {"k": "1", "v": "1"})], before),
            made.ddl(2, renaming),
            made.rows(3, "UPDATE", [({"k2": "1", "v": "1"}, {"k2": "2", "v": "1"})], after),
        ]
    )


@pytest.mark.parametrize("key", KEYS)
def test_messages_of_a_renamed_key_have_its_names(key: tuple[str, ...]) -> None:
    """The change of the key is a delete and a create."""
    keys = {"s.t": key}
    reader = ChangeReader(lambda schema, table: True, keys=keys)
    entries = reader.row_entries(rows_around("ALTER TABLE t CHANGE k k2 INT"))
    made, placement, origin = DebeziumJson(keys, "UTC", tombstones=False), Placement(None, 1), MessageOrigin("d", 1, 1)
    found = [message for entry in entries if entry.rows for message in made.records(entry, "t", placement, origin)]
    bodies = [(json.loads(message.key or b"{}"), json.loads(message.value or b"{}")) for message in found]
    assert [(key, body["op"]) for key, body in bodies] == [({"k": 1}, "c"), ({"k2": 1}, "d"), ({"k2": 2}, "c")]


def test_a_key_that_rows_lack_is_told_with_their_names() -> None:
    keys = {"s.t": ("k",)}
    reader = ChangeReader(lambda schema, table: True, keys=keys)
    frames = rows_around("ALTER TABLE t COMMENT 'renames nothing'")
    with pytest.raises(SinkRefused, match=r"s\.t has no column k, .*: the rows have k2, v\. Write the name"):
        [RowOperations(each, keys) for each in reader.row_entries(frames)]


RENAME = "ALTER TABLE t RENAME COLUMN k TO k_old"
TAKEN = [
    ([RENAME, "ALTER TABLE t ADD COLUMN k INT NOT NULL"], "k to another column.* is named k_old now"),
    ([RENAME, "ALTER TABLE t RENAME COLUMN v TO K"], "k to another column.* is named k_old now"),
    ([f"{RENAME}, ADD COLUMN k INT NOT NULL"], "k to another column.* is named k_old now"),
    (["ALTER TABLE t RENAME COLUMN k TO v, RENAME COLUMN v TO k"], "k to another column.* is named v now"),
    ([RENAME, "ALTER TABLE t CHANGE k_old k3 INT, ADD COLUMN k_old INT"], "k_old to another column.* is named k3 now"),
    (["ALTER TABLE t DROP COLUMN k, ADD COLUMN k BIGINT"], "k to another column.* was dropped"),
    (["ALTER TABLE t DROP COLUMN k", "ALTER TABLE t CHANGE v k INT"], "k to another column.* was dropped"),
]


@pytest.mark.parametrize(("statements", "told"), TAKEN)
def test_another_column_gets_the_name_of_a_key_unnoticed(statements: list[str], told: str) -> None:
    """It is noticed, whether one portion has all statements or each has one, after a restart too."""
    reader = ChangeReader(lambda schema, table: True, keys={"s.t": ("k",)})
    entries = [made.ddl(number, sql) for number, sql in enumerate(statements, 1)]
    with pytest.raises(SinkRefused, match=told):
        reader.key_names(made.frames(entries), {})
    names: KeyNames = {}
    for entry in entries[:-1]:
        reader = ChangeReader(lambda schema, table: True, keys={"s.t": ("k",)})
        names = reader.key_names(made.frames([entry]), names)
        assert reader.key_names(made.frames([entry]), names) == names  # the portion comes again
    with pytest.raises(SinkRefused, match=told):
        reader.key_names(made.frames([entries[-1]]), names)


@pytest.mark.parametrize(
    ("key", "statements", "names"),
    [
        ("k", [RENAME, "ALTER TABLE t RENAME COLUMN k_old TO k", RENAME], {"k": "k_old"}),
        ("k", [RENAME, "ALTER TABLE t RENAME COLUMN k_old TO k"], {}),
        ("k", ["ALTER TABLE t DROP COLUMN v, RENAME COLUMN k TO v"], {"k": "v"}),
        ("k", ["ALTER TABLE t ADD COLUMN w INT, RENAME COLUMN v TO x"], {}),
        ("k_old", [RENAME, "ALTER TABLE t ADD COLUMN k INT"], {}),
        ("k_old", [f"{RENAME}, ADD COLUMN k INT"], {}),
    ],
)
def test_a_statement_that_leaves_the_key_its_name_stops_a_pipeline(
    key: str, statements: list[str], names: dict[str, str]
) -> None:
    """It does not. The names behind the statements are known."""
    reader = ChangeReader(lambda schema, table: True, keys={"s.t": (key,)})
    frames = made.frames([made.ddl(number, sql) for number, sql in enumerate(statements, 1)])
    found = reader.key_names(frames, {})
    assert found == ({"s.t": names} if names else {})
    assert Progress.from_json(replace(NOTHING, key_names=found).to_json()).key_names == found


@pytest.mark.real
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE {table} ADD COLUMN k INT NOT NULL DEFAULT 0",
        "ALTER TABLE {table} RENAME COLUMN v TO k",
    ],
)
def test_rows_are_lost_behind_a_statement_that_gives_another_column_the_key_s_former_name(
    mysql: MySQL, database: str, tmp_path: Path, statement: str
) -> None:
    """No start goes on behind the statement, unless the file has the key's present name."""
    table = f"{database}.a"
    with copied_by_key(mysql, table, "(1, 1), (2, 1)", tmp_path) as pipeline:
        mysql.execute(f"ALTER TABLE {table} RENAME COLUMN k TO k_old")
        run_once(pipeline)
        mysql.execute(statement.format(table=table), f"UPDATE {table} SET k = 9")
        for _ in range(2):
            with pytest.raises(SinkRefused, match=rf"key column of {table} .* is named k_old now"):
                run_once(pipeline)
        run_once(replace(pipeline, keys={table: ("k_old",)}))
        expected = mysql.query(f"SELECT * FROM {table} ORDER BY k_old")
    lake = DeltaTable(str(tmp_path / "delta" / database / "a")).to_pyarrow_table().to_pylist()
    assert [row["k_old"] for row in expected] == [1, 2]
    assert sorted(lake, key=lambda row: int(row["k_old"])) == expected


@pytest.mark.real
@pytest.mark.parametrize("mode", ["mirror", "scd2"])
@pytest.mark.parametrize("key", KEYS)
def test_a_renamed_key_column_does_not_stop_a_pipeline(
    mysql: MySQL, database: str, tmp_path: Path, mode: str, key: tuple[str, ...]
) -> None:
    """The file may have the name from before the statement or from behind it, as long as rows of both sides come."""
    table = f"{database}.a"
    with copied_by_key(mysql, table, "(1, 1)", tmp_path, mode) as pipeline:
        mysql.execute(
            f"INSERT INTO {table} VALUES (2, 2)",
            f"ALTER TABLE {table} RENAME COLUMN k TO k2",
            f"INSERT INTO {table} VALUES (3, 3)",
            f"UPDATE {table} SET k2 = 20 WHERE k2 = 2",
        )
        run_once(replace(pipeline, keys={table: key}))
        mysql.execute(f"DELETE FROM {table} WHERE k2 = 1")
        run_once(replace(pipeline, keys={table: key}))
        mysql.execute(f"UPDATE {table} SET v = 30 WHERE k2 = 3")
        run_once(replace(pipeline, keys={table: ("k2",)}))
        expected = json.dumps(mysql.query(f"SELECT * FROM {table} ORDER BY k2"))
    lake = DeltaTable(str(tmp_path / "delta" / database / "a")).to_pyarrow_table().to_pylist()
    current = [row for row in lake if row.get("is_current", True)]
    assert (
        json.dumps(sorted(({"k2": row["k2"], "v": row["v"]} for row in current), key=lambda row: row["k2"])) == expected
    )
