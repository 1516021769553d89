"""Histories of tables (SCD2), against one that is computed change by change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from canal_ha.errors import OptionInvalid, SinkRefused
from canal_ha.pipeline.description import Description, read
from canal_ha.pipeline.iceberg import committing
from canal_ha.pipeline.iceberg.rewriting import FileRewrite
from canal_ha.pipeline.targets import delta, delta_history, open_target
from canal_ha.pipeline.targets.iceberg import IcebergTarget
from canal_ha.pipeline.targets.target import PipelineTarget
from tests.pipeline.driver import described
from tests.pipeline.histories import History, shown
from tests.pipeline.lake_writer import options as iceberg_options
from tests.pipeline.made import Writer
from tests.spark import entries as made


def opened(description: Description) -> PipelineTarget:
    """Return a checked target."""
    target = open_target(description)
    target.check()
    return target


@dataclass(frozen=True, slots=True)
class Lake:
    """A kind of table in a directory. deaths: where a process can die during a commit."""

    kind: str
    directory: Path
    deaths: Sequence[tuple[Any, str]]

    def target(self, keys: Mapping[str, Sequence[str]] | None = None) -> PipelineTarget:
        """Open the target, as a new process does."""
        options = iceberg_options(self.directory / "lake") if self.kind == "iceberg" else {}
        return opened(described(self.directory, {}, self.kind, "scd2", keys=keys or {}, **options))

    def versions(self) -> pa.Table:
        """Return the rows of s.t."""
        if self.kind == "delta":
            return DeltaTable(f"{self.directory}/delta/s/t").to_pyarrow_table()
        access = dict(iceberg_options(self.directory / "lake")["catalog"])
        return load_catalog(access.pop("name"), **access).load_table(("s", "t")).scan().to_arrow()

    def kept(self) -> list[tuple[Any, ...]]:
        """Return the versions of s.t."""
        return shown(self.versions().to_pylist())


DEATHS = {
    "delta": ((delta._TableCommit, "_properties"),),
    "iceberg": ((FileRewrite, "commit"), (committing, "_commit"), (IcebergTarget, "_store")),
}


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Return each kind of table."""
    return Lake(request.param, tmp_path, DEATHS[request.param])


def write(writer: Writer, history: History, random: Random) -> None:
    """Commit what the target lacks of a history, in portions of random sizes."""
    while (done := writer.progress.last.offset) < len(history.entries):
        until = min(done + random.randint(1, 25), len(history.entries))
        writer.commit(*history.entries[done:until], offset=until)


@pytest.mark.parametrize("seed", range(4))
def test_a_history_in_a_lake_equals_that_of_single_changes(lake: Lake, seed: int) -> None:
    """New keys, deletes, TRUNCATE, several changes of a key in a portion, snapshots, added and dropped columns."""
    random, history = Random(seed), History()
    history.grow(random, 60)
    write(Writer(lake.target()), history, random)
    assert lake.kept() == history.shown()


@pytest.mark.parametrize("seed", range(6))
def test_an_interrupted_portion_makes_no_version_twice(lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies between the commits of a portion, which comes again and ends elsewhere."""
    random, history = Random(seed), History()
    history.grow(random, 50)
    left = [0]

    def dying(step: Any) -> Any:
        def die_or_work(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return step(*arguments)

        return die_or_work

    for owner, name in lake.deaths:
        monkeypatch.setattr(owner, name, dying(getattr(owner, name)))
    deaths = 0
    while True:
        left[0] = random.randint(1, 8)
        try:
            write(Writer(lake.target()), history, random)
            break
        except KeyboardInterrupt:
            deaths += 1
    assert deaths
    assert lake.kept() == history.shown()


def test_an_update_of_a_given_key_ends_its_version(lake: Lake) -> None:
    """The binlog knows only the primary key."""
    keys, columns = {"s.t": ("name",)}, (("id", "int(11)", 4, False), made.NAME)
    first, second, third = ({"id": "1", "name": name} for name in ("a", "b", "c"))
    writer = Writer(lake.target(keys), keys=keys)
    writer.commit(made.rows(1, "INSERT", [(None, first)], columns), offset=1)
    writer.commit(
        made.rows(2, "UPDATE", [(first, second)], columns),
        made.rows(3, "UPDATE", [(second, {**second, "id": "2"})], columns),
        made.rows(4, "UPDATE", [({**second, "id": "2"}, third)], columns),
        offset=4,
    )
    versions = lake.versions().select(["id", "name", "is_current"]).to_pylist()
    assert sorted(map(tuple, map(dict.values, versions))) == [
        (1, "a", False),
        (1, "b", False),
        (1, "c", True),
        (2, "b", False),
    ]


@pytest.mark.parametrize("statement", ["", "ALTER TABLE t ADD note VARCHAR(20)", "ALTER TABLE t DROP name"])
@pytest.mark.parametrize("died_at", range(1, 6))
def test_a_crash_between_rows_with_other_columns_loses_none(
    tmp_path: Path, statement: str, died_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables with other types and keys are merged, and one changes: a portion has several commits."""
    merged = [{"route": {"match": r"s\d\.t", "to": "s.t", "merge": True}}]
    wide: made.ColumnSpec = ("id", "bigint(20)", -5, True)
    name: made.ColumnSpec = ("name", "varchar(20)", 12, not statement)  # part of the key of one table

    def row(offset: int, key: int, schema: str, *columns: made.ColumnSpec) -> bytes:
        return made.rows(offset, "INSERT", [(None, {"id": str(key), "name": "x"})], columns, schema=schema)

    def writer() -> Writer:
        return Writer(open_target(described(tmp_path, {}, "delta", "scd2")), transforms=merged)

    writer().commit(row(1, 1, "s1", made.ID, made.NAME), offset=1)
    entries = [
        row(2, 2, "s1", made.ID, made.NAME),
        row(3, 3, "s2", wide, name),
        row(4, 2, "s1", made.ID, made.NAME),
        *([made.ddl(5, statement, schema="s1")] if statement else []),
        row(6, 4, "s1", made.ID, made.NAME),
        row(7, 5, "s2", wide, name),
    ]
    take_over, calls = delta_history.take_over, 0

    def dying(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == died_at:
            raise KeyboardInterrupt
        take_over(*arguments)

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr("canal_ha.pipeline.targets.delta.take_over", dying)
        writer().commit(*entries, offset=7)
    last = writer()
    if last.progress.last.offset < 7:
        last.commit(*entries, offset=7)
    found = [(each[0], each[-1]) for each in Lake("delta", tmp_path, ()).kept()]
    assert found == [(1, True), (2, False), (2, True), (3, True), (4, True), (5, True)]


def test_a_column_with_a_name_of_the_history_is_refused(lake: Lake) -> None:
    """It can be renamed."""
    writer = Writer(lake.target())
    columns = (made.ID, ("VALID_TO", "varchar(20)", 12, False))
    with pytest.raises(SinkRefused, match="rename it with a transform"):
        writer.commit(made.rows(1, "INSERT", [(None, {"id": "1", "VALID_TO": "x"})], columns), offset=1)


@pytest.mark.parametrize(
    ("kind", "says"),
    [("delta", "was not written with mode: scd2"), ("iceberg", r"canal\.mode is 'mirror', not 'scd2'")],
)
def test_a_mirror_does_not_become_a_history(tmp_path: Path, kind: str, says: str) -> None:
    """Its rows have no times."""
    options = iceberg_options(tmp_path / "lake") if kind == "iceberg" else {}
    Writer(opened(described(tmp_path, {}, kind, **options))).commit(made.insert(1, 1), offset=1)
    writer = Writer(opened(described(tmp_path, {}, kind, "scd2", **options)))
    with pytest.raises(SinkRefused, match=says):
        writer.commit(made.insert(2, 2), offset=2)


def test_columns_of_a_history_are_renamed_widened_and_kept(lake: Lake) -> None:
    """In all versions. A dropped column keeps its values in older versions."""
    number: made.ColumnSpec = ("n", "int(11)", 4, False)
    wide: made.ColumnSpec = ("n", "bigint(20)", -5, False)
    title: made.ColumnSpec = ("title", "varchar(20)", 12, False)

    def row(offset: int, key: int, image: dict[str, str], *columns: made.ColumnSpec) -> bytes:
        return made.rows(offset, "INSERT", [(None, {"id": str(key), **image})], (made.ID, *columns))

    writer = Writer(lake.target())
    writer.commit(row(1, 1, {"name": "a", "n": "1"}, made.NAME, number), offset=1)
    writer.commit(
        made.ddl(2, "ALTER TABLE t RENAME COLUMN name TO title"),
        row(3, 1, {"title": "b", "n": "2"}, title, number),
        made.ddl(4, "ALTER TABLE t MODIFY n BIGINT"),
        row(5, 2, {"title": "c", "n": str(1 << 40)}, title, wide),
        made.ddl(6, "ALTER TABLE t DROP n"),
        row(7, 2, {"title": "d"}, title),
        offset=7,
    )
    found = lake.versions().sort_by("valid_position").to_pylist()
    assert [(each["id"], each["title"], each["n"], each["is_current"]) for each in found] == [
        (1, "a", 1, False),
        (1, "b", 2, True),
        (2, "c", 1 << 40, False),
        (2, "d", None, True),
    ]


@pytest.mark.parametrize("portions", [1, 2])
@pytest.mark.parametrize(
    "swap",
    [
        ["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t RENAME COLUMN b TO a"],
        ["ALTER TABLE t DROP COLUMN a, RENAME COLUMN b TO a"],
        ["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t CHANGE b a VARCHAR(20)"],
    ],
)
def test_a_column_that_takes_the_name_of_a_dropped_one_keeps_both(lake: Lake, swap: list[str], portions: int) -> None:
    """The dropped one is put aside, the second time as a_old2."""
    number: made.ColumnSpec = ("a", "int(11)", 4, False)
    a: made.ColumnSpec = ("a", "varchar(20)", 12, False)
    b: made.ColumnSpec = ("b", "varchar(20)", 12, False)

    def row(offset: int, image: dict[str, str], *columns: made.ColumnSpec) -> bytes:
        return made.rows(offset, "INSERT", [(None, image)], (made.ID, *columns))

    writer = Writer(lake.target())
    before = [row(1, {"id": "1", "a": "1", "b": "x"}, number, b), row(2, {"id": "2", "a": "2", "b": "y"}, number, b)]
    writer.commit(*before, offset=2)
    entries = [*(made.ddl(offset, sql) for offset, sql in enumerate(swap, 3)), row(5, {"id": "1", "a": "z"}, a)]
    if portions == 2:
        writer.commit(*entries, offset=5)
        entries = []
    entries += [made.ddl(6, "ALTER TABLE t ADD b VARCHAR(20)"), row(7, {"id": "3", "a": "p", "b": "q"}, a, b)]
    entries += [*(made.ddl(offset, sql) for offset, sql in enumerate(swap, 8)), row(10, {"id": "1", "a": "r"}, a)]
    writer.commit(*entries, offset=10)
    found = lake.versions().sort_by("valid_position").to_pylist()
    assert [(each["id"], each["a"], each["a_old"], each["a_old2"], each["is_current"]) for each in found] == [
        (1, None, 1, "x", False),
        (2, None, 2, "y", True),
        (1, None, None, "z", False),
        (3, "q", None, "p", True),
        (1, "r", None, None, True),
    ]


def test_columns_that_swap_their_names_keep_their_values(lake: Lake) -> None:
    """In one statement."""
    writer = Writer(lake.target())
    columns: tuple[made.ColumnSpec, ...] = (made.ID, ("a", "int(11)", 4, False), ("b", "varchar(20)", 12, False))
    swapped: tuple[made.ColumnSpec, ...] = (made.ID, ("b", "int(11)", 4, False), ("a", "varchar(20)", 12, False))
    writer.commit(made.rows(1, "INSERT", [(None, {"id": "1", "a": "1", "b": "x"})], columns), offset=1)
    writer.commit(
        made.ddl(2, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"),
        made.rows(3, "INSERT", [(None, {"id": "2", "a": "y", "b": "2"})], swapped),
        offset=3,
    )
    found = lake.versions().sort_by("valid_position").to_pylist()
    assert [(each["a"], each["b"]) for each in found] == [("x", 1), ("y", 2)]


def test_a_column_that_comes_back_with_another_type_keeps_older_values(lake: Lake) -> None:
    """Delta keeps them as texts in the same column; Iceberg cannot, and puts the dropped column aside."""
    writer = Writer(lake.target())
    columns: tuple[made.ColumnSpec, ...] = (made.ID, ("a", "int(11)", 4, False))
    texts: tuple[made.ColumnSpec, ...] = (made.ID, ("a", "varchar(20)", 12, False))
    writer.commit(made.rows(1, "INSERT", [(None, {"id": "1", "a": "7"})], columns), offset=1)
    writer.commit(
        made.ddl(2, "ALTER TABLE t DROP a"),
        made.ddl(3, "ALTER TABLE t ADD a VARCHAR(20)"),
        made.rows(4, "INSERT", [(None, {"id": "1", "a": "x"})], texts),
        offset=4,
    )
    found = lake.versions().sort_by("valid_position").to_pylist()
    if lake.kind == "delta":
        assert [each["a"] for each in found] == ["7", "x"]
    else:
        assert [(each["a"], each["a_old"]) for each in found] == [(None, 7), ("x", None)]


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
def test_null_in_a_key_column_stops_instead_of_losing_or_doubling_rows(lake: Lake, mode: str) -> None:
    """A unique key can have NULL in many rows. The error names the column and what to do; nothing is written."""
    columns = (("a", "int(11)", 4, False), ("b", "int(11)", 4, False), made.NAME)
    options = iceberg_options(lake.directory / "lake") if lake.kind == "iceberg" else {}
    target = opened(described(lake.directory, {}, lake.kind, mode, keys={"s.t": ("a", "b")}, **options))
    writer = Writer(target)
    writer.commit(made.rows(1, "INSERT", [(None, {"a": "1", "b": "2", "name": "z"})], columns), offset=1)
    two = [(None, {"a": "1", "b": None, "name": name}) for name in ("x", "y")]
    with pytest.raises(SinkRefused, match=r"s\.t\.b, a column of the key, is NULL.*List columns.*under keys"):
        writer.commit(made.rows(2, "INSERT", two, columns), offset=2)
    assert lake.versions().column("name").to_pylist() == ["z"]


def test_files_without_a_changed_version_are_not_written_again(tmp_path: Path) -> None:
    """In Iceberg: a change writes the files again that have the current version of its key."""
    lake = Lake("iceberg", tmp_path, ())
    writer = Writer(lake.target())
    for number in range(1, 6):
        writer.commit(made.insert(number, number), offset=number)

    def files() -> set[str]:
        access = dict(iceberg_options(tmp_path / "lake")["catalog"])
        table = load_catalog(access.pop("name"), **access).load_table(("s", "t"))
        return {task.file.file_path for task in table.scan().plan_files()}

    before = files()
    writer.commit(made.insert(6, 2), offset=6)
    assert len(before & files()) == 4
    writer.commit(made.rows(7, "DELETE", [({"id": "2", "name": "x"}, None)]), offset=7)
    before = files()
    writer.commit(made.insert(8, 2), offset=8)  # the file of its ended versions stays
    assert (len(before), len(before - files())) == (5, 0)


@pytest.mark.parametrize("kind", ["parquet", "kafka", "http"])
def test_other_targets_refuse_histories_with_line_and_key(kind: str) -> None:
    """Before anything starts."""
    text = f"name: a\nsource: {{servers: 'a:1', destination: d}}\ntarget:\n  type: {kind}\n  mode: scd2\n"
    with pytest.raises(OptionInvalid, match=r"a\.yaml:5: target\.mode = scd2: expected"):
        read(text.encode(), "a.yaml")
