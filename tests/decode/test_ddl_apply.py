"""ALTER TABLE changes columns in the same order as the server."""

from __future__ import annotations

import pytest

from canal_ha.decode.ddl.apply import alter
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable, CreateTable
from canal_ha.decode.ddl.tokens import Unreadable


def after(columns: str, items: str) -> str:
    """Return the columns of `CREATE TABLE t (columns)` after `ALTER TABLE t items`, as `name[*] type, ...`."""
    created, altered = read(f"CREATE TABLE t ({columns})"), read(f"ALTER TABLE t {items}")
    assert isinstance(created, CreateTable)
    assert isinstance(altered, AlterTable)
    found = alter(created.columns, altered.changes)
    return ", ".join(f"{column.name}{'*' if column.key else ''} {column.mysql_type}" for column in found)


@pytest.mark.parametrize(
    ("columns", "items", "expected"),
    [
        ("a int, b int", "ADD c int", "a int, b int, c int"),
        ("a int, b int", "ADD COLUMN c int FIRST, ADD d int AFTER a", "c int, a int, d int, b int"),
        ("a int, b int", "ADD c int AFTER a, ADD d int AFTER c", "a int, c int, d int, b int"),
        ("a int, b int", "ADD (c int, d int, INDEX (c), PRIMARY KEY (d))", "a int, b int, c int, d* int"),
        ("a int, b int", "DROP a", "b int"),
        ("a int, b int", "DROP COLUMN IF EXISTS z, DROP b", "a int"),
        ("a int, b int", "DROP b, ADD b bigint", "a int, b bigint"),
        ("a int, b int", "ADD b bigint, DROP b", "a int, b bigint"),
        ("a int, b int", "MODIFY a bigint", "a bigint, b int"),
        ("a int, b int", "MODIFY A bigint AFTER b", "b int, A bigint"),
        ("a int, b int", "MODIFY b bigint FIRST", "b bigint, a int"),
        ("a int, b int", "CHANGE a c bigint", "c bigint, b int"),
        ("a int, b int", "CHANGE a b int, CHANGE b a bigint", "b int, a bigint"),
        ("a int, b int", "CHANGE a c int AFTER b", "b int, c int"),
        ("a int, b bigint", "RENAME COLUMN a TO b, RENAME COLUMN b TO a", "b int, a bigint"),
        ("a int, b int", "RENAME COLUMN a TO c, ADD d int AFTER c", "c int, d int, b int"),
        ("a int, b int", "ADD COLUMN IF NOT EXISTS b bigint, ADD COLUMN IF NOT EXISTS c int", "a int, b int, c int"),
        ("a int, b int", "MODIFY COLUMN IF EXISTS z int, CHANGE COLUMN IF EXISTS y x int", "a int, b int"),
        ("a int PRIMARY KEY, b int", "MODIFY a bigint", "a* bigint, b int"),
        ("a int PRIMARY KEY, b int", "CHANGE a z bigint", "z* bigint, b int"),
        ("a int PRIMARY KEY, b int", "RENAME COLUMN a TO z", "z* int, b int"),
        ("a int PRIMARY KEY, b int", "DROP a", "b int"),
        ("a int PRIMARY KEY, b int", "DROP a, ADD a bigint FIRST", "a* bigint, b int"),
        ("a int PRIMARY KEY, b int", "RENAME COLUMN a TO z, ADD a int FIRST", "a int, z* int, b int"),
        ("a int PRIMARY KEY, b int", "DROP PRIMARY KEY", "a int, b int"),
        ("a int PRIMARY KEY, b int", "DROP PRIMARY KEY, ADD PRIMARY KEY (b)", "a int, b* int"),
        ("a int PRIMARY KEY, b int", "ADD PRIMARY KEY (a, b), DROP PRIMARY KEY", "a* int, b* int"),
        ("a int, b int", "ADD CONSTRAINT PRIMARY KEY (b DESC, A)", "a* int, b* int"),
        ("a int, b int", "MODIFY a int PRIMARY KEY", "a* int, b int"),
        ("a int, b int", "ADD c serial, ADD PRIMARY KEY (c)", "a int, b int, c* serial"),
        ("a int, PRIMARY KEY (a)", "DROP INDEX `PRIMARY`", "a int"),
        ("a int", "ADD INDEX (a), ENGINE=InnoDB, COMMENT='x', DROP INDEX y, FORCE", "a int"),
        ("a int", "ADD b int CHECK (b > 0) COMMENT 'x, y' REFERENCES z (y) ON DELETE SET NULL FIRST", "b int, a int"),
        (
            "a int",
            "ADD b int DEFAULT (1 + 2) NOT NULL, ADD c varchar(3) DEFAULT 'x' AFTER a",
            "a int, c varchar(3), b int",
        ),
        ("a int", "ADD period int, ADD vector int, ADD `index` int", "a int, period int, vector int, index int"),
        ("my_row_id bigint unsigned PRIMARY KEY, a int", "ADD b int FIRST", "my_row_id* bigint unsigned, b int, a int"),
        ("a int", "ADD SYSTEM VERSIONING", "a int, row_start timestamp(6), row_end timestamp(6)"),
        ("a int", "ADD b int PARTITION BY HASH(b) PARTITIONS 3", "a int, b int"),
        ("a int", "ADD b int REMOVE PARTITIONING", "a int, b int"),
    ],
)
def test_changes(columns: str, items: str, expected: str) -> None:
    """After an ALTER TABLE, the columns have the order, names, types and keys that the server gives them."""
    assert after(columns, items) == expected


@pytest.mark.parametrize(
    "items",
    ["DROP z", "MODIFY z int", "CHANGE z y int", "RENAME COLUMN z TO y", "ADD a int", "ADD b int AFTER z"],
)
def test_changes_that_do_not_fit(items: str) -> None:
    """A change of a missing column, or an ADD of an existing one, raises Unreadable."""
    with pytest.raises(Unreadable):
        after("a int, c int", items)


def test_hidden_version_columns_stay_last() -> None:
    """A column added to a system-versioned table stands before the hidden ones, which go with the versioning."""
    created = read("CREATE TABLE t (a int) WITH SYSTEM VERSIONING")
    added, dropped = read("ALTER TABLE t ADD b int"), read("ALTER TABLE t DROP SYSTEM VERSIONING")
    assert isinstance(created, CreateTable)
    assert isinstance(added, AlterTable)
    assert isinstance(dropped, AlterTable)
    columns = alter(created.columns, added.changes)
    assert [column.name for column in columns] == ["a", "b", "row_start", "row_end"]
    assert [column.name for column in alter(columns, dropped.changes)] == ["a", "b"]
