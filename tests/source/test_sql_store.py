"""Stores of a table history: separate sources, several nodes, and the older format."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from canal_ha.decode.history.ranges import Range, edge
from canal_ha.decode.history.store import HistoryStore, Record, TableSnapshot
from canal_ha.errors import HistoryUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.history.sql_store import FILE, SqlStore, in_file, in_mysql
from lab import SqlServer
from lab.mysql import ADMIN

TABLE = "CREATE TABLE t (a int)"


def at(offset: int, journal: int = 1) -> LogPosition:
    """Return a position."""
    return LogPosition(f"bin.{journal:06d}", offset, timestamp_ms=offset)


def stretch(start: int, end: int) -> Range:
    """Return a range of the first journal."""
    return Range(edge(at(start)), edge(at(end)))


def places(store: HistoryStore, source: str) -> list[tuple[int, int]]:
    """Return where the ranges of a source begin and end."""
    return [(known.start.offset, known.end.offset) for known in store.load(source).ranges]


def sources_stay_apart(store: HistoryStore) -> None:
    """Check that two sources are separate at the same positions, and that clear() empties only one of them."""
    for source in ("u", "v"):
        store.add(source, [Record(at(100), "s", f"ALTER TABLE t ADD {source} int")])
        store.add_snapshot(source, TableSnapshot(at(50), {("s", "t"): TABLE}, frozenset({("s", source)})))
        store.cover(source, [stretch(50, 200)], {})
    assert store.others("u") == {"v": store.load("v")}
    assert store.others("w") == {"u": store.load("u"), "v": store.load("v")}
    store.clear("u")
    assert store.load("u").records == ()
    assert places(store, "u") == []
    kept = store.load("v")
    assert [record.sql for record in kept.records] == ["ALTER TABLE t ADD v int"]
    assert [snapshot.left_out for snapshot in kept.snapshots] == [frozenset({("s", "v")})]
    assert places(store, "v") == [(50, 200)]
    assert store.count() == 1


def ranges_of_nodes_join(one: HistoryStore, other: HistoryStore) -> None:
    """Check that the ranges of two nodes join, and that a late node does not bring back expired ranges."""
    one.cover("u", [stretch(50, 200), stretch(500, 600)], {})
    other.cover("u", [stretch(190, 300)], {})
    assert places(one, "u") == [(50, 300), (500, 600)]
    other.add("u", [Record(at(60), "s", "DROP TABLE t"), Record(at(560), "s", "DROP TABLE t")])
    other.expire("u", at(550), 0)
    one.cover("u", [stretch(50, 200), stretch(500, 600)], {})
    assert places(other, "u") == [(550, 600)]
    assert [record.at.offset for record in other.load("u").records] == [560]


def old_sources_expire(store: HistoryStore) -> None:
    """Check that another source expires with its last snapshot."""
    for source, taken in (("u", 100), ("v", 100), ("w", 900)):
        store.add_snapshot(source, TableSnapshot(at(taken), {("s", "t"): TABLE}))
        store.cover(source, [stretch(taken, taken)], {})
    store.expire("u", at(50), 500)
    assert [len(store.load(source).snapshots) for source in "uvw"] == [1, 0, 1]
    assert [len(places(store, source)) for source in "uvw"] == [1, 0, 1]


def definitions_expire(store: HistoryStore) -> None:
    """All snapshots share their definitions; one goes with the last snapshot that refers to it."""
    for number in range(5):
        tables = {("s", f"t{table}"): TABLE for table in range(10)}
        tables[("s", "u")] = f"CREATE TABLE u (c{number} int)"
        left_out = frozenset({("s", "changed")}) if number else None
        store.add_snapshot("u", TableSnapshot(at(50 + number), tables, left_out))
    for first in (0, 3):
        store.expire("u", at(50 + first), 0)
        kept = sorted(store.load("u").snapshots, key=lambda snapshot: snapshot.at.offset)
        assert [snapshot.tables[("s", "u")] for snapshot in kept] == [
            f"CREATE TABLE u (c{number} int)" for number in range(first, 5)
        ]
        assert {snapshot.tables[("s", "t7")] for snapshot in kept} == {TABLE}
        assert [snapshot.left_out for snapshot in kept] == [
            frozenset({("s", "changed")}) if number else None for number in range(first, 5)
        ]
    assert definitions(store) == 3
    store.clear("u")
    assert definitions(store) == 0


def definitions(store: HistoryStore) -> int:
    """How many definitions a store holds of its destination."""
    assert isinstance(store, SqlStore)
    with store._cursor() as cursor:
        store._run(cursor, "SELECT COUNT(*) FROM meta_definition WHERE destination = ?")
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("check", [sources_stay_apart, old_sources_expire, definitions_expire])
def test_a_file(check: Callable[[HistoryStore], None], tmp_path: Path) -> None:
    """A file keeps sources apart, and old sources expire in it."""
    check(in_file("example", tmp_path))


def test_a_file_that_two_stores_open(tmp_path: Path) -> None:
    """Two stores, as of a node and of the one before it that still runs, join their ranges in one file."""
    ranges_of_nodes_join(in_file("example", tmp_path), in_file("example", tmp_path))


def test_parts_that_an_older_node_left_behind_do_not_stop_a_snapshot(tmp_path: Path) -> None:
    """An older node clears a history without its parts. A snapshot at the same place failed on the duplicate key."""
    store = in_file("example", tmp_path)
    snapshot = TableSnapshot(at(50), {("s", "a"): TABLE})
    store.add_snapshot("u", snapshot)
    assert isinstance(store, SqlStore)
    with store._cursor() as cursor:
        store._run(cursor, "DELETE FROM meta_snapshot WHERE destination = ?")
    store.add_snapshot("u", snapshot)
    assert store.load("u").snapshots == (snapshot,)


def test_a_large_snapshot_is_stored_in_parts_of_bounded_size(tmp_path: Path) -> None:
    """A server refuses a statement above max_allowed_packet, however few the definitions are."""
    store = in_file("example", tmp_path)
    tables = {(f"schema{number % 7}", f"a_table_with_a_name_of_usual_length_{number}"): TABLE for number in range(9000)}
    left_out = frozenset(("s", f"another_table_{number}") for number in range(9000))
    snapshot = TableSnapshot(at(50), tables, left_out)
    store.add_snapshot("u", snapshot)
    store.add_snapshot("u", TableSnapshot(at(50), {}))
    assert store.load("u").snapshots == (snapshot,)
    with sqlite3.connect(tmp_path / FILE) as connection:
        sizes = [size for (size,) in connection.execute("SELECT length(data) FROM meta_snapshot_part")]
    connection.close()
    assert len(sizes) > 2
    assert max(sizes) <= 1 << 19


class Owner:
    """A claim whose epoch is current until it is told otherwise. Implements Fencing."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self.over = False

    def confirm(self) -> None:
        """Raise HistoryUnavailable when it is over."""
        if self.over:
            raise HistoryUnavailable("fenced")


@pytest.mark.real
def test_a_frozen_node_cannot_clear_what_its_successor_wrote(source_server: SqlServer, database: str) -> None:
    """Once the successor has loaded a shared history, every write of the node before it fails and changes nothing."""
    url = f"mysql://{source_server.address}/{database}"
    claims = [Owner("epoch 4"), Owner("epoch 5")]
    frozen, owner = (in_mysql("example", url, ADMIN, ADMIN, claim) for claim in claims)
    frozen.load("u")
    frozen.add("u", [Record(at(100), "s", "DROP TABLE t")])
    owner.load("u")
    claims[0].over = True
    owner.cover("u", [stretch(50, 200)], {})
    writes: list[Callable[[], None]] = [
        lambda: frozen.add("u", [Record(at(150), "s", "DROP TABLE t")]),
        lambda: frozen.add_snapshot("u", TableSnapshot(at(150), {("s", "t"): TABLE})),
        lambda: frozen.cover("u", [stretch(50, 900)], {}),
        lambda: frozen.expire("u", at(180), 0),
        lambda: frozen.clear("u"),
    ]
    for write in writes:
        with pytest.raises(HistoryUnavailable, match="belongs to epoch 5 now"):
            write()
    with pytest.raises(HistoryUnavailable, match="fenced"):
        frozen.load("u")
    assert [record.at.offset for record in owner.load("u").records] == [100]
    assert places(owner, "u") == [(50, 200)]
    owner.add("u", [Record(at(170), "s", "DROP TABLE t")])
    for store in (frozen, owner):
        store.close()


@pytest.mark.real
def test_a_snapshot_above_max_allowed_packet_is_stored(source_server: SqlServer, database: str) -> None:
    """Ten thousand tables of twenty columns are 13 MB. Here 3,000 tables meet a server that takes 1 MB."""
    columns = ",\n".join(f"  `a_column_of_this_table_{column}` varchar(64) DEFAULT NULL" for column in range(15))
    tables = {("s", f"t{table}"): f"CREATE TABLE t ({columns}, `own_{table}` int)" for table in range(3000)}
    (limit,) = (row["size"] for row in source_server.query("SELECT @@GLOBAL.max_allowed_packet AS size"))
    source_server.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        store = in_mysql("example", f"mysql://{source_server.address}/{database}", ADMIN, ADMIN)
        store.add_snapshot("u", TableSnapshot(at(50), tables))
        store.close()
        (kept,) = store.load("u").snapshots
        assert kept.tables == tables
        store.close()
    finally:
        source_server.execute(f"SET GLOBAL max_allowed_packet = {limit}")


@pytest.mark.real
def test_nodes_that_start_together_do_not_fail_over_locks(source_server: SqlServer, database: str) -> None:
    """Twelve stores of six destinations start at the same time in one database, and none fails."""
    url = f"mysql://{source_server.address}/{database}"
    in_mysql("zzz", url, ADMIN, ADMIN).load("u")
    failed: list[HistoryUnavailable] = []
    together = threading.Barrier(12)

    def begin(number: int) -> None:
        store = in_mysql(f"d{number // 2:03d}", url, ADMIN, ADMIN)
        together.wait()
        try:
            store.load("u")
            store.add_snapshot("u", TableSnapshot(at(50), {("s", "t"): TABLE}))
            store.cover("u", [stretch(50, 60)], {})
            store.add("u", [Record(at(70), "s", "DROP TABLE t")])
            store.cover("u", [stretch(50, 100)], {})
        except HistoryUnavailable as error:
            failed.append(error)
        store.close()

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_stores_that_open_a_new_file_at_the_same_moment_wait_for_each_other(tmp_path: Path) -> None:
    """One new file in fifteen was locked: SQLite does not wait until another one has turned on its log."""
    failed: list[HistoryUnavailable] = []

    def open_one(store: HistoryStore, together: threading.Barrier) -> None:
        together.wait()
        try:
            store.cover("u", [], {})
        except HistoryUnavailable as error:
            failed.append(error)
        store.close()

    for number in range(60):
        directory, together = tmp_path / str(number), threading.Barrier(6)
        threads = [threading.Thread(target=open_one, args=(in_file("e", directory), together)) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []


def test_what_two_processes_cover_in_one_file_is_joined(tmp_path: Path) -> None:
    """Stores that cover ranges in one file at the same time do not overwrite each other's ranges."""
    stores = [in_file("example", tmp_path) for _ in range(4)]
    together = threading.Barrier(4)
    failed: list[HistoryUnavailable] = []

    def cover(number: int) -> None:
        together.wait()
        try:
            for step in range(20):
                place = 1000 * (4 * step + number + 1)
                stores[number].cover("u", [stretch(place, place + 10)], {})
        except HistoryUnavailable as error:
            failed.append(error)

    threads = [threading.Thread(target=cover, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(places(stores[0], "u")) == 80


@pytest.mark.real
def test_a_database_that_nodes_share(source_server: SqlServer, database: str) -> None:
    """A MySQL or MariaDB database passes the same checks as a file."""
    stores = [
        in_mysql(name, f"mysql://{source_server.address}/{database}", ADMIN, ADMIN)
        for name in ("a", "b", "c", "c", "d")
    ]
    sources_stay_apart(stores[0])
    old_sources_expire(stores[1])
    ranges_of_nodes_join(stores[2], stores[3])
    definitions_expire(stores[4])
    for store in stores:
        store.close()


def test_a_store_with_one_range_is_read(tmp_path: Path) -> None:
    """The rows of a store in the older format, with one range, belong to the source of that range."""
    in_file("example", tmp_path).cover("gone", [], {})
    place = ["bin.000001", 50, True, 0], ["bin.000001", 200, False, 0]
    body = {"source": "u", "start": place[0], "end": place[1], "base": ["bin.000001", 100, False, 0]}
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("UPDATE meta_coverage SET data = ?", (json.dumps(body),))
        for offset, origin in ((60, "7"), (160, "8")):
            connection.execute(
                "INSERT INTO meta_history (destination, binlog_file, binlog_offest, binlog_master_id, binlog_timestamp,"
                " use_schema, sql_text, extra) VALUES ('example', 'bin.000001', ?, ?, 1, 's', 'DROP TABLE t', '{}')",
                (offset, origin),
            )
        connection.execute(
            "INSERT INTO meta_snapshot (destination, binlog_file, binlog_offest, binlog_master_id, binlog_timestamp,"
            " data, extra) VALUES ('example', 'bin.000001', 100, '7', 1, ?, '{\"sub\": 0}')",
            (json.dumps({"s": TABLE}),),
        )
    connection.close()
    store = in_file("example", tmp_path)
    assert places(store, "u") == [(50, 200)]
    kept = store.load("u")
    assert sorted(record.at.offset for record in kept.records) == [60, 160]
    assert [(snapshot.tables, snapshot.left_out) for snapshot in kept.snapshots] == [({("s", "t"): TABLE}, None)]
    store.cover("u", [stretch(200, 300)], {})
    assert places(store, "u") == [(50, 300)]
