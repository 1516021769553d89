"""Histories of tables (SCD2), against one that is computed change by change."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable

from canal_ha.errors import OptionInvalid, SinkRefused
from canal_ha.pipeline.description import read
from canal_ha.pipeline.targets import delta, delta_history, open_target
from tests.pipeline.driver import described
from tests.pipeline.histories import History, shown
from tests.pipeline.made import Writer
from tests.spark import entries as made


def kept(directory: Path) -> list[tuple[Any, ...]]:
    """Return the versions of s.t in Delta."""
    return shown(DeltaTable(f"{directory}/delta/s/t").to_pyarrow_table().to_pylist())


def write(writer: Writer, history: History, random: Random) -> None:
    """Commit what the target lacks of a history, in portions of random sizes."""
    while (done := writer.progress.last.offset) < len(history.entries):
        until = min(done + random.randint(1, 25), len(history.entries))
        writer.commit(*history.entries[done:until], offset=until)


@pytest.mark.parametrize("seed", range(4))
def test_a_history_in_delta_equals_that_of_single_changes(tmp_path: Path, seed: int) -> None:
    """New keys, deletes, TRUNCATE, several changes of a key in a portion, snapshots, added and dropped columns."""
    random, history = Random(seed), History()
    history.grow(random, 60)
    write(Writer(open_target(described(tmp_path, {}, "delta", "scd2"))), history, random)
    assert kept(tmp_path) == history.shown()


@pytest.mark.parametrize("seed", range(6))
def test_an_interrupted_portion_makes_no_version_twice(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the commits of a portion, which comes again and ends elsewhere."""
    random, history = Random(seed), History()
    history.grow(random, 50)
    left = [0]
    properties = delta._TableCommit._properties

    def dying(*arguments: Any) -> Any:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return properties(*arguments)

    monkeypatch.setattr(delta._TableCommit, "_properties", dying)
    deaths = 0
    while True:
        left[0] = random.randint(1, 8)
        try:
            write(Writer(open_target(described(tmp_path, {}, "delta", "scd2"))), history, random)
            break
        except KeyboardInterrupt:
            deaths += 1
    assert deaths
    assert kept(tmp_path) == history.shown()


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
    found = [(each[0], each[-1]) for each in kept(tmp_path)]
    assert found == [(1, True), (2, False), (2, True), (3, True), (4, True), (5, True)]


def test_a_column_with_a_name_of_the_history_is_refused(tmp_path: Path) -> None:
    """It can be renamed."""
    writer = Writer(open_target(described(tmp_path, {}, "delta", "scd2")))
    columns = (made.ID, ("VALID_TO", "varchar(20)", 12, False))
    with pytest.raises(SinkRefused, match="rename it with a transform"):
        writer.commit(made.rows(1, "INSERT", [(None, {"id": "1", "VALID_TO": "x"})], columns), offset=1)


def test_a_mirror_does_not_become_a_history(tmp_path: Path) -> None:
    """Its rows have no times."""
    Writer(open_target(described(tmp_path, {}, "delta"))).commit(made.insert(1, 1), offset=1)
    writer = Writer(open_target(described(tmp_path, {}, "delta", "scd2")))
    with pytest.raises(SinkRefused, match="was not written with mode: scd2"):
        writer.commit(made.insert(2, 2), offset=2)


@pytest.mark.parametrize("kind", ["parquet", "iceberg", "kafka", "http"])
def test_other_targets_refuse_histories_with_line_and_key(kind: str) -> None:
    """Before anything starts."""
    text = f"name: a\nsource: {{servers: 'a:1', destination: d}}\ntarget:\n  type: {kind}\n  mode: scd2\n"
    with pytest.raises(OptionInvalid, match=r"a\.yaml:5: target\.mode = scd2: expected"):
        read(text.encode(), "a.yaml")
