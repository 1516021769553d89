"""The Iceberg target with a SQL catalog on SQLite: mirrors, changelogs, columns, repeated and cut portions, SIGKILL."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyiceberg.types import LongType

from canal_ha.client.arrow import META
from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.pipeline import targets
from canal_ha.pipeline.iceberg import committing
from canal_ha.pipeline.paths import segment
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.targets.iceberg import IcebergTarget, open_target
from tests.pipeline.given import described, portion
from tests.pipeline.lake_writer import STEP, TABLES, final_rows, options, transaction
from tests.spark.entries import ID, NAME, ColumnSpec, begin, ddl, end, insert, rows

SCHEMA = json.loads((Path(targets.__file__).parent / "iceberg.schema.json").read_text())
AMOUNT: ColumnSpec = ("amount", "decimal(10,2)", 3, False)


def opened(directory: Path, mode: Any = "mirror", *, evolve: Any = "evolve", **more: Any) -> IcebergTarget:
    """Return a checked target in a directory, with options that the schema allows."""
    given = {**options(directory), **more}
    Draft202012Validator(SCHEMA).validate(given)
    target = open_target(described("iceberg", mode, directory, given, evolve=evolve))
    target.check()
    if target.progress("d") is None:
        target.commit(portion(0, 0, []))
    return target


def table(directory: Path, *identifier: str) -> Table:
    """Return a table, as another program opens it. identifier: s.t without one."""
    access = dict(options(directory)["catalog"])
    return load_catalog(access.pop("name"), **access).load_table(identifier or ("s", "t"))


def kept(directory: Path, name: str = "t") -> list[dict[str, Any]]:
    """Return the rows of a table, sorted by their texts."""
    return sorted(table(directory, "s", name).scan().to_arrow().to_pylist(), key=str)


def update(offset: int, before: dict[str, Any], after: dict[str, Any], *columns: ColumnSpec) -> bytes:
    return rows(offset, "UPDATE", [(before, after)], columns or (ID, NAME))


def delete(offset: int, image: dict[str, Any], *columns: ColumnSpec) -> bytes:
    return rows(offset, "DELETE", [(image, None)], columns or (ID, NAME))


def of(seq: int, *entries: bytes, last: int = 0, **more: Any) -> Portion:
    """Return a commit of one transaction."""
    return portion(seq, last or seq * 1000, [begin(seq * 1000 - 900), *entries, end(seq * 1000)], **more)


def test_snapshots_that_another_program_expires_are_not_missed(tmp_path: Path) -> None:
    """The newest one stays. A portion that comes again counts once, and later ones are written."""
    target = opened(tmp_path, "changelog")
    for number in range(1, 5):
        target.commit(of(number, insert(number * 100 + 1, number)))
    found = table(tmp_path)
    older = [each.snapshot_id for each in found.snapshots()][:-1]
    found.maintenance.expire_snapshots().by_ids(older).commit()
    again = opened(tmp_path, "changelog")
    again.commit(of(4, insert(401, 4)))
    again.commit(of(5, insert(501, 5)))
    assert [row["id"] for row in kept(tmp_path)] == [1, 2, 3, 4, 5]
    assert len(table(tmp_path).snapshots()) == 2


def test_a_mirror_has_the_newest_row_of_each_key(tmp_path: Path) -> None:
    """Inserts, updates, new keys and deletes; each commit of a table is one snapshot with the progress."""
    target = opened(tmp_path)
    first = of(1, insert(101, 1, "a"), insert(102, 2, "b"), insert(103, 3, None), insert(104, 4))
    target.commit(first)
    assert [(row["id"], row["name"]) for row in kept(tmp_path)] == [(1, "a"), (2, "b"), (3, None), (4, "x")]
    second = of(
        2,
        update(1101, {"id": "1", "name": "a"}, {"id": "1", "name": "A"}),
        update(1102, {"id": "2", "name": "b"}, {"id": "20", "name": "b"}),
        delete(1103, {"id": "3", "name": None}),
        insert(1104, 5, "new"),
        delete(1105, {"id": "5", "name": "new"}),
        insert(1106, 5, "newer"),
    )
    for _ in range(2):  # it comes again after a crash, because the target's progress was not stored
        back_to(target, 1)
        target.commit(second)
        assert {row["id"]: row["name"] for row in kept(tmp_path)} == {1: "A", 20: "b", 4: "x", 5: "newer"}
    assert target.progress("d") == second.progress
    assert opened(tmp_path).progress("d") == second.progress
    snapshot = table(tmp_path).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["canal.progress.shop/d"] == second.progress.to_json()


def test_a_changelog_has_every_change_in_order(tmp_path: Path) -> None:
    """Each commit appends rows with operation, time, position and statement."""
    target = opened(tmp_path, "changelog")
    target.commit(portion(1, 9, [ddl(9, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE")]))
    target.commit(of(2, insert(1101, 1, "a"), update(1102, {"id": "1", "name": "a"}, {"id": "1", "name": "b"})))
    target.commit(of(3, delete(2101, {"id": "1", "name": "b"})))
    found = table(tmp_path).scan().to_arrow().sort_by("_ts")
    assert {*found.schema.names} == {"id", "name", *(each.name for each in META)}
    ordered = sorted(found.to_pylist(), key=lambda row: row["_position"]["offset"])
    assert [(row["_op"], row["id"], row["name"]) for row in ordered] == [
        ("ddl", None, None),
        ("insert", 1, "a"),
        ("update", 1, "b"),
        ("delete", 1, "b"),
    ]
    assert ordered[0]["_ddl"].startswith("CREATE TABLE")
    operations = [each.summary.operation.value for each in table(tmp_path).snapshots() if each.summary]
    assert operations == ["append"] * 3


def test_a_statement_empties_the_mirror(tmp_path: Path) -> None:
    """TRUNCATE removes all rows before it; rows behind it stay. A table that is created again has its new columns."""
    target = opened(tmp_path)
    target.commit(of(1, insert(101, 1), insert(102, 2)))
    target.commit(portion(2, 1200, [ddl(1100, "TRUNCATE TABLE t", "TRUNCATE"), insert(1200, 3)]))
    assert kept(tmp_path) == [{"id": 3, "name": "x"}]
    again = [
        ddl(2100, "DROP TABLE t", "ERASE"),
        ddl(2200, "CREATE TABLE t (id INT PRIMARY KEY, amount DECIMAL(10,2))", "CREATE"),
    ]
    target.commit(portion(3, 2200, again))
    assert kept(tmp_path) == []
    target.commit(of(4, rows(3101, "INSERT", [(None, {"id": "7", "amount": "1.50"})], (ID, AMOUNT))))
    assert kept(tmp_path) == [{"id": 7, "amount": Decimal("1.50")}]


def test_columns_are_added_dropped_renamed_and_widened(tmp_path: Path) -> None:
    """Old rows get the defaults of added columns, and keep their values under a new name and a wider type."""
    target = opened(tmp_path)
    target.commit(of(1, insert(101, 1, "a"), insert(102, 2, "b")))
    sql = "ALTER TABLE t ADD n INT NOT NULL DEFAULT 7, ADD `a.b` VARCHAR(5), CHANGE name title VARCHAR(99)"
    wide: tuple[ColumnSpec, ...] = (("id", "bigint(20)", -5, True), ("title", "varchar(99)", 12, False))
    wide += (("n", "int(11)", 4, False), ("a.b", "varchar(5)", 12, False))
    row = {"id": str(1 << 40), "title": "c", "n": "9", "a.b": "x"}
    entries = [
        ddl(1100, sql),
        ddl(1150, "ALTER TABLE t MODIFY id BIGINT NOT NULL"),
        rows(1200, "INSERT", [(None, row)], wide),
        end(1201),
    ]
    for _ in range(2):
        back_to(target, 1)
        target.commit(portion(2, 1201, entries))
        assert kept(tmp_path) == [
            {"id": 1, "title": "a", "n": 7, "a.b": None},
            {"id": 1 << 40, "title": "c", "n": 9, "a.b": "x"},
            {"id": 2, "title": "b", "n": 7, "a.b": None},
        ]
    assert table(tmp_path).schema().find_field("id").field_type == LongType()
    target.commit(portion(3, 2100, [ddl(2100, "ALTER TABLE t DROP n, RENAME COLUMN `a.b` TO c")]))
    assert [{*row} for row in kept(tmp_path)] == [{"id", "title", "c"}] * 3
    target.commit(
        of(
            4,
            update(
                3101,
                {"id": "1", "title": "a", "c": None},
                {"id": "1", "title": "z", "c": "y"},
                *wide[:2],
                ("c", "varchar(5)", 12, False),
            ),
        )
    )
    assert {row["id"]: row["title"] for row in kept(tmp_path)} == {1: "z", 2: "b", 1 << 40: "c"}


def test_a_changelog_keeps_dropped_and_renamed_columns(tmp_path: Path) -> None:
    """New columns are added, and none is lost."""
    target = opened(tmp_path, "changelog")
    target.commit(of(1, insert(101, 1, "a")))
    title: ColumnSpec = ("title", "varchar(20)", 12, False)
    changed = [
        ddl(1100, "ALTER TABLE t RENAME COLUMN name TO title"),
        rows(1200, "INSERT", [(None, {"id": "2", "title": "b"})], (ID, title)),
    ]
    target.commit(portion(2, 1200, changed))
    found = [{name: row[name] for name in ("id", "name", "title")} for row in kept(tmp_path) if row["_op"] == "insert"]
    assert found == [{"id": 1, "name": "a", "title": None}, {"id": 2, "name": None, "title": "b"}]


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_policies_for_columns(tmp_path: Path, mode: Any) -> None:
    """`stop` names the statement or the column, and nothing is written. `ignore` keeps the columns."""
    more = [ddl(1100, "ALTER TABLE t ADD amount DECIMAL(10,2)")]
    more += [rows(1200, "INSERT", [(None, {"id": "2", "name": "b", "amount": "1"})], (ID, NAME, AMOUNT))]
    for evolve in ("stop", "ignore"):
        target = opened(tmp_path / evolve, mode, evolve=evolve)
        target.commit(of(1, insert(101, 1, "a")))
        if evolve == "stop":
            with pytest.raises(SinkRefused, match=r"s\.t: the source has a new column amount.*evolve: stop"):
                target.commit(portion(2, 1200, more))
            assert len(kept(tmp_path / evolve)) == 1
        else:
            target.commit(portion(2, 1200, more))
            names = [(row["id"], row["name"]) for row in kept(tmp_path / evolve) if row.get("_op") != "ddl"]
            assert sorted(names) == [(1, "a"), (2, "b")]
            assert "amount" not in kept(tmp_path / evolve)[0]


def test_a_type_that_iceberg_cannot_change_is_refused(tmp_path: Path) -> None:
    """The error says from what to what, and how to go on."""
    target = opened(tmp_path)
    target.commit(of(1, rows(101, "INSERT", [(None, {"id": "1", "amount": "1.50"})], (ID, AMOUNT))))
    scale: ColumnSpec = ("amount", "decimal(12,4)", 3, False)
    wrong = rows(1101, "INSERT", [(None, {"id": "2", "amount": "1.5000"})], (ID, scale))
    with pytest.raises(SinkRefused, match=r"cannot change amount from decimal128\(10, 2\) to decimal128\(12, 4\)"):
        target.commit(of(2, ddl(1100, "ALTER TABLE t MODIFY amount DECIMAL(12,4)"), wrong))
    assert len(kept(tmp_path)) == 1


def test_a_key_of_several_columns_and_types(tmp_path: Path) -> None:
    """Texts longer than the bounds that files keep, decimals, days and times find their rows."""
    columns: tuple[ColumnSpec, ...] = (
        ("a", "varchar(99)", 12, True),
        ("b", "decimal(20,0)", 3, True),
        ("c", "datetime", 93, True),
        ("d", "date", 91, True),
        ("e", "varbinary(20)", 2004, True),
        ("f", "timestamp", 93, True),
        NAME,
    )
    images = [
        {"a": "ü" * 30 + str(number), "b": str(-number), "c": f"2024-01-01 00:00:0{number}", "d": f"2024-01-0{number}"}
        | {"e": "\xff" * 19 + str(number), "f": f"2024-06-01 00:00:0{number}", "name": "old"}
        for number in range(1, 10)
    ]
    target = opened(tmp_path)
    target.commit(of(1, rows(101, "INSERT", [(None, image) for image in images], columns)))
    target.commit(of(2, rows(1101, "UPDATE", [(image, {**image, "name": "new"}) for image in images[:4]], columns)))
    target.commit(of(3, rows(2101, "DELETE", [(image, None) for image in images[3:8]], columns)))
    assert [row["name"] for row in kept(tmp_path)] == ["new", "new", "new", "old"]


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
@pytest.mark.parametrize("names", [("id", ".id"), ("../k",), ("a.b", "[0]"), ("0", "__row")])
def test_a_row_goes_only_with_its_own_key_if_a_key_column_has_a_name_like_a_path(
    tmp_path: Path, mode: Any, names: tuple[str, ...]
) -> None:
    """The changed key is one of three that share their first column."""
    columns: tuple[ColumnSpec, ...] = (*((name, "int(11)", 4, True) for name in names), NAME)
    images: list[dict[str, Any]] = [
        {**dict.fromkeys(names, "1"), names[-1]: str(number), "name": "old"} for number in (1, 2, 3)
    ]
    target = opened(tmp_path, mode)
    target.commit(of(1, rows(101, "INSERT", [(None, image) for image in images], columns)))
    target.commit(of(2, update(1101, images[1], {**images[1], "name": "new"}, *columns)))
    target.commit(of(3, delete(2101, images[2], *columns)))
    left = [row for row in kept(tmp_path) if row.get("is_current", True)]
    assert sorted((row[names[-1]], row["name"]) for row in left) == [(1, "old"), (2, "new")]


def test_only_files_with_a_changed_key_are_written_again(tmp_path: Path) -> None:
    """Rows with new keys read no other file; a changed row rewrites its own file only."""
    target = opened(tmp_path)
    for seq in range(1, 6):
        target.commit(of(seq, *(insert(seq * 1000 - 800 + at, seq * 100 + at) for at in range(5))))
    files = {task.file.file_path for task in table(tmp_path).scan().plan_files()}
    assert len(files) == 5
    target.commit(of(6, update(5101, {"id": "302", "name": "x"}, {"id": "302", "name": "y"}), insert(5102, 900)))
    after = {task.file.file_path for task in table(tmp_path).scan().plan_files()}
    assert len(files & after) == 4
    assert len(after) == 5
    assert {row["id"]: row["name"] for row in kept(tmp_path)}[302] == "y"
    assert len(kept(tmp_path)) == 26


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_a_table_that_is_ahead_leaves_out_what_it_has(tmp_path: Path, mode: Any) -> None:
    """After a crash between two tables, the changes come again and are cut in another way, shorter or longer."""
    entries = [begin(101), insert(102, 1), ddl(103, "ALTER TABLE t RENAME COLUMN name TO title, ADD name CHAR(9)")]
    title: ColumnSpec = ("title", "varchar(20)", 12, False)
    number: ColumnSpec = ("name", "char(9)", 1, False)

    def later(at: int, key: int) -> bytes:
        return rows(at, "INSERT", [(None, {"id": str(key), "title": "t", "name": str(key)})], (ID, title, number))

    entries += [later(104, 2), later(105, 3), later(106, 4), later(107, 5), end(108)]
    other = insert(102, 1, table="u")
    for cuts in ([8], [3, 8], [2, 4, 6, 8], [5, 8]):
        place = tmp_path / f"{cuts}"
        crashed = opened(place, mode)
        crashed.commit(portion(1, 106, entries[:6]))
        back_to(crashed, 0)
        again = opened(place, mode)
        found = again.progress("d")
        assert found is not None
        assert found.seq == 0
        start = 0
        for seq, stop in enumerate(cuts, 1):
            given = [*entries[start:stop], *([other] if not start else [])]
            again.commit(portion(seq, 100 + stop, given))
            start = stop
        ids = [row["id"] for row in kept(place) if row.get("_op") != "ddl"]
        assert sorted(ids) == [1, 2, 3, 4, 5], cuts
        assert len(kept(place)) == 5 + (mode == "changelog"), cuts
        assert [row["id"] for row in kept(place, "u")] == [1]


def test_a_process_that_was_overtaken_does_not_set_the_progress_back(tmp_path: Path) -> None:
    """Another process commits the same portion and the next one, before this one stores its progress."""
    other = opened(tmp_path, "changelog")

    class Overtaken(IcebergTarget):
        def _store(self, portion: Portion) -> None:
            for seq in overtaking:
                other.commit(of(seq, insert(seq * 1000 - 899, seq)))
            super()._store(portion)

    slow = Overtaken(described("iceberg", "changelog", tmp_path, options(tmp_path)))
    overtaking = [1, 2]
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        slow.commit(of(1, insert(101, 1)))
    assert other.progress("d") == of(2).progress
    overtaking = [3]
    slow.commit(of(3, insert(2101, 3)))
    assert [row["id"] for row in kept(tmp_path)] == [1, 2, 3]


def back_to(target: IcebergTarget, seq: int) -> None:
    """Undo the last progress of the target, as a crash before it does. seq: of the commit before, as `of` makes it."""
    progress = portion(seq, seq * 1000, []).progress.to_json()
    with target._catalog.load_table(target._progress_table).transaction() as transaction:
        transaction.set_properties({target._key("d"): progress})


def test_after_a_reset_of_the_binary_logs_small_positions_are_new(tmp_path: Path) -> None:
    """Positions that start again are not taken for those that the table has."""
    target = opened(tmp_path, "changelog")
    target.commit(portion(1, 900, [insert(900, 1, time=1_000_000)]))
    for seq in (2, 3):
        given = portion(seq, 100 + seq, [insert(100 + seq, seq, time=2_000_000)])
        target.commit(replace(given, progress=replace(given.progress, newest_ms=2_000_000)))
    assert sorted(row["id"] for row in kept(tmp_path)) == [1, 2, 3]


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
@pytest.mark.parametrize("servers", [("a", "b"), ("", "")], ids=["known", "unknown"])
def test_positions_that_go_back_lose_nothing(tmp_path: Path, mode: Any, servers: tuple[str, str]) -> None:
    """After a switch to another server, changes have lower positions than those before, and maybe equal times."""
    target = opened(tmp_path, mode)
    target.commit(portion(1, 901, [insert(900, 1), insert(901, 1, table="u")], server=servers[0]))
    target.commit(portion(2, 100, [insert(100, 2)], server=servers[1]))
    target.commit(portion(3, 120, [insert(110, 3), insert(120, 3, table="u")], server=servers[1]))
    assert sorted(row["id"] for row in kept(tmp_path)) == [1, 2, 3]
    assert sorted(row["id"] for row in kept(tmp_path, "u")) == [1, 3]


def test_hostile_names_stay_in_their_place(tmp_path: Path) -> None:
    """Names of schemas and tables are escaped; no file is outside the warehouse."""
    target = opened(tmp_path, namespace="lake.x_{schema}")
    for seq, name in enumerate(("../../../escaped", "a.b", "a~2Eb", "T", "t", "' OR 1=1 --", "ü" * 60), 1):
        target.commit(of(seq, insert(seq * 1000 - 800, 1, table=name)))
        assert len(table(tmp_path, "lake", "x_s", segment(name)).scan().to_arrow()) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"catalog.db", "warehouse"}


def test_a_table_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A table that exists, a table in another mode, and a second source table with the same name stop the pipeline."""
    opened(tmp_path, namespace="one").commit(of(1, insert(101, 1)))
    with pytest.raises(SinkRefused, match=r"canal\.mode is 'mirror', not 'changelog'"):
        opened(tmp_path, "changelog", namespace="one").commit(of(2, insert(1101, 1)))
    other = table(tmp_path, "one", "t")
    with other.transaction() as transaction:
        transaction.set_properties({"canal.source": '["s2","t"]'})
    with pytest.raises(SinkRefused, match=r"""its property canal\.source is '\["s2","t"\]', not '\["s", "t"\]'"""):
        opened(tmp_path, namespace="one").commit(of(2, insert(1101, 1)))


def test_another_writer_s_commit_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that began before another process committed fails, and the flow reads the progress again."""
    target, second = opened(tmp_path, "changelog"), opened(tmp_path, "changelog")
    target.commit(of(1, insert(101, 1)))
    commit = committing._commit
    same = of(2, insert(1101, 2))

    def late(transaction: Any) -> None:
        monkeypatch.setattr(committing, "_commit", commit)
        second.commit(same)
        commit(transaction)

    monkeypatch.setattr(committing, "_commit", late)
    with pytest.raises(TargetUnavailable, match="CommitFailed"):
        target.commit(same)
    assert target.progress("d") == same.progress
    assert [row["id"] for row in kept(tmp_path)] == [1, 2]


def test_a_second_process_stops_loudly(tmp_path: Path) -> None:
    """A process that slept while another one committed does not write over its progress."""
    slept, active = opened(tmp_path), opened(tmp_path)
    active.commit(of(1, insert(101, 1)))
    active.commit(of(2, insert(1101, 2)))
    with pytest.raises(SinkRefused, match=r"the target is at pipeline .* commit 2"):
        slept.commit(of(1, insert(101, 1, "other")))
    assert len(kept(tmp_path)) == 2


def test_a_table_of_another_pipeline_is_named_with_it(tmp_path: Path) -> None:
    """Each has a progress of its own, so nothing else would stop the second one."""
    opened(tmp_path, "changelog").commit(of(1, insert(101, 1)))
    other = open_target(replace(described("iceberg", "changelog", tmp_path, options(tmp_path)), name="second"))
    assert other.progress("d") is None
    other.commit(portion(0, 0, []))
    with pytest.raises(SinkRefused, match=r"s\.t belongs to pipeline 'shop', and pipeline 'second' would write"):
        other.commit(of(1, insert(101, 1)))
    assert len(kept(tmp_path)) == 1


@pytest.mark.parametrize("mode", ["mirror", "scd2", "changelog"])
def test_a_second_destination_with_a_table_of_the_same_name_is_refused(tmp_path: Path, mode: Any) -> None:
    """Its rows would replace those of the first one, and its deletes remove them."""
    target = opened(tmp_path, mode)
    target.commit(of(1, insert(101, 1)))
    target.commit(portion(0, 0, [], destination="e"))
    with pytest.raises(SinkRefused, match=r"s\.t has the rows of destination d, and destination e has a table of this"):
        target.commit(of(1, insert(101, 2), destination="e"))
    target.commit(of(2, insert(1101, 3)))
    assert [row["id"] for row in kept(tmp_path)] == [1, 3]
    merge = ChangeReader(
        lambda schema, table: True, transforms=[{"route": {"match": "s.t", "to": "s.t", "merge": True}}]
    )
    target.commit(of(1, insert(101, 2), destination="e", reader=merge))
    assert [row["id"] for row in kept(tmp_path)] == [1, 2, 3]


def test_tables_of_earlier_versions_go_on(tmp_path: Path) -> None:
    """They name no destination: those who have written them become the owners, and no others."""
    target = opened(tmp_path)
    merge = ChangeReader(
        lambda schema, table: True, transforms=[{"route": {"match": "s.t", "to": "s.t", "merge": True}}]
    )
    for name in "def":
        if name != "d":
            target.commit(portion(0, 0, [], destination=name))
        if name != "f":
            target.commit(of(1, insert(101, ord(name)), destination=name, reader=merge))
    with table(tmp_path).transaction() as transaction:
        transaction.remove_properties("canal.destinations", "canal.pipeline")
    with pytest.raises(
        SinkRefused, match="has the rows of destination e, d, and destination f has a table of this name"
    ):
        target.commit(of(1, insert(101, 1), destination="f"))
    for name in "de":
        target.commit(of(2, insert(1101, ord(name) + 10), destination=name))
    assert [row["id"] for row in kept(tmp_path)] == [100, 101, 110, 111]
    assert table(tmp_path).properties["canal.destinations"] == '["d", "e"]'


def test_a_compaction_by_somebody_else_keeps_the_progress(tmp_path: Path) -> None:
    """A snapshot without progress on top does not hide the one below."""
    target = opened(tmp_path, "changelog")
    first = of(1, insert(101, 1))
    target.commit(first)
    found = table(tmp_path)
    found.overwrite(found.scan().to_arrow())
    back_to(target, 0)
    opened(tmp_path, "changelog").commit(first)
    assert [row["id"] for row in kept(tmp_path)] == [1]


@pytest.mark.parametrize(
    ("catalog", "error"),
    [
        ({"type": "sql", "uri": "sqlite:////nowhere/at/all.db", "warehouse": "file:///tmp"}, TargetUnavailable),
        ({"type": "rest", "uri": "http://127.0.0.1:9"}, TargetUnavailable),
        ({"type": "sideways"}, SinkRefused),
    ],
)
def test_a_catalog_that_cannot_be_opened(tmp_path: Path, catalog: dict[str, str], error: type[Exception]) -> None:
    """The check has the catalog's reason. It ended a pipeline that was started while its catalog was down."""
    with pytest.raises(error, match="iceberg: catalog default"):
        open_target(described("iceberg", "mirror", tmp_path, {"catalog": catalog})).check()


def test_the_mode_events_is_refused(tmp_path: Path) -> None:
    """Iceberg tables have no events."""
    with pytest.raises(SinkRefused, match="mirror, scd2 or changelog, not events"):
        opened(tmp_path, "events")


@pytest.mark.real
@pytest.mark.parametrize(
    ("most_kills", "transactions"),
    [(3, 60), pytest.param(20, 300, marks=pytest.mark.nightly("the run with fewer kills"))],
    ids=["few", "many"],
)
@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_tables_are_exact_although_the_writer_is_killed(
    tmp_path: Path, mode: str, most_kills: int, transactions: int
) -> None:
    """A writer of two tables is killed at random moments; each start cuts the changes in another way."""
    chance = random.Random(18)
    command = [sys.executable, "-m", "tests.pipeline.lake_writer", str(tmp_path), mode, str(transactions)]
    kills = 0
    for start in range(40):
        process = subprocess.Popen(
            [*command, str(start)], cwd=Path(__file__).parents[2], env=dict(os.environ), stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        if kills < most_kills and all(process.stdout.readline() for _ in range(chance.randint(1, 2))):
            time.sleep(chance.random() * 0.2)
            process.send_signal(signal.SIGKILL)
        code = process.wait()
        kills += code == -signal.SIGKILL
        if code == 0:
            break
    assert code == 0
    assert kills > most_kills // 2
    for name in TABLES:
        found = table(tmp_path, "s", name).scan().to_arrow()
        if mode == "mirror":
            assert {row["id"]: row["name"] for row in found.to_pylist()} == final_rows(name, transactions)
            assert len(found) == len(final_rows(name, transactions))
        else:
            places = [(row["_position"]["offset"], row["_position"]["row"]) for row in found.to_pylist()]
            entries = [entry for number in range(1, transactions + 1) for entry in transaction(number)]
            want = [
                (row["_position"]["offset"], row["_position"]["row"])
                for batch in portion(1, transactions * STEP, entries).batches()
                if batch.table == name
                for row in batch.rows.to_pylist()
            ]
            assert sorted(places) == sorted(want)
