"""Existing rows: each once, with the value that it had at the end of the snapshot."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import SchemaChanged, SinkRefused
from canal_ha.spark.entries import READ, changes_of
from canal_ha.spark.existing import ExistingRows
from tests.spark.entries import begin, ddl, end, frames, insert, rows

Images = list[tuple[dict[str, str | None] | None, dict[str, str | None] | None]]


def image(key: int, value: int) -> dict[str, str | None]:
    """Return the image of a row."""
    return {"id": str(key), "name": str(value)}


def chunk(*keys: tuple[int, int]) -> bytes:
    """Return an entry with rows of a snapshot."""
    return rows(100, "INSERT", [(None, image(*each)) for each in keys], snapshot="7")


def existing(*entries: bytes) -> dict[str, str]:
    """Fold the entries and return name by id. Each row is a row of the snapshot, and comes once."""
    fold = ExistingRows(["s.t"], "7", io.BytesIO())
    for entry in entries:
        fold.add(frames([begin(100), entry, end(100)]))
    found: dict[str, str] = {}
    for block in fold.frames():
        for change in changes_of(block, "block"):
            assert change.op == READ
            for key, name in change.after:
                assert key is not None
                assert name is not None
                assert key not in found
                found[key] = name
    return found


def test_a_later_change_replaces_a_row() -> None:
    """An update, a delete, a new key and an insert behind the chunk count; what comes before it does not."""
    early = rows(90, "UPDATE", [(image(1, 0), image(1, 1))])
    changes: Images = [(image(2, 0), image(2, 5)), (image(3, 0), image(30, 3))]
    late = [rows(110, "UPDATE", changes), rows(120, "DELETE", [(image(4, 0), None)]), insert(130, 6, "9")]
    found = existing(early, chunk((1, 2), (2, 0), (3, 0), (4, 0), (5, 0)), *late)
    assert found == {"1": "2", "2": "5", "30": "3", "5": "0", "6": "9"}


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["insert", "delete", "chunk"])), max_size=30))
def test_every_row_once_in_any_order(steps: list[tuple[int, str]]) -> None:
    """The result is the table that the same steps make, row by row. The snapshot reads each key once at most."""
    table: dict[int, int] = dict.fromkeys(range(6), 0)
    entries, read = [], set()
    for number, (key, step) in enumerate(steps, 1):
        if step == "chunk":
            if key in table and key not in read:
                entries.append(chunk((key, table[key])))
            read.add(key)
        elif step == "delete":
            if key in table:
                entries.append(rows(number, "DELETE", [(image(key, table.pop(key)), None)]))
        elif key in table:
            entries.append(rows(number, "UPDATE", [(image(key, table[key]), image(key, number))]))
            table[key] = number
        else:
            entries.append(insert(number, key, str(number)))
            table[key] = number
    entries += [chunk((key, table[key])) for key in range(6) if key in table and key not in read]
    assert existing(*entries) == {str(key): str(value) for key, value in table.items()}


def test_other_tables_are_left_out() -> None:
    """The filter may keep more tables than the snapshot has."""
    other = rows(110, "INSERT", [(None, image(9, 9))], table="other")
    assert existing(chunk((1, 0)), other, ddl(120, "ALTER TABLE other ADD x INT", table="other")) == {"1": "0"}


def test_a_statement_about_the_table_ends_the_read() -> None:
    """Rows before and after it would have other columns, or would be gone."""
    with pytest.raises(SchemaChanged, match=r"changed s\.t while its rows were read"):
        existing(chunk((1, 0)), ddl(110, "ALTER TABLE t ADD x INT"))
    with pytest.raises(SchemaChanged):
        existing(ddl(110, "RENAME TABLE other TO _old, t TO other", "RENAME", table="other"))


def test_a_change_without_all_columns_ends_the_read() -> None:
    """With binlog_row_image=MINIMAL an update does not have the row."""
    with pytest.raises(SinkRefused, match="binlog_row_image = FULL"):
        existing(rows(110, "UPDATE", [({"id": "1"}, {"name": "5"})]))
