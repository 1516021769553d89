"""The MySQL sink on a real server, without Spark: what it refuses, follows and omits."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from canal_ha.decode.ddl.grammar import read
from canal_ha.decode.ddl.statements import CreateTable
from canal_ha.errors import SinkRefused
from canal_ha.spark.entries import RowLayout
from canal_ha.spark.lineage import Epoch, Lineage, Writer
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.sinks import mysql
from canal_ha.spark.sinks.mysql import MySQL
from lab import MariaDB, SqlServer
from tests.spark.made import Made, row, statement

pytestmark = pytest.mark.real

COLUMNS = (("id", "int", 4), ("name", "varchar(3)", 12))
LAYOUT = RowLayout(COLUMNS, (0,), partial=False)
WIDER = RowLayout((*COLUMNS, ("note", "varchar(9)", 12)), (0,), partial=False)


class Copy:
    """A sink into its own database, and the rows of that database."""

    def __init__(self, server: SqlServer, database: str) -> None:
        self.sink = MySQL(server.address, "admin", "admin", "copy_{schema}", f"state_{database}", ["copy_*"])
        self.server = server
        self.database = database

    def put(self, op: str, *texts: str | None, layout: RowLayout = LAYOUT, seq: int = 0) -> Any:
        """Return a row change."""
        return row(self.database, op, *texts, layout=layout, seq=seq)

    def statement(self, sql: str) -> Any:
        """Return a statement."""
        return statement(sql, self.database)

    def apply(self, batch_id: int, *changes: Any) -> None:
        """Apply one micro-batch."""
        self.sink.apply(Made(batch_id, *changes))

    @property
    def rows(self) -> dict[int, dict[str, Any]]:
        """The rows of the copy of t by id."""
        found = self.server.query(f"SELECT * FROM copy_{self.database}.t ORDER BY id")
        return {each.pop("id"): each for each in found}

    def table(self, name: str) -> list[dict[str, Any]]:
        """Return all rows of another copy."""
        escaped = name.replace("`", "``")
        return self.server.query(f"SELECT * FROM copy_{self.database}.`{escaped}`")


@pytest.fixture(params=["mariadb", "mysql"])
def copy(request: pytest.FixtureRequest, database: str) -> Copy:
    """Return a Copy on each server."""
    return Copy(request.getfixturevalue(request.param), database)


def test_a_value_is_never_cut(copy: Copy) -> None:
    """A value that is too long fails its batch, which writes nothing. After the source's ALTER statement it fits."""
    copy.apply(0, copy.put("insert", "1", "abc"))
    with pytest.raises(SinkRefused, match=r"batch 1: .*Data too long for column 'name'"):
        copy.apply(1, copy.put("insert", "2", "x"), copy.put("insert", "3", "abcd"))
    assert list(copy.rows) == [1]
    copy.apply(1, copy.statement("ALTER TABLE t MODIFY name VARCHAR(30)"), copy.put("insert", "3", "abcd"))
    assert copy.rows == {1: {"name": "abc"}, 3: {"name": "abcd"}}


def test_what_the_source_could_hold_the_copy_holds(copy: Copy) -> None:
    """The copy holds zero dates, invalid days, and the empty label of an ENUM with an invalid value."""
    layout = RowLayout((("id", "int", 4), ("d", "date", 91), ("e", "enum('a','b')", 4)), (0,), partial=False)
    copy.apply(
        0,
        copy.put("insert", "1", "0000-00-00", "0", layout=layout),
        copy.put("insert", "2", "2024-02-31", "2", layout=layout),
        copy.put("insert", "3", "2024-00-10", None, layout=layout),
        copy.put("insert", "4", "2024-02-29", "1", layout=layout),
    )
    rows = copy.rows
    assert [each["e"] for each in rows.values()] == ["", "b", None, "a"]
    assert rows[4]["d"] == date(2024, 2, 29)
    assert [str(each["d"]) for each in rows.values()][1:3] == ["2024-02-31", "2024-00-10"]


def test_a_key_that_is_redefined_within_a_batch_leaves_no_deleted_row(copy: Copy) -> None:
    """Rows with different keys of the source never replace one another: the copy must get the new key first."""
    by_name = RowLayout(COLUMNS, (1,), partial=False)
    copy.apply(0, *(copy.put("insert", str(number), f"n{number}") for number in range(1, 5)))
    second = [
        copy.put("delete", "1", "n1"),
        copy.put("update", "2", "x2"),
        copy.put("update", "2", "n3", layout=by_name),
    ]
    table = f"copy_{copy.database}.t"
    with pytest.raises(
        SinkRefused, match=r"another primary key \(id\); run: ALTER TABLE .* ADD PRIMARY KEY \(`name`\)"
    ):
        copy.apply(1, *second)
    assert list(copy.rows) == [1, 2, 3, 4]
    copy.server.execute(f"ALTER TABLE {table} DROP PRIMARY KEY, ADD PRIMARY KEY (name)")
    copy.apply(1, *second)
    found = copy.server.query(f"SELECT id, name FROM {table} ORDER BY name")
    assert [(each["id"], each["name"]) for each in found] == [(2, "n3"), (4, "n4"), (2, "x2")]


def test_other_batches_of_the_same_changes_add_what_is_missing(copy: Copy) -> None:
    """A restored checkpoint puts applied and new changes into other batches, with numbers that the copy has seen."""
    changes = [copy.put("insert", str(number), "x", seq=number) for number in range(1, 7)]
    for batch_id, part in enumerate((changes[:2], changes[2:4], changes[4:5])):
        copy.apply(batch_id, *part)
    for _ in range(2):
        copy.apply(1, *changes[2:5], copy.put("delete", "3", "x", seq=6), changes[5])
        assert list(copy.rows) == [1, 2, 4, 5, 6]


def test_rows_of_a_snapshot_are_inserted_or_replaced(copy: Copy) -> None:
    """They delete nothing. Later changes win, and a batch that comes again changes nothing."""
    copy.apply(0, copy.put("read", "1", "a"), copy.put("insert", "2", "b"))
    second = [
        copy.put("read", "1", "x"),
        copy.put("read", "3", "c"),
        copy.put("update", "3", "d"),
        copy.put("read", "4", "e"),
        copy.put("delete", "4", "e"),
        copy.put("delete", "2", "b"),
        copy.put("read", "2", "y"),
    ]
    for _ in range(2):
        copy.apply(1, *second)
        assert {key: each["name"] for key, each in copy.rows.items()} == {1: "x", 2: "y", 3: "d"}
    copy.apply(2, copy.put("read", "1", "z"), copy.statement("TRUNCATE t"), copy.put("read", "5", "f"))
    assert list(copy.rows) == [5]


def test_a_column_that_comes_back_is_empty(copy: Copy) -> None:
    """Values from before the drop belong to another column."""
    copy.apply(0, *(copy.put("insert", str(number), "x", "old", layout=WIDER) for number in (1, 2)))
    drop, add = (copy.statement(f"ALTER TABLE t {change}") for change in ("DROP COLUMN Note", "ADD note VARCHAR(9)"))
    copy.apply(1, drop, add, copy.put("update", "1", "x", "new", layout=WIDER))
    assert {key: each["note"] for key, each in copy.rows.items()} == {1: "new", 2: None}


LABELS = ["'), b text) SELECT 1 -- x", "\\'), b text) SELECT 1 -- x", "C:\\new\\", "it's", '"', "100%s", "字", "a\nb"]
ENUM = "enum({})".format(",".join("'" + label.replace("'", "''") + "'" for label in LABELS))  # in decode's spelling


@pytest.mark.parametrize("mode", ["ANSI_QUOTES,STRICT_ALL_TABLES", "NO_BACKSLASH_ESCAPES,STRICT_ALL_TABLES"])
def test_labels_of_an_enum_are_values_and_no_sql(copy: Copy, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels with any text stay values in every sql_mode: in a new table, an added column and a changed column."""
    monkeypatch.setattr(mysql, "_SESSION", f"SET SESSION sql_mode = '{mode}'")
    layout = RowLayout((("id", "int", 4), ("e", ENUM, 4)), (0,), partial=False)
    texts = [copy.put("insert", str(number), str(number), layout=layout) for number in range(1, len(LABELS) + 1)]
    copy.apply(0, *texts)
    assert [each["e"] for each in copy.rows.values()] == LABELS
    wider = RowLayout((*layout.columns, ("f", "set('it''s','\\'') SELECT 1 -- x')", -7)), (0,), partial=False)
    copy.apply(1, copy.put("insert", "20", "1", "3", layout=wider))
    assert copy.rows[20]["f"] == "it's,\\') SELECT 1 -- x"
    quoted = ",".join(f"x'{label.encode().hex()}'" for label in ("new", *LABELS))
    copy.apply(2, copy.statement(f"ALTER TABLE t MODIFY e ENUM({quoted})"))
    copy.apply(3, copy.put("insert", "21", "1", "0", layout=wider))
    assert copy.rows[21]["e"] == "new"


def test_labels_of_an_enum_of_a_real_source(copy: Copy, database: str) -> None:
    """SHOW CREATE TABLE of the source, read as the history reads it, declares the same labels."""
    server = copy.server
    server.execute(f"CREATE DATABASE {database}")
    labels = ",".join(f"x'{label.encode().hex()}'" for label in LABELS)
    server.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, e ENUM({labels}) CHARACTER SET utf8mb4)")
    [shown] = server.query(f"SHOW CREATE TABLE {database}.t")
    made = read(shown["Create Table"])
    assert isinstance(made, CreateTable)
    layout = RowLayout(tuple((column.name, column.mysql_type, 4) for column in made.columns), (0,), partial=False)
    copy.apply(0, *(copy.put("insert", str(at), str(at), layout=layout) for at in range(1, len(LABELS) + 1)))
    assert [each["e"] for each in copy.rows.values()] == LABELS


def test_a_type_that_cannot_be_rebuilt_is_refused(copy: Copy) -> None:
    """The error names the table, the column and the type."""
    layout = RowLayout((("id", "int", 4), ("b", "int DEFAULT (SELECT 1)", 4)), (0,), partial=False)
    with pytest.raises(SinkRefused, match=r"column 'b' of \w+\.t has the type 'int DEFAULT"):
        copy.apply(0, copy.put("insert", "1", "2", layout=layout))


def test_percent_signs_and_back_quotes_in_names_are_part_of_the_names(copy: Copy) -> None:
    """Names of tables and columns are never read as placeholders for values."""
    names = ("%s", "a%%b", "`c` %(d)s")
    layout = RowLayout(tuple((name, "int", 4) for name in names), (0,), partial=False)
    for batch_id, (op, image) in enumerate(
        [("insert", "123"), ("update", "145"), ("delete", "145"), ("insert", "167")]
    ):
        copy.apply(batch_id, copy.put(op, *image, layout=layout)._replace(table="100%`s"))
    added = [copy.statement(f"ALTER TABLE `100%``s` {change}") for change in ("ADD `n%s` INT DEFAULT 9", "DROP `a%%b`")]
    copy.apply(9, *(change._replace(table="100%`s") for change in added))
    assert copy.table("100%`s") == [{"%s": 1, "a%%b": None, "`c` %(d)s": 7, "n%s": 9}]


@pytest.mark.parametrize("schema", ["mysql", "sys", "information_schema", "performance_schema", "MySQL", "canal_ha"])
def test_the_source_cannot_choose_a_database_of_the_servers_own(copy: Copy, schema: str) -> None:
    """A schema name that leads there is refused with advice, even for a statement without rows."""
    sink = MySQL(copy.server.address, "admin", "admin", "{schema}", "canal_ha", ["*"])
    change = copy.put("insert", "1", "x")._replace(schema=schema, table="user")
    emptied = copy.statement("TRUNCATE TABLE user")._replace(schema=schema, table="user")
    for changes in (change, emptied):
        with pytest.raises(SinkRefused, match=rf"{schema}\.user of the source would go into .*list the tables to copy"):
            sink.apply(Made(0, changes))


def test_the_source_cannot_choose_a_database_that_the_pipeline_does_not_name(copy: Copy, database: str) -> None:
    """A new schema of the source, or one with another case, creates nothing at the target."""
    sink = MySQL(copy.server.address, "admin", "admin", "{schema}", f"state_{database}", [f"{database}_a", "x?"])
    for schema in (f"{database}_b", f"{database}_A", f"{database}_a.b", "x"):
        with pytest.raises(SinkRefused, match="not among the databases of the sink"):
            sink.apply(Made(0, copy.put("insert", "1", "x")._replace(schema=schema)))
        assert not copy.server.query(f"SHOW DATABASES LIKE '{schema}'")
    sink.apply(Made(0, copy.put("insert", "1", "x")._replace(schema=f"{database}_a")))
    assert copy.server.query(f"SELECT id FROM {database}_a.t") == [{"id": 1}]


def test_no_copy_shares_a_database_with_the_state(copy: Copy, database: str) -> None:
    """A table canal_ha_batches of the source would replace the progress."""
    sink = MySQL(copy.server.address, "admin", "admin", "copy_{schema}", f"Copy_{database}", ["*"])
    with pytest.raises(SinkRefused, match="it holds the pipeline's own state"):
        sink.apply(Made(0, copy.put("insert", "1", "x")))


def test_segments_of_a_restored_spool_are_new_to_the_copy(copy: Copy) -> None:
    """Another writer used their numbers before; repeated changes replace the copy's rows."""
    for seq in range(1, 6):
        copy.apply(seq, copy.put("insert", str(seq), "a", seq=seq))
    writers = (Writer(Epoch(1, "0000000a"), 0, follows=True), Writer(Epoch(3, "00000003"), 3, follows=True))
    restored = Manifest("spoold", next_seq=6, lineage=Lineage(writers, since=0))
    again = [copy.put("insert", "2", "no", seq=2), copy.put("update", "3", "b", seq=3)]
    again.append(copy.put("insert", "4", "b", seq=4))
    for _ in range(2):
        copy.sink.apply(Made(3, *again, manifest=restored))
        assert {key: row["name"] for key, row in copy.rows.items()} == {1: "a", 2: "a", 3: "b", 4: "b", 5: "a"}
    copy.sink.apply(Made(4, copy.put("delete", "5", "a", seq=5), manifest=restored))
    assert 5 not in copy.rows


def test_the_state_of_a_former_version_is_read(copy: Copy, database: str) -> None:
    """The old state table has no writers. Its number counts, and the column is added."""
    state = f"state_{database}"
    copy.server.execute(
        f"CREATE DATABASE {state}",
        f"CREATE TABLE {state}.canal_ha_batches (run VARCHAR(64), spool VARCHAR(64), segment BIGINT NOT NULL,"
        " batch_id BIGINT NOT NULL, applied TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,"
        " PRIMARY KEY (run, spool)) ENGINE=InnoDB",
        f"INSERT INTO {state}.canal_ha_batches (run, spool, segment, batch_id) VALUES ('run', 'spoold', 2, 7)",
    )
    lineage = Lineage((Writer(Epoch(4, "0000000b"), 3, follows=True),), since=3)
    now = Manifest("spoold", next_seq=4, lineage=lineage)
    copy.sink.apply(Made(3, copy.put("insert", "1", "x", seq=2), copy.put("insert", "2", "x", seq=3), manifest=now))
    assert list(copy.rows) == [2]
    [row] = copy.server.query(f"SELECT segment, writer FROM {state}.canal_ha_batches")
    assert row == {"segment": 3, "writer": "00000004-0000000b"}


def test_keys_that_differ_in_case_accent_or_trailing_blanks_stay_apart(copy: Copy) -> None:
    """The collation of the source does not matter, for a key, an added column and a changed column."""
    texts = ["e", "é", "x", "X", "x ", "ß", "ss"]
    layout = RowLayout((("k", "varchar(10)", 12),), (0,), partial=False)
    copy.apply(0, *(copy.put("insert", text, layout=layout) for text in texts))
    assert sorted(each["k"] for each in copy.table("t")) == sorted(texts)
    copy.apply(1, copy.put("delete", "X", layout=layout), copy.put("delete", "e", layout=layout))
    assert sorted(each["k"] for each in copy.table("t")) == sorted({*texts} - {"X", "e"})
    wider = RowLayout((*layout.columns, ("c", "nchar(3)", 1), ("m", "tinytext", 12)), (0,), partial=False)
    copy.apply(2, copy.statement("ALTER TABLE t MODIFY k VARCHAR(20)"), copy.put("insert", "X", "a", "b", layout=wider))
    assert sorted(each["k"] for each in copy.table("t")) == sorted({*texts} - {"e"})
    for column in ("c", "m"):
        same = copy.server.query(f"SELECT COUNT(*) AS n FROM copy_{copy.database}.t WHERE {column} IN ('A', 'B')")
        assert same == [{"n": 0}]


def test_labels_that_differ_in_case_are_two_labels(copy: Copy) -> None:
    """The server's default collation would take them for one label and refuse the table."""
    layout = RowLayout((("id", "int", 4), ("e", "enum('a','A')", 4), ("s", "set('b','B')", -7)), (0,), partial=False)
    copy.apply(0, *(copy.put("insert", str(at), str(at), str(at), layout=layout) for at in (1, 2)))
    assert copy.rows == {1: {"e": "a", "s": "b"}, 2: {"e": "A", "s": "B"}}


def test_two_tables_of_the_source_do_not_meet_in_one(copy: Copy, database: str) -> None:
    """The second table is refused in one batch, in a later batch and after a restart; its TRUNCATE empties nothing."""
    first = copy.put("insert", "1", "a")._replace(schema="a")
    second = copy.put("insert", "2", "b")._replace(schema="b")

    def sink() -> MySQL:
        return MySQL(copy.server.address, "admin", "admin", f"copy_{database}", f"state_{database}", ["copy_*"])

    with pytest.raises(SinkRefused, match=r"a\.t and b\.t of the source .*into the table .*\{schema\}"):
        sink().apply(Made(0, first, second))
    sink().apply(Made(0, first))
    sink().apply(Made(1, first._replace(op="update", before=first.after)))
    for change in (second, copy.statement("TRUNCATE TABLE t")._replace(schema="b")):
        with pytest.raises(SinkRefused, match=r"a\.t and b\.t of the source"):
            sink().apply(Made(2, change))
    assert copy.rows == {1: {"name": "a"}}


def test_names_that_differ_in_case_meet_only_where_the_server_takes_them_for_one(copy: Copy) -> None:
    """The target's lower_case_table_names decides."""
    changes = [copy.put("insert", "1", "a")._replace(table=table) for table in ("t", "T")]
    copy.apply(0, *changes)
    assert len(copy.table("t")) == len(copy.table("T")) == 1


def test_names_that_differ_in_case_are_refused_by_a_server_that_ignores_case(database: str) -> None:
    """A server with lower_case_table_names=1 has one table for both names."""
    with MariaDB(extra=["--lower-case-table-names=1"]) as server:
        copy = Copy(server, database)
        changes = [copy.put("insert", "1", "a")._replace(table=table) for table in ("t", "T")]
        with pytest.raises(SinkRefused, match=rf"{database}\.T and {database}\.t of the source"):
            copy.apply(0, *changes)
