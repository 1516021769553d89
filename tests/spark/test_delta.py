"""The Delta sink on the local disk: merges, columns, defaults, and repeated batches."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from canal_ha.errors import DataLoss
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.paths import segment
from canal_ha.spark.entries import RowLayout
from canal_ha.spark.fold import ChangeRow
from canal_ha.spark.lineage import Epoch, Lineage, Writer
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.sinks.delta import Delta
from lab import lake
from tests.spark.made import Made, row, statement

COLUMNS = (("id", "int", 4), ("amount", "decimal(10,2)", 3), ("at", "timestamp", 93))
LAYOUT = RowLayout(COLUMNS, (0,), partial=False)
WIDER = RowLayout((*COLUMNS, ("note", "varchar(9)", 12)), (0,), partial=False)


def put(
    op: str, *texts: str | None, layout: RowLayout = LAYOUT, old: list[str | None] | None = None, seq: int = 0
) -> ChangeRow:
    """Return a row change of s.t."""
    return row("s", op, *texts, layout=layout, old=old, seq=seq)


def rows(path: Path) -> dict[int, dict[str, Any]]:
    """Return the table's rows by id."""
    return {row.pop("id"): row for row in lake.rows(path / "s" / "t")}


def test_batches_are_merged_once(tmp_path: Path) -> None:
    """Inserts, updates, new keys and deletes are merged. A batch that the table already has changes nothing."""
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(0, put("insert", "1", "5.0", "2024-01-01 00:00:00"), put("insert", "2", "-1.50", None)))
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    assert rows(tmp_path) == {1: {"amount": Decimal("5.00"), "at": moment}, 2: {"amount": Decimal("-1.50"), "at": None}}
    second = Made(
        1,
        put("update", "3", "5.0", None, old=["1", "5.0", None]),
        put("delete", "2", "-1.50", None),
        put("insert", "4", None, None),
    )
    for _ in range(2):
        sink.apply(second)
        assert rows(tmp_path) == {3: {"amount": Decimal("5.00"), "at": None}, 4: {"amount": None, "at": None}}
    sink.apply(Made(0, put("insert", "9", None, None)))
    assert 9 not in rows(tmp_path)


def test_a_key_that_is_redefined_within_a_batch_leaves_no_deleted_row(tmp_path: Path) -> None:
    """Rows that were deleted or changed under the former key are not in the copy beside those of the new one."""
    columns = (("id", "int", 4), ("u", "varchar(9)", 12))
    by_id, by_u, by_both = (RowLayout(columns, keys, partial=False) for keys in ((0,), (1,), (0, 1)))
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(1, *(put("insert", str(number), f"u{number}", layout=by_id) for number in range(1, 6))))
    second = Made(
        2,
        put("delete", "1", "u1", layout=by_id),
        put("update", "2", "x2", layout=by_id, old=["2", "u2"]),
        put("update", "3", "u3", layout=by_u),
        put("update", "7", "x2", layout=by_u, old=["2", "x2"]),
        put("delete", "4", "u4", layout=by_both),
        put("insert", "5", "v5", layout=by_both),
    )
    for _ in range(2):
        sink.apply(second)
        found = sorted((each["id"], each["u"]) for each in lake.rows(tmp_path / "s" / "t"))
        assert found == [(3, "u3"), (5, "u5"), (5, "v5"), (7, "x2")]


def test_other_batches_of_the_same_changes_add_what_is_missing(tmp_path: Path) -> None:
    """A restored checkpoint puts applied and new changes into other batches, with numbers that the table has seen."""
    sink = Delta(str(tmp_path), "UTC")
    changes = [put("insert", str(number), "1", None, seq=number) for number in range(1, 8)]
    for batch_id, part in enumerate((changes[:2], changes[2:4], changes[4:5])):
        sink.apply(Made(batch_id, *part))
    gone = put("delete", "3", "1", None, seq=6)
    sink.apply(Made(1, *changes[2:5], gone, changes[6]))
    assert sorted(rows(tmp_path)) == [1, 2, 4, 5, 7]
    sink.apply(Made(1, *changes[2:5], gone, changes[6]))
    assert sorted(rows(tmp_path)) == [1, 2, 4, 5, 7]
    other = put("insert", "9", "1", None, seq=1)._replace(destination="e")
    sink.apply(Made(2, changes[3], other))
    assert sorted(rows(tmp_path)) == [1, 2, 4, 5, 7, 9]
    sink.apply(Made(3, changes[4], put("insert", "6", "1", None, seq=7)))  # the table's version for d covers both
    assert sorted(rows(tmp_path)) == [1, 2, 4, 5, 7, 9]


def test_rows_of_a_snapshot_are_inserted_or_replaced(tmp_path: Path) -> None:
    """They delete nothing. Later changes win, and a batch that comes again changes nothing."""
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(0, put("read", "1", "1", None), put("insert", "2", "2", None)))
    second = Made(
        1,
        put("read", "1", "10", None),
        put("read", "3", "30", None),
        put("update", "3", "31", None),
        put("read", "4", "40", None),
        put("delete", "4", "40", None),
        put("delete", "2", "2", None),
        put("read", "2", "20", None),
    )
    for _ in range(2):
        sink.apply(second)
        amounts = {key: each["amount"] for key, each in rows(tmp_path).items()}
        assert amounts == {1: Decimal(10), 2: Decimal(20), 3: Decimal(31)}
    sink.apply(Made(2, put("read", "1", "11", None), statement("TRUNCATE t"), put("read", "5", "50", None)))
    assert list(rows(tmp_path)) == [5]


def test_a_column_that_comes_back_is_empty(tmp_path: Path) -> None:
    """Values from before the drop belong to another column. The column itself stays in the copy."""
    sink = Delta(str(tmp_path), "UTC")
    drop, add = (statement(f"ALTER TABLE t {change}") for change in ("DROP COLUMN Note", "ADD note VARCHAR(9)"))
    for batch_id, between in ((0, [add]), (3, []), (6, [put("update", "2", "2", None), add])):
        old = [put("update", str(number), "1", None, "old", layout=WIDER) for number in (1, 2, 3)]
        sink.apply(Made(batch_id, *old))
        sink.apply(Made(batch_id + 1, drop, *between, put("update", "1", "2", None, "new", layout=WIDER)))
        assert {key: row["note"] for key, row in rows(tmp_path).items()} == {1: "new", 2: None, 3: None}
        sink.apply(Made(batch_id + 2, drop, put("update", "1", "2", None)))
        assert [row["note"] for row in rows(tmp_path).values()] == [None] * 3


@pytest.mark.parametrize("scheme", ["", "file://"])
@pytest.mark.parametrize(
    "name", ["../../payroll/salaries", "..%2F..%2Fpayroll%2Fsalaries", "..", "a.b", "字 é", "x" * 64]
)
def test_names_of_the_source_stay_below_their_schema(tmp_path: Path, name: str, scheme: str) -> None:
    """MariaDB and MySQL accept all of these as table names. None leads to another path, and all tables can be read."""
    directory = tmp_path / "lake"
    sink = Delta(f"{scheme}{directory}", "UTC")
    for batch_id, key in enumerate("12"):
        sink.apply(Made(batch_id, put("insert", key, "5.0", None)._replace(table=name)))
    assert [path.name for path in tmp_path.iterdir()] == ["lake"]
    [table] = (directory / "s").iterdir()
    assert table.name == segment(name)
    assert len(lake.rows(table)) == 2


@pytest.mark.parametrize("name", ["a.b", "a#b", "a~b", "a:b", "a?b", "a%b", "a b"])
def test_a_table_of_a_former_version_stays_where_it_is(tmp_path: Path, name: str) -> None:
    """An earlier version used the unescaped name. A new directory beside the old one would be an empty copy."""
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(0, put("insert", "1", "5.0", None)._replace(table=name)))
    (tmp_path / "s" / segment(name)).rename(tmp_path / "s" / name)
    sink.apply(Made(1, put("insert", "2", "5.0", None)._replace(table=name)))
    assert [path.name for path in (tmp_path / "s").iterdir()] == [name]
    assert len(lake.rows(tmp_path / "s" / name)) == 2


def test_a_table_whose_name_looks_escaped_is_not_taken_for_another_one(tmp_path: Path) -> None:
    """The directory with the unescaped name belongs to the other table."""
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(0, put("insert", "1", "5.0", None)._replace(table="a.b")))
    sink.apply(Made(1, put("insert", "2", "5.0", None)._replace(table="a~2Eb")))
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["a~2Eb", "a~7E2Eb"]


@pytest.mark.parametrize("with_rows", [True, False])
def test_an_added_column_and_its_default(tmp_path: Path, with_rows: bool) -> None:
    """Existing rows get the default that MySQL gave them, with or without rows in the batch."""
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(0, put("insert", "1", "5.0", None), put("insert", "2", "5.0", None)))
    alter = statement("ALTER TABLE t ADD COLUMN note VARCHAR(9) DEFAULT 'it''s' AFTER id")
    changed = put("update", "2", "6.0", None, "x", layout=WIDER) if with_rows else None
    sink.apply(Made(1, *(change for change in (alter, changed) if change)))
    assert {key: row["note"] for key, row in rows(tmp_path).items()} == {1: "it's", 2: "x" if with_rows else "it's"}


def test_an_emptied_table(tmp_path: Path) -> None:
    """TRUNCATE removes the rows; after a DROP the rows may have other columns."""
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(0, put("insert", "1", "5.0", None)))
    sink.apply(Made(1, statement("TRUNCATE t")))
    assert rows(tmp_path) == {}
    other = RowLayout((("id", "int", 4), ("b", "blob", 2004)), (0,), partial=False)
    sink.apply(
        Made(2, put("insert", "1", "5.0", None), statement("DROP TABLE t"), put("insert", "7", "\xff", layout=other))
    )
    assert rows(tmp_path) == {7: {"b": b"\xff"}}


@pytest.mark.parametrize(
    ("definition", "default"),
    [
        ("x INT", None),
        ("x INT DEFAULT -5", "-5"),
        ("COLUMN x DECIMAL(4,2) NOT NULL DEFAULT 0.05 AFTER id", "0.05"),
        ("x INT NOT NULL", "0"),
        ("x VARCHAR(5) NOT NULL", ""),
        ("x VARCHAR(5) DEFAULT 'a,b' COMMENT 'DEFAULT 3'", "a,b"),
        ("`x` ENUM('p','q') DEFAULT 'q'", "2"),
        ("x SET('p','q','r') NOT NULL DEFAULT 'p,r'", "5"),
        ("x BOOL DEFAULT TRUE", "1"),
        ("x INT DEFAULT NULL", None),
        ("x DATETIME DEFAULT CURRENT_TIMESTAMP", None),
        ("y INT DEFAULT 3, ADD x INT DEFAULT 4", "4"),
        ("(y INT DEFAULT 3, x INT DEFAULT (4))", "4"),
    ],
)
def test_defaults_of_added_columns(definition: str, default: str | None) -> None:
    """A default has canal's spelling; a computed default is None."""
    found = {added.name: added.default for added in added_columns(f"ALTER TABLE t ADD {definition}")}
    assert found["x"] == default


def test_other_statements_add_nothing() -> None:
    """A statement that cannot be parsed adds no column either."""
    for sql in (
        "ALTER TABLE t DROP x",
        "ALTER TABLE t MODIFY x INT",
        "CREATE TABLE t (x INT)",
        "ALTER TABLE t ADD ADD",
    ):
        assert added_columns(sql) == ()


def test_segments_of_a_restored_spool_are_new_to_the_table(tmp_path: Path) -> None:
    """Another writer used their numbers before; repeated changes are merged over the table's rows."""
    sink = Delta(str(tmp_path), "UTC")
    for seq in range(1, 6):
        sink.apply(Made(seq, put("insert", str(seq), "1.0", None, seq=seq)))
    writers = (Writer(Epoch(1, "0000000a"), 0, follows=True), Writer(Epoch(3, "00000003"), 3, follows=True))
    restored = Manifest("spoold", next_seq=6, lineage=Lineage(writers, since=0))
    again = [put("update", "3", "2.0", None, seq=3), put("insert", "4", "2.0", None, seq=4)]
    for _ in range(2):
        sink.apply(Made(3, put("insert", "2", "9.0", None, seq=2), *again, manifest=restored))
        assert {key: int(row["amount"]) for key, row in rows(tmp_path).items()} == {1: 1, 2: 1, 3: 2, 4: 2, 5: 1}
    sink.apply(Made(4, put("delete", "5", "1.0", None, seq=5), manifest=restored))
    assert 5 not in rows(tmp_path)


def test_a_table_that_has_more_than_its_spool_is_refused_where_nobody_vouches(tmp_path: Path) -> None:
    """The server did not report its cursor when the spool's last writer began."""
    sink = Delta(str(tmp_path), "UTC")
    sink.apply(Made(5, put("insert", "5", "1.0", None, seq=5)))
    unsure = Writer(Epoch(3, "00000003"), 3, follows=False)
    for writers in ((unsure,), (Writer(Epoch(1, "0000000a"), 0, follows=True), unsure)):
        restored = Manifest("spoold", next_seq=6, lineage=Lineage(writers, since=0))
        change = put("insert", "6", "1.0", None, seq=4)
        with pytest.raises(DataLoss, match="segment 5 of writer 00000001-0000000a, which the spool spoold lacks"):
            sink.apply(Made(3, change, manifest=restored))
    sink.apply(Made(3, change, manifest=restored, fail_on_data_loss=False))
    assert set(rows(tmp_path)) == {5, 6}


def test_a_table_of_a_former_version_is_neither_doubled_nor_short(tmp_path: Path) -> None:
    """The table stores a number without a writer, which counts for segments of that version."""
    sink = Delta(str(tmp_path), "UTC")
    former = Manifest("spoold", next_seq=3, lineage=Lineage(since=3))
    sink.apply(Made(2, put("insert", "1", "1.0", None, seq=2), manifest=former))
    now = Manifest("spoold", next_seq=4, lineage=Lineage((Writer(Epoch(4, "0000000b"), 3, follows=True),), since=3))
    sink.apply(Made(3, put("insert", "1", "9.0", None, seq=2), put("insert", "2", "2.0", None, seq=3), manifest=now))
    assert {key: int(row["amount"]) for key, row in rows(tmp_path).items()} == {1: 1, 2: 2}
    table = DeltaTable(tmp_path / "s" / "t")
    assert table.transaction_version("run/spoold") == 3
    assert table.transaction_version("run/spoold/writer") == Epoch(4, "0000000b").code
