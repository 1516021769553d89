"""The target for MySQL and MariaDB on real servers: what it writes, follows and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from canal_ha.errors import SinkRefused, TargetUnavailable
from canal_ha.pipeline.description import Description, TargetDescription
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.targets.mysql import MySQLTarget, open_target
from lab import MariaDB, MySQL, Node, SqlServer, follow
from tests.pipeline.column_values import literals, selected, types
from tests.pipeline.made import Writer
from tests.pipeline.sourced import Sourced
from tests.spark import entries as made

pytestmark = pytest.mark.real


@pytest.fixture
def source(source_server: SqlServer, database: str) -> Iterator[Sourced]:
    """Yield a source database of each server; the copy is on the same server."""
    with Node({"example": follow(source_server)}) as node, Sourced(source_server, database, node) as source:
        yield source


def described(
    server: SqlServer, database: str, mode: Any = "mirror", evolve: Any = "evolve", **options: Any
) -> Description:
    """Return a pipeline that copies a database."""
    given = {"address": server.address, "user": "admin", "password": "admin", "database": "copy_{schema}", **options}
    given.setdefault("stateDatabase", f"state_{database}")
    target = TargetDescription("mysql", mode, evolve, given)
    return Description("p.yaml", "p", "embedded", "state", (f"{database}.*",), {}, {}, target)


def target_of(server: SqlServer, database: str, **more: Any) -> MySQLTarget:
    """Return a target that copies a database."""
    return open_target(described(server, database, **more))


def test_every_type_arrives(source: Sourced, mysql: MySQL, mariadb: MariaDB) -> None:
    """Each value of each type of column is in the copy, NULL and extremes too, on a server of the same kind."""
    kinds = types(source.server.flavor)
    columns = ", ".join(f"`c{at}` {kind} NULL" for at, kind in enumerate(kinds))
    source.execute(f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) CHARSET utf8mb4")
    texts = [literals(kind) for kind in kinds]
    for number in range(max(map(len, texts))):
        row = ", ".join(each[number] if number < len(each) else "NULL" for each in texts)
        source.execute(f"INSERT INTO t VALUES ({number}, {row})")
    target = target_of(source.server, source.database)
    assert source.server.address in target.check()
    target.commit(source.first())
    target.commit(source.portion())
    before = source.query(f"SELECT {selected(kinds)} FROM t ORDER BY id")
    after = source.server.query(f"SELECT {selected(kinds)} FROM copy_{source.database}.t ORDER BY id")
    for at, kind in enumerate(kinds):
        assert [row[f"c{at}"] for row in after] == [row[f"c{at}"] for row in before], kind
    target.close()


class Dying(MySQLTarget):
    """Dies after it has changed columns, before it writes rows."""

    def _claim(self, cursor: Any, portion: Portion) -> bool:
        raise KeyboardInterrupt


def interrupted(source: Sourced, before: tuple[str, ...], after: tuple[str, ...]) -> tuple[MySQLTarget, bytes, bytes]:
    """Commit a table's first row; die in a commit of statements; return a new target, and the changes in two parts."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT)", "INSERT INTO t VALUES (1, 10)")
    target = target_of(source.server, source.database)
    target.commit(source.first())
    target.commit(source.portion())
    source.execute(*before)
    first = source.frames()
    source.execute(*after)
    second, reached = source.frames(), source.progress
    description = described(source.server, source.database)
    with pytest.raises(KeyboardInterrupt):
        Dying(description, target._places).commit(source.made(first + second))
    source.progress, source.reader = reached, source.new_reader()
    return target, first, second


def test_an_interrupted_commit_that_renamed_a_column_loses_no_values(source: Sourced) -> None:
    """The portion comes again without the statement; its rows have the old name, and would replace the column."""
    target, first, _ = interrupted(
        source, ("INSERT INTO t VALUES (2, 20)",), ("ALTER TABLE t RENAME COLUMN a TO b", "INSERT INTO t VALUES (3, 3)")
    )
    with pytest.raises(SinkRefused, match=r"lack the column 'b' of the copy.*read the table again with a snapshot"):
        target.commit(source.made(first))
    assert source.server.query(f"SELECT * FROM copy_{source.database}.t") == [{"id": 1, "b": 10}]


@pytest.mark.parametrize("statements", [(), ("ALTER TABLE t ADD a INT",)])
def test_a_history_has_values_under_the_new_name_after_a_crash_at_a_rename(
    mysql: MySQL, database: str, monkeypatch: pytest.MonkeyPatch, statements: tuple[str, ...]
) -> None:
    """The statement has committed, the rows of its portion have not; these have the old names, also of the key."""
    old: tuple[made.ColumnSpec, ...] = (made.ID, ("a", "int(11)", 4, False))
    new: tuple[made.ColumnSpec, ...] = (("key", "int(11)", 4, True), ("b", "int(11)", 4, False))

    def row(offset: int, key: str, columns: tuple[made.ColumnSpec, ...]) -> bytes:
        image = {column[0]: key for column in columns}
        return made.rows(offset, "INSERT", [(None, image)], columns, schema=database)

    def writer() -> Writer:
        return Writer(target_of(mysql, database, mode="scd2"))

    gone = made.rows(5, "DELETE", [({"id": "1"}, None)], (made.ID,), schema=database)
    rename = made.ddl(6, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN id TO `key`", schema=database)
    entries = [*(made.ddl(3, sql, schema=database) for sql in statements), row(4, "2", old), rename, row(7, "3", new)]
    if not statements:
        entries.insert(1, gone)
    writer().commit(row(1, "1", (made.ID,) if statements else old), offset=1)
    dying = writer()
    monkeypatch.setattr(MySQLTarget, "_claim", Dying._claim)
    with pytest.raises(KeyboardInterrupt):
        dying.commit(*entries, offset=7)
    monkeypatch.undo()
    writer().commit(*entries, offset=7)
    found = mysql.query(f"SELECT * FROM copy_{database}.t ORDER BY `key`")
    assert [set(each) & {"id", "key", "a", "b"} for each in found] == [{"key", "b"}] * 3
    first = (1, None, 1) if statements else (1, 1, 0)
    assert [(each["key"], each["b"], each["is_current"]) for each in found] == [first, (2, 2, 1), (3, 3, 1)]


def test_a_history_has_every_value_once_after_a_crash_at_a_column_that_takes_the_name_of_a_dropped_one(
    mysql: MySQL, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that come again have both names, and the copy has the columns under their last ones."""
    old: tuple[made.ColumnSpec, ...] = (made.ID, ("a", "int(11)", 4, False), ("b", "int(11)", 4, False))
    new = old[:2]
    swap = ("ALTER TABLE t DROP a", "ALTER TABLE t RENAME COLUMN b TO a")

    def row(offset: int, columns: tuple[made.ColumnSpec, ...], *values: int) -> bytes:
        image: dict[str, str | None] = {spec[0]: str(value) for spec, value in zip(columns, values, strict=True)}
        return made.rows(offset, "INSERT", [(None, image)], columns, schema=database)

    def writer() -> Writer:
        return Writer(target_of(mysql, database, mode="scd2"))

    entries = [
        row(2, old, 2, 20, 200),
        *(made.ddl(offset, sql, schema=database) for offset, sql in enumerate(swap, 3)),
        row(5, new, 3, 300),
        made.ddl(6, "ALTER TABLE t ADD b INT", schema=database),
        row(7, old, 4, 400, 4000),
        *(made.ddl(offset, sql, schema=database) for offset, sql in enumerate(swap, 8)),
        row(10, new, 5, 5000),
    ]
    writer().commit(row(1, old, 1, 10, 100), offset=1)
    dying = writer()
    monkeypatch.setattr(MySQLTarget, "_claim", Dying._claim)
    with pytest.raises(KeyboardInterrupt):
        dying.commit(*entries, offset=10)
    monkeypatch.undo()
    writer().commit(*entries, offset=10)
    found = mysql.query(f"SELECT * FROM copy_{database}.t ORDER BY id")
    assert [(each["a"], each["a_old"], each["a_old2"]) for each in found] == [
        (None, 10, 100),
        (None, 20, 200),
        (None, None, 300),
        (4000, None, 400),
        (5000, None, None),
    ]
    assert "b" not in found[0]


@pytest.mark.parametrize("later", ["of the second binlog", "without a GTID"])
def test_a_statement_with_the_gtids_of_an_earlier_one_is_not_taken_for_done(
    mysql: MySQL, database: str, later: str
) -> None:
    """GTIDs begin again after a reset. Without a GTID, a transaction has the set of those before it."""
    columns: tuple[made.ColumnSpec, ...] = (made.ID, ("a", "int(11)", 4, False), ("b", "int(11)", 4, False))
    swap = "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"

    def row(offset: int, key: int, a: int, b: int) -> bytes:
        image = {"id": str(key), "a": str(a), "b": str(b)}
        return made.rows(offset, "INSERT", [(None, image)], columns, schema=database)

    def statement(offset: int, time: int = 1000) -> bytes:
        return made.ddl(offset, swap, schema=database, gtid="3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3", time=time)

    writer = Writer(target_of(mysql, database))
    writer.commit(row(1, 1, 10, 20), offset=1)
    writer.commit(statement(2), row(3, 2, 21, 11), offset=3)
    if later == "without a GTID":
        writer.commit(made.ddl(4, "ALTER TABLE t COMMENT 'x'", schema=database), statement(5, time=3000), offset=5)
    else:
        writer.commit(statement(2, time=3000), offset=2)
    writer.commit(row(6, 3, 12, 22), offset=6)
    found = mysql.query(f"SELECT id, a, b FROM copy_{database}.t ORDER BY id")
    assert [tuple(each.values()) for each in found] == [(1, 10, 20), (2, 11, 21), (3, 12, 22)]


def test_an_interrupted_commit_that_added_a_column_goes_on(source: Sourced) -> None:
    """The portion comes again without the statement; the new column stays, with its default."""
    target, first, second = interrupted(
        source,
        ("INSERT INTO t VALUES (2, 20)", "UPDATE t SET a = 11 WHERE id = 1"),
        ("ALTER TABLE t ADD b INT DEFAULT 5, ADD c TEXT, ADD d DATETIME(3) DEFAULT '2024-01-02'",
         "INSERT INTO t VALUES (3, 30, 6, 'x', NULL)"),
    )  # fmt: skip
    target.commit(source.made(first))
    target.commit(source.made(second))
    copied = source.server.query(f"SELECT * FROM copy_{source.database}.t ORDER BY id")
    assert copied == source.query("SELECT * FROM t ORDER BY id")


def test_what_the_source_could_hold_the_copy_holds(source: Sourced) -> None:
    """The empty label of an ENUM with an invalid value, beside one that is declared; labels with any text."""
    labels = ["'); SELECT 1 -- x", "it's", "\\", "%s", "字", "1", "0"]
    declared = ",".join(f"x'{label.encode().hex()}'" for label in labels)
    source.execute(
        f"CREATE TABLE t (id INT PRIMARY KEY, e ENUM({declared}) CHARACTER SET utf8mb4, f ENUM('a',''))",
        *(f"INSERT INTO t VALUES ({at}, {at}, 1 + {at} % 2)" for at in range(1, len(labels) + 1)),
        "INSERT INTO t VALUES (90, 'no such label', '')",
        "INSERT INTO t VALUES (91, NULL, NULL), (92, 1, 'a')",
    )
    target = target_of(source.server, source.database)
    target.commit(source.first())
    target.commit(source.portion())
    chosen = "SELECT id, e, e + 0 AS n, f FROM {} ORDER BY id"
    assert source.server.query(chosen.format(f"copy_{source.database}.t")) == source.query(chosen.format("t"))


def test_the_largest_float_stopped_a_pipeline(source: Sourced) -> None:
    """Its shortest text, 3.4028235E38, is a larger double. The strict session of the copy refuses that."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, f FLOAT)")
    target = target_of(source.server, source.database)
    target.commit(source.first())
    source.execute(
        "INSERT INTO t VALUES (1, 3.402823466E+38), (2, -3.402823466E+38), (3, 3.4e38)",
        "ALTER TABLE t ADD g FLOAT DEFAULT 3.402823466E+38",
    )
    target.commit(source.portion())
    chosen = "SELECT id, f * 1e0 AS f, g * 1e0 AS g FROM {} ORDER BY id"
    copied = source.server.query(chosen.format(f"copy_{source.database}.t"))
    assert copied == source.query(chosen.format("t"))
    assert [row["f"] for row in copied[:2]] == [3.4028234663852886e38, -3.4028234663852886e38]


def test_rows_are_found_by_every_kind_of_key(source: Sourced) -> None:
    """Deleted and changed by numbers, decimals, times, bytes and texts, alone and together; FLOAT is refused."""
    kinds = {
        "bigint unsigned": ("18446744073709551615", "18446744073709551614"),
        "decimal(38,20)": ("'12345678901234567.12345678901234567891'", "'12345678901234567.12345678901234567892'"),
        "double": ("0.1", "0.2"),
        "datetime(6)": ("'2024-01-01 00:00:00.000001'", "'0000-00-00 00:00:00'"),
        "timestamp(3) DEFAULT 0": ("'2024-01-01 00:00:00.001'", "'2024-01-01 00:00:00.002'"),
        "time(2)": ("'-838:59:59'", "'00:00:00.01'"),
        "varbinary(9)": ("x'00ff'", "x'00fe'"),
        "varchar(9)": ("'it''s'", r"'\\'"),
        "enum('1','2')": ("'2'", "'1'"),
        "bit(3)": ("1", "2"),
    }
    target = target_of(source.server, source.database)
    target.commit(source.first())
    tables = []
    for at, (kind, (gone, kept)) in enumerate(kinds.items()):
        for name, key in ((f"alone{at}", "k"), (f"both{at}", "k, o")):
            tables.append(name)
            source.execute(f"CREATE TABLE {name} (k {kind} NOT NULL, o INT NOT NULL, v INT, PRIMARY KEY ({key}))")
            source.execute(f"INSERT INTO {name} VALUES ({gone}, 1, 1), ({kept}, 2, 2)")
    target.commit(source.portion())
    source.execute(*(f"DELETE FROM {name} WHERE o = 1" for name in tables))
    source.execute(*(f"UPDATE {name} SET v = 20" for name in tables))
    target.commit(source.portion())
    for name in tables:
        assert source.server.query(f"SELECT * FROM copy_{source.database}.{name}") == source.query(
            f"SELECT * FROM {name}"
        )
    source.execute("CREATE TABLE f (k FLOAT PRIMARY KEY)", "INSERT INTO f VALUES (0.1), (0.2)")
    target.commit(source.portion())
    source.execute("DELETE FROM f WHERE k < 0.15")
    with pytest.raises(SinkRefused, match=r"'k' of \w+\.f is a FLOAT"):
        target.commit(source.portion())


def test_a_row_that_is_larger_than_the_servers_packets_is_refused(source: Sourced) -> None:
    """The server would close the connection, which looks as if a later try could succeed."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY, b LONGBLOB)")
    source.execute("INSERT INTO t VALUES (1, REPEAT('x', 100000)), (2, REPEAT('x', 900000))")
    with MariaDB(extra=["--max-allowed-packet=1M"]) as server:
        target = target_of(server, source.database)
        target.commit(source.first())
        with pytest.raises(SinkRefused, match=r"a row of \w+\.t is a statement of 18\d{5} bytes.*max_allowed_packet"):
            target.commit(source.portion())


def test_names_that_the_server_cannot_hold_are_refused(source: Sourced) -> None:
    """MySQL would turn a character beyond U+FFFF into a question mark, so that two tables share a copy."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    portion = source.portion()
    target = target_of(source.server, source.database)
    target.commit(source.first())
    for name in ("😀" * 64, "a" * 65, "a ", "a\0b"):
        reader = source.new_reader()
        found = [replace(batch, table=name) for batch in reader.batches(portion.frames)]
        reader.batches = lambda *_, found=found, **__: iter(found)  # type: ignore[method-assign]
        with pytest.raises(SinkRefused, match="MySQL has no name"):
            target.commit(replace(portion, reader=reader))


def test_what_passes_can_be_tried_again(source: Sourced) -> None:
    """A server that is down, or read-only after a fail-over; then the same portion is written once."""
    source.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    portion = source.portion()
    server = type(source.server)()
    with server:
        server.execute(
            "CREATE USER 'w'@'%' IDENTIFIED BY 'w'",
            f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `copy\\_{source.database}`.* TO 'w'@'%'",
            f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP ON `state\\_{source.database}`.* TO 'w'@'%'",
        )
        target = target_of(server, source.database, user="w", password="w")
        target.commit(source.first())
        server.kill()
        for _ in range(2):
            with pytest.raises(TargetUnavailable, match="mysql at"):
                target.commit(portion)
        with pytest.raises(TargetUnavailable):
            target.check()
        server.start()
        server.execute("SET GLOBAL read_only = 1")
        with pytest.raises(TargetUnavailable, match="read-only"):
            target.commit(portion)
        server.execute("SET GLOBAL read_only = 0")
        target.commit(portion)
        target.commit(portion)
        assert server.query(f"SELECT * FROM copy_{source.database}.t") == [{"id": 1}]
        with pytest.raises(SinkRefused, match="Access denied"):
            target_of(server, source.database, user="w", password="wrong").check()
