"""A statement renames a column that `keys` of the pipeline's file names, and rows come before and behind it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.messages.row_changes import RowOperations
from canal_ha.pipeline.reading import ChangeReader
from lab import MySQL, Node, follow
from tests.pipeline.driver import described, run_once
from tests.pipeline.test_engine import source
from tests.spark import entries as made

KEYS = [("k",), ("k2",)]


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
    found = [RowOperations(each, keys) for each in reader.row_entries(rows_around("ALTER TABLE t CHANGE k k2 INT"))]
    assert [(list(each.keys), [one.op for one in each]) for each in found if each.keys] == [
        (["k"], ["c"]),
        (["k2"], ["d", "c"]),
    ]


def test_a_key_that_rows_lack_is_told_with_their_names() -> None:
    keys = {"s.t": ("k",)}
    reader = ChangeReader(lambda schema, table: True, keys=keys)
    frames = rows_around("ALTER TABLE t COMMENT 'renames nothing'")
    with pytest.raises(SinkRefused, match=r"s\.t has no column k, .*: the rows have k2, v\. Write the name"):
        [RowOperations(each, keys) for each in reader.row_entries(frames)]


@pytest.mark.real
@pytest.mark.parametrize("mode", ["mirror", "scd2"])
@pytest.mark.parametrize("key", KEYS)
def test_a_renamed_key_column_does_not_stop_a_pipeline(
    mysql: MySQL, database: str, tmp_path: Path, mode: str, key: tuple[str, ...]
) -> None:
    """The file may have the name from before the statement or from behind it, as long as rows of both sides come."""
    table = f"{database}.a"
    mysql.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k INT NOT NULL UNIQUE, v INT)",
        f"INSERT INTO {table} VALUES (1, 1)",
    )
    with Node({database: follow(mysql)}) as node:
        pipeline = described(
            tmp_path, source(node, database, snapshot=table), "delta", mode, tables=(table,), keys={table: ("k",)}
        )
        run_once(pipeline)
        mysql.execute(
            f"INSERT INTO {table} VALUES (2, 2)",
            f"ALTER TABLE {table} RENAME COLUMN k TO k2",
            f"INSERT INTO {table} VALUES (3, 3)",
            f"UPDATE {table} SET k2 = 20 WHERE k2 = 2",
        )
        run_once(replace(pipeline, keys={table: key}))
        mysql.execute(f"DELETE FROM {table} WHERE k2 = 1")
        if key == ("k",):
            with pytest.raises(SinkRefused, match=r"has no column k, .*Write the name"):
                run_once(replace(pipeline, keys={table: key}))
        run_once(replace(pipeline, keys={table: ("k2",)}))
        expected = json.dumps(mysql.query(f"SELECT * FROM {table} ORDER BY k2"))
    lake = DeltaTable(str(tmp_path / "delta" / database / "a")).to_pyarrow_table().to_pylist()
    current = [row for row in lake if row.get("is_current", True)]
    assert (
        json.dumps(sorted(({"k2": row["k2"], "v": row["v"]} for row in current), key=lambda row: row["k2"])) == expected
    )
