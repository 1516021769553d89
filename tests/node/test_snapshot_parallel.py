"""A snapshot that several connections read side by side, on real servers: parts of one table, and several tables."""

from __future__ import annotations

import pytest

from canal_ha.config.model import SnapshotLimits
from canal_ha.model.snapshot import SnapshotState
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.snapshot.result_set import RawRows, RowMemory, read_rows
from lab import SqlServer
from tests.node.snapshots import Copy, SnapshotStream, state
from tests.node.test_snapshot import KEYS, READ_ROWS, Between, filled, ids
from tests.waiting import until

pytestmark = pytest.mark.real

FOUR = SnapshotLimits(rows_most=3, connections=4)
SLOW = SnapshotLimits(rows_most=3, connections=4, rows_per_s=40)  # a statement comes in time,
SLOWEST = SnapshotLimits(rows_most=3, connections=4, rows_per_s=12)  # also one that waits for a lock on a busy machine


def parts(stream: SnapshotStream) -> int:
    """Return how many parts of one table were left at once."""
    return max(len([part for part in each.ranges if part.table == 0]) for each in stream.states())


@pytest.mark.parametrize(
    "name", ["composite", "collation", "binary", "unsigned", "decimal", "datetime", "double", "enum", "bit"]
)
def test_keys_of_every_kind_are_split(source_server: SqlServer, database: str, name: str) -> None:
    """Each row comes once. A key that no index serves is read over one connection."""
    columns, key, values = KEYS[name]
    table = f"{database}.t"
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} ({', '.join(f'{column} NOT NULL' for column in columns)}, v INT, PRIMARY KEY ({key}))",
        *(f"INSERT INTO {table} VALUES ({value}, {number})" for number, value in enumerate(values)),
        f"ANALYZE TABLE {table}",
    )
    copy = Copy({table: ("v",)})
    limits = SnapshotLimits(rows_most=2, connections=4)
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=limits) as stream:
        last = stream.done()
    assert ids(copy) == list(range(len(values)))
    assert copy.snapshot_rows == last.rows == len(values)
    if name == "enum":
        assert parts(stream) <= 1


@pytest.mark.parametrize(
    "rows",
    [
        [*range(1, 60), 9223372036854775807],
        [-9223372036854775808, *range(1, 60)],
        [1, *range(10**12, 10**12 + 60)],
        [2**number for number in range(60)],
    ],
    ids=["one far above", "one far below", "far away", "powers"],
)
def test_skewed_keys_are_split(source_server: SqlServer, database: str, rows: list[int]) -> None:
    """Parts have rows although nearly all values between the first key and the last one have none."""
    table = f"{database}.t"
    source_server.execute(
        f"CREATE DATABASE {database}",
        f"CREATE TABLE {table} (id BIGINT PRIMARY KEY)",
        f"INSERT INTO {table} VALUES {', '.join(f'({row})' for row in rows)}",
        f"ANALYZE TABLE {table}",
    )
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FOUR) as stream:
        last = stream.done()
    assert ids(copy) == rows
    assert last.rows == len(rows)
    assert parts(stream) > 1


def test_tables_of_no_row_and_of_one_row(source_server: SqlServer, database: str) -> None:
    """They end like all others, beside each other."""
    names = [filled(source_server, database, rows, f"t{number}") for number, rows in enumerate((0, 1, 0, 30, 1, 0))]
    copy = Copy(dict.fromkeys(names, ("id",)))
    with SnapshotStream(source_server, rf"{database}\..*", state(*names), copy, limits=FOUR) as stream:
        last = stream.done()
        states = stream.states()
    assert ids(copy) == [1, 1, *range(1, 31)]
    assert (last.rows, last.table, last.ranges) == (32, 6, ())
    assert [each.chunks for each in states] == list(range(1, last.chunks + 1))


def test_a_snapshot_goes_on_with_every_part(source_server: SqlServer, database: str) -> None:
    """A new feed with the cursor of any chunk reads the rest of each part, over fewer connections or more."""
    table = filled(source_server, database, 60)
    first_copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), first_copy, limits=FOUR) as first:
        first.done()
        cursors = [each.chunk_end for each in first.taken if each.chunk_end is not None]
    assert parts(first) > 1
    for number in range(0, len(cursors), 4):
        kept = SnapshotState.from_text(cursors[number].snapshot)
        assert kept is not None
        copy = Copy({table: ("id",)})
        for segment in first.taken[: number + 1]:
            copy.take(segment.entries())
        if kept.active:
            limits = SnapshotLimits(rows_most=3, connections=1 + number % 3)
            with SnapshotStream(
                source_server, rf"{database}\.t", kept, copy, start=cursors[number], limits=limits
            ) as second:
                second.done()
        assert ids(copy) == list(range(1, 61))
        assert copy.snapshot_rows == 60


def test_a_statement_alters_the_table_beside_several_connections(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each connection reads on with the new columns."""
    table = filled(source_server, database, 60)
    Between(monkeypatch, source_server, f"ALTER TABLE {table} ADD COLUMN w INT NOT NULL DEFAULT 5 FIRST")
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=SLOW) as stream:
        last = stream.done()
    assert ids(copy) == list(range(1, 61))
    assert last.rows == 60
    assert "5" in {row.get("w") for row in copy.rows.values()}


def test_the_key_changes_beside_several_connections(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts of the table begin again, as one, by the new key."""
    table = filled(source_server, database, 60)
    source_server.execute(f"UPDATE {table} SET v = id")
    Between(monkeypatch, source_server, f"ALTER TABLE {table} CHANGE id uid BIGINT NOT NULL")
    copy = Copy({table: ("v",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=SLOWEST) as stream:
        stream.done()
    assert ids(copy) == list(range(1, 61))
    assert all("uid" in row for row in copy.rows.values())


def test_one_of_the_connections_is_killed(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its part is read by another one, or over a new connection."""
    table = filled(source_server, database, 60)
    killed: list[int] = []

    def reading(session: SourceSession, sql: str, most_bytes: int, memory: RowMemory) -> RawRows:
        if not killed and "`id` > 30" in sql and "LIMIT 3" in sql:
            killed.append(int(session.query("SELECT CONNECTION_ID() AS id")[0]["id"]))
            source_server.execute(f"KILL {killed[0]}")
        return read_rows(session, sql, most_bytes, memory)

    monkeypatch.setattr(READ_ROWS, reading)
    copy = Copy({table: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.t", state(table), copy, limits=FOUR) as stream:
        last = stream.done()
        assert not stream.failures
    assert ids(copy) == list(range(1, 61))
    assert last.rows == 60
    if killed:
        assert [event for event, _ in stream.told] == ["snapshot.failing"]


def test_a_missing_table_ends_all_connections(source_server: SqlServer, database: str) -> None:
    """The snapshot ends once, with the error of the connection that met it."""
    names = [filled(source_server, database, 30, f"t{number}") for number in range(3)]
    names.insert(1, f"{database}.gone")
    with SnapshotStream(source_server, rf"{database}\..*", state(*names), limits=FOUR) as stream:
        error = stream.failed().error
        assert f"{database}.gone" in error
        until(lambda: not stream.threads(), what="the end of the threads")


def test_a_full_ring_holds_all_connections_back(source_server: SqlServer, database: str) -> None:
    """Nothing enters, and a stop ends every thread at once."""
    table = filled(source_server, database, 60)
    stream = SnapshotStream(source_server, rf"{database}\.t", state(table), limits=FOUR)
    stream.room.clear()
    with stream:
        until(stream.blocked.is_set, what="a chunk")
        until(lambda: len(stream.threads()) == 4, what="four threads")
        assert not stream.taken
    until(lambda: not stream.threads(), what="the end of the threads", seconds=5)
