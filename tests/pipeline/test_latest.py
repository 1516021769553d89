"""The last change of each key, against a naive copy that takes over one change after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.latest import LatestChanges, latest
from canal_ha.pipeline.reading import ChangeReader
from tests.spark import entries as made

Image = dict[str, str | None]
ID, NAME = made.ID, made.NAME
NOTE: made.ColumnSpec = ("note", "varchar(20)", 12, False)


def reduced(
    *entries: bytes, keys: Mapping[str, Sequence[str]] | None = None, takes: Sequence[str] = ("t",)
) -> list[LatestChanges]:
    """Reduce a portion of these entries."""
    reader = ChangeReader(lambda schema, table: table in takes, keys=keys)
    return latest(reader.batches(made.frames(entries)), keys or {})


def shown(changes: LatestChanges) -> tuple[list[Any], list[dict[str, Any]]]:
    """Return the deleted keys and the upserted rows."""
    return [tuple(row.values()) for row in changes.deletes.to_pylist()], changes.upserts.to_pylist()


def change(offset: int, before: Image | None, after: Image | None, *columns: made.ColumnSpec, **more: Any) -> bytes:
    """Return an entry with one changed row."""
    kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    return made.rows(offset, kind, [(before, after)], columns or (ID, NAME), **more)


def row(key: int | str, name: str | None = "x", **more: str | None) -> Image:
    """Return an image."""
    return {"id": str(key), "name": name, **more}


def test_only_the_last_change_of_a_key_counts() -> None:
    """A key that was deleted and came back is a row; a row of a snapshot is one too."""
    [found] = reduced(
        change(1, None, row(1, "a")),
        change(2, row(1, "a"), row(1, "b")),
        change(3, None, row(2)),
        change(4, row(2), None),
        change(5, row(3), None),
        change(6, None, row(3, "again")),
        change(7, None, row(4, "read"), snapshot="s1"),
        change(8, row(5), row(6, "moved")),
    )
    assert shown(found) == (
        [(2,), (5,)],
        [{"id": 1, "name": "b"}, {"id": 3, "name": "again"}, {"id": 4, "name": "read"}, {"id": 6, "name": "moved"}],
    )
    assert (found.keys, found.emptied, found.statements) == (("id",), False, ())
    assert found.upserts.schema.field("id").metadata[b"canal.type"] == b"int(11)"


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ([("k", "varbinary(8)", 2004, True)], [("\xff\x00",), ("\xff",), ("",)]),
        ([("k", "decimal(10,2)", 3, True)], [("1.10",), ("-1.10",), ("0.00",)]),
        ([("k", "timestamp(6)", 2014, True)], [("2024-01-02 03:04:05.000001",), ("2024-01-02 03:04:05.000002",)]),
        ([("k", "bigint(20) unsigned", -5, True)], [("18446744073709551615",), ("0",)]),
        ([("k", "date", 91, True)], [("2024-02-29",), ("1000-01-01",)]),
        ([("a", "int(11)", 4, True), ("b", "varchar(9)", 12, True)], [("1", "x"), ("1", "y"), ("2", "x")]),
        ([("k", "varchar(9)", 12, True)], [("a",), ("A",), ("a ",), ("ä",)]),
    ],
)
def test_keys_of_every_type_tell_rows_apart(columns: list[made.ColumnSpec], keys: list[tuple[str, ...]]) -> None:
    """Each key is written twice and deleted once, the first one excepted."""
    names = [column[0] for column in columns]
    images: list[Image] = [{**dict(zip(names, key, strict=True)), "v": "new"} for key in keys]
    columns = [*columns, ("v", "varchar(9)", 12, False)]
    writes = [change(at, None, {**image, "v": "old"}, *columns) for at, image in enumerate(images)]
    writes += [change(at + 100, {**image, "v": "old"}, image, *columns) for at, image in enumerate(images)]
    writes += [change(at + 200, image, None, *columns) for at, image in enumerate(images) if at]
    [found] = reduced(*writes)
    gone, kept = shown(found)
    assert len(gone) == len(keys) - 1
    assert [each["v"] for each in kept] == ["new"]
    values = {
        "varbinary(8)": b"\xff\x00",
        "decimal(10,2)": Decimal("1.10"),
        "timestamp(6)": datetime(2024, 1, 2, 3, 4, 5, 1, UTC),
    }
    assert next(iter(kept[0].values())) == values.get(columns[0][1], next(iter(kept[0].values())))


def test_statements_empty_a_table() -> None:
    """What came before TRUNCATE, DROP, RENAME and CREATE is gone; a statement of several tables counts for each."""
    for sql, own in (
        ("TRUNCATE TABLE t", "t"),
        ("DROP TABLE other, s.t", "other"),
        ("RENAME TABLE t TO old", "old"),
        ("CREATE TABLE t (id INT PRIMARY KEY)", "t"),
        ("ALTER TABLE t RENAME TO old", "old"),
    ):
        statement = made.ddl(2, sql, "ERASE", table=own)
        [found] = reduced(change(1, None, row(1)), statement, change(3, None, row(2)))
        assert found.emptied, sql
        assert shown(found) == ([], [{"id": 2, "name": "x"}]), sql
        assert found.statements == (sql,)
        [alone] = reduced(change(1, None, row(1)), statement)
        assert (alone.emptied, len(alone.deletes), len(alone.upserts)) == (True, 0, 0)


def test_statements_without_an_effect_on_rows_keep_them() -> None:
    """An index, a temporary table, and a table that existed already."""
    for sql in ("CREATE INDEX i ON t (name)", "DROP TEMPORARY TABLE t", "CREATE TABLE IF NOT EXISTS t (id INT)"):
        [found] = reduced(change(1, None, row(1)), made.ddl(2, sql))
        assert (found.emptied, len(found.upserts), found.statements) == (False, 1, (sql,))


@pytest.mark.parametrize("what", ["TABLESPACE", "PARTITION p TABLESPACE"])
def test_an_import_of_a_file_is_no_quiet_loss(what: str) -> None:
    """The rows of the file are not in the binlog."""
    frames = made.frames([change(1, None, row(1)), made.ddl(2, f"ALTER TABLE t IMPORT {what}")])
    reader = ChangeReader(lambda schema, table: True)
    assert reader.refilled(frames, columns=False) == ["s.t"]
    [found] = latest(reader.batches(frames), {})
    assert found.emptied
    discarded = made.frames([made.ddl(1, f"ALTER TABLE t DISCARD {what}")])
    assert reader.refilled(discarded, columns=False) == []


def test_a_swap_of_tables_is_no_quiet_loss() -> None:
    """gh-ost and pt-osc rename two tables at once: the reader names the table that has rows of another one."""
    sql = "RENAME TABLE s.t TO s._t_del, s._t_gho TO s.t"
    frames = made.frames([change(1, None, row(1)), made.ddl(2, sql, "RENAME", table="_t_del")])
    reader = ChangeReader(lambda schema, table: table == "t")
    assert reader.refilled(frames, columns=True) == ["s.t"]
    [found] = latest(reader.batches(frames), {})
    assert found.emptied
    both = ChangeReader(lambda schema, table: True)
    assert both.refilled(frames, columns=True) == ["s.t", "s._t_del"]
    assert both.refilled(made.frames([made.ddl(1, "RENAME TABLE t TO u", "RENAME", table="u")]), columns=True) == [
        "s.u"
    ]
    assert both.refilled(made.frames([made.ddl(1, "TRUNCATE TABLE t", "TRUNCATE")]), columns=True) == []


def test_rows_that_no_statement_names_stay_in_a_copy() -> None:
    """The log then has a warning: a partition's rows, and those of a whole database."""
    for sql, told in (
        ("DROP DATABASE s", True),
        ("/* a */ DROP DATABASE s", True),
        ("-- a\nDROP SCHEMA s", True),
        ("/*!40000 DROP DATABASE IF EXISTS s */", True),
        ("SET STATEMENT lock_wait_timeout=1 FOR DROP DATABASE s", True),
        ("CREATE OR REPLACE DATABASE s", True),
        ("/*!50000 create or replace schema s CHARACTER SET latin1 */", True),
        ("CREATE SCHEMA s", False),
        ("/*!50100 ALTER TABLE t TRUNCATE PARTITION p0 */", True),
        ("# a\nALTER TABLE t ALGORITHM=INPLACE, DROP /* b */ PARTITION p0", True),
        ("ALTER TABLE t COMMENT 'after DROP PARTITION'", False),
        ("CREATE DATABASE s -- then DROP DATABASE s", False),
        ("ALTER TABLE t DROP PARTITION p0", True),
        ("alter table t\n truncate partition p0, p1", True),
        ("ALTER TABLE t ADD PARTITION (PARTITION p1 VALUES LESS THAN (2))", False),
        ("DROP TABLE t", False),
        ("ALTER TABLE t DROP c", False),
    ):
        reader = ChangeReader(lambda schema, table: table == "t")
        frames = made.frames([change(1, None, row(1)), made.ddl(2, sql, "QUERY", table=""), change(3, None, row(2))])
        assert reader.leaving(frames) == [sql] * told
        assert sum(batch.rows.num_rows for batch in reader.batches(frames)) >= 2


def test_computed_values_are_told() -> None:
    """The binlog does not have the values that an added column gets in existing rows, unless they are a constant."""
    reader = ChangeReader(lambda schema, table: True)
    for definition, told in (
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", True),
        ("INT DEFAULT (1 + 1)", True),
        ("INT AS (id * 2) STORED", True),
        ("INT AUTO_INCREMENT UNIQUE", True),
        ("INT DEFAULT -1", False),
        ("VARCHAR(9) DEFAULT ('x')", False),
        ("TIMESTAMP NULL DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP", False),
        ("INT NOT NULL COMMENT 'as generated'", False),
    ):
        frames = made.frames([made.ddl(1, f"ALTER TABLE t ADD c {definition}")])
        assert bool(reader.refilled(frames, columns=True)) is told, definition
        assert reader.refilled(frames, columns=False) == []


@pytest.mark.parametrize(
    "items",
    [
        "DROP COLUMN c, ADD c INT DEFAULT 7",
        "DROP COLUMN IF EXISTS c, ADD COLUMN IF NOT EXISTS c INT DEFAULT 7",
        "RENAME COLUMN c TO d, ADD COLUMN c INT DEFAULT 7",
        "CHANGE COLUMN c d INT, ADD c INT DEFAULT 7",
        "ADD INDEX i (c), ADD c INT DEFAULT 7",
        "ADD UNIQUE i (name, c DESC), ADD (b INT, c INT DEFAULT 7)",
        "ADD INDEX i (c(3)), ADD `c` INT DEFAULT 7 AFTER id",
    ],
)
def test_older_rows_get_the_default_although_another_item_names_the_column(items: str) -> None:
    """They had NULL."""
    assert {each.name: each.default for each in added_columns(f"ALTER TABLE t {items}")}["c"] == "7"


def test_rows_before_an_alter_get_its_columns() -> None:
    """Added columns with their default, renamed ones, dropped ones, and types that became wider."""
    before = change(1, None, row(1, "a"))

    def after(sql: str, image: Image, *columns: made.ColumnSpec) -> list[dict[str, Any]]:
        [found] = reduced(before, made.ddl(2, sql), change(3, None, image, *columns))
        [alone] = reduced(before, made.ddl(2, sql))
        assert set(alone.upserts.schema) == set(found.upserts.schema)
        assert alone.upserts.to_pylist() == found.upserts.select(alone.upserts.schema.names).to_pylist()[:1]
        return list(found.upserts.to_pylist())

    assert after("ALTER TABLE t ADD note VARCHAR(20) DEFAULT 'n'", row(2, note="y"), ID, NAME, NOTE)[0]["note"] == "n"
    assert after("ALTER TABLE t DROP name", {"id": "2"}, ID) == [{"id": 1}, {"id": 2}]
    renamed: made.ColumnSpec = ("title", "varchar(20)", 12, False)
    assert after("ALTER TABLE t RENAME COLUMN name TO title", {"id": "2", "title": "b"}, ID, renamed)[0]["title"] == "a"
    assert after("ALTER TABLE t CHANGE NAME Name VARCHAR(20)", {"id": "2", "Name": "b"}, ID, ("Name", *NAME[1:])) == [
        {"id": 1, "Name": "a"},
        {"id": 2, "Name": "b"},
    ]
    wide: made.ColumnSpec = ("id", "bigint(20)", -5, True)
    [first, _] = after("ALTER TABLE t MODIFY id BIGINT", row(2), wide, NAME)
    assert first == {"id": 1, "name": "a"}


def test_a_new_key_finds_no_old_rows() -> None:
    """Changes before and behind a new primary key are reduced apart, so that no delete by the old key is lost."""
    uid: made.ColumnSpec = ("uid", "int(11)", 4, True)
    old_id: made.ColumnSpec = ("id", "int(11)", 4, False)
    plain_uid: made.ColumnSpec = ("uid", "int(11)", 4, False)
    sql = "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (uid)"
    first, second = reduced(
        change(1, {"id": "1", "uid": "10"}, None, ID, plain_uid),
        change(2, {"id": "2", "uid": "20"}, {"id": "2", "uid": "21"}, ID, plain_uid),
        made.ddl(3, sql),
        change(4, {"id": "2", "uid": "21"}, {"id": "3", "uid": "21"}, old_id, uid),
    )
    assert (first.keys, first.statements, shown(first)) == (("id",), (), ([(1,)], [{"id": 2, "uid": 21}]))
    assert (second.keys, second.statements, shown(second)) == (("uid",), (sql,), ([], [{"id": 3, "uid": 21}]))
    wider: made.ColumnSpec = ("uid", "int(11)", 4, True)
    first, second = reduced(
        change(1, {"id": "1", "uid": "1"}, None, ID, plain_uid),
        made.ddl(2, "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id, uid)"),
        change(3, None, {"id": "1", "uid": "2"}, ID, wider),
    )
    assert (first.keys, second.keys) == (("id",), ("id", "uid"))


@pytest.mark.parametrize(
    ("sqls", "key", "image"),
    [
        (("ALTER TABLE t CHANGE id `key` INT",), "key", {"key": 1, "name": "b"}),
        (("ALTER TABLE t RENAME COLUMN id TO name, RENAME COLUMN name TO id",), "name", {"name": 1, "id": "b"}),
        (("ALTER TABLE t RENAME COLUMN id TO k", "ALTER TABLE t RENAME COLUMN K TO l"), "l", {"l": 1, "name": "b"}),
    ],
)
def test_a_portion_that_ended_at_a_new_name_of_the_key_took_another_column_for_it(
    sqls: Sequence[str], key: str, image: dict[str, Any]
) -> None:
    """A copy had the row twice then: it was looked for by the last column."""
    statements = [made.ddl(at, sql) for at, sql in enumerate(sqls, 3)]
    [found] = reduced(change(1, row(1, "a"), row(1, "b")), change(2, row(2), None), *statements)
    assert (found.keys, found.statements, shown(found)) == ((key,), tuple(sqls), ([(2,)], [image]))


def test_a_portion_that_ended_at_the_drop_of_the_key_took_another_column_for_it() -> None:
    """Its rows are found by the old key, before the statement."""
    sql = "ALTER TABLE t DROP id, ADD PRIMARY KEY (name)"
    first, second = reduced(change(1, row(1, "a"), row(1, "b")), made.ddl(2, sql))
    assert (first.keys, first.statements, shown(first)) == (("id",), (), ([], [{"id": 1, "name": "b"}]))
    assert (second.keys, second.statements, shown(second)) == ((), (sql,), ([], []))


def test_names_of_columns_are_the_same_in_any_case() -> None:
    """MySQL compares them so, and a statement may spell them in another way."""
    [found] = reduced(
        change(1, None, {"ID": "1", "Name": "a"}, ("ID", *ID[1:]), ("Name", *NAME[1:])),
        made.ddl(2, "ALTER TABLE t MODIFY NAME VARCHAR(30)"),
        change(3, None, {"ID": "2", "Name": "b"}, ("ID", *ID[1:]), ("Name", "varchar(30)", 12, False)),
        keys={"s.t": ["id"]},
    )
    assert found.keys == ("ID",)
    assert len(found.upserts) == 2


@pytest.mark.parametrize("primary", [False, True])
def test_an_update_of_a_given_key_leaves_no_old_row(primary: bool) -> None:
    """The binlog knows only the primary key; NULL in one of the other columns is a value like any other."""
    columns: list[made.ColumnSpec] = [("id", "int(11)", 4, primary), ("mail", "varchar(9)", 12, False), NOTE]

    def image(key: int, mail: str, note: str | None = None) -> Image:
        return {"id": str(key), "mail": mail, "note": note}

    [found] = reduced(
        change(1, None, image(1, "a"), *columns),
        change(2, image(1, "a"), image(1, "b"), *columns),
        change(3, image(1, "b"), image(2, "b", "x"), *columns),
        change(4, image(3, "c"), image(4, "c"), *columns),
        change(5, image(5, "d"), image(5, "D"), *columns),
        keys={"s.t": ["Mail"]},
    )
    assert shown(found) == (
        [("a",), ("d",)],
        [
            {"id": 2, "mail": "b", "note": "x"},
            {"id": 4, "mail": "c", "note": None},
            {"id": 5, "mail": "D", "note": None},
        ],
    )


def test_an_update_of_a_given_key_is_found_by_its_new_name() -> None:
    """Keys have the names of the target; columns before the key come and go."""
    plain: made.ColumnSpec = ("mail", "varchar(9)", 12, False)
    reader = ChangeReader(
        lambda schema, table: True, transforms=[{"rename": {"columns": {"mail": "address"}}}], keys={"s.t": ["address"]}
    )
    entries = [
        change(1, {"mail": "a"}, {"mail": "b"}, plain),
        made.ddl(2, "ALTER TABLE t ADD note VARCHAR(20) FIRST"),
        change(3, {"mail": "b", "note": "x"}, {"mail": "c", "note": "x"}, NOTE, plain),
        change(4, {"mail": "c", "note": "x"}, {"mail": "c", "note": "y"}, NOTE, plain),
    ]
    [found] = latest(reader.batches(made.frames(entries)), {"s.t": ["address"]})
    assert shown(found) == ([("a",), ("b",)], [{"note": "y", "address": "c"}])


def test_a_table_without_a_key_is_refused() -> None:
    """The pipeline's file can name one; a key with NULL or with a date that is no day is refused, too."""
    plain = (("id", "int(11)", 4, False), NAME)
    with pytest.raises(SinkRefused, match=r"s\.t has no primary key: list its key columns under keys"):
        reduced(change(1, None, row(1), *plain))
    [found] = reduced(change(1, None, row(1), *plain), change(2, row(1), None, *plain), keys={"s.t": ["ID"]})
    assert shown(found) == ([(1,)], [])
    with pytest.raises(SinkRefused, match="no column nr"):
        reduced(change(1, None, row(1), *plain), keys={"s.t": ["nr"]})
    with pytest.raises(SinkRefused, match="a date that is no day"):
        reduced(change(1, None, {"d": "0000-00-00"}, ("d", "date", 91, True)))
    for entry in (change(1, None, {"id": None}, ID), change(1, {"id": None}, None, ID)):
        with pytest.raises(SinkRefused, match=r"s\.t\.id, a column of the key, is NULL in a row"):
            reduced(entry, keys={"s.t": ["id"]})


@pytest.mark.parametrize(
    "entries",
    [
        [made.rows(1, "UPDATE", [({"id": "1"}, {"name": "b"})])],
        [made.rows(1, "UPDATE", [({"id": "1"}, {"id": "1", "name": "b"})])],
        [made.rows(1, "INSERT", [(None, {"id": "1", "note": "b"})], (ID, NAME, NOTE))],
        [change(1, None, row(1)), made.rows(2, "UPDATE", [({"id": "1"}, {"id": "2"})])],
        [change(1, None, row(1), ID, NAME), change(2, None, row(2, note="n"), ID, NAME, NOTE)],
        [change(1, None, row(1), partial=True)],  # the node has seen that the last column is missing
        [change(1, row(1), row(1), partial=True)],
    ],
)
def test_rows_without_all_columns_are_refused(entries: list[bytes]) -> None:
    """A column that the binlog omits is not NULL."""
    with pytest.raises(SinkRefused, match="binlog_row_image = FULL"):
        reduced(*entries)


@pytest.mark.parametrize(
    ("sql", "kind", "table"),
    [
        ("INSERT INTO t VALUES (1, 'x')", "INSERT", "t"),
        ("UPDATE t SET name = 'z'", "UPDATE", "t"),
        ("DELETE FROM t", "DELETE", "t"),
        ("DELETE t, other FROM t JOIN other USING (id)", "DELETE", ""),
        ("UPDATE other o JOIN t USING (id) SET t.name = o.name", "UPDATE", "other"),
        ("update other, t\nset t.name = other.name", "UPDATE", "other"),
        ("", "DELETE", "t"),
    ],
)
def test_changes_that_the_source_logged_as_a_statement_are_refused(sql: str, kind: str, table: str) -> None:
    """A copy would miss them. The rows of other tables do not matter."""
    reader = ChangeReader(lambda schema, table: table == "t")
    frames = made.frames([change(1, None, row(1)), made.logged_statement(2, sql, kind, table=table)])
    refused = rf"logged a statement without its rows, {kind} of .*, at bin\.000001:2.*binlog_format = ROW"
    with pytest.raises(SinkRefused, match=refused):
        list(reader.batches(frames))
    with pytest.raises(SinkRefused, match=refused):
        reader.check_statements(frames)


@pytest.mark.parametrize(
    "entry",
    [
        made.logged_statement(2, "UPDATE other SET a = 1, b = 2", "UPDATE", table="other"),
        made.logged_statement(2, "REPLACE INTO other SELECT 1 FROM t JOIN u", "INSERT", table="other"),
        made.logged_statement(2, "UPDATE t SET name = 'z'", "QUERY", table="t"),  # it accompanies its rows
    ],
)
def test_a_statement_that_changes_no_row_of_the_pipeline_is_passed_over(entry: bytes) -> None:
    reader = ChangeReader(lambda schema, table: table == "t")
    frames = made.frames([change(1, None, row(1)), entry])
    reader.check_statements(frames)
    [found] = latest(reader.batches(frames), {})
    assert shown(found) == ([], [{"id": 1, "name": "x"}])


def test_a_deleted_row_needs_its_key_alone() -> None:
    """binlog_row_image=MINIMAL gives no more."""
    [found] = reduced(
        change(1, None, row(1)),
        change(2, None, row(2)),
        made.rows(3, "DELETE", [({"id": "1"}, None)]),
    )
    assert shown(found) == ([(1,)], [{"id": 2, "name": "x"}])
    [alone] = reduced(made.rows(3, "DELETE", [({"id": "1"}, None)]))
    assert shown(alone) == ([(1,)], [])


def test_columns_are_known_from_portion_to_portion() -> None:
    """Columns change with a statement only; else the binlog has a part of them."""
    reader = ChangeReader(lambda schema, table: True)

    def read(*entries: bytes) -> list[LatestChanges]:
        return latest(reader.batches(made.frames(entries)), {})

    read(change(1, None, row(1)))
    with pytest.raises(SinkRefused, match="binlog_row_image = FULL"):
        read(change(2, None, {"id": "1"}, ID))
    read(made.ddl(3, "ALTER TABLE t DROP name"))
    read(change(4, None, {"id": "1"}, ID))


# ---- against a naive copy

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "delete", "move", "truncate", "add", "drop", "rename", "cut", "cut"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    max_size=40,
)


class Source:
    """A table, and the entries of what happens to it."""

    def __init__(self) -> None:
        self.columns: list[made.ColumnSpec] = [ID, NAME]
        self.rows: dict[int, Image] = {}
        self.entries: list[bytes] = []
        self.offset = 0
        self._added = 0

    def step(self, kind: str, key: int, other: int) -> None:
        """Change the table."""
        self.offset += 10
        own = self.rows.get(key)
        match kind:
            case "put":
                image: Image = dict.fromkeys((name for name, *_ in self.columns), f"v{self.offset}")
                image["id"] = str(key)
                self._row(own, image)
                self.rows[key] = image
            case "delete" if own is not None:
                self._row(self.rows.pop(key), None)
            case "move" if own is not None and other not in self.rows:
                self.rows[other] = {**own, "id": str(other)}
                self._row(self.rows.pop(key), self.rows[other])
            case "truncate":
                self.rows.clear()
                self._statement("TRUNCATE TABLE t")
            case "add":
                self._added += 1
                name, default = f"c{self._added}", f"d{self._added}" if key % 2 else None
                self.columns.append((name, "varchar(20)", 12, False))
                self.rows = {at: {**image, name: default} for at, image in self.rows.items()}
                self._statement(f"ALTER TABLE t ADD {name} VARCHAR(20)" + (f" DEFAULT '{default}'" if default else ""))
            case "drop" if len(self.columns) > 1:
                name = self.columns.pop()[0]
                self.rows = {at: {k: v for k, v in image.items() if k != name} for at, image in self.rows.items()}
                self._statement(f"ALTER TABLE t DROP COLUMN {name}")
            case "rename" if len(self.columns) > 1:
                self._added += 1
                old, new = self.columns[-1][0], f"c{self._added}"
                self.columns[-1] = (new, "varchar(20)", 12, False)
                self.rows = {
                    at: {new if k == old else k: v for k, v in image.items()} for at, image in self.rows.items()
                }
                self._statement(f"ALTER TABLE t RENAME COLUMN {old} TO {new}")

    def _row(self, before: Image | None, after: Image | None) -> None:
        self.entries.append(change(self.offset, before, after, *self.columns))

    def _statement(self, sql: str) -> None:
        self.entries.append(made.ddl(self.offset, sql))


@given(STEPS)
def test_a_copy_equals_its_source_after_each_portion(steps: list[tuple[str, int, int]]) -> None:
    """Whatever happens, and wherever portions end: a copy that takes the last changes over equals the table."""
    source, copy, at = Source(), dict[int, Image](), 0
    reader = ChangeReader(lambda schema, table: True)
    for kind, key, other in [*steps, ("cut", 0, 0)]:
        source.step(kind, key, other)
        if kind != "cut":
            continue
        frames = made.frames(source.entries[at:])
        at = len(source.entries)
        for changes in latest(reader.batches(frames), {}):
            take_over(copy, changes)
        assert copy == source.rows


def take_over(copy: dict[int, Image], changes: LatestChanges) -> None:
    """Change a copy as a target does."""
    if changes.emptied:
        copy.clear()
    for sql in changes.statements:
        words = sql.split()
        for image in copy.values():
            match words[3:]:
                case ["ADD", name, _, "DEFAULT", value]:
                    image[name] = value.strip("'")
                case ["ADD", name, _]:
                    image[name] = None
                case ["DROP", _, name]:
                    image.pop(name, None)
                case ["RENAME", _, old, _, new]:
                    image[new] = image.pop(old)
    for gone in changes.deletes.column("id").to_pylist() if len(changes.deletes) else []:
        copy.pop(gone, None)
    for each in changes.upserts.to_pylist():
        copy[each["id"]] = {**each, "id": str(each["id"])}


def test_no_object_for_each_row() -> None:
    """A hundred thousand rows are reduced in columns."""
    count = 100_000
    images = [(None, row(number % 1000, f"n{number}")) for number in range(count)]
    [found] = reduced(*[made.rows(at, "INSERT", images[at : at + 1000]) for at in range(0, count, 1000)])
    assert isinstance(found.upserts, pa.Table)
    assert found.upserts.column("name").to_pylist()[-1] == f"n{count - 1}"
    assert len(found.upserts) == 1000
