"""How the columns of a copy follow: the steps, which are not found again once they are done."""

from __future__ import annotations

import pyarrow as pa
import pytest

from canal_ha.client.arrow_types import column_type
from canal_ha.pipeline.copy_columns import (
    LackingColumn,
    NewColumn,
    NewName,
    NewType,
    NoColumn,
    Step,
    describe,
    kind_of,
    renamed,
    steps,
)
from canal_ha.pipeline.kept_columns import new_names
from canal_ha.pipeline.postgresql_copies import identifier
from canal_ha.pipeline.postgresql_types import conversion, postgresql_type
from canal_ha.pipeline.reading import TYPE

INT = column_type("int", 4)


def field(name: str, text: str = "int", arrow: pa.DataType | None = None) -> pa.Field:
    """Return a column of a batch."""
    return pa.field(name, arrow or column_type(text, 12).arrow, metadata={TYPE: text.encode()})


@pytest.mark.parametrize(
    ("names", "statements", "fields", "expected"),
    [
        ("id", [], "id", []),
        ("id", [], "id,n", [NewColumn("n", INT)]),
        ("id,n", [], "id", [LackingColumn("n")]),
        ("id,b", [], "id,a", [NewColumn("a", INT), LackingColumn("b")]),
        ("ID", [], "id", [NewName("ID", "id")]),
        ("id,n", ["ALTER TABLE t DROP n"], None, [NoColumn("n")]),
        ("id", ["ALTER TABLE t DROP n"], None, []),
        ("id", ["ALTER TABLE t ADD n int DEFAULT 5"], "id,n", [NewColumn("n", INT, "5")]),
        ("id,n", ["ALTER TABLE t ADD n int DEFAULT 5"], "id,n", []),
        ("id,a", ["ALTER TABLE t RENAME COLUMN a TO b"], "id,b", [NewName("a", "b")]),
        ("id,b", ["ALTER TABLE t RENAME COLUMN a TO b"], "id,b", []),
        ("id,a", ["ALTER TABLE t CHANGE a b int"], None, [NewName("a", "b"), NewType("b", INT)]),
        ("id,a", ["ALTER TABLE t DROP a, ADD a int"], "id,a", [NoColumn("a"), NewColumn("a", INT)]),
        ("id,a", ["ALTER TABLE t ADD b int", "ALTER TABLE t DROP b"], "id,a", [NewColumn("b", INT), NoColumn("b")]),
        ("id", ["TRUNCATE t", "no SQL", "CREATE TABLE u (a INT)"], "id", []),
    ],
)
def test_steps(names: str, statements: list[str], fields: str | None, expected: list[Step]) -> None:
    """Of statements in order, then of the columns of new rows. Types of equal names are not compared here."""
    new = None if fields is None else [field(name) for name in fields.split(",")]
    found = steps(names.split(","), statements, new)
    kept = found if new is None else [step for step in found if not isinstance(step, NewType)]
    assert kept == expected
    assert all(describe(step) for step in found)


def test_a_transforms_values_have_the_type_of_their_column() -> None:
    """The metadata count only where the values fit them."""
    assert kind_of(field("a", "int")).text == "int"
    assert kind_of(field("a", "int", pa.string())).text == "longtext"
    assert kind_of(field("a", "datetime(3)", pa.string())).text == "datetime(3)"
    assert kind_of(pa.field("a", pa.decimal128(9, 2))).text == "decimal(9,2)"
    assert kind_of(pa.field("a", pa.string())).text == "longtext"
    assert kind_of(field("a", "inet6", pa.string())).text == "inet6"


@pytest.mark.parametrize(
    ("mysql_type", "expected"),
    [
        ("tinyint(1)", "smallint"),
        ("tinyint unsigned", "smallint"),
        ("smallint(5) unsigned zerofill", "integer"),
        ("mediumint unsigned", "integer"),
        ("int unsigned", "bigint"),
        ("bigint unsigned", "numeric(20,0)"),
        ("decimal", "numeric(10,0)"),
        ("decimal(65,30)", "numeric(65,30)"),
        ("DECIMAL(0)", "numeric(10,0)"),
        ("decimal(12,2) unsigned", "numeric(12,2)"),
        ("bit", "boolean"),
        ("bit(9)", "bigint"),
        ("bit(64)", "numeric(20,0)"),
        ("datetime", "timestamp(0) without time zone"),
        ("timestamp(6)", "timestamp(6) with time zone"),
        ("time(3)", "interval(3)"),
        ("year(4)", "smallint"),
        ("enum('a','(9)')", "text"),
        ("json", "jsonb"),
        ("uuid", "uuid"),
        ("inet6", "inet"),
        ("varchar(20)", "text"),
    ],
)
def test_types_of_postgresql(mysql_type: str, expected: str) -> None:
    """As format_type() shows them."""
    assert postgresql_type(column_type(mysql_type, 12), "jsonb") == expected


def test_only_conversions_that_the_source_makes_too() -> None:
    """Others need the source's values."""
    assert conversion("integer", "bigint") == "{}::bigint"
    assert conversion("bigint", "smallint") == "{}::smallint"
    assert conversion("boolean", "bigint") == "{}::integer::bigint"
    assert conversion("numeric(5,2)", "text") == "{}::text"
    for before, after in [("text", "integer"), ("timestamp(3) with time zone", "timestamp(3) without time zone")]:
        assert conversion(before, after) is None


def test_long_names_stay_apart() -> None:
    """PostgreSQL cuts names after 63 bytes, in the middle of a character if need be."""
    names = ["字" * 64, "字" * 63 + "宇", "a" * 64, "a" * 63, "😀" * 64]
    found = [identifier(name) for name in names]
    assert len({*found}) == len(names)
    assert all(len(name.encode()) <= 63 for name in found)
    assert found[3] == names[3]


@pytest.mark.parametrize(
    ("rows", "names", "later", "expected"),
    [
        ("id,a", "id,b", ["ALTER TABLE t RENAME COLUMN a TO b"], {"a": "b"}),
        ("id,A", "id,B", ["ALTER TABLE t CHANGE a b BIGINT"], {"a": "B"}),
        ("id,a", "id,a", ["ALTER TABLE t RENAME COLUMN a TO b"], {}),
        ("id,a", "id", ["ALTER TABLE t RENAME COLUMN a TO b"], {}),
        ("id,a,b", "id,b", ["ALTER TABLE t DROP b, RENAME COLUMN a TO b"], {}),
        ("id,a,b", "id,b,b_old", ["ALTER TABLE t DROP b, RENAME COLUMN a TO b"], {"a": "b", "b": "b_old"}),
        ("id,a,b", "id,a,b", ["ALTER TABLE t DROP b", "ALTER TABLE t RENAME COLUMN a TO b"], {}),
        ("id,a", "id,c", ["ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME COLUMN b TO c"], {"a": "c"}),
        ("id,a", "id,b", ["ALTER TABLE t ADD b INT"], {}),
    ],
)
def test_columns_that_an_interrupted_commit_has_renamed(
    rows: str, names: str, later: list[str], expected: dict[str, str]
) -> None:
    """Rows from before the statement go into the column that has the new name already."""
    assert renamed(rows.split(","), names.split(","), later) == expected


SWAP = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"


@pytest.mark.parametrize(
    ("names", "later", "done", "expected"),
    [
        ("id,a,b", [SWAP], -1, {}),
        ("id,a,b", [SWAP], 0, {"a": "b", "b": "a"}),
        ("id,a,b", [SWAP, SWAP], 0, {"a": "b", "b": "a"}),
        ("id,a,b", [SWAP, SWAP], 1, {}),
        ("id,a,b,c", ["ALTER TABLE t ADD c INT", "ALTER TABLE t CHANGE b c INT, CHANGE c b INT"], 1, {"b": "c"}),
        ("id,a,b", ["ALTER TABLE t ADD c INT", "ALTER TABLE t CHANGE b c INT, CHANGE c b INT"], -1, {}),
        ("id,b,b_old", ["ALTER TABLE t DROP b, RENAME COLUMN a TO b"], 0, {"a": "b", "b": "b_old"}),
        ("id,b,a", ["ALTER TABLE t RENAME COLUMN a TO b, ADD a INT"], 0, {"a": "b"}),
    ],
)
def test_columns_that_are_known_to_be_renamed(
    names: str, later: list[str], done: int, expected: dict[str, str]
) -> None:
    """Names that change places do not show whether they have done so."""
    assert renamed(["id", "a", "b"], names.split(","), later, done) == expected


def test_statements_that_are_done_are_not_done_again() -> None:
    """Of the last one, added columns and types may be missing yet; they show in the columns."""
    twice = [SWAP, f"{SWAP}, ADD c INT"]
    names = ["id", "a", "b"]
    swap = [NewName("b", "b_old"), NewName("a", "b"), NewName("b_old", "a")]
    found = steps(names, twice, None)
    assert [step for step in found if isinstance(step, NewName)] == swap * 2
    assert [step.statement for step in found if isinstance(step, NewName)] == [0, 0, 0, 1, 1, 1]
    assert [step for step in steps(names, twice, None, done=0) if isinstance(step, NewName)] == swap
    assert [type(step) for step in steps(names, twice, None, done=1)] == [NewColumn]
    assert steps(names, twice, None, done=2) == []


@pytest.mark.parametrize(
    ("names", "renames", "expected"),
    [
        ("id,a", [("a", "b")], [("a", "b")]),
        ("id,a", [("c", "a")], []),
        ("id,a", [("A", "A")], [("a", "A")]),
        ("id,a,b", [("b", "a")], [("a", "a_old"), ("b", "a")]),
        ("id,A,b,a_OLD", [("b", "a")], [("A", "A_old2"), ("b", "a")]),
        ("a,b", [("a", "b"), ("b", "a")], [("b", "b_old"), ("a", "b"), ("b_old", "a")]),
        ("a,b", [("a", "b"), ("b", "b_old")], [("b", "b_old"), ("a", "b")]),
        ("a,b,c", [("a", "b"), ("b", "c")], [("b", "b_old"), ("a", "b"), ("c", "c_old"), ("b_old", "c")]),
    ],
)
def test_a_column_of_a_history_whose_name_another_gets_is_put_aside(
    names: str, renames: list[tuple[str, str]], expected: list[tuple[str, str]]
) -> None:
    """The renames can be carried out one after the other, also of columns that swap their names."""
    assert new_names(names.split(","), renames) == expected
