"""ALTER TABLE changes columns in the same order as the server."""

from __future__ import annotations

from unittest.mock import ANY

import pytest

from canal_ha.decode.ddl.apply import alter
from canal_ha.decode.ddl.create_table import create_table
from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import AlterTable, CreateTable, Name
from canal_ha.decode.ddl.tokens import Unreadable
from canal_ha.decode.history.definitions import columns_of
from canal_ha.decode.labels import labels_of, with_labels
from canal_ha.model.table import Column


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
        ("a int, b int", "ADD c int AFTER b, MODIFY b int FIRST", "b int, a int, c int"),
        (
            "a int, b int, c int",
            "MODIFY a int AFTER C, MODIFY c int FIRST, ADD d int AFTER c",
            "c int, d int, b int, a int",
        ),
        ("a int, b int", "ADD c int AFTER d, CHANGE b d int FIRST", "d int, a int, c int"),
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
        ("row_start int, row_end int, a int", "ADD b int", "row_start int, row_end int, a int, b int"),
        ("row_start int, row_end int, a int", "ADD INDEX (a)", "row_start int, row_end int, a int"),
        ("row_start int, row_end int, a int", "DROP row_start, MODIFY row_end bigint", "row_end bigint, a int"),
        ("row_start int, a int", "RENAME COLUMN row_start TO b, ADD c int AFTER b", "b int, c int, a int"),
        ("a int", "ADD SYSTEM VERSIONING", "a int, row_start timestamp(6), row_end timestamp(6)"),
        (
            "a int",
            "ADD PERIOD FOR SYSTEM_TIME(s, e), ADD s timestamp(6) GENERATED ALWAYS AS ROW START,"
            " ADD e timestamp(6) AS ROW END, ADD SYSTEM VERSIONING",
            "a int, s timestamp(6), e timestamp(6)",
        ),
        ("a int", "ADD b int PARTITION BY HASH(b) PARTITIONS 3", "a int, b int"),
        ("a int", "ADD b int REMOVE PARTITIONING", "a int, b int"),
    ],
)
def test_changes(columns: str, items: str, expected: str) -> None:
    """After an ALTER TABLE, the columns have the order, names, types and keys that the server gives them."""
    assert after(columns, items) == expected


GENERATED = "my_row_id bigint unsigned NOT NULL AUTO_INCREMENT /*!80023 INVISIBLE */"


@pytest.mark.parametrize(
    ("columns", "items", "expected"),
    [
        (f"{GENERATED}, a int, PRIMARY KEY (my_row_id)", "ADD b int FIRST", "my_row_id b a"),
        (f"{GENERATED} PRIMARY KEY, a int, b int", "MODIFY b int FIRST", "my_row_id b a"),
        (f"{GENERATED} PRIMARY KEY, a int", "ALTER COLUMN my_row_id SET VISIBLE, ADD b int FIRST", "b my_row_id a"),
        (f"a int, {GENERATED} PRIMARY KEY", "ADD b int FIRST", "b a my_row_id"),
        (f"{GENERATED}, a int, PRIMARY KEY (my_row_id, a)", "ADD b int FIRST", "b my_row_id a"),
        ("my_row_id bigint unsigned PRIMARY KEY, a int", "ADD b int FIRST", "b my_row_id a"),
        ("my_row_id bigint unsigned AUTO_INCREMENT PRIMARY KEY, a int", "ADD b int FIRST", "b my_row_id a"),
        ("my_row_id bigint unsigned INVISIBLE PRIMARY KEY, a int", "ADD b int FIRST", "b my_row_id a"),
        ("id bigint unsigned AUTO_INCREMENT INVISIBLE PRIMARY KEY, a int", "ADD b int FIRST", "b id a"),
    ],
)
def test_only_the_generated_key_stays_first(columns: str, items: str, expected: str) -> None:
    """MySQL puts FIRST behind the key that it generated, and takes no other column for it."""
    assert [column.split()[0].strip("*") for column in after(columns, items).split(", ")] == expected.split()


@pytest.mark.parametrize(
    "columns",
    ["a int", f"{GENERATED} PRIMARY KEY, a int", "a int WITH SYSTEM VERSIONING", "row_start int, b serial"],
)
def test_marks_of_columns_survive_being_stored(columns: str) -> None:
    """The statement that a history stores for a table gives the same columns, marks included."""
    created = read(f"CREATE TABLE t ({columns})")
    assert isinstance(created, CreateTable)
    assert read(create_table("t", created.columns)) == CreateTable(Name(None, "t"), created.columns, refused=ANY)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("(a int) WITH SYSTEM VERSIONING", "a row_start row_end"),
        ("(a int WITH SYSTEM VERSIONING, b int)", "a b row_start row_end"),
        ("(a int WITHOUT SYSTEM VERSIONING, b int WITH SYSTEM VERSIONING)", "a b row_start row_end"),
        (
            "(a int, s timestamp(6) GENERATED ALWAYS AS ROW START, e timestamp(6) AS ROW END,"
            " PERIOD FOR SYSTEM_TIME (s, e), b int) WITH SYSTEM VERSIONING",
            "a s e b",
        ),
        ("(a int, row_start int, row_end int)", "a row_start row_end"),
    ],
)
def test_columns_of_system_versioned_tables(columns: str, expected: str) -> None:
    """MariaDB adds two columns unless the statement defines them itself (seen on 10.11)."""
    created = read(f"CREATE TABLE t {columns}")
    assert isinstance(created, CreateTable)
    assert [column.name for column in created.columns] == expected.split()


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


@pytest.mark.parametrize("label", ["\\", "a\\", "\\'", "'), x int) --", "\\'), x int) --", "\n", "%s", ""])
def test_a_stored_definition_keeps_every_label(label: str) -> None:
    """A backslash or quote in a label of ENUM made the stored table unreadable, or gave it another column."""
    column = Column("a", with_labels("enum", [label, "b"]))
    (read,) = columns_of(create_table("t", [column]))
    assert (read.name, labels_of(read.mysql_type)) == ("a", (label, "b"))
