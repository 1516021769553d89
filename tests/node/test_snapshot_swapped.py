"""Another table takes the name of one that a snapshot has read, or reads: in every phase, all of its rows come."""

from __future__ import annotations

from dataclasses import replace

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind
from canal_ha.model.snapshot import (
    SnapshotAction,
    SnapshotPhase,
    SnapshotRange,
    SnapshotRequest,
    SnapshotState,
    advanced,
    changed,
    failed,
)
from canal_ha.source.connection.session import SourceSession
from lab import Node, SqlServer, follow
from lab.ports import LOOPBACK
from tests.node import test_snapshot_of_client as of_client
from tests.node.following import following, stream_of
from tests.node.snapshots import Copy, SnapshotStream, state
from tests.node.test_snapshot import FEW, Between, before_selects, filled
from tests.source.reading import newest
from tests.waiting import until

pytestmark = pytest.mark.real

SWAP = "RENAME TABLE {0}.t TO {0}.old, {0}.new TO {0}.t"


def swapping(server: SqlServer, database: str, rows: int = 9) -> str:
    """Create a table with rows 1 to `rows`, and another one with other rows that will take its name; return the name.

    The other table has the rows 1 to 9.
    """
    table, new = filled(server, database, rows), filled(server, database, 9, "new")
    server.execute(f"UPDATE {new} SET v = 'new'")
    return table


def new_rows(copy: Copy, table: str) -> list[int]:
    """Return the ids of the rows of the table that has the name now."""
    return sorted(int(key[0] or 0) for (name, key), row in copy.rows.items() if (name, row["v"]) == (table, "new"))


def stored_state(text: str) -> SnapshotState:
    found = SnapshotState.from_text(text)
    assert found is not None
    return found


def acknowledged(stream: SnapshotStream, stored: str) -> tuple[LogPosition, str]:
    """Return the end of all that a stream has brought, and the stored text after a client has acknowledged that."""
    for segment in stream.taken:
        if segment.chunk_end:
            stored = advanced(stored, segment.chunk_end.snapshot)
    last = stream.taken[-1]
    return last.position(len(last) - 1, consumed=True), stored


def rest_of(server: SqlServer, resumed: SnapshotState, table: str, start: LogPosition | None = None) -> list[int]:
    """Read a resumed snapshot to its end; return `new_rows` of what it brings. start: where; None: the binlog's end."""
    copy = Copy(dict.fromkeys(resumed.tables, ("id",)))
    tables = "|".join(each.replace(".", r"\.") for each in resumed.tables)
    with SnapshotStream(server, tables, resumed, copy, start=start, limits=FEW) as stream:
        stream.done()
    return new_rows(copy, table)


def test_no_row_of_a_swapped_table_is_lost_when_another_table_fails(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the new rows were on their way then. A stream of the failed snapshot passes the swap."""
    table, other = swapping(source_server, database), filled(source_server, database, 3, "u")
    swap = f"{SWAP.format(database)}, {other} TO {database}.gone"
    start = newest(source_server)
    Between(monkeypatch, source_server, swap)
    with SnapshotStream(source_server, rf"{database}\.(t|u)", state(table, other), start=start, limits=FEW) as first:
        assert other in first.failed().error
        cursor = first.chunks()[0].chunk_end
        assert len(first.chunks()) > 1
    assert cursor is not None
    stored = failed(cursor.snapshot, first.ended)
    resume = SnapshotRequest(SnapshotAction.RESUME, leave_out=(other,))
    resumed = changed(stored, resume, "s2", 0)
    assert rest_of(source_server, resumed, table) == list(range(1, 10))


@pytest.mark.parametrize("statement", [SWAP, "DROP TABLE {0}.t"], ids=["swap", "drop"])
@pytest.mark.parametrize("phase", [SnapshotPhase.PAUSED, SnapshotPhase.FAILED])
@pytest.mark.parametrize("ranges", [(SnapshotRange(0, ("id=6",)),), ()], ids=["begun", "read"])
def test_a_table_that_is_swapped_while_its_snapshot_does_not_run_is_read_again(
    source_server: SqlServer, database: str, phase: SnapshotPhase, ranges: tuple[SnapshotRange, ...], statement: str
) -> None:
    """It is paused or has failed. Nobody reads, but the statement passes."""
    table, other = swapping(source_server, database), filled(source_server, database, 3, "u")
    begun = replace(state(table, other), table=0 if ranges else 1, ranges=ranges, chunks=2, rows=6, phase=phase)
    with SnapshotStream(source_server, rf"{database}\.(t|u)", begun, Copy({other: ("id",)})) as first:
        source_server.execute(statement.format(database), f"INSERT INTO {other} VALUES (10, 'later')")
        first.caught_up(source_server)
        until(lambda: any(EntryKind.ROWS in each.kinds for each in first.taken), what="the change")
        told = [("snapshot.begins_again", {"client_id": 1001, "tables": table})]
        assert first.told == (told if ranges or statement == SWAP else [])
    if statement != SWAP:
        source_server.execute(f"RENAME TABLE {database}.new TO {table}")
    at, stored = acknowledged(first, begun.text)
    assert stored_state(stored).phase is phase
    resumed = changed(stored, SnapshotRequest(SnapshotAction.RESUME), "", 0)
    assert rest_of(source_server, resumed, table, at) == list(range(1, 10))


def test_a_table_that_was_read_is_read_again_when_another_one_takes_its_name(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot reads the next table at that moment."""
    table, other = swapping(source_server, database, 3), filled(source_server, database, 20, "u")

    def act(session: SourceSession, sql: str, number: int) -> None:
        if number == 4:
            source_server.execute(SWAP.format(database))

    before_selects(monkeypatch, act)
    copy = Copy({table: ("id",), other: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.(t|u)", state(table, other), copy, limits=FEW) as stream:
        last = stream.done()
        told = [facts["tables"] for event, facts in stream.told if event == "snapshot.begins_again"]
    assert new_rows(copy, table) == list(range(1, 10))
    assert told == [table]
    assert (last.table, last.ranges, last.phase) == (2, (), SnapshotPhase.DONE)


def test_a_swap_behind_a_failure_is_seen_by_the_same_stream(source_server: SqlServer, database: str) -> None:
    """The stream goes on when its snapshot fails, and nothing opens it again."""
    table, other = swapping(source_server, database), filled(source_server, database, 3, "u")
    source_server.execute(f"RENAME TABLE {other} TO {database}.gone")
    begun = replace(state(other, table), ranges=(SnapshotRange(0), SnapshotRange(1, ("id=6",))), chunks=2, rows=6)
    with SnapshotStream(source_server, rf"{database}\.t", begun, Copy({table: ("id",)}), limits=FEW) as first:
        stored = failed(begun.text, first.failed().text)
        source_server.execute(SWAP.format(database))
        first.caught_up(source_server)
        until(lambda: first.taken and EntryKind.DDL in first.taken[-1].kinds, what="the statement")
    at, stored = acknowledged(first, stored)
    resumed = changed(stored, SnapshotRequest(SnapshotAction.RESUME, leave_out=(other,)), "s2", 0)
    assert rest_of(source_server, resumed, table, at) == list(range(1, 10))


@pytest.mark.parametrize("phase", [SnapshotPhase.RUNNING, SnapshotPhase.FAILED])
def test_a_swap_that_the_client_has_not_acknowledged_counts_after_an_addition(
    source_server: SqlServer, database: str, phase: SnapshotPhase
) -> None:
    """The first stream has begun the table again, but only in what the client has not got."""
    table, other = swapping(source_server, database), filled(source_server, database, 3, "u")
    added = filled(source_server, database, 3, "w")
    begun = replace(state(table, other), table=1, chunks=2, rows=6, phase=phase)
    with SnapshotStream(source_server, rf"{database}\.(t|u)", begun, Copy({other: ("id",)}), limits=FEW) as first:
        source_server.execute(SWAP.format(database))
        first.caught_up(source_server)
        until(lambda: first.told, what="the new beginning")
    resumed = changed(begun.text, SnapshotRequest(SnapshotAction.ADD, (added,)), "s2", 0)
    assert rest_of(source_server, resumed, table, first.start) == list(range(1, 10))


def test_a_table_that_was_read_before_others_were_added_is_read_again_when_another_one_takes_its_name(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its condition counts for the other table, too."""
    table, other = swapping(source_server, database, 3), filled(source_server, database, 20, "u")
    added = filled(source_server, database, 3, "w")

    def act(session: SourceSession, sql: str, number: int) -> None:
        if number == 4:
            source_server.execute(SWAP.format(database))

    before_selects(monkeypatch, act)
    begun = replace(state(table, other, where={table: "id > 2"}), table=1, chunks=1, rows=1)
    resumed = changed(begun.text, SnapshotRequest(SnapshotAction.ADD, (added,)), "s2", 0)
    assert rest_of(source_server, resumed, table) == list(range(3, 10))


def test_a_table_that_was_read_and_is_dropped_fails_no_snapshot(
    source_server: SqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows came, and so does the statement. A table that is created under its name is empty."""
    table, other = swapping(source_server, database, 3), filled(source_server, database, 20, "u")
    drop = f"DROP TABLE {table}", f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)", f"DROP TABLE {table}"

    def act(session: SourceSession, sql: str, number: int) -> None:
        if number == 4:
            source_server.execute(*drop)

    before_selects(monkeypatch, act)
    copy = Copy({table: ("id",), other: ("id",)})
    with SnapshotStream(source_server, rf"{database}\.(t|u)", state(table, other), copy, limits=FEW) as stream:
        assert stream.done().phase is SnapshotPhase.DONE
        assert not stream.told


# ---- a client of a real node


@pytest.mark.parametrize("how", ["pause", "fail"])
def test_no_row_of_a_table_that_was_swapped_is_lost_through_a_pause_or_a_failure(
    mysql: SqlServer, database: str, how: str
) -> None:
    """The swap was seen before, and the client acknowledges it after that."""
    table = of_client.filled(mysql, database)
    other = f"{database}.u"
    mysql.execute(
        f"CREATE TABLE {database}.new LIKE {table}",
        f"INSERT INTO {database}.new SELECT id, version, 'new' FROM {table}",
        f"CREATE TABLE {other} LIKE {table}",
        f"INSERT INTO {other} SELECT * FROM {table}",
    )
    properties = {
        "canal.instance.filter.regex": rf"{database}\\.(t|u)",
        "canal.instance.memory.buffer.size": "256" if how == "pause" else "4096",
        "canal.instance.snapshot.connections": "1" if how == "pause" else "2",
        "canal.instance.snapshot.chunk.rows": "50",
        "canal.instance.snapshot.rowsPerSecond": "1200",
    }
    copy = Copy({table: ("id",), other: ("id",)})
    with Node({"example": follow(mysql, properties)}) as node:
        with following(node):
            pass
        snapshot = of_client.snapshots(node)
        snapshot.start([table] if how == "pause" else [table, other])
        reader = of_client.Reader(node, copy, rough=False)
        reader.until(lambda: stream_of(node, "example")["snapshot"]["rows"] > 1500, "some rows")
        reader.close()
        mysql.execute(SWAP.format(database))
        if how == "fail":
            mysql.execute(f"RENAME TABLE {other} TO {database}.gone")
        mysql.execute(f"INSERT INTO {table} VALUES (100000, 1, 'later')")
        if how == "pause":
            snapshot.pause()
        else:
            read_until_failed(node)
            stored = node.directory / "conf" / "example" / "meta.dat"
            until(lambda: '"failed"' in stored.read_text(), what="the write of the failure")
            node.kill()
            node.start()
            snapshot = of_client.snapshots(node)
        reader.until(lambda: (table, ("100000",)) in copy.rows, "the change behind the swap")
        assert snapshot.state()["phase"] == ("paused" if how == "pause" else "failed")
        snapshot.resume(leave_out=[] if how == "pause" else [other])
        end = of_client.expected(mysql, table)
        reader.until(lambda: stream_of(node, "example")["snapshot"]["phase"] == "done", "the end")
        reader.until(lambda: stream_of(node, "example")["bytes_behind"] == 0, "quiet")
        got = {place: row for place, row in copy.rows.items() if place[0] == table}
        assert sum(got.get(place) != row for place, row in end.items()) == 0
        reader.close()


def read_until_failed(node: Node) -> None:
    """Let a client take batches that it does not acknowledge, until its snapshot has failed."""
    client = SimpleConnector(LOOPBACK, node.port, "example", 1001)
    client.connect()
    client.subscribe("")
    client.rollback()

    def over() -> bool:
        client.get_without_ack(20, 100)
        return bool(of_client.snapshots(node).state()["phase"] == "failed")

    until(over, what="the failure of the snapshot")
