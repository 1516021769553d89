"""A snapshot beside its stream, on real servers: keys of all kinds, statements, losses, and where it begins again."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pymysql
import pytest

from canal_ha.config.model import DecodeOptions, SnapshotLimits, WhenXa
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.model.snapshot import (
    SnapshotAction,
    SnapshotPhase,
    SnapshotRange,
    SnapshotRequest,
    SnapshotState,
    changed,
    failed,
)
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.snapshot.junction import Junction
from canal_ha.source.snapshot.result_set import RawRows, RowMemory, read_rows
from canal_ha.source.snapshot.watermark import Reached
from canal_ha.source.snapshot.window import Window
from lab import MariaDB, MySQL, SqlServer
from tests.beside import beside
from tests.node.snapshots import Copy, SnapshotStream, state
from tests.source.reading import newest
from tests.time_zone import zone
from tests.waiting import until

pytestmark = pytest.mark.real

FEW = SnapshotLimits(rows_most=3)
READ_ROWS = "canal_ha.source.snapshot.source.read_rows"

# the key's columns, the primary key, and the values of the rows
KEYS: dict[str, tuple[tuple[str, ...], str, Sequence[str]]] = {
    "composite": (
        ("a INT", "b VARCHAR(20)", "c DATE"),
        "b, a, c",
        [f"{a}, '{b}', '2020-01-0{c}'" for a in (-1, 0, 5) for b in ("x", "X y", "") for c in (1, 2)],
    ),
    "collation": (
        ("k VARCHAR(30) CHARACTER SET utf8mb4",),
        "k",
        [f"'{text}'" for text in ("a", "B", "c", "ä1", "Z", "ß", "ssa", "日本", "😀", "o''k", r"back\\slash", "%", "")],
    ),
    "latin1": (
        ("k CHAR(10) CHARACTER SET latin1 COLLATE latin1_german2_ci",),
        "k",
        [f"'{text}'" for text in ("a", "ä", "af", "o", "ö", "Z", "zz", "é", "")],
    ),
    "binary": (
        ("k VARBINARY(10)",),
        "k",
        [f"X'{text}'" for text in ("", "00", "0000", "27", "5C", "FF", "FF00", "80", "41", "61")],
    ),
    "fixed binary": (("k BINARY(3)",), "k", [f"X'{text}'" for text in ("", "01", "0100FF", "FF", "2700", "616263")]),
    "unsigned": (
        ("k BIGINT UNSIGNED",),
        "k",
        ["0", "1", "9223372036854775807", "9223372036854775808", "18446744073709551615", "10", "9"],
    ),
    "decimal": (
        ("k DECIMAL(30,10)",),
        "k",
        ["0", "-1.5", "1.5", "12345678901234567890.0123456789", "-0.0000000001", "2"],
    ),
    "datetime": (
        ("k DATETIME(6)",),
        "k",
        [
            f"'{text}'"
            for text in ("2020-01-01", "2020-01-01 00:00:00.000001", "1000-01-01", "9999-12-31 23:59:59.999999")
        ],
    ),
    "timestamp": (
        ("k TIMESTAMP(3) NOT NULL DEFAULT '2000-01-01'",),
        "k",
        [f"'{text}'" for text in ("1970-01-02", "2020-06-01 12:00:00.123", "2020-06-01 12:00:00.124", "2037-01-01")],
    ),
    "time": (
        ("k TIME(2)",),
        "k",
        [f"'{text}'" for text in ("-838:59:59", "-00:00:01.5", "00:00:00", "838:59:59", "1:02:03.04")],
    ),
    "enum": (("k ENUM('zebra', 'ant', 'ü', 'bee')",), "k", ["'zebra'", "'ant'", "'ü'", "'bee'"]),
    "set": (("k SET('z', 'a', 'm')",), "k", ["''", "'z'", "'a'", "'z,a'", "'m'", "'z,a,m'"]),
    "bit": (("k BIT(20)",), "k", ["0", "1", "255", "256", "1048575"]),
    "double": (("k DOUBLE",), "k", ["0", "-1.5e300", "0.1", "1e-300", "3", "1.7976931348623157e308"]),
    "year": (("k YEAR",), "k", ["1901", "2000", "2155", "0"]),
    "zerofill": (("k INT(8) ZEROFILL",), "k", ["0", "7", "12345678", "99"]),
    "negative": (
        ("k BIGINT",),
        "k",
        ["-9223372036854775808", "-10", "-9", "-1", "0", "9", "10", "9223372036854775807"],
    ),
    "float": (("k FLOAT",), "k", ["0.1", "-0.1", "-1.5e30", "16777216", "0.3", "1e-30", "3.4e38", "0"]),
    "descending": (("a INT", "b INT"), "a DESC, b", [f"{a}, {b}" for a in (-1, 0, 5) for b in (1, 2, 3)]),
    "no pad": (
        ("k VARCHAR(9) CHARACTER SET utf8mb4 COLLATE {no_pad}",),
        "k",
        [f"'{text}'" for text in ("a", "a ", "a  ", "A b", "á!", "b", "", " ", "B ")],
    ),
    "padded": (
        ("k CHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",),
        "k",
        [f"'{text}'" for text in ("a ", "Ab", "á!  ", "b", "", "  x", "Z")],
    ),
    "zero dates": (
        ("k DATETIME(3)", "u DATE"),
        "k, u",
        [f"'{at}', '2020-02-0{day}'" for at in ("2020-01-01", "0000-00-00", "2019-12-31 23:59:59.9") for day in (1, 2)],
    ),
    "dates of no calendar": (
        ("k DATE", "u DATETIME(6)"),
        "k, u",
        [
            f"'{day}', '{day} 01:02:03.000004'"
            for day in ("2023-02-31", "2023-02-30", "2023-00-00", "2023-03-01", "0000-00-00", "2023-11-31")
        ],
    ),
}
NO_PAD = {"mysql": "utf8mb4_0900_ai_ci", "mariadb": "utf8mb4_unicode_nopad_ci"}


def rows_of(server: SqlServer, table: str) -> int:
    """Return the number of rows of a table."""
    return int(server.query(f"SELECT COUNT(*) AS n FROM {table}")[0]["n"])


def filled(server: SqlServer, schema: str, rows: int = 20, name: str = "t") -> str:
    """Create a table with rows 1 to `rows`; return its name."""
    server.execute(
        f"CREATE DATABASE IF NOT EXISTS {schema}",
        f"CREATE TABLE {schema}.{name} (id INT PRIMARY KEY, v VARCHAR(50))",
        *(f"INSERT INTO {schema}.{name} VALUES ({number}, 'old')" for number in range(1, rows + 1)),
    )
    return f"{schema}.{name}"


def ids(copy: Copy) -> list[int]:
    """Return the ids of the rows of a copy, in order."""
    return sorted(int(key[0] or 0) for _, key in copy.rows)


@pytest.mark.parametrize("name", KEYS)
def test_keys_of_every_kind(source_server: SqlServer, database: str, name: str) -> None:
    """Chunks of three rows read each row once, whatever orders the key; an update of the key meanwhile fits."""
    columns, key, values = KEYS[name]
    declared = ", ".join(f"{column}{'' if 'NOT NULL' in column else ' NOT NULL'}" for column in columns)
    declared = declared.replace("{no_pad}", NO_PAD[source_server.flavor])
    source_server.execute(
        f"CREATE DATABASE {database}",
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE {database}.t ({declared}, v INT, PRIMARY KEY ({key}))",
        *(f"INSERT INTO {database}.t VALUES ({value}, {number})" for number, value in enumerate(values)),
    )
    table = f"{database}.t"
    copy = Copy({table: ("v",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        last = stream.done()
    assert sorted(int(key[0] or 0) for _, key in copy.rows) == list(range(len(values)))
    assert copy.snapshot_rows == last.rows == len(values)
    assert last.chunks == len(values) // 3 + 1


def test_a_table_without_rows(source_server: SqlServer, database: str) -> None:
    """The end of the snapshot comes with a transaction that has no rows."""
    tables = [filled(source_server, database, rows, name) for name, rows in (("none", 0), ("few", 2), ("empty", 0))]
    copy = Copy(dict.fromkeys(tables, ("id",)))
    with SnapshotStream(source_server, rf"{database}\..*", state(*tables), copy) as stream:
        last = stream.done()
        end = stream.taken[-1]
    assert ids(copy) == [1, 2]
    assert (last.rows, last.table, last.phase) == (2, 3, SnapshotPhase.DONE)
    assert bytes(end.kinds) == bytes([EntryKind.BEGIN, EntryKind.END])
    assert end.chunk_end is not None
    assert (end.chunk_end.journal, end.chunk_end.offset) == (end.journal, end.offsets[1])


def test_a_condition_chooses_rows(source_server: SqlServer, database: str) -> None:
    """Only the rows of the condition come, also if it ends in a comment."""
    table = filled(source_server, database, 20)
    copy = Copy({table: ("id",)})
    snapshot = state(table, where={table: "id % 4 = 0 OR id = 7 -- every fourth"})
    with SnapshotStream(source_server, rf"{database}\.t", snapshot, copy, limits=FEW) as stream:
        stream.done()
    assert ids(copy) == [4, 7, 8, 12, 16, 20]


@pytest.mark.parametrize("connections", [1, 3])
def test_a_condition_that_few_rows_meet_ends_on_a_large_table(
    source_server: SqlServer, database: str, connections: int
) -> None:
    """One SELECT looked for the next row until the node's time-out for an answer was over, again and again."""
    table = filled(source_server, database, 40)
    copy = Copy({table: ("id",)})
    snapshot = state(table, where={table: "SLEEP(0.1) = 7 OR id = 33"})
    few = replace(FEW, connections=connections, rows_per_s=1000)
    with SnapshotStream(source_server, rf"{database}\.t", snapshot, copy, limits=few, so_timeout_s=1.0) as stream:
        last = stream.done()
        assert not stream.tries
        states = stream.states()
    assert ids(copy) == [33]
    assert (last.rows, last.phase) == (1, SnapshotPhase.DONE)
    assert any(each.rows == 0 and each.ranges[0].after for each in states)  # a restart does not look again


def test_a_condition_sees_rows_that_come_while_its_chunk_is_read(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than the SELECT may have are then before the key up to which it looks."""
    table = filled(source_server, database, 3)
    source_server.execute(f"UPDATE {table} SET id = id * 10")
    Between(
        monkeypatch,
        source_server,
        *(f"INSERT INTO {table} VALUES ({number}, 'new')" for number in range(1, 10)),
        before=True,
        at=1,
    )
    copy = Copy({table: ("id",)})
    snapshot = state(table, where={table: "id > 0"})
    with SnapshotStream(source_server, rf"{database}\.t", snapshot, copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert ids(copy) == [*range(1, 10), 10, 20, 30]


def test_a_unique_key_serves(source_server: SqlServer, database: str) -> None:
    """Without a primary key, a unique key of columns that are never NULL is read by; one that may be NULL is not."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (a INT, b INT NOT NULL, id INT NOT NULL, UNIQUE KEY a (a), UNIQUE KEY z (b, id))",
        *(f"INSERT INTO {database}.t VALUES (NULL, {number % 3}, {number})" for number in range(10)),
    )
    table = f"{database}.t"
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        texts = [part.after for each in stream.states() for part in each.ranges]
    assert ids(copy) == list(range(10))
    assert texts[0] == ("b=0", "id=6")


@pytest.mark.parametrize("rows", [3, 3000])
def test_a_large_table_that_is_sorted_for_each_chunk_is_told(
    source_server: SqlServer, database: str, rows: int
) -> None:
    """It ended after days, and nothing said why. The sort takes its time for one row, too, so chunks do not shrink."""
    table = f"{database}.t"
    values = [f"({1 + number % 3}, {number}, REPEAT('x', 100))" for number in range(rows)]
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k ENUM('b', 'a', 'c'), id INT, v VARCHAR(100), PRIMARY KEY (k, id))",
        f"INSERT INTO {table} VALUES {', '.join(values)}",
        f"ANALYZE TABLE {table}",
    )
    copy = Copy({table: ("id",)})
    limits = SnapshotLimits(chunk_s=1e-6, bytes_most=100_000)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=limits) as stream:
        stream.done()
    assert ids(copy) == list(range(rows))
    assert len(stream.chunks()) < 10
    told = [facts for event, facts in stream.told if event == "snapshot.sorts"]
    assert [(each["table"], each["key"]) for each in told] == ([(table, "k, id")] if rows > 3 else [])


# keys that a server sorts, the longest prefix that its texts share, and the limit for the bytes by which it sorts
SORTED = {
    "hash": ("k VARCHAR(5000) NOT NULL, id INT, UNIQUE KEY u (k)", 4900, 1024),
    "hash in utf-8": ("k VARCHAR(2000) CHARACTER SET utf8mb4 NOT NULL, id INT, UNIQUE KEY u (k)", 1900, 1024),
    "enum": (
        "e ENUM('b', 'a') NOT NULL, k VARCHAR(100) CHARACTER SET utf8mb4 NOT NULL, id INT, PRIMARY KEY (e, k)",
        40,
        8,
    ),
}


@pytest.mark.parametrize("name", SORTED)
def test_no_row_is_lost_whose_key_differs_from_another_one_behind_the_bytes_that_a_server_sorts_by(
    mariadb: MariaDB, database: str, name: str
) -> None:
    """MariaDB sorts by the first max_sort_length bytes of a text. A long unique key has a hash, so it is sorted by."""
    columns, prefix, most = SORTED[name]
    table = f"{database}.t"
    mariadb.execute(
        f"CREATE DATABASE {database} CHARACTER SET latin1",
        f"CREATE TABLE {table} ({columns})",
        *(
            f"INSERT INTO {table} (k, id) VALUES (CONCAT(REPEAT('p', {prefix}), '{number * 7919 % 100:03d}'), {number})"
            for number in range(60)
        ),
        f"ANALYZE TABLE {table}",
    )
    copy = Copy({table: ("id",)})
    mariadb.execute(f"SET GLOBAL max_sort_length = {most}")
    try:
        with SnapshotStream(mariadb, rf"{database}\.t", state(table), copy) as stream:
            last = stream.done()
    finally:
        mariadb.execute("SET GLOBAL max_sort_length = DEFAULT")
    assert ids(copy) == list(range(60))
    assert last.rows == 60


def test_a_large_table_with_a_hash_for_a_key_is_told(mariadb: MariaDB, database: str) -> None:
    """Each chunk sorts what is left of it."""
    table = f"{database}.t"
    values = [f"('{number}', REPEAT('x', 100))" for number in range(3000)]
    mariadb.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k VARCHAR(5000) NOT NULL UNIQUE, v VARCHAR(100))",
        f"INSERT INTO {table} VALUES {', '.join(values)}",
        f"ANALYZE TABLE {table}",
    )
    copy = Copy({table: ("k",)})
    limits = SnapshotLimits(chunk_s=1e-6, bytes_most=100_000)
    with SnapshotStream(mariadb, rf"{database}\.t", state(table), copy, limits=limits) as stream:
        stream.done()
    assert ids(copy) == list(range(3000))
    assert [facts["table"] for event, facts in stream.told if event == "snapshot.sorts"] == [table]


def test_a_key_too_long_for_the_cursor_is_named(mariadb: MariaDB, database: str) -> None:
    """The error was a ValueError about the text of a state, without the table."""
    table = f"{database}.t"
    mariadb.execute(
        f"CREATE DATABASE {database} CHARACTER SET latin1",
        f"CREATE TABLE {table} (k VARCHAR(40000) NOT NULL UNIQUE)",
        *(f"INSERT INTO {table} VALUES (CONCAT('{number}', REPEAT('x', 39000)))" for number in range(5)),
    )
    with SnapshotStream(mariadb, rf"{database}\.t", state(table), limits=FEW) as stream:
        error = stream.failed().error
    assert f"{table}: the key of a row is too long" in error
    assert "ValueError" not in error


@pytest.mark.parametrize(
    ("source_server", "setting"),
    [
        ("mysql", "max_join_size = 3"),
        ("mysql", "max_execution_time = 10"),
        ("mariadb", "max_join_size = 3"),
        ("mariadb", "max_statement_time = 0.01"),
    ],
    indirect=["source_server"],
)
def test_limits_of_the_server_for_selects_end_no_snapshot(
    source_server: SqlServer, database: str, setting: str
) -> None:
    """They ended it, although canal.instance.snapshot.executionTime = 0 stands for no limit."""
    variable = setting.partition(" ")[0]
    table = f"{database}.t"
    values = [f"({1 + number % 3}, {number}, REPEAT('x', 100))" for number in range(60_000)]
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k ENUM('b', 'a', 'c'), id INT, v VARCHAR(100), PRIMARY KEY (k, id))",
        f"INSERT INTO {table} VALUES {', '.join(values)}",
        f"ANALYZE TABLE {table}",
    )
    limits = SnapshotLimits(rows_most=30_000)
    source_server.execute(f"SET GLOBAL {setting}")
    try:
        with SnapshotStream(source_server, rf"{database}\.t", state(table), limits=limits) as stream:
            last = stream.done(15)
    finally:
        source_server.execute(f"SET GLOBAL {variable} = DEFAULT")
    assert last.rows == 60_000


@pytest.mark.parametrize(
    "definition",
    ["id INT, v INT", "id INT, UNIQUE KEY u (id)", "id VARCHAR(50) NOT NULL, UNIQUE KEY u (id(10))"],
    ids=["none", "nullable", "prefix"],
)
def test_a_table_without_a_key_is_refused(source_server: SqlServer, database: str, definition: str) -> None:
    """The snapshot ends with an error that names the table; the stream goes on."""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t ({definition})")
    table = f"{database}.t"
    with SnapshotStream(source_server, rf"{database}\.t", state(table)) as stream:
        assert f"{table} has no primary key" in stream.failed().error
        source_server.execute(f"INSERT INTO {table} (id) VALUES (1)")
        stream.caught_up(source_server)
        assert not stream.failures


def test_a_missing_right_ends_the_snapshot(source_server: SqlServer, database: str) -> None:
    """An account that may follow the binlog, but not read the table, gets the GRANT to run."""
    table = filled(source_server, database)
    user = f"u{database[-10:]}"
    source_server.execute(
        f"CREATE USER {user} IDENTIFIED BY 'secret'", f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}"
    )
    options = DecodeOptions(table_history=False)
    with SnapshotStream(
        source_server, rf"{database}\.t", state(table), username=user, password="secret", options=options
    ) as stream:
        error = stream.failed().error
    assert f"GRANT SELECT ON `{database}`.`t` TO '{user}'@'%'" in error


def test_a_missing_select_alone_asks_for_no_other_right(database: str) -> None:
    """Without GTIDs the message asked for BACKUP_ADMIN and LOCK TABLES too, which do not help."""
    with MySQL(gtid=False) as server:
        table = filled(server, database)
        server.execute(
            "CREATE USER part IDENTIFIED BY 'secret'",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO part",
            f"GRANT INSERT ON {table} TO part",
        )
        options = DecodeOptions(table_history=False)
        with SnapshotStream(
            server, rf"{database}\.t", state(table), username="part", password="secret", options=options
        ) as stream:
            error = stream.failed().error
        assert f"run: GRANT SELECT ON `{database}`.`t` TO 'part'@'%'. Correct this, then run" in error
        assert "LOCK" not in error
        assert "BACKUP" not in error


@pytest.mark.parametrize(
    "hiding",
    [
        lambda schema: DecodeOptions(field_black_filter=f"{schema}.t:id"),
        lambda schema: DecodeOptions(privacy_mask=rf"{schema}\.t:ID"),
        lambda schema: DecodeOptions(privacy_drop=rf"{schema}\.t:id"),
    ],
    ids=["left out", "masked", "dropped"],
)
def test_a_hidden_key_is_refused(
    source_server: SqlServer, database: str, hiding: Callable[[str], DecodeOptions]
) -> None:
    """A key that the client does not see cannot tell which rows have changed."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v INT)",
        f"INSERT INTO {database}.t VALUES (1, 1)",
    )
    table = f"{database}.t"
    with SnapshotStream(source_server, rf"{database}\.t", state(table), options=hiding(database)) as stream:
        assert f"{table}: the client does not see column id of the key" in stream.failed().error
        assert not stream.failures


@pytest.mark.parametrize("options", [DecodeOptions(filter_rows=True), DecodeOptions(filter_dml_insert=True)])
def test_a_filter_that_drops_inserts_ends_the_snapshot(
    source_server: SqlServer, database: str, options: DecodeOptions
) -> None:
    """It may have been set while the snapshot was running or paused. No row counts that does not arrive."""
    table = filled(source_server, database)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), options=options) as stream:
        assert "no row of a snapshot would arrive" in stream.failed().error
        assert not stream.states()


def test_a_filter_that_drops_a_table_ends_the_snapshot(source_server: SqlServer, database: str) -> None:
    """The client may have subscribed with another filter meanwhile. The snapshot was done with rows that never came."""
    kept, dropped = filled(source_server, database), filled(source_server, database, name="u")
    copy = Copy({kept: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(kept, dropped), copy, limits=FEW) as stream:
        last = stream.failed()
        source_server.execute(f"UPDATE {kept} SET v = 'new' WHERE id = 1")
        stream.caught_up(source_server)
        assert not stream.failures
    assert f"{dropped}: no row of it would reach the client, because of its filter" in last.error
    assert f"--leave-out {dropped}" in last.error
    assert (last.table, last.rows, len(copy.rows)) == (1, 20, 20)


@pytest.mark.parametrize("condition", ["id >", "absent = 1"])
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""], ids=["key", "no key"])
def test_a_wrong_condition_is_named(source_server: SqlServer, database: str, condition: str, key: str) -> None:
    """A resume would read with the same one, so the text says what helps."""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT {key})")
    table = f"{database}.t"
    wrong = replace(state(table, where={table: condition}), without_key=True)
    with SnapshotStream(source_server, rf"{database}\.t", wrong) as stream:
        error = stream.failed().error
    assert f"{table}: " in error
    assert f"The condition is {condition}: cancel the snapshot, and start it with another one" in error


@pytest.mark.parametrize(
    "condition",
    [
        "created > '2026-13-45'",
        "id * 9223372036854775807 > 5",
        "JSON_EXTRACT(v, '$.a') = 5",
        "v REGEXP '('",
        "LENGTH(v, v) > 1",
    ],
)
@pytest.mark.parametrize("key", ["PRIMARY KEY", ""], ids=["key", "no key"])
def test_a_condition_that_the_server_refuses_for_a_value_is_not_tried_again_for_ever(
    source_server: SqlServer, database: str, condition: str, key: str
) -> None:
    """The server says so with one of many error codes, some of them only at the row with the value."""
    source_server.execute(
        f"CREATE DATABASE {database} CHARACTER SET utf8mb4",
        f"CREATE TABLE {database}.t (id BIGINT {key}, v VARCHAR(20), created DATETIME)",
        f"INSERT INTO {database}.t VALUES (0, '{{}}', '2026-01-01'), (7, 'x', '2026-01-01')",
    )
    table = f"{database}.t"
    try:
        source_server.query(f"SELECT 1 FROM {table} WHERE {condition}")
    except pymysql.MySQLError:
        pass
    else:
        pytest.skip("this server only warns of this condition")
    wrong = replace(state(table, where={table: condition}), without_key=True)
    with SnapshotStream(source_server, rf"{database}\.t", wrong) as stream:
        error = stream.failed(10).error
    assert f"The condition is {condition}: cancel the snapshot, and start it with another one" in error


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""], ids=["key", "no key"])
def test_a_select_with_a_condition_that_somebody_ends_is_tried_again(
    source_server: SqlServer, database: str, key: str
) -> None:
    """A killed query says nothing about its condition."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT {key})",
        f"INSERT INTO {database}.t VALUES (1), (2), (3)",
    )
    table = f"{database}.t"
    slow = replace(state(table, where={table: "SLEEP(1) = 0"}), without_key=True)
    running = (
        "SELECT id AS id FROM information_schema.processlist WHERE info LIKE '%SLEEP(1)%' AND id <> CONNECTION_ID()"
    )
    with SnapshotStream(source_server, rf"{database}\.t", slow, Copy({table: ("id",)})) as stream:
        found = until(lambda: source_server.query(running) or None, what="the SELECT")
        source_server.execute(f"KILL QUERY {found[0]['id']}")
        until(lambda: bool(stream.told), what="the failure")
        stream.done()
    assert stream.copy
    assert ids(stream.copy) == [1, 2, 3]


@pytest.mark.parametrize(
    "hiding",
    [
        lambda schema: DecodeOptions(field_black_filter=f"{schema}.t:Phone"),
        lambda schema: DecodeOptions(privacy_mask=rf"{schema}\.t:phone"),
        lambda schema: DecodeOptions(privacy_hash=rf"{schema}\.t:phone", privacy_key="k"),
    ],
    ids=["left out", "masked", "hashed"],
)
def test_a_condition_tells_no_values_of_a_hidden_column(
    source_server: SqlServer, database: str, hiding: Callable[[str], DecodeOptions]
) -> None:
    """The rows that come would answer every question about the column. Another column can be asked about."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, Phone VARCHAR(20))",
        f"INSERT INTO {database}.t VALUES (1, '555'), (2, '777')",
    )
    table = f"{database}.t"
    asks = state(table, where={table: "`PHONE` LIKE '5%'"})
    with SnapshotStream(source_server, rf"{database}\.t", asks, options=hiding(database)) as stream:
        assert f"{table}: the condition names Phone, whose values the client does not see" in stream.failed().error
    other_name = state(table, where={table: "_rowid > 1"})
    with SnapshotStream(source_server, rf"{database}\.t", other_name, options=hiding(database)) as stream:
        assert f"{table}: the condition has _rowid, which is neither a column" in stream.failed().error
    fits = state(table, where={table: "id > 1"})
    with SnapshotStream(source_server, rf"{database}\.t", fits, options=hiding(database)) as stream:
        assert stream.done().rows == 1


WAITS_FOR_THE_TABLE = "SELECT 1 FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock'"


class Between:
    """Runs statements between a chunk's SELECT and the look at the end of the binlog, once.

    They end there, or on MariaDB before the next SELECT if they wait for the snapshot's view of the table.
    before: before the SELECT instead. at: the number of the SELECT, from 1.
    """

    def __init__(
        self, patch: pytest.MonkeyPatch, server: SqlServer, *statements: str, before: bool = False, at: int = 2
    ) -> None:
        self.reads = 0
        self._pool = ThreadPoolExecutor(1)
        self._run: Future[None] | None = None

        def run() -> None:
            work = self._run = self._pool.submit(server.execute, *statements)
            until(lambda: work.done() or bool(server.query(WAITS_FOR_THE_TABLE)), what=f"{statements}")

        def reading(session: SourceSession, sql: str, most_bytes: int, memory: RowMemory) -> RawRows:
            self.reads += 1
            mine = self.reads == at
            if self._run:
                self._run.result(30)
            if before and mine:
                run()
            rows = read_rows(session, sql, most_bytes, memory)
            if not before and mine:
                run()
            return rows

        patch.setattr(READ_ROWS, reading)


def before_selects(patch: pytest.MonkeyPatch, act: Callable[[SourceSession, str, int], object]) -> None:
    """Call `act` before each SELECT of a chunk, with its session, its text and its number, from 1."""
    numbers = count(1)

    def reading(session: SourceSession, sql: str, most_bytes: int, memory: RowMemory) -> RawRows:
        act(session, sql, next(numbers))
        return read_rows(session, sql, most_bytes, memory)

    patch.setattr(READ_ROWS, reading)


def test_the_key_is_renamed_while_the_table_is_looked_at(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Columns and key come from two questions. The snapshot does not take the table for one without a key."""
    table = filled(source_server, database, 6)
    ask = SourceSession.ask
    altered: list[str] = []

    def asking(session: SourceSession, sql: str, *values: object) -> list[dict[str, Any]]:
        if sql.startswith("SHOW INDEX") and not altered:
            altered.append(sql)
            source_server.execute(f"ALTER TABLE {table} CHANGE id uid BIGINT NOT NULL")
        return ask(session, sql, *values)

    monkeypatch.setattr(SourceSession, "ask", asking)
    copy = Copy({table: ("uid",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy) as stream:
        assert stream.done().rows == 6


def test_rows_that_change_meanwhile_are_left_out(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the chunk that are updated, removed, or get another key behind its SELECT come from the stream alone."""
    table = filled(source_server, database, 9)
    Between(
        monkeypatch,
        source_server,
        f"UPDATE {table} SET v = 'new' WHERE id = 4",
        f"DELETE FROM {table} WHERE id = 5",
        f"UPDATE {table} SET id = 60 WHERE id = 6",
        f"UPDATE {table} SET id = 6 WHERE id = 1",
    )
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert ids(copy) == [2, 3, 4, 6, 7, 8, 9, 60]
    assert copy.rows[table, ("4",)]["v"] == "new"
    assert copy.snapshot_rows == 7


def test_rows_that_change_between_two_pieces_of_a_chunk_are_left_out(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large chunk enters in pieces; what changes behind the first one comes from the stream alone."""
    table = filled(source_server, database, 100)
    source_server.execute(
        f"ALTER TABLE {table} MODIFY v LONGTEXT", f"UPDATE {table} SET v = CONCAT(id, REPEAT('x', 30000))"
    )
    copy = Copy({table: ("id",)})
    counts: list[int] = []
    puts: list[Reached] = []
    put = Junction.put

    def reading(session: SourceSession, sql: str, most_bytes: int, memory: RowMemory) -> RawRows:
        rows = read_rows(session, sql, most_bytes, memory)
        counts.append(rows.count)
        return rows

    def putting(
        junction: Junction, window: Window, end: Reached, make: Callable[[LogPosition], Segment | None]
    ) -> bool:
        puts.append(end)
        if len(puts) == 2:
            source_server.execute(
                f"UPDATE {table} SET v = 'new' WHERE id IN (1, 99)",
                f"DELETE FROM {table} WHERE id IN (2, 98)",
                f"UPDATE {table} SET id = 1000 WHERE id = 97",
            )
            until(lambda: (table, ("1000",)) in copy.rows, what="the changes")
        return put(junction, window, end, make)

    monkeypatch.setattr(READ_ROWS, reading)
    monkeypatch.setattr(Junction, "put", putting)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=SnapshotLimits()) as stream:
        last = stream.done()
        stream.caught_up(source_server)
    assert counts == [100]
    assert len(puts) > 2
    assert ids(copy) == sorted({*range(1, 101), 1000} - {2, 97, 98})
    for number in ids(copy):
        old = f"{97 if number == 1000 else number}" + "x" * 30000
        assert copy.rows[table, (str(number),)]["v"] == ("new" if number in (1, 99) else old)
    assert (copy.snapshot_rows, last.rows, last.chunks) == (97, 100, len(puts))


def test_rows_that_change_before_the_select_come_once_more(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes between the window's begin and the SELECT are left out of the chunk, because the stream has them."""
    table = filled(source_server, database, 9)
    Between(monkeypatch, source_server, f"UPDATE {table} SET v = 'new' WHERE id > 4", before=True)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert ids(copy) == list(range(1, 10))
    assert [copy.rows[table, (str(number),)]["v"] for number in (4, 5, 9)] == ["old", "new", "new"]


@pytest.mark.parametrize("before", [False, True], ids=["behind the SELECT", "before the SELECT"])
def test_a_statement_alters_the_table_meanwhile(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """The chunk is read again with the new columns, which its rows have behind the statement in the stream."""
    table = filled(source_server, database, 9)
    Between(
        monkeypatch,
        source_server,
        f"ALTER TABLE {table} ADD COLUMN w INT NOT NULL DEFAULT 5 FIRST, MODIFY v VARCHAR(60)",
        before=before,
    )
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
    assert ids(copy) == list(range(1, 10))
    assert all(copy.rows[table, (str(number),)].get("w") == "5" for number in range(4, 10))
    assert all("w" not in copy.rows[table, (str(number),)] for number in range(1, 4))


def test_statements_about_tables_with_similar_names_do_not_keep_a_snapshot_from_going_on(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every chunk was read again, for ever, while jobs created and dropped t_tmp."""
    table = filled(source_server, database, 9)
    numbers: list[int] = []

    def work(session: SourceSession, sql: str, number: int) -> None:
        numbers.append(number)
        source_server.execute(f"CREATE TABLE {table}_tmp (t INT)", f"DROP TABLE {table}_tmp")

    before_selects(monkeypatch, work)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\..*", state(table), copy, limits=FEW) as stream:
        stream.done()
    assert ids(copy) == list(range(1, 10))
    assert len(numbers) == 4


def test_a_snapshot_tells_that_statements_about_its_table_keep_it_from_going_on(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It read the same chunk again and again, and its state told nothing. The chunks become smaller."""
    table = filled(source_server, database, 60)
    calm = threading.Event()
    limits: list[str] = []

    def alter(session: SourceSession, sql: str, number: int) -> None:
        if not calm.is_set():
            limits.append(sql.rpartition(" LIMIT ")[2])
            source_server.execute(f"ALTER TABLE {table} COMMENT '{number}'")

    before_selects(monkeypatch, alter)
    copy = Copy({table: ("id",)})
    few = SnapshotLimits(rows_most=32)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=few) as stream:
        until(lambda: bool(stream.tries), what="a report")
        calm.set()
        stream.done()
    assert f"{table}: statements about the table come so often" in stream.tries[0]
    assert limits[:6] == ["32", "32", "16", "8", "4", "2"]
    assert ids(copy) == list(range(1, 61))


def test_the_key_of_the_table_changes_meanwhile(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is read again from its first row, by the new key."""
    table = filled(source_server, database, 9)
    Between(monkeypatch, source_server, f"ALTER TABLE {table} CHANGE id uid BIGINT NOT NULL")
    seen: list[Segment] = []
    with SnapshotStream(source_server, rf"{database}\.t", state(table), limits=FEW, before=seen.append) as stream:
        last = stream.done()
        keys = [part.after for each in stream.states() for part in each.ranges]
    assert last.rows == 12
    assert keys[:2] == [("id=3",), ("uid=3",)]


@pytest.mark.parametrize(
    ("statement", "columns"),
    [
        ("ALTER TABLE {0} DROP COLUMN w", {"id", "v"}),
        ("ALTER TABLE {0} ADD COLUMN x INT NOT NULL DEFAULT 7 AFTER id, DROP COLUMN w", {"id", "v", "x"}),
        ("ALTER TABLE {0} DROP PRIMARY KEY, ADD PRIMARY KEY (w, id)", {"id", "v", "w"}),
        ("ALTER TABLE {0} DROP PRIMARY KEY, ADD UNIQUE KEY (id)", {"id", "v", "w"}),
    ],
    ids=["drop", "drop and add", "another key", "unique instead of primary"],
)
def test_no_row_is_lost_when_columns_or_keys_change_meanwhile(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, statement: str, columns: set[str]
) -> None:
    """Rows behind the statement have its columns, and a new key begins the table again."""
    table = filled(source_server, database, 9)
    source_server.execute(f"ALTER TABLE {table} ADD COLUMN w INT NOT NULL DEFAULT 5", f"UPDATE {table} SET w = -id")
    Between(monkeypatch, source_server, statement.format(table))
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert ids(copy) == list(range(1, 10))
    assert all(set(copy.rows[table, (str(number),)]) == columns for number in range(4, 10))
    told = [facts["tables"] for event, facts in stream.told if event == "snapshot.begins_again"]
    assert told == ([table] if "ADD PRIMARY KEY" in statement else [])


OTHER_VALUES = {
    "a new column": [
        "ALTER TABLE {0} DROP PRIMARY KEY, DROP COLUMN id, ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY FIRST"
    ],
    "another column": [
        "ALTER TABLE {0} DROP PRIMARY KEY, CHANGE id x INT, CHANGE w id INT NOT NULL, ADD PRIMARY KEY (id)"
    ],
    "one after the other": [
        "ALTER TABLE {0} ADD UNIQUE KEY (w)",
        "ALTER TABLE {0} CHANGE id x INT",
        "ALTER TABLE {0} CHANGE w id INT NOT NULL",
        "ALTER TABLE {0} DROP PRIMARY KEY",
        "ALTER TABLE {0} ADD PRIMARY KEY (id)",
    ],
}


@pytest.mark.parametrize("behind", [False, True], ids=["while it is read", "behind the cursor"])
@pytest.mark.parametrize("name", OTHER_VALUES)
def test_no_row_is_lost_when_the_columns_of_the_key_get_other_values(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, name: str, behind: bool
) -> None:
    """The name of the key is the same, and its order. The place behind the last row is that of another row."""
    table = f"{database}.t"
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (id INT PRIMARY KEY, w INT NOT NULL, v INT)",
        *(f"INSERT INTO {table} VALUES ({number * 10}, {10 - number}, {number})" for number in range(1, 10)),
    )
    statements = [each.format(table) for each in OTHER_VALUES[name]]
    copy = Copy({table: ("v",)})
    start, snapshot = newest(source_server), state(table)
    if behind:
        snapshot = replace(snapshot, ranges=(SnapshotRange(0, ("id=60",)),), chunks=2, rows=6)
        source_server.execute(*statements)
    else:
        Between(monkeypatch, source_server, *statements, before=True)
    with SnapshotStream(source_server, rf"{database}\.t", snapshot, copy, start=start, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
        assert "snapshot.begins_again" in [event for event, _ in stream.told]
    assert sorted(int(key[0] or 0) for _, key in copy.rows) == list(range(1, 10))


def test_a_wider_key_begins_no_table_again(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its values are the same."""
    table = filled(source_server, database, 9)
    Between(monkeypatch, source_server, f"ALTER TABLE {table} MODIFY id BIGINT NOT NULL, MODIFY v TEXT", before=True)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        assert stream.done().rows == 9
        assert not stream.told
    assert ids(copy) == list(range(1, 10))


def test_the_key_is_dropped_meanwhile(source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The snapshot ends with an error that says what to do. If tables without a key are allowed, it goes on."""
    table = filled(source_server, database, 9)
    Between(monkeypatch, source_server, f"ALTER TABLE {table} DROP PRIMARY KEY")
    with SnapshotStream(source_server, rf"{database}\..*", state(table), limits=FEW) as stream:
        assert "canal-ha snapshot resume --without-key" in stream.failed().error
        assert not stream.failures
    source_server.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
    Between(monkeypatch, source_server, f"ALTER TABLE {table} DROP PRIMARY KEY")
    copy = Copy({table: ("id",)})
    allowed = replace(state(table), without_key=True)
    with SnapshotStream(source_server, rf"{database}\..*", allowed, copy, limits=FEW) as stream:
        assert stream.done().attempt_rows == 0
    assert ids(copy) == list(range(1, 10))


SHAPES = {
    "partitioned by range": (
        "id INT, v VARCHAR(50), PRIMARY KEY (id)",
        "PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (4), PARTITION b VALUES LESS THAN MAXVALUE)",
    ),
    "partitioned by hash": ("id INT, v VARCHAR(50), PRIMARY KEY (id)", "PARTITION BY HASH (id) PARTITIONS 4"),
    "virtual column": ("id INT PRIMARY KEY, v VARCHAR(50), w INT AS (id * 2) VIRTUAL", ""),
    "stored column": ("id INT PRIMARY KEY, v VARCHAR(50), w VARCHAR(60) AS (CONCAT(v, id)) STORED", ""),
    "unique key beside one that may be NULL": (
        "id INT NOT NULL, v VARCHAR(50), UNIQUE KEY a (v), UNIQUE KEY b (id)",
        "",
    ),
}


# MariaDB has no generated columns that are NOT NULL, and so none in such a key
MYSQL_SHAPES = {
    "stored column in the key": ("id INT, v VARCHAR(50), w INT AS (-id) STORED, PRIMARY KEY (w)", ""),
    "unique key of a stored column": ("id INT, v VARCHAR(50), w INT AS (10 - id) STORED NOT NULL, UNIQUE KEY (w)", ""),
}


@pytest.mark.parametrize("name", SHAPES)
def test_tables_of_every_shape(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Each row comes once, equal to the table's, also if it changes meanwhile."""
    _check_shape(source_server, database, monkeypatch, *SHAPES[name])


@pytest.mark.parametrize("name", MYSQL_SHAPES)
def test_generated_columns_in_the_key(mysql: MySQL, database: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They order the rows like others."""
    _check_shape(mysql, database, monkeypatch, *MYSQL_SHAPES[name])


def _check_shape(server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, columns: str, more: str) -> None:
    """Compare a snapshot of a table beside changes with the table."""
    table = f"{database}.t"
    server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} ({columns}) {more}",
        *(f"INSERT INTO {table} (id, v) VALUES ({number}, 'old{number}')" for number in range(1, 10)),
    )
    Between(
        monkeypatch,
        server,
        f"UPDATE {table} SET v = 'new' WHERE id = 5",
        f"DELETE FROM {table} WHERE id = 6",
        f"UPDATE {table} SET id = 40 WHERE id = 4",
        f"INSERT INTO {table} (id, v) VALUES (41, 'new41')",
    )
    copy = Copy({table: ("id",)})
    with SnapshotStream(server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(server)
    expected = server.query(f"SELECT * FROM {table}")
    assert {int(key[0] or 0): row for (_, key), row in copy.rows.items()} == {
        row["id"]: {name: None if value is None else str(value) for name, value in row.items()} for row in expected
    }


# the type of the key before and behind a statement, and values in the order that the key has before it
REORDERED = {
    "collation": (
        "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        ("'a'", "'b'", "'c'", "'D'", "'E'", "'f'", "'G'"),
    ),
    "charset": (
        "VARCHAR(9) CHARACTER SET latin1",
        "VARCHAR(9) CHARACTER SET utf8mb4",
        ("'a'", "'b'", "'ü'", "'v'", "'w'", "'x'", "'ÿz'"),
    ),
    "enum": (
        "ENUM('a', 'b', 'c', 'd', 'e', 'f', 'g')",
        "ENUM('g', 'f', 'e', 'd', 'c', 'b', 'a')",
        tuple(f"'{letter}'" for letter in "abcdefg"),
    ),
    "type": ("DATETIME", "TIMESTAMP", tuple(f"'2020-01-01 0{hour}:00:00'" for hour in range(7))),
}


@pytest.mark.parametrize("name", REORDERED)
def test_no_row_is_lost_when_the_order_of_the_key_changes_meanwhile(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The place behind the last row means nothing in another order: the table begins again."""
    before, behind, values = REORDERED[name]
    table = f"{database}.t"
    east = "SET SESSION time_zone = '+05:00'"
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k {before} NOT NULL, v INT, PRIMARY KEY (k))",
        *(f"INSERT INTO {table} VALUES ({value}, {number})" for number, value in enumerate(values)),
    )
    Between(monkeypatch, source_server, east, f"ALTER TABLE {table} MODIFY k {behind} NOT NULL")
    copy = Copy({table: ("v",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert sorted(int(key[0] or 0) for _, key in copy.rows) == list(range(7))


def test_a_table_that_begins_again_because_its_texts_are_ordered_otherwise_is_told(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The statement names no column of the key."""
    table = f"{database}.t"
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k VARCHAR(9) CHARACTER SET latin1 PRIMARY KEY, v INT)",
        *(f"INSERT INTO {table} VALUES ('{value}', {number})" for number, value in enumerate("aBcDeFg")),
    )
    statement = f"ALTER TABLE {table} CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    Between(monkeypatch, source_server, statement)
    copy = Copy({table: ("v",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert sorted(int(key[0] or 0) for _, key in copy.rows) == list(range(7))
    assert [facts["tables"] for event, facts in stream.told if event == "snapshot.begins_again"] == [table]


def test_a_column_that_is_gone_before_the_select_ends_no_snapshot(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SELECT names the column, because the table was looked at before."""
    table = filled(source_server, database, 9)

    def change(session: SourceSession, sql: str, number: int) -> None:
        if number == 2:
            session.query("ROLLBACK")  # MariaDB's view of the table
            source_server.execute(f"ALTER TABLE {table} CHANGE v w VARCHAR(50)")

    before_selects(monkeypatch, change)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
    assert ids(copy) == list(range(1, 10))
    assert all(("w" in row) == (int(key[0] or 0) > 3) for (_, key), row in copy.rows.items())


def test_the_table_is_emptied_meanwhile(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row of a chunk comes behind the TRUNCATE."""
    table = filled(source_server, database, 9)
    Between(monkeypatch, source_server, f"TRUNCATE TABLE {table}", f"INSERT INTO {table} VALUES (7, 'new')")
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert ids(copy) == [7]
    assert copy.rows[table, ("7",)]["v"] == "new"


@pytest.mark.parametrize("statement", ["DROP TABLE {0}", "RENAME TABLE {0} TO {0}_gone"])
def test_the_table_is_gone_meanwhile(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The snapshot ends with an error that names the table; the stream goes on."""
    table = filled(source_server, database, 9)
    Between(monkeypatch, source_server, statement.format(table))
    with SnapshotStream(source_server, rf"{database}\..*", state(table), limits=FEW) as stream:
        error = stream.failed().error
        assert f"there is no table {database}.t" in error
        who = "--destination example --client-id 1001"
        assert f"Once a table has this name again, run `canal-ha snapshot resume {who}`. To" in error
        other = filled(source_server, database, 1, "other")
        stream.caught_up(source_server)
        assert not stream.failures
        assert any(other.split(".")[1].encode() in bytes(segment.frames) for segment in stream.taken)


@pytest.fixture
def berlin() -> Iterator[None]:
    """Let the process have a time zone with summer time."""
    with zone("Europe/Berlin"):
        yield


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("before", [False, True], ids=["behind the SELECT", "before the SELECT"])
def test_two_keys_in_the_hour_that_summer_time_repeats(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Both have the same text in local time. A change of one does not lose the other, and brings no older row."""
    table = f"{database}.t"
    utc = "SET SESSION time_zone = '+00:00'"
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (k TIMESTAMP(6) NOT NULL, id INT, v VARCHAR(9), PRIMARY KEY (k))",
        utc,
        *(f"INSERT INTO {table} VALUES ('2020-10-25 0{number}:30:00', {number}, 'old')" for number in range(5)),
    )
    Between(monkeypatch, source_server, utc, f"UPDATE {table} SET v = 'new' WHERE id = 1", before=before, at=1)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert {row["id"]: row["v"] for row in copy.rows.values()} == {
        "0": "old",
        "1": "new",
        "2": "old",
        "3": "old",
        "4": "old",
    }


@pytest.mark.parametrize("options", [DecodeOptions(), DecodeOptions(filter_query_ddl=True)], ids=["shown", "filtered"])
@pytest.mark.parametrize("before", [False, True], ids=["behind the SELECT", "before the SELECT"])
@pytest.mark.parametrize(
    "statement",
    ["RENAME TABLE {0} TO {0}_old, {0}_new TO {0}", "ALTER TABLE {0}_parts EXCHANGE PARTITION p0 WITH TABLE {0}"],
    ids=["rename", "exchange"],
)
def test_another_table_takes_the_name(
    source_server: SqlServer,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    statement: str,
    before: bool,
    options: DecodeOptions,
) -> None:
    """Its rows do not come from the stream, so it is read from the first one, also if a filter drops the statement."""
    table = filled(source_server, database, 9)
    parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    for other, more in (("t_new", ""), ("t_parts", parts)):
        source_server.execute(
            f"CREATE TABLE {database}.{other} (id INT PRIMARY KEY, v VARCHAR(50)) {more}",
            *(f"INSERT INTO {database}.{other} VALUES ({number}, 'new')" for number in (1, 2, 6, 10)),
        )
    Between(monkeypatch, source_server, statement.format(table), before=before)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW, options=options) as stream:
        last = stream.done()
        told = [(event, facts["tables"]) for event, facts in stream.told]
    assert [number for number in ids(copy) if copy.rows[table, (str(number),)]["v"] == "new"] == [1, 2, 6, 10]
    assert last.ranges == ()
    assert told == [("snapshot.begins_again", table)]


def test_a_file_with_other_rows_is_imported_meanwhile(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ALTER TABLE ... IMPORT TABLESPACE brings rows that do not come from the stream."""
    table, new = filled(source_server, database, 9), filled(source_server, database, 9, "new")
    source_server.execute(f"UPDATE {new} SET v = 'new', id = id - 5")
    files = source_server.data / database
    with source_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"FLUSH TABLES {new} FOR EXPORT")
        for end in ("ibd", "cfg"):
            shutil.copy2(files / f"new.{end}", files / f"kept.{end}")
        cursor.execute("UNLOCK TABLES")
    found = files.stat()
    owner = (found.st_uid, found.st_gid)

    def import_rows(session: SourceSession, sql: str, number: int) -> None:
        if number == 2:
            source_server.execute(f"ALTER TABLE {table} DISCARD TABLESPACE")
            for end in ("ibd", "cfg"):
                (files / f"kept.{end}").rename(files / f"t.{end}")
                shutil.chown(files / f"t.{end}", *owner)
            source_server.execute(f"ALTER TABLE {table} IMPORT TABLESPACE")

    before_selects(monkeypatch, import_rows)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        stream.done()
        stream.caught_up(source_server)
    assert [number for number in ids(copy) if copy.rows[table, (str(number),)]["v"] == "new"] == list(range(-4, 5))


def test_a_table_with_other_columns_takes_the_name(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools for online changes swap two tables: all rows have the columns of the new one."""
    table, new = filled(source_server, database, 9), filled(source_server, database, 9, "new")
    source_server.execute(f"ALTER TABLE {new} ADD COLUMN w INT NOT NULL DEFAULT 5")
    Between(monkeypatch, source_server, f"RENAME TABLE {table} TO {database}.old, {new} TO {table}")
    copy = Copy({table: ("id",), new: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.(t|new)", state(table), copy, limits=FEW) as stream:
        stream.done()
    assert ids(copy) == list(range(1, 10))
    assert all(copy.rows[table, (str(number),)].get("w") == "5" for number in range(1, 10))


def test_no_cursor_behind_a_swap_goes_on_in_the_new_table(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node can end when its client has acknowledged the statement, and no chunk behind it."""
    table, new = filled(source_server, database, 9), filled(source_server, database, 9, "new")
    source_server.execute(f"UPDATE {new} SET v = 'new'")
    Between(monkeypatch, source_server, f"RENAME TABLE {table} TO {database}.old, {new} TO {table}")
    with SnapshotStream(source_server, rf"{database}\.t", state(table), limits=FEW) as first:
        first.done()
    kinds = [each.kinds[0] for each in first.taken]
    swap = kinds.index(EntryKind.DDL)
    before = [each.chunk_end for each in first.taken[:swap] if each.chunk_end]
    assert SnapshotState.from_text(before[0].snapshot) != SnapshotState.from_text(before[-1].snapshot)
    kept = SnapshotState.from_text(before[-1].snapshot)
    assert kept is not None
    assert kept.ranges == ()
    statement = first.taken[swap]
    cursor = replace(statement.position(0, consumed=True), snapshot=kept.text)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", kept, copy, start=cursor, limits=FEW) as second:
        second.done()
    assert ids(copy) == list(range(1, 10))
    assert {row["v"] for row in copy.rows.values()} == {"new"}


@pytest.mark.parametrize("statement", ["DROP TABLE {0}", "RENAME TABLE {0} TO {0}_gone"])
def test_another_table_takes_the_name_of_one_that_is_gone(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """The snapshot has failed in between. When it is resumed, it reads the new table from its first row."""
    table, new = filled(source_server, database, 9), filled(source_server, database, 9, "new")
    source_server.execute(f"UPDATE {new} SET v = 'new'")
    Between(monkeypatch, source_server, statement.format(table))
    with SnapshotStream(source_server, rf"{database}\.t", state(table), limits=FEW) as first:
        first.failed()
        cursor = first.chunks()[0].chunk_end
    assert cursor is not None
    resume = SnapshotRequest(SnapshotAction.RESUME)
    resumed = changed(failed(cursor.snapshot, first.ended), resume, "", 0)
    source_server.execute(f"ALTER TABLE {new} RENAME TO {table}")
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", resumed, copy, limits=FEW) as second:
        second.done()
    assert ids(copy) == list(range(1, 10))
    assert {row["v"] for row in copy.rows.values()} == {"new"}


@pytest.mark.parametrize(
    ("gone", "back"),
    [
        ("RENAME TABLE {0}.t TO {0}.old", "RENAME TABLE {0}.new TO {0}.t"),
        ("DROP TABLE {0}.t", "ALTER TABLE {0}.new RENAME TO {0}.t"),
    ],
    ids=["rename", "drop"],
)
def test_a_table_that_is_swapped_in_two_steps_ends_no_snapshot(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch, gone: str, back: str
) -> None:
    """Between the two there is no table of this name. The snapshot failed for good if it looked then."""
    table, new = filled(source_server, database, 9), filled(source_server, database, 9, "new")
    source_server.execute(f"UPDATE {new} SET v = 'new'")
    Between(monkeypatch, source_server, gone.format(database), before=True)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        until(lambda: bool(stream.tries or stream.ended), what="a look at the table")
        source_server.execute(back.format(database))
        stream.done()
    assert f"there is no table {table}" in stream.tries[0]
    assert ids(copy) == list(range(1, 10))
    assert {row["v"] for row in copy.rows.values()} == {"new"}


def test_a_table_is_swapped_again_and_again(source_server: SqlServer, database: str) -> None:
    """Each swap begins it again. It ends when the swaps do, and the log tells them."""
    table, new = filled(source_server, database, 60), filled(source_server, database, 60, "new")
    source_server.execute(f"UPDATE {new} SET v = 'new'")

    def swap(stopping: threading.Event) -> None:
        for _ in range(7):
            source_server.execute(
                f"RENAME TABLE {table} TO {database}.between, {new} TO {table}, {database}.between TO {new}"
            )
            time.sleep(0.15)

    copy = Copy({table: ("id",), new: ("id",)})
    limits = SnapshotLimits(rows_most=3, rows_per_s=60, connections=2)
    stream = SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=limits)
    with stream, beside(swap):
        stream.done()
    assert {row["v"] for row in copy.rows.values()} == {"new"}
    assert ids(copy) == list(range(1, 61))
    assert "snapshot.begins_again" in [event for event, _ in stream.told]


def test_the_connection_of_the_snapshot_is_killed(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot connects again and goes on behind its last chunk; the stream does not notice."""
    table = filled(source_server, database, 30)
    killed: list[int] = []

    def kill(session: SourceSession, sql: str, number: int) -> None:
        if not killed and "`id` > 6" in sql:
            killed.append(int(session.query("SELECT CONNECTION_ID() AS id")[0]["id"]))
            source_server.execute(f"KILL {killed[0]}")

    before_selects(monkeypatch, kill)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
        last = stream.done()
        assert not stream.failures
        assert [event for event, _ in stream.told] == ["snapshot.failing"]
        failure, went_on = stream.tries
        assert failure
        assert not went_on
    assert ids(copy) == list(range(1, 31))
    assert last.rows == 30


def test_a_snapshot_goes_on_behind_the_last_acknowledged_chunk(source_server: SqlServer, database: str) -> None:
    """A new feed with the cursor of any chunk reads the rows behind it, and no row of the stream is lost."""
    table = filled(source_server, database, 20)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), limits=FEW) as first:
        first.done()
        cursor = first.chunks()[2].chunk_end
    assert cursor is not None
    source_server.execute(f"INSERT INTO {table} VALUES (100, 'new')", f"UPDATE {table} SET v = 'new' WHERE id = 1")
    kept = SnapshotState.from_text(cursor.snapshot)
    assert kept is not None
    assert kept.ranges == (SnapshotRange(0, ("id=9",)),)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", kept, copy, start=cursor, limits=FEW) as second:
        second.done()
        second.caught_up(source_server)
    assert ids(copy) == [1, *range(10, 21), 100]
    assert copy.rows[table, ("1",)]["v"] == "new"


def test_every_cursor_of_a_chunk_loses_no_row_of_the_stream(source_server: SqlServer, database: str) -> None:
    """A chunk's cursor lies between two transactions: what came before it does not come again, all others do."""
    table = filled(source_server, database, 12)
    other = filled(source_server, database, 1, "other")

    def write(stopping: threading.Event) -> None:
        with source_server.connect() as connection, connection.cursor() as cursor:
            number = 2
            while not stopping.is_set():
                cursor.execute(f"INSERT INTO {other} VALUES ({number}, 'new')")
                number += 1
                time.sleep(0.002)

    first = SnapshotStream(source_server, rf"{database}\..*", state(table), limits=FEW)
    with beside(write), first:
        first.done()
    keys = {table: ("id",), other: ("id",)}
    for at, chunk in enumerate(first.taken):
        if chunk.chunk_end is None:
            continue
        before = Copy(keys)
        for segment in first.taken[:at]:
            before.take(segment.entries())
        seen = [int(key[0] or 0) for name, key in before.rows if name == other]
        rest = Copy(keys)
        paused = SnapshotState("s1", (table,), phase=SnapshotPhase.PAUSED)
        with SnapshotStream(source_server, rf"{database}\..*", paused, rest, start=chunk.chunk_end) as stream:
            stream.caught_up(source_server)
        coming = [int(key[0] or 0) for name, key in rest.rows if name == other]
        assert sorted([*seen, *coming]) == list(range(2, rows_of(source_server, other) + 1))


def test_a_full_ring_holds_the_snapshot_back(source_server: SqlServer, database: str) -> None:
    """A snapshot holds no more than one chunk that the ring does not take, and ends at once when it is stopped."""
    table = filled(source_server, database, 60)
    stream = SnapshotStream(source_server, rf"{database}\.t", state(table), limits=FEW)
    stream.room.clear()
    with stream:
        until(stream.blocked.is_set, what="a chunk")
        time.sleep(0.3)
        assert not stream.taken
        stream.room.set()
        stream.done()


def test_a_prepared_transaction_is_waited_for(source_server: SqlServer, database: str) -> None:
    """If rows are delivered at XA PREPARE, a chunk without them would bring older ones behind them."""
    table = filled(source_server, database, 9)
    copy = Copy({table: ("id",)})
    stream = SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FEW, xa=WhenXa.PREPARE)
    xid = f"'{database}'"
    source_server.execute(
        f"XA START {xid}", f"UPDATE {table} SET v = 'new' WHERE id = 5", f"XA END {xid}", f"XA PREPARE {xid}"
    )
    with stream:
        until(lambda: len(stream.chunks()) == 1, what="the first chunk")
        until(lambda: (table, ("5",)) in copy.rows, what="the prepared row")
        time.sleep(0.3)
        assert len(stream.chunks()) == 1
        source_server.execute(f"XA COMMIT {xid}")
        stream.done()
    assert ids(copy) == list(range(1, 10))
    assert copy.rows[table, ("5",)]["v"] == "new"


def test_rows_that_change_before_a_locking_read_of_mariadb(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With innodb_snapshot_isolation, the default since 11.6.2, a locking read in a transaction that opened before the
    change is an error, so a table with many writers would never be read.
    """
    with MariaDB(extra=["--loose-innodb-snapshot-isolation=ON"]) as server:
        table = filled(server, database, 9)
        Between(monkeypatch, server, f"UPDATE {table} SET v = 'new' WHERE id = 5", before=True)
        copy = Copy({table: ("id",)})
        stream = SnapshotStream(server, rf"{database}\.t", state(table), copy, limits=FEW, xa=WhenXa.PREPARE)
        with stream:
            stream.done()
            stream.caught_up(server)
    assert not stream.told
    assert ids(copy) == list(range(1, 10))
    assert copy.rows[table, ("5",)]["v"] == "new"


def test_a_large_row_ends_its_chunk(source_server: SqlServer, database: str) -> None:
    """Rows beyond the bytes of a chunk come with the next ones, and no row is lost or comes twice."""
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v LONGTEXT)",
        *(f"INSERT INTO {database}.t VALUES ({number}, REPEAT('x', 600000))" for number in range(1, 13)),
        f"INSERT INTO {database}.t VALUES (13, REPEAT('y', 3000000))",
    )
    table = f"{database}.t"
    copy = Copy({table: ("id",)})
    limits = SnapshotLimits(bytes_most=1 << 20)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=limits) as stream:
        last = stream.done()
        sizes = [segment.ends[-1] for segment in stream.chunks()]
    assert ids(copy) == list(range(1, 14))
    assert last.rows == 13
    assert max(sizes) < 6_000_000


def test_a_row_of_several_packets(source_server: SqlServer, database: str) -> None:
    """A row of more than 16 MiB is read whole."""
    source_server.execute("SET GLOBAL max_allowed_packet = 67108864")
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v LONGTEXT)",
        f"INSERT INTO {database}.t VALUES (1, REPEAT('x', 17000000)), (2, 'y'), (3, REPEAT('z', 16777209))",
    )
    table = f"{database}.t"
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy) as stream:
        stream.done()
    lengths = {key[0]: len(row["v"] or "") for (_, key), row in copy.rows.items()}
    assert lengths == {"1": 17000000, "2": 1, "3": 16777209}


@pytest.mark.nightly("test_a_row_of_several_packets")
@pytest.mark.parametrize("without_key", [False, True], ids=["key", "no key"])
def test_a_row_of_64_mib(source_server: SqlServer, database: str, without_key: bool) -> None:
    """It comes whole."""
    size = 64 << 20
    source_server.execute(f"SET GLOBAL max_allowed_packet = {4 * size}")
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {database}.t (id INT{'' if without_key else ' PRIMARY KEY'}, v LONGTEXT)",
        f"INSERT INTO {database}.t VALUES (1, 'y'), (2, REPEAT('x', {size})), (3, 'z')",
    )
    table = f"{database}.t"
    snapshot = replace(state(table), without_key=without_key)
    with SnapshotStream(source_server, rf"{database}\.t", snapshot) as stream:
        assert stream.done(120).rows == 3
        chunks = stream.chunks()
    assert sum(sum(chunk.row_counts) for chunk in chunks) == 3
    assert size < sum(chunk.ends[-1] for chunk in chunks) < size + 2000


def test_rows_a_second(source_server: SqlServer, database: str) -> None:
    """The option bounds the rows a second."""
    table = filled(source_server, database, 20)
    began = time.monotonic()
    limits = SnapshotLimits(rows_most=5, rows_per_s=20)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), limits=limits) as stream:
        stream.done()
    assert time.monotonic() - began > 0.7


def test_the_limit_of_a_snapshot_goes_before_the_configured_one(source_server: SqlServer, database: str) -> None:
    """`--rows-per-second` sets it."""
    table = filled(source_server, database, 20)
    began = time.monotonic()
    limits = SnapshotLimits(rows_per_s=1)
    snapshot = replace(state(table), rows_per_s_most=20)
    with SnapshotStream(source_server, rf"{database}\.t", snapshot, limits=limits) as stream:
        stream.done()
    assert time.monotonic() - began < 10


def test_a_stop_ends_the_thread_at_once(source_server: SqlServer, database: str) -> None:
    """A SELECT that takes long does not delay the stop."""
    table = filled(source_server, database, 5)
    snapshot = state(table, where={table: "SLEEP(20) = 0"})
    with SnapshotStream(source_server, rf"{database}\.t", snapshot):
        time.sleep(0.5)
        threads = [each for each in threading.enumerate() if each.name.startswith("snapshot-")]
        began = time.monotonic()
    assert len(threads) == 1
    threads[0].join(5)
    assert not threads[0].is_alive()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""], ids=["key", "no key"])
@pytest.mark.parametrize("connections", [1, 4])
def test_no_select_goes_on_on_the_server_after_a_stop(
    source_server: SqlServer, database: str, key: str, connections: int
) -> None:
    """A server does not notice that a client has gone while it finds no row to send. Other sessions are left alone."""
    source_server.execute(f"CREATE DATABASE {database}")
    tables = [f"{database}.t{number}" for number in range(connections)]
    for table in tables:
        source_server.execute(f"CREATE TABLE {table} (id INT {key})", f"INSERT INTO {table} VALUES (1), (2), (3)")
    slow = replace(state(*tables, where=dict.fromkeys(tables, "SLEEP(20) = 7")), without_key=True)
    limits = SnapshotLimits(rows_most=9, connections=connections)
    beside = source_server.connect()
    other = int(beside.thread_id())  # type: ignore[no-untyped-call] # PyMySQL's

    def running(who: str = "<>") -> list[int]:
        shown = f"SELECT id AS id FROM information_schema.processlist WHERE id {who} {other}"
        found = source_server.query(f"{shown} AND info LIKE '%SLEEP(20)%' AND id <> CONNECTION_ID()")
        return [int(each["id"]) for each in found]

    def sleep() -> None:
        with suppress(pymysql.MySQLError):
            beside.cursor().execute("SELECT SLEEP(20)")

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    for _ in range(2):
        with SnapshotStream(source_server, rf"{database}\..*", slow, limits=limits):
            until(lambda: len(running()) == (connections if key else 1) or None, what="the SELECTs")
            began = time.monotonic()
        assert time.monotonic() - began < 2
        until(lambda: not running(), seconds=5, what="their end")
    assert running("=") == [other]
    source_server.execute(f"KILL {other}")
    thread.join(10)


def test_a_select_whose_connection_breaks_does_not_go_on_beside_the_next_one(
    source_server: SqlServer, database: str
) -> None:
    """The server keeps it when the node's time-out for an answer is over."""
    table = filled(source_server, database, 5)
    slow = state(table, where={table: "SLEEP(9) = 7"})
    shown = "SELECT id FROM information_schema.processlist WHERE info LIKE '%SLEEP(9)%' AND id <> CONNECTION_ID()"
    with SnapshotStream(source_server, rf"{database}\.t", slow, so_timeout_s=1.0) as stream:
        until(lambda: len(stream.tries) == 3, what="three attempts")
        until(lambda: len(source_server.query(shown)) <= 1, seconds=3, what="the end of the first two")


def test_a_select_that_takes_too_long_is_made_smaller(source_server: SqlServer, database: str) -> None:
    """The server ends the SELECT after the limit; then fewer rows are asked for, at last one."""
    table = filled(source_server, database, 6)
    limits = SnapshotLimits(rows_most=6, select_s=0.5)
    snapshot = state(table, where={table: "SLEEP(0.2) = 0"})
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", snapshot, copy, limits=limits) as stream:
        stream.done()
        chunks = len(stream.chunks())
    assert ids(copy) == list(range(1, 7))
    assert chunks >= 3


@pytest.fixture
def mysql_without_gtids() -> Iterator[SqlServer]:
    """Yield MySQL without GTIDs and performance schema."""
    with MySQL(gtid=False) as server:
        yield server


def test_a_locking_read_waits_for_a_row_and_no_longer(mysql_without_gtids: SqlServer, database: str) -> None:
    """Without GTIDs the chunk waits for the transactions that change its rows, and sees what they commit."""
    server = mysql_without_gtids
    table = filled(server, database, 6)
    copy = Copy({table: ("id",)})
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET v = 'new' WHERE id = 5")
        with SnapshotStream(server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
            until(lambda: len(stream.chunks()) == 1, what="the first chunk")
            time.sleep(0.3)
            assert len(stream.chunks()) == 1
            connection.commit()
            stream.done()
    assert copy.rows[table, ("5",)]["v"] == "new"


def test_chunks_lock_their_rows_when_somebody_turns_gtids_off(database: str) -> None:
    """Transactions own no GTIDs then, and a SELECT does not see those that the stream has brought."""
    with MySQL() as server:
        table = filled(server, database, 9)
        copy = Copy({table: ("id",)})
        first = threading.Event()
        go_on = threading.Event()

        def before(segment: Segment) -> None:
            if segment.chunk_end and not first.is_set():
                first.set()
                go_on.wait(20)

        with SnapshotStream(server, rf"{database}\.t", state(table), copy, limits=FEW, before=before) as stream:
            assert first.wait(20)
            server.execute("SET GLOBAL gtid_mode = ON_PERMISSIVE", "SET GLOBAL gtid_mode = OFF_PERMISSIVE")
            with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
                cursor.execute(f"UPDATE {table} SET v = 'new' WHERE id = 5")
                go_on.set()
                until(lambda: bool(stream.tries), what="a report")
                time.sleep(1.5)
                assert len(stream.chunks()) == 1
                connection.commit()
            stream.done()
        assert "gtid_mode is OFF_PERMISSIVE" in stream.tries[0]
        assert ids(copy) == list(range(1, 10))


def test_a_row_that_stays_locked_is_reported(database: str) -> None:
    """The chunk is read again and again. Who looks for the cause finds it in the log, and the snapshot then goes on."""
    with MySQL(gtid=False, extra=["--innodb-lock-wait-timeout=1"]) as server:
        table = filled(server, database, 6)
        copy = Copy({table: ("id",)})
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            cursor.execute(f"UPDATE {table} SET v = 'new' WHERE id = 5")
            with SnapshotStream(server, rf"{database}\.t", state(table), copy, limits=FEW) as stream:
                until(lambda: bool(stream.told), what="a report")
                connection.commit()
                stream.done()
                told = stream.told[0]
    assert told[0] == "snapshot.failing"
    assert f"{table}: another transaction keeps a lock that the snapshot waits for" in str(told[1]["error"])
    assert ids(copy) == list(range(1, 7))
    assert copy.rows[table, ("5",)]["v"] == "new"


def test_a_stream_that_ended_for_good_keeps_no_connection_for_its_snapshot(
    source_server: SqlServer, database: str
) -> None:
    """Its client may ask again and again. An open read of a table without a key costs the server all that time."""
    source_server.execute(f"CREATE DATABASE {database}", f"CREATE TABLE {database}.t (id INT)")
    gone = replace(newest(source_server), journal="mysql-bin.000000")
    snapshot = replace(state(f"{database}.t"), without_key=True)
    with SnapshotStream(source_server, rf"{database}\..*", snapshot, start=gone) as stream:
        until(lambda: bool(stream.failures), what="the end of the stream")
        until(
            lambda: not any(each.name.startswith("snapshot-") for each in threading.enumerate()),
            what="the end of the snapshot's thread",
        )
