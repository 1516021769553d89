"""Mirrors in Delta and Iceberg whose columns get each other's names, without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from canal_ha.pipeline.targets import delta, open_target
from canal_ha.pipeline.targets.iceberg import IcebergTarget
from canal_ha.pipeline.targets.target import PipelineTarget
from tests.pipeline.driver import described
from tests.pipeline.lake_writer import options as iceberg_options
from tests.pipeline.made import Writer
from tests.spark import entries as made

Row = dict[str, Any]

CHANGES = {
    "RENAME COLUMN a TO b, RENAME COLUMN b TO a": ("b", "a", "c"),
    "CHANGE a b INT, CHANGE b a INT": ("b", "a", "c"),
    "RENAME COLUMN a TO b, RENAME COLUMN b TO c, RENAME COLUMN c TO a": ("b", "c", "a"),
    "RENAME COLUMN a TO b, RENAME COLUMN b TO e": ("b", "e", "c"),
    "RENAME COLUMN a TO b, DROP COLUMN b": ("b", "", "c"),
    "DROP COLUMN b, CHANGE a b BIGINT": ("b", "", "c"),
    "DROP COLUMN c, ADD c INT DEFAULT 7": ("a", "b", "new"),
}
"""Items of an ALTER TABLE, and what becomes of the columns a, b and c; "" for one that goes."""


def opened(kind: str, directory: Path) -> PipelineTarget:
    """Return the checked target of a new process."""
    options = iceberg_options(directory / "lake") if kind == "iceberg" else {}
    target = open_target(described(directory, {}, kind, "mirror", **options))
    target.check()
    return target


def kept(kind: str, directory: Path, key: str = "id") -> list[Row]:
    """Return the rows of s.t, by its key."""
    if kind == "delta":
        table = DeltaTable(f"{directory}/delta/s/t").to_pyarrow_table()
    else:
        access = dict(iceberg_options(directory / "lake")["catalog"])
        table = load_catalog(access.pop("name"), **access).load_table(("s", "t")).scan().to_arrow()
    rows: list[Row] = table.sort_by(key).to_pylist()
    return rows


def insert(offset: int, image: Row) -> bytes:
    """Return the entry of a new row of numbers."""
    columns = [made.ID, *((name, "int(11)", 4, False) for name in image if name != "id")]
    return made.rows(offset, "INSERT", [(None, {name: str(value) for name, value in image.items()})], columns)


def moved(items: str, image: Row) -> Row:
    """Return a row behind a statement, as the source has it."""
    names = dict(zip("abc", CHANGES[items], strict=True))
    found = {names.get(name, name): value for name, value in image.items() if names.get(name, name) not in ("", "new")}
    return {**found, "c": 7} if "new" in names.values() else found


FIRST = {"id": 1, "a": 10, "b": 20, "c": 30}
SECOND = {"id": 2, "a": 11, "b": 21, "c": 31}


def third(items: str) -> Row:
    """Return a row that comes behind the statement."""
    return {name: 40 + at for at, name in enumerate(sorted(moved(items, FIRST)))} | {"id": 3}


@pytest.mark.parametrize("portions", [1, 2, 3])
@pytest.mark.parametrize("items", CHANGES)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_columns_that_get_the_names_of_others_keep_their_values(
    kind: str, items: str, portions: int, tmp_path: Path
) -> None:
    """In one statement; also the values of rows that come before it in its portion."""
    writer = Writer(opened(kind, tmp_path))
    writer.commit(insert(1, FIRST), offset=1)
    entries = [insert(2, SECOND), made.ddl(3, f"ALTER TABLE t {items}"), insert(4, third(items))]
    if portions == 3:
        for at, entry in enumerate(entries, 2):
            writer.commit(entry, offset=at)
    elif portions == 2:
        writer.commit(*entries[:2], offset=3)
        writer.commit(*entries[2:], offset=4)
    else:
        writer.commit(*entries, offset=4)
    assert kept(kind, tmp_path) == [moved(items, FIRST), moved(items, SECOND), third(items)]


@pytest.mark.parametrize("dies_in", [1, 2, 3])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_names_that_swap_are_swapped_once_although_the_process_dies(
    kind: str, dies_in: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any commit of the portion, which comes again. Its key gets another column, so it has two stretches of rows."""
    items = "RENAME COLUMN a TO b, RENAME COLUMN b TO a"
    wide: list[made.ColumnSpec] = [made.ID, *((name, "int(11)", 4, name == "c") for name in "bac")]
    narrow = [*wide[:3], (*wide[3][:3], False)]
    last = {"id": 3, "a": 40, "b": 41, "c": 42}
    writer = Writer(opened(kind, tmp_path))
    writer.commit(insert(1, FIRST), offset=1)
    portion = writer.portion(
        made.ddl(2, f"ALTER TABLE t {items}"),
        made.rows(3, "INSERT", [(None, {"id": "2", "b": "11", "a": "21", "c": "31"})], narrow),
        made.ddl(4, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, c)"),
        made.rows(5, "INSERT", [(None, {name: str(value) for name, value in last.items()})], wide),
        offset=5,
    )  # fmt: skip
    places = [(delta._TableCommit, "_merge")] if kind == "delta" else [(IcebergTarget, "_store")]
    calls = 0
    with monkeypatch.context() as patched:
        for owner, name in places:
            inner = getattr(owner, name)

            def dying(self: Any, *given: Any, inner: Any = inner) -> Any:
                nonlocal calls
                calls += 1
                if calls == dies_in:
                    raise KeyboardInterrupt
                return inner(self, *given)

            patched.setattr(owner, name, dying)
        try:
            writer.target.commit(portion)
        except KeyboardInterrupt:
            again = opened(kind, tmp_path)
            again.progress("d")
            patched.undo()
            again.commit(portion)
    assert kept(kind, tmp_path) == [moved(items, FIRST), moved(items, SECOND), last]


def test_a_mirror_in_delta_goes_on_behind_a_commit_that_died_at_a_new_name_of_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table has the new name, and the first rows of the portion the old one. The pipeline stopped for ever."""
    new: list[made.ColumnSpec] = [("key", "int(11)", 4, True), ("a", "int(11)", 4, False)]
    update = made.rows(2, "UPDATE", [({"id": "1", "a": "1"}, {"id": "1", "a": "5"})], [made.ID, new[1]])
    entries = [
        update,
        insert(3, {"id": 2, "a": 2}),
        made.ddl(4, "ALTER TABLE t RENAME COLUMN id TO `key`"),
        made.rows(5, "INSERT", [(None, {"key": "3", "a": "3"})], new),
        made.rows(6, "DELETE", [({"key": "2", "a": "2"}, None)], new),
    ]
    Writer(opened("delta", tmp_path)).commit(insert(1, {"id": 1, "a": 1}), offset=1)
    merge, merged = delta._TableCommit._merge, []

    def dying(commit: delta._TableCommit, *given: Any) -> None:
        merged.append(given)
        if len(merged) == 2:
            raise KeyboardInterrupt
        merge(commit, *given)

    with monkeypatch.context() as patched:
        patched.setattr(delta._TableCommit, "_merge", dying)
        with pytest.raises(KeyboardInterrupt):
            Writer(opened("delta", tmp_path)).commit(*entries, offset=6)
    Writer(opened("delta", tmp_path)).commit(*entries, offset=6)
    rows = DeltaTable(f"{tmp_path}/delta/s/t").to_pyarrow_table().sort_by("key").to_pylist()
    assert rows == [{"key": 1, "a": 5}, {"key": 3, "a": 3}]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_mirror_had_a_row_twice_behind_a_portion_that_ended_at_a_new_name_of_the_key(
    kind: str, tmp_path: Path
) -> None:
    """The rows before the statement were looked for by the last column."""
    new: list[made.ColumnSpec] = [("key", "int(11)", 4, True), ("a", "int(11)", 4, False)]
    writer = Writer(opened(kind, tmp_path))
    writer.commit(insert(1, {"id": 1, "a": 1}), offset=1)
    update = made.rows(2, "UPDATE", [({"id": "1", "a": "1"}, {"id": "1", "a": "5"})], [made.ID, new[1]])
    writer.commit(update, made.ddl(3, "ALTER TABLE t RENAME COLUMN id TO `key`"), offset=3)
    writer.commit(made.rows(4, "INSERT", [(None, {"key": "3", "a": "3"})], new), offset=4)
    assert kept(kind, tmp_path, "key") == [{"key": 1, "a": 5}, {"key": 3, "a": 3}]


@pytest.mark.parametrize("apart", [2, 3, 4])
@pytest.mark.parametrize("items", ["ADD d INT DEFAULT 7", *CHANGES])
def test_a_mirror_in_delta_stopped_behind_a_crash_at_a_statement_if_the_portion_came_in_two(
    items: str, apart: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows before the statement came without it, and the table had its columns. A swap was done twice.

    apart: where the first part ends when the portion comes again.
    """
    added = {"d": 7} if items not in CHANGES else {}
    rows = [{**(row if added else moved(items, row)), **added} for row in (FIRST, SECOND)]
    last = {name: 40 + at for at, name in enumerate(sorted(rows[0]))} | {"id": 3}
    entries = [insert(2, SECOND), made.ddl(3, f"ALTER TABLE t {items}"), insert(4, last), insert(5, {**last, "id": 4})]
    Writer(opened("delta", tmp_path)).commit(insert(1, FIRST), offset=1)
    reshape = delta._TableCommit._reshape

    def dying(commit: delta._TableCommit, *given: Any) -> None:
        reshape(commit, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(delta._TableCommit, "_reshape", dying)
        with pytest.raises(KeyboardInterrupt):
            Writer(opened("delta", tmp_path)).commit(*entries, offset=5)
    writer = Writer(opened("delta", tmp_path))
    writer.commit(*entries[: apart - 1], offset=apart)
    writer.commit(*entries[apart - 1 :], offset=5)
    assert kept("delta", tmp_path) == [*rows, last, {**last, "id": 4}]
