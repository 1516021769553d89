"""The last change of each key, whatever came before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import SinkRefused
from canal_ha.spark.entries import Layout
from canal_ha.spark.fold import Change, TableChanges, fold

LAYOUT = Layout((("id", "int", 4), ("v", "int", 4)), (0,), partial=False)
WIDER = Layout((("id", "int", 4), ("v", "int", 4), ("w", "text", 2005)), (0,), partial=False)


def change(op: str, before: list[str | None] | None, after: list[str | None] | None, layout: Layout = LAYOUT) -> Change:
    """A change of s.t."""
    return Change(op, "s", "t", layout.to_json(), before, after, None, "bin.000001:4")


def statement(sql: str) -> Change:
    """A statement."""
    return Change("ddl", "s", "t", None, None, None, sql, "bin.000001:4")


def folded(*changes: Change, keys: dict[str, list[str]] | None = None) -> TableChanges:
    """What happened to s.t."""
    return fold(changes, keys or {})["s.t"]


@given(st.lists(st.tuples(st.sampled_from("iudk"), st.integers(0, 4), st.integers(0, 4), st.integers(0, 9))))
def test_applying_the_fold_is_applying_every_change(operations: list[tuple[str, int, int, int]]) -> None:
    """Beside a dict that takes the changes one by one; changes that MySQL could not make are left out."""
    table: dict[str, str] = {}
    changes = []
    for op, number, other, number_value in operations:
        key, target, value = str(number), str(other), str(number_value)
        if op == "i" and key not in table:
            changes.append(change("insert", None, [key, value]))
            table[key] = value
        elif op == "u" and key in table:
            changes.append(change("update", [key, table[key]], [key, value]))
            table[key] = value
        elif op == "d" and key in table:
            changes.append(change("delete", [key, table.pop(key)], None))
        elif op == "k" and key in table and target not in table:
            changes.append(change("update", [key, table[key]], [target, table[key]]))
            table[target] = table.pop(key)
    result = fold(changes, {}).get("s.t", TableChanges("s", "t"))
    assert {str(row["id"]): row["v"] for row in result.kept} == table
    assert not {key for (key,) in result.gone} & table.keys()


def test_a_truncated_table_begins_empty() -> None:
    """What came before does not count; what follows does. DROP is the same, RENAME empties the old name."""
    for sql in ("TRUNCATE TABLE t", "DROP TABLE t", "ALTER TABLE t RENAME TO u"):
        table = folded(change("insert", None, ["1", "1"]), statement(sql), change("insert", None, ["2", "2"]))
        assert table.emptied
        assert table.kept == [{"id": "2", "v": "2"}]


def test_a_statement_may_name_several_tables() -> None:
    """Each of them is emptied."""
    tables = fold([statement("DROP TABLE a, x.b")], {})
    assert {name for name, table in tables.items() if table.emptied} == {"s.a", "x.b"}


def test_a_column_that_was_added_is_null_in_older_rows() -> None:
    """The newest rows say which columns there are."""
    table = folded(
        change("insert", None, ["1", "1"]),
        statement("ALTER TABLE t ADD w TEXT"),
        change("insert", None, ["2", "2", "x"], WIDER),
    )
    assert list(table.columns) == ["id", "v", "w"]
    assert not table.emptied
    assert table.kept == [{"id": "1", "v": "1", "w": None}, {"id": "2", "v": "2", "w": "x"}]


def test_what_cannot_be_copied_is_refused() -> None:
    """Tables without a key, unless the file names one, and rows of which a part is missing."""
    keyless = Layout(LAYOUT.columns, (), partial=False)
    with pytest.raises(SinkRefused, match=r"s\.t has no primary key.*\[keys\]"):
        folded(change("insert", None, ["1", "2"], keyless))
    named = folded(change("insert", None, ["1", "2"], keyless), keys={"s.t": ["v"]})
    assert list(named.rows) == [("2",)]
    with pytest.raises(SinkRefused, match="no column x"):
        folded(change("insert", None, ["1", "2"]), keys={"s.t": ["x"]})
    partial = Layout(LAYOUT.columns, (0,), partial=True)
    with pytest.raises(SinkRefused, match=r"bin.000001:4.*binlog_row_image=FULL"):
        folded(change("insert", None, ["1", "2"], partial))
