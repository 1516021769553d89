"""Delta tables as targets, without a server."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.table import TableOptimizer
from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.targets import delta, kinds, open_target
from canal_ha.pipeline.targets.delta import DeltaTables
from canal_ha.pipeline.targets.target import PipelineTarget
from tests.beside import beside
from tests.pipeline.driver import described
from tests.pipeline.made import Writer
from tests.pipeline.test_latest import ID, NAME, NOTE, STEPS, Image, Source, change, row
from tests.sampling import examples
from tests.spark import entries as made


def opened(directory: Path, mode: str = "mirror", **options: Any) -> PipelineTarget:
    """Open a target."""
    return open_target(described(directory, {}, "delta", mode, **options))


def rows(directory: Path, name: str = "t") -> list[dict[str, Any]]:
    """Return the rows of table s.`name`."""
    table = DeltaTable(f"{directory}/delta/s/{name}").to_pyarrow_table()
    return sorted(table.to_pylist(), key=lambda each: each.get("id") or 0)


def test_the_types_of_targets() -> None:
    """Each has a schema of its options."""
    assert {"delta", "parquet"} <= set(kinds())


def test_a_copy_takes_changes_over(tmp_path: Path) -> None:
    """Rows come, change and go; the progress is there afterwards, also for another process."""
    target = opened(tmp_path)
    writer = Writer(target)
    writer.commit(change(1, None, row(1)), change(2, None, row(2)), offset=2)
    writer.commit(change(3, row(1), row(1, "y")), change(4, row(2), None), change(5, None, row(3)), offset=5)
    assert rows(tmp_path) == [{"id": 1, "name": "y"}, {"id": 3, "name": "x"}]
    found = opened(tmp_path).progress("d")
    assert found == writer.progress
    assert found is not None
    assert (found.seq, found.last.offset) == (2, 5)
    assert opened(tmp_path).stored("d") == found
    assert opened(tmp_path).stored("another") is None


def test_a_directory_that_cannot_be_read_counted_as_one_without_progress(tmp_path: Path) -> None:
    """Then `status` said that nothing is committed yet."""
    (tmp_path / "delta").write_text("a file")
    for look in (opened(tmp_path).stored, opened(tmp_path).progress):
        with pytest.raises(TargetUnavailable, match="Not a directory"):
            look("d")


def test_a_copy_appends_keys_beyond_all_others(tmp_path: Path) -> None:
    """Rows whose keys no file can have are appended; any other rows are merged, also inserted ones."""
    writer = Writer(opened(tmp_path))
    writer.commit(change(1, None, row(5)), offset=1)
    writer.commit(change(2, None, row(7)), change(3, None, row(9)), offset=3)
    writer.commit(change(4, None, row(1)), offset=4)
    writer.commit(change(5, None, row(8)), offset=5)  # between the keys of a file
    writer.commit(change(6, None, row(20)), change(7, row(5), None), offset=7)
    writer.commit(change(8, row(7), row(7, "y")), offset=8)
    table = DeltaTable(f"{tmp_path}/delta/s/t")
    done = [each["operation"] for each in reversed(table.history()) if each["operation"] in ("WRITE", "MERGE")]
    assert done == ["WRITE", "WRITE", "WRITE", "MERGE", "MERGE", "MERGE"]
    assert [(each["id"], each["name"]) for each in rows(tmp_path)] == [
        (1, "x"),
        (7, "y"),
        (8, "x"),
        (9, "x"),
        (20, "x"),
    ]


def test_a_check_writes_and_leaves_no_file(tmp_path: Path) -> None:
    """A place that can be opened and not written is told."""
    assert opened(tmp_path / "new").check() == f"delta at {tmp_path}/new/delta"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    Writer(opened(tmp_path / "new"), "check")
    opened(tmp_path / "new").check()
    (tmp_path / "delta").mkdir()
    (tmp_path / "delta" / "_canal_ha").write_text("a file")
    with pytest.raises(SinkRefused, match="cannot be written"):
        opened(tmp_path).check()


def test_a_bucket_that_was_down_at_the_start_ended_a_pipeline() -> None:
    """Every commit waits for it, so the check of a start does, too."""
    storage = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "r"}
    storage |= {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    target = DeltaTables("s3://b/x", storage, {}, pipeline="test", mode="mirror", evolve="evolve")
    with pytest.raises(TargetUnavailable, match="cannot be written"):
        target.check()


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
@pytest.mark.parametrize("torn", [2, 4])
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_a_portion_that_comes_again_counts_once(tmp_path: Path, mode: Any, torn: int, size: int) -> None:
    """After a crash between two tables the next portion may end elsewhere; each table takes what it lacks."""
    writer = Writer(opened(tmp_path, mode))
    writer.commit(change(1, None, row(1)), change(2, None, row(1), table="u"), offset=2)
    entries = [
        change(3, None, row(2)),
        change(4, None, row(2), table="u"),
        change(5, None, row(3)),
        change(6, None, row(3), table="u"),
    ]

    class Dying(DeltaTables):
        def uri(self, schema: str, name: str) -> str:
            if name == "u":
                raise KeyboardInterrupt
            return super().uri(schema, name)

    dying = Dying(f"{tmp_path}/delta", {}, {}, pipeline="test", mode=mode, evolve="evolve")
    with pytest.raises(KeyboardInterrupt):
        dying.commit(writer.portion(*entries[:torn], offset=2 + torn))
    assert len(rows(tmp_path)) == 1 + torn // 2
    again = Writer(opened(tmp_path, mode))
    for at in range(0, 4, size):
        again.commit(*entries[at : at + size], offset=min(2 + at + size, 6))
    assert [each["id"] for each in rows(tmp_path)] == [1, 2, 3]
    assert [each["id"] for each in rows(tmp_path, "u")] == [1, 2, 3]


@pytest.mark.parametrize("restarted", [True, False])
def test_a_commit_that_fails_behind_an_interrupted_one_doubles_no_row(
    tmp_path: Path, restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table is ahead of the target's progress until the progress has passed it, in another process too."""

    class Failing(DeltaTables):
        dies = False

        def uri(self, schema: str, name: str) -> str:
            if self.dies and name == "u":
                raise KeyboardInterrupt
            return super().uri(schema, name)

    def full(*_: object, **__: object) -> None:
        raise TargetUnavailable("the disk is full")

    target = Failing(f"{tmp_path}/delta", {}, {}, pipeline="test", mode="changelog", evolve="evolve")
    writer = Writer(target)
    writer.commit(change(1, None, row(1)), change(2, None, row(1), table="u"), offset=2)
    t3, t5, t7 = (change(at, None, row(at)) for at in (3, 5, 7))
    u4, u6 = (change(at, None, row(at), table="u") for at in (4, 6))
    target.dies = True
    with pytest.raises(KeyboardInterrupt):
        target.commit(writer.portion(t3, u4, t5, u6, offset=6))
    target.dies = False
    writer.commit(t3, offset=3)
    writer.commit(u4, offset=4)
    last = writer.portion(t5, u6, t7, offset=7)
    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_deltalake", full)
        with pytest.raises(TargetUnavailable):
            target.commit(last)
    again = opened(tmp_path, "changelog") if restarted else target
    again.commit(last)
    assert [each["id"] for each in rows(tmp_path)] == [1, 3, 5, 7]
    assert [each["id"] for each in rows(tmp_path, "u")] == [1, 4, 6]


@pytest.mark.parametrize("mode", ["changelog", "scd2"])
def test_a_portion_of_an_unknown_server_that_comes_again_counts_once(tmp_path: Path, mode: Any) -> None:
    """It was interrupted behind the table. Only the same portion is known, because positions tell nothing."""

    class Dying(DeltaTables):
        def uri(self, schema: str, name: str) -> str:
            if name == "u":
                raise KeyboardInterrupt
            return super().uri(schema, name)

    def unnamed(writer: Writer, *entries: bytes, offset: int) -> Portion:
        found = writer.portion(*entries, offset=offset)
        return replace(found, progress=replace(found.progress, last=replace(found.progress.last, server="")))

    writer = Writer(opened(tmp_path, mode))
    first = unnamed(writer, change(1, None, row(1)), offset=1)
    writer.target.commit(first)
    writer.progress = first.progress
    entries = [change(2, row(1), row(1, "b")), change(3, None, row(3), table="u")]
    dying = Dying(f"{tmp_path}/delta", {}, {}, pipeline="test", mode=mode, evolve="evolve")
    with pytest.raises(KeyboardInterrupt):
        dying.commit(unnamed(writer, *entries, offset=3))
    again = Writer(opened(tmp_path, mode))
    again.target.commit(unnamed(again, *entries, offset=3))
    assert sorted(each["name"] for each in rows(tmp_path)) == ["b", "x"]
    assert [each["id"] for each in rows(tmp_path, "u")] == [3]


def test_positions_that_go_back_lose_nothing(tmp_path: Path) -> None:
    """After a switch to another server, changes and statements have lower positions than those before."""
    for mode in ("mirror", "changelog"):
        writer = Writer(opened(tmp_path / mode, mode))
        writer.commit(change(900, None, row(1)), made.ddl(901, "ALTER TABLE t ADD note VARCHAR(20)"), offset=901)
        wide = (ID, NAME, NOTE)
        writer.commit(change(100, None, row(2, note="n"), *wide), offset=100)
        writer.commit(
            made.ddl(110, "ALTER TABLE t DROP COLUMN note"), change(120, row(1), row(1, "y"), ID, NAME), offset=120
        )
        found = rows(tmp_path / mode)
        if mode == "mirror":
            assert found == [{"id": 1, "name": "y"}, {"id": 2, "name": "x"}]
        else:
            changes = sorted((each["id"], each["_op"]) for each in found if each["_op"] != "ddl")
            assert changes == [(1, "insert"), (1, "update"), (2, "insert")]


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
@pytest.mark.parametrize("interrupted", [False, True])
def test_rows_that_come_again_behind_older_ones_of_another_server_are_taken(
    tmp_path: Path, mode: Any, interrupted: bool
) -> None:
    """The source went to a standby, which sent an older row again, and back. The table kept the older row.

    interrupted: the commit of the older row ends between two tables, and the next one has its number.
    """

    class Dying(DeltaTables):
        dies = False

        def uri(self, schema: str, name: str) -> str:
            if self.dies and name == "u":
                raise KeyboardInterrupt
            return super().uri(schema, name)

    target = Dying(f"{tmp_path}/delta", {}, {}, pipeline="test", mode=mode, evolve="evolve")
    writer = Writer(target)
    newer = change(5, row(1), row(1, "newer"))
    writer.commit(change(3, None, row(1, "older")), newer, offset=5)
    again = (change(900, None, row(1, "older")), change(910, None, row(9), table="u"))
    if interrupted:
        target.dies = True
        with pytest.raises(KeyboardInterrupt):
            target.commit(writer.portion(*again, offset=910, server="standby"))
        target.dies = False
    else:
        writer.commit(*again, offset=910, server="standby")
        writer.commit(change(4, None, row(4), table="u"), offset=4)
    writer.commit(newer, offset=5)
    found = [each for each in rows(tmp_path) if each.get("is_current", True)]
    assert [each["name"] for each in found] == ["newer"]


def test_another_writer_is_noticed(tmp_path: Path) -> None:
    """One that wrote before the commit, and one that writes beside it."""
    target = opened(tmp_path)
    writer, other = Writer(target), Writer(opened(tmp_path))
    other.commit(change(1, None, row(1)), offset=1)
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        writer.commit(change(1, None, row(1)), offset=2)

    third = Writer(opened(tmp_path))

    class Racing(DeltaTables):
        def uri(self, schema: str, name: str) -> str:
            if schema == "s":
                third.commit(offset=9)
            return super().uri(schema, name)

    racing = Writer(Racing(f"{tmp_path}/delta", {}, {}, pipeline="test", mode="mirror", evolve="evolve"))
    with pytest.raises(TargetUnavailable):
        racing.commit(change(2, None, row(2)), offset=2)


def test_a_log_has_every_change(tmp_path: Path) -> None:
    """With the operation, its time and place, and statements; old columns stay and new ones are added."""
    writer = Writer(opened(tmp_path, "changelog"))
    writer.commit(change(1, None, row(1)), change(2, row(1), row(1, "y")), change(3, row(1, "y"), None), offset=3)
    writer.commit(
        made.ddl(4, "ALTER TABLE t ADD note VARCHAR(20)"),
        change(5, None, row(2, note="n"), ID, NAME, NOTE),
        made.ddl(6, "ALTER TABLE t DROP name, MODIFY id BIGINT"),
        change(7, None, {"id": "3000000000", "note": "m"}, ("id", "bigint(20)", -5, True), NOTE),
        offset=7,
    )
    found = DeltaTable(f"{tmp_path}/delta/s/t").to_pyarrow_table().to_pylist()
    found.sort(key=lambda each: each["_position"]["offset"])
    assert [each["_op"] for each in found] == ["insert", "update", "delete", "ddl", "insert", "ddl", "insert"]
    assert [each["id"] for each in found] == [1, 1, 1, None, 2, None, 3000000000]
    assert found[4] | {"_ts": None, "_position": None} == {
        "id": 2, "name": "x", "note": "n", "_op": "insert", "_ts": None, "_position": None, "_ddl": None,
    }  # fmt: skip
    assert (found[6]["name"], found[6]["note"], found[3]["_ddl"]) == (None, "m", "ALTER TABLE t ADD note VARCHAR(20)")


@pytest.mark.parametrize(("gtid", "places"), [("", (None, None)), ("uuid:1-5", (2, 3))])
def test_a_log_has_statistics_of_the_columns_of_rows(tmp_path: Path, gtid: str, places: tuple[int, int]) -> None:
    """And of positions with GTIDs: the statistics of empty ones take longer than all others together."""
    writer = Writer(opened(tmp_path, "changelog"))
    writer.commit(change(1, None, row(1), gtid=gtid), offset=1)
    writer.commit(change(2, None, row(2, "a"), gtid=gtid), change(3, None, row(3, "b"), gtid=gtid), offset=3)
    files = pa.table(DeltaTable(f"{tmp_path}/delta/s/t").get_add_actions(flatten=True))
    [file] = [each for each in files.to_pylist() if each["num_records"] == 2]
    assert [file[f"{end}.{name}"] for name in ("id", "name", "_op") for end in ("min", "max")] == [
        *(2, 3, "a", "b", "insert", "insert"),
    ]
    assert (file["null_count._ddl"], file["min._position.offset"], file["max._position.offset"]) == (2, *places)


@pytest.mark.parametrize("mode", ["changelog", "scd2"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((("bigint(20) unsigned", -5), "18446744073709551615"), (("bigint(20)", -5), "-9223372036854775808")),
        ((("decimal(12,4)", 3), "12345678.1234"), (("int(11)", 4), "-2147483648")),
        ((("double", 8), "0.5"), (("int(11)", 4), "-2147483648")),
    ],
)
def test_older_values_that_a_new_type_lacks_stay_in_a_log_and_a_history(
    tmp_path: Path, mode: str, old: Any, new: Any
) -> None:
    """The column keeps a type that has both; the pipeline stopped at each start."""
    writer = Writer(opened(tmp_path, mode))
    for at, (kind, value) in ((1, old), (3, new)):
        image: Image = {"id": str(at), "n": value}
        writer.commit(made.rows(at, "INSERT", [(None, image)], (ID, ("n", *kind, False))), offset=at)
        if at == 1:
            writer.commit(made.ddl(2, f"ALTER TABLE t MODIFY n {new[0][0]}"), offset=2)
    found = DeltaTable(f"{tmp_path}/delta/s/t").to_pyarrow_table().to_pylist()
    assert {float(each["n"]) for each in found if each["n"] is not None} == {float(old[1]), float(new[1])}


def test_columns_follow_the_policy(tmp_path: Path) -> None:
    """`evolve` changes the copy, `ignore` keeps its columns, `stop` refuses the statement."""
    entries = (
        change(1, None, row(1)),
        made.ddl(2, "ALTER TABLE t ADD note VARCHAR(20) DEFAULT 'n', MODIFY id BIGINT"),
        change(3, None, row(2, note="m"), ("id", "bigint(20)", -5, True), NAME, NOTE),
        made.ddl(4, "ALTER TABLE t DROP COLUMN name"),
        change(5, None, {"id": "3", "note": "o"}, ("id", "bigint(20)", -5, True), NOTE),
    )
    for policy in ("evolve", "ignore"):
        for size in (1, len(entries)):
            directory = tmp_path / f"{policy}{size}"
            writer = Writer(opened(directory, evolve=policy))
            writer.commit(change(0, None, row(9)), offset=0)
            for at in range(0, len(entries), size):
                writer.commit(*entries[at : at + size], offset=at + size)
            if policy == "evolve":
                assert rows(directory) == [
                    {"id": 1, "note": "n"},
                    {"id": 2, "note": "m"},
                    {"id": 3, "note": "o"},
                    {"id": 9, "note": "n"},
                ]
            else:
                assert [each["id"] for each in rows(directory)] == [1, 2, 3, 9]
                assert set(rows(directory)[0]) == {"id", "name"}
    writer = Writer(opened(tmp_path / "stop", evolve="stop"))
    writer.commit(change(0, None, row(9)), offset=0)
    with pytest.raises(SinkRefused, match="evolve is stop: ALTER TABLE"):
        writer.commit(*entries, offset=5)


def test_a_new_key_and_an_emptied_table(tmp_path: Path) -> None:
    """Deletes by the old key count; what came before TRUNCATE does not."""
    writer = Writer(opened(tmp_path))
    plain: made.ColumnSpec = ("uid", "int(11)", 4, False)
    images: list[Image] = [{"id": str(key), "uid": str(key * 10)} for key in (1, 2, 3)]
    writer.commit(*[change(at, None, image, ID, plain) for at, image in enumerate(images)], offset=3)
    writer.commit(
        change(4, images[0], None, ID, plain),
        made.ddl(5, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (uid)"),
        change(6, images[1], {**images[1], "id": "7"}, ("id", "int(11)", 4, False), ("uid", "int(11)", 4, True)),
        offset=6,
    )
    assert rows(tmp_path) == [{"id": 3, "uid": 30}, {"id": 7, "uid": 20}]
    writer.commit(made.ddl(7, "TRUNCATE TABLE t"), change(8, None, images[0], ID, plain), offset=8)
    assert rows(tmp_path) == [{"id": 1, "uid": 10}]
    writer.commit(made.ddl(9, "DROP TABLE t"), offset=9)
    assert rows(tmp_path) == []


def test_a_table_created_anew_with_other_columns_is_followed(tmp_path: Path) -> None:
    """The rows come in a later portion than DROP and CREATE."""
    writer = Writer(opened(tmp_path))
    writer.commit(change(1, None, row(1, note="n"), ID, NAME, NOTE), offset=1)
    writer.commit(
        made.ddl(2, "DROP TABLE t"),
        made.ddl(3, "CREATE TABLE t (id INT PRIMARY KEY, note INT)"),
        offset=3,
    )
    number: made.ColumnSpec = ("note", "int(11)", 4, False)
    writer.commit(change(4, None, {"id": "2", "note": "7"}, ID, number), offset=4)
    writer.commit(change(5, None, {"id": "3", "note": "8"}, ID, number), offset=5)
    assert rows(tmp_path) == [{"id": 2, "note": 7}, {"id": 3, "note": 8}]


def test_every_type_of_key_is_found(tmp_path: Path) -> None:
    """A row is replaced and deleted by a key of bytes, a decimal, a time, or several columns."""
    keys: dict[str, list[made.ColumnSpec]] = {
        "b": [("k", "varbinary(8)", 2004, True)],
        "c": [("k", "decimal(10,2)", 3, True)],
        "d": [("k", "timestamp(6)", 2014, True)],
        "e": [("k", "datetime(6)", 93, True)],
        "f": [("k", "bigint(20) unsigned", -5, True)],
        "g": [("k", "date", 91, True), ("l", "varchar(9)", 12, True)],
    }
    texts = {
        "b": ("\xff\x00", "'"), "c": ("1.10", "-1.10"), "d": ("2024-01-02 03:04:05.000001", "2024-01-02 03:04:05"),
        "e": ("2024-01-02 03:04:05.000001", "2024-01-02 03:04:05"), "f": ("18446744073709551615", "0"),
        "g": ("2024-02-29", "1000-01-01"),
    }  # fmt: skip
    writer = Writer(opened(tmp_path))
    for at, (name, columns) in enumerate(keys.items()):
        every = [*columns, ("v", "varchar(9)", 12, False)]
        first, second = ({**dict.fromkeys([c[0] for c in columns], text), "v": "x"} for text in texts[name])
        base = at * 100
        writer.commit(
            change(base + 1, None, {**first}, *every, table=name),
            change(base + 2, None, {**second}, *every, table=name),
            offset=base + 2,
        )
        writer.commit(
            change(base + 3, {**first}, {**first, "v": "y"}, *every, table=name),
            change(base + 4, {**second}, None, *every, table=name),
            offset=base + 4,
        )
        assert [each["v"] for each in rows(tmp_path, name)] == ["y"], name


@settings(max_examples=examples(40))
@given(steps=STEPS, number=st.integers(0, 1 << 60))
def test_a_copy_equals_its_source_after_each_portion(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], number: int
) -> None:
    """Whatever happens to the table, and wherever portions end."""
    directory = tmp_path_factory.mktemp("lake")
    writer = Writer(opened(directory))
    source, at = Source(), 0
    for kind, key, other in [*steps, ("cut", 0, 0)]:
        source.step(kind, key, other)
        if kind != "cut" or at == len(source.entries):
            continue
        writer.commit(*source.entries[at:], offset=source.offset)
        at = len(source.entries)
        if source.rows or (directory / "delta/s/t").exists():
            found = {each["id"]: {**each, "id": str(each["id"])} for each in rows(directory)}
            assert found == source.rows


def test_what_a_target_cannot_be() -> None:
    """The error names the file and the key."""
    for kind, mode, says in (
        ("delta", "events", "mirror or changelog"),
        ("parquet", "mirror", "changelog alone"),
        ("nothing", "mirror", "no target has this type; use one of"),
    ):
        with pytest.raises(OptionInvalid, match=says):
            open_target(described(Path("/x"), {}, kind, mode))


@pytest.mark.parametrize("mode", ["mirror", "scd2"])
def test_a_table_can_have_columns_with_names_that_a_merge_uses(tmp_path: Path, mode: str) -> None:
    """The columns of a MERGE get other names then."""
    columns = ID, ("_canal_gone", "int(11)", 4, False), ("_Canal_Action", "int(11)", 4, False)
    images: list[Image] = [{"id": str(at), "_canal_gone": str(at), "_Canal_Action": "9"} for at in range(3)]
    writer = Writer(opened(tmp_path, mode))
    writer.commit(*(change(at, None, image, *columns) for at, image in enumerate(images, 1)), offset=3)
    after = {**images[0], "_canal_gone": "8"}
    writer.commit(change(4, images[0], after, *columns), change(5, images[1], None, *columns), offset=5)
    left = [each for each in rows(tmp_path) if each.get("is_current", True)]
    assert [(each["id"], each["_canal_gone"], each["_Canal_Action"]) for each in left] == [(0, 8, 9), (2, 2, 9)]


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_a_source_schema_with_the_name_of_the_own_directory_is_refused(tmp_path: Path, mode: str) -> None:
    """Its table `d` would share a place with the progress of destination `d`."""
    writer = Writer(opened(tmp_path, mode))
    with pytest.raises(SinkRefused, match="leave the schema out of `tables`"):
        writer.commit(change(1, None, row(1), schema="_canal_ha", table="d"), offset=1)
    assert opened(tmp_path, mode).progress("d") == writer.progress


@pytest.mark.parametrize("mode", ["mirror", "scd2", "changelog"])
def test_a_second_destination_with_a_table_of_the_same_name_is_refused(tmp_path: Path, mode: str) -> None:
    """Its rows would replace those of the first one, and its deletes remove them."""
    target = opened(tmp_path, mode)
    first, second = Writer(target, "a"), Writer(target, "b")
    first.commit(change(1, None, row(1)), offset=1)
    with pytest.raises(SinkRefused, match="has the rows of destination a, and destination b has a table of this name"):
        second.commit(change(1, None, row(1, "y")), offset=1)
    first.commit(change(2, None, row(2)), offset=2)
    second.commit(change(3, None, row(1), table="u"), offset=3)
    assert [each["name"] for each in rows(tmp_path)] == ["x", "x"]


def test_a_second_pipeline_with_a_table_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """Its destination has a progress of its own, so only the table tells."""
    Writer(opened(tmp_path), "a").commit(change(1, None, row(1)), offset=1)
    other = open_target(replace(described(tmp_path, {}, "delta"), name="other"))
    with pytest.raises(SinkRefused, match="belongs to pipeline 'test', and pipeline 'other' would write"):
        Writer(other, "b").commit(change(1, None, row(1)), offset=1)


def test_destinations_that_a_route_merges_share_a_table(tmp_path: Path) -> None:
    """Also if the route gives the table the name that it has; then TRUNCATE of one leaves the rows, too."""
    target = opened(tmp_path)
    merge = [{"route": {"match": "s.t", "to": "s.t", "merge": True}}]
    first, second = (Writer(target, name, merge) for name in ("a", "b"))
    first.commit(change(1, None, row(1)), offset=1)
    second.commit(change(1, None, row(2)), offset=1)
    first.commit(made.ddl(2, "TRUNCATE TABLE t"), offset=2)
    assert [each["id"] for each in rows(tmp_path)] == [1, 2]


def test_a_table_that_an_earlier_version_wrote_in_an_earlier_run_is_not_refused(tmp_path: Path) -> None:
    """Its transactions have the name of that run; the metadata of its commits names the destination."""
    wrote = CommitProperties({"canal.destination": "a"}, app_transactions=[Transaction("canal-ha a former", 0)])
    write_deltalake(f"{tmp_path}/delta/s/t", pa.table({"id": [0], "name": ["x"]}), commit_properties=wrote)
    target = opened(tmp_path)
    with pytest.raises(SinkRefused, match=r"nothing shows that this pipeline wrote them.*an earlier version"):
        Writer(target, "b").commit(change(1, None, row(1)), offset=1)
    Writer(target, "a").commit(change(1, None, row(1)), offset=1)
    assert [each["id"] for each in rows(tmp_path)] == [0, 1]


def test_tables_of_earlier_versions_go_on(tmp_path: Path) -> None:
    """They name no owner: those who have written them become the owners, and no others."""
    wrote = CommitProperties(app_transactions=[Transaction(f"canal-ha {name} run", 0) for name in "ab"])
    write_deltalake(f"{tmp_path}/delta/s/t", pa.table({"id": [0], "name": ["x"]}), commit_properties=wrote)
    target = opened(tmp_path)
    first, second, third = (Writer(target, name) for name in "abc")
    with pytest.raises(SinkRefused, match="has rows, and nothing shows that this pipeline wrote"):
        third.commit(change(1, None, row(1)), offset=1)
    second.commit(change(1, None, row(2)), offset=1)
    first.commit(change(2, None, row(3)), offset=2)
    assert [each["id"] for each in rows(tmp_path)] == [0, 2, 3]
    with pytest.raises(SinkRefused, match="has the rows of destination b, a, and"):
        third.commit(change(1, None, row(1)), offset=1)


@pytest.mark.parametrize("mode", ["mirror", "scd2", "changelog"])
def test_a_table_with_rows_of_somebody_else_is_refused(tmp_path: Path, mode: str) -> None:
    """They would stay in the copy, and a TRUNCATE would delete them. The table's owner can allow it."""
    write_deltalake(f"{tmp_path}/delta/s/t", pa.table({"id": [7], "name": ["theirs"]}))
    writer = Writer(opened(tmp_path, mode))
    with pytest.raises(SinkRefused, match="exists and has rows, and nothing shows that this pipeline wrote"):
        writer.commit(change(1, None, row(1)), offset=1)
    assert rows(tmp_path) == [{"id": 7, "name": "theirs"}]


def test_rows_of_somebody_else_are_taken_over_if_the_table_says_so(tmp_path: Path) -> None:
    """So does an empty table."""
    for name in ("t", "u"):
        write_deltalake(f"{tmp_path}/delta/s/{name}", pa.table({"id": [7], "name": ["theirs"]}))
    ours = {"canal.pipeline": "test"}
    DeltaTable(f"{tmp_path}/delta/s/t").alter.set_table_properties(ours, raise_if_not_exists=False)
    DeltaTable(f"{tmp_path}/delta/s/u").delete()
    Writer(opened(tmp_path)).commit(change(1, None, row(1)), change(2, None, row(1), table="u"), offset=2)
    assert [each["id"] for each in rows(tmp_path)] == [1, 7]
    assert [each["id"] for each in rows(tmp_path, "u")] == [1]


def test_a_location_is_shown_without_its_login() -> None:
    """Neither what the check says nor its error shows the password."""
    target = DeltaTables("foo://user:s3cr3t@bucket/x", {}, {}, pipeline="test", mode="mirror", evolve="evolve")
    try:
        said = target.check()
    except SinkRefused as error:
        said = str(error)
    assert "s3cr3t" not in said


def live(directory: Path) -> int:
    """Return how many files table s.t has now."""
    return len(DeltaTable(f"{directory}/delta/s/t").file_uris())


@pytest.mark.parametrize("mode", ["mirror", "changelog", "scd2"])
def test_small_files_become_larger_ones(tmp_path: Path, mode: str) -> None:
    """The table has the same rows, and whatever comes again after the compaction still counts once."""
    writer = Writer(opened(tmp_path, mode, compactEvery=5))
    for at in range(1, 14):
        writer.commit(change(at, None, row(at)), offset=at)
    assert live(tmp_path) < 6
    last = writer.portion(change(14, None, row(14)), offset=14)
    writer.target.commit(last)
    again = opened(tmp_path, mode, compactEvery=5)
    assert again.progress("d") == last.progress
    again.commit(last)
    assert [each["id"] for each in rows(tmp_path)] == list(range(1, 15))


@pytest.mark.parametrize("mode", ["mirror", "changelog", "scd2"])
def test_a_commit_took_longer_with_every_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """What delta-rs holds of a table grows with each commit until the table is loaded again."""
    monkeypatch.setattr(delta, "KEPT_VERSIONS", 4)
    target = opened(tmp_path, mode)
    assert isinstance(target, DeltaTables)
    writer = Writer(target)
    held: list[DeltaTable] = []
    for at in range(1, 22):
        writer.commit(change(at, None, row(at)), offset=at)
        table = target.table("s", "t")
        assert table is not None
        if not held or held[-1] is not table:
            held.append(table)
    assert 21 // 5 <= len(held) <= 21 // 3
    assert [each["id"] for each in rows(tmp_path)] == list(range(1, 22))


def test_a_compaction_that_fails_leaves_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The portion is in the table; the next time may work."""

    def fail(*_: Any, **__: Any) -> None:
        raise CommitFailedError("another process was faster")

    monkeypatch.setattr(TableOptimizer, "compact", fail)
    writer = Writer(opened(tmp_path, compactEvery=2))
    for at in range(1, 6):
        writer.commit(change(at, None, row(at)), offset=at)
    assert len(rows(tmp_path)) == live(tmp_path) == 5


@pytest.mark.parametrize("mode", ["mirror", "changelog", "scd2"])
def test_another_process_compacts_and_cleans_while_rows_are_written(tmp_path: Path, mode: str) -> None:
    """A commit that meets a compaction can be tried again, as the engine does, and no row is lost or doubled."""
    writer = Writer(opened(tmp_path, mode))
    writer.commit(change(1, None, row(1)), offset=1)

    def compact(stopping: threading.Event) -> None:
        while not stopping.is_set():
            table = DeltaTable(f"{tmp_path}/delta/s/t")
            with suppress(DeltaError):
                table.optimize.compact()
                table.vacuum(retention_hours=168, dry_run=False)

    with beside(compact):
        for at in range(2, 40):
            portion = writer.portion(
                change(at, None, row(at)), change(at, row(at - 1), row(at - 1, f"v{at}")), offset=at
            )
            for _ in range(50):
                with suppress(TargetUnavailable):
                    writer.target.commit(portion)
                    break
                writer.target.progress("d")
            else:
                raise AssertionError("the commit fails again and again")
            writer.progress = portion.progress
    ids = [each["id"] for each in rows(tmp_path)]
    expected = {"mirror": 1, "changelog": 2, "scd2": 2}[mode]
    assert ids == sorted([*range(1, 40), *(each for each in range(1, 39) for _ in range(expected - 1))])
