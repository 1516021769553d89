"""The tailer on a real server and a real disk, without Spark: a full disk, a read-only disk, no server."""

from __future__ import annotations

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.config.model import BatchMode
from canal_ha.errors import SnapshotRefused, SpoolUnusable
from canal_ha.instance.feed import Move
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.pipeline.options import parse
from canal_ha.spark import segments
from canal_ha.spark.entries import changes_of
from canal_ha.spark.manifest import Manifest, SegmentInfo
from canal_ha.spark.read_again import read_again
from canal_ha.spark.steps import Steps, unobserved
from canal_ha.spark.storage import open_storage
from canal_ha.spark.tailer import HELD_MOST_S, Tailer, hold_s
from canal_ha.spark.waits import told
from lab import MariaDB, Node, follow
from tests.node.test_snapshot_of_client import snapshots
from tests.server.harness import LOOPBACK, Served, entries_segment, transaction
from tests.waiting import until

CLIENT = 7
ROOT = [] if os.geteuid() == 0 else ["sudo", "-n"]


class Disk:
    """A file system of 512 KiB."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Write until the disk is full."""
        with self._filler.open("wb", buffering=0) as out, suppress(OSError):
            while True:
                out.write(b"x" * 4096)

    def free(self) -> None:
        """Delete what `fill` wrote."""
        self._filler.unlink()

    def remount(self, how: str) -> None:
        """Remount the disk as `ro` or `rw`."""
        subprocess.run([*ROOT, "mount", "-o", f"remount,{how}", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Yield a mounted disk. The test fails on a machine that does not allow mounts."""
    path = tmp_path / "disk"
    path.mkdir()
    options = f"size=512k,uid={os.geteuid()}"
    subprocess.run([*ROOT, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], check=True)
    try:
        yield Disk(path)
    finally:
        subprocess.run([*ROOT, "umount", "--lazy", str(path)], check=True)


@pytest.fixture
def tail(node: Node, database: str, tmp_path: Path) -> Iterator[Callable[..., Tailer]]:
    """Yield a function that starts tailers of the node's destination; they end with the test."""
    started: list[Tailer] = []

    def start(
        spool: Path = tmp_path / "spool", steps: Steps = unobserved, *, until_now: bool = False, **more: object
    ) -> Tailer:
        given = {"servers": node.address, "destination": database, "clientId": CLIENT, "spoolDir": spool, **more}
        options = parse({name: str(value) for name, value in given.items()})
        client = options.client_id
        storage = open_storage(options.spool_dir, database, str(client))

        def dial(judge: Callable[[LogPosition | None], None]) -> ClusterConnector:
            nodes, snapshot = [node.address], options.snapshot
            return ClusterConnector(
                nodes, database, client, filter="", call_timeout_s=5, judge=judge, snapshot=snapshot
            )

        tailer = Tailer(options, database, storage, steps, dial, until_now=until_now)
        started.append(tailer)
        tailer.start()
        return tailer

    yield start
    for tailer in started:
        tailer.stop()


def crash_at(step: str, count: int) -> Steps:
    """Return steps that fail when they reach this one for the n-th time."""
    seen: Counter[str] = Counter()

    def crash(name: str) -> None:
        seen[name] += 1
        if name == step and seen[name] == count:
            raise RuntimeError(f"crash at {step}")

    return crash


def ended(tailer: Tailer) -> bool:
    """Return whether the tailer has ended with an error."""
    try:
        tailer.manifest  # noqa: B018  # it raises
    except SpoolUnusable:
        return True
    return False


def noise_text() -> str:
    """Return 12,000 random hexadecimal digits, which compress to half of that."""
    return os.urandom(6_000).hex()


def noise(server: MariaDB, database: str, first: int, count: int) -> None:
    """Insert rows of 24,000 random hexadecimal digits, each in its own transaction."""
    for number in range(first, first + count):
        server.execute(f"INSERT INTO {database}.noise VALUES ({number}, '{os.urandom(12_000).hex()}')")


def ids(spool: Path, database: str, tailer: Tailer, *, wanted: bool = False) -> list[int]:
    """Return the ids of all rows in the spool, or of those that the run reads, in order."""
    storage = open_storage(str(spool), database, str(CLIENT))
    found = []
    manifest = tailer.manifest
    for segment in manifest.segments if manifest else ():
        if wanted and segment.seq > tailer.wanted:
            break
        try:
            stored = storage.read(segment.name)
        except FileNotFoundError:
            if tailer.manifest is manifest:
                raise
            return ids(spool, database, tailer, wanted=wanted)  # the tailer has removed it meanwhile
        for change in changes_of(segments.decode(stored, segment.name).frames, segment.name):
            found += [int(row[0] or -1) for row in change.after]
    return found


def acknowledged(node: Node, database: str) -> tuple[str, int]:
    """Return journal and offset of the client's cursor, as the node's status shows it."""
    [destination] = [each for each in node.status()["destinations"] if each["destination"] == database]
    [found] = [each["cursor"] for each in destination["streams"] if each["client_id"] == CLIENT]
    return found["journal"], found["offset"]


def test_slow_micro_batches_make_few_segments() -> None:
    """While a segment waits for Spark, later entries are held for a tenth of that time, up to a bound."""
    segments = tuple(
        SegmentInfo(seq, f"s{seq}", 1, 1, 1, True, written_ms, LogPosition("bin.000001", seq))
        for seq, written_ms in enumerate((0, 1000, 2000))
    )
    assert hold_s(Manifest("a"), 10_000) == 0
    assert hold_s(Manifest("a", segments, 3), 4_000) == 0.4
    assert hold_s(Manifest("a", segments, 3, (1,)), 4_000) == 0.2
    assert hold_s(Manifest("a", segments, 3, (2,)), 4_000) == 0
    assert hold_s(Manifest("a", segments, 3), 4_000_000) == HELD_MOST_S
    assert hold_s(Manifest("a", segments, 3), -4_000) == 0


def test_a_transaction_larger_than_the_spool_may_be_comes_whole(tmp_path: Path) -> None:
    """Spark reads only complete transactions, so the spool must exceed its limit. `trouble` tells a person why."""
    with Served(config={"batch_mode": BatchMode.ITEMSIZE}) as served:
        given = {"servers": f"{LOOPBACK}:{served.port}", "destination": "example", "clientId": CLIENT, "fetchSize": 2}
        given |= {"spoolDir": tmp_path / "spool", "spoolMaxBytes": 1 << 16, "segmentBytes": 1 << 14}
        options = parse({name: str(value) for name, value in given.items()})
        storage = open_storage(options.spool_dir, "example", str(CLIENT))
        nodes = [f"{LOOPBACK}:{served.port}"]
        tailer = Tailer(
            options,
            "example",
            storage,
            unobserved,
            lambda judge: ClusterConnector(nodes, "example", CLIENT, filter="", call_timeout_s=5, judge=judge),
        )
        tailer.start()
        until(lambda: bool(served.feeds) and tailer.manifest, what="the tailer's stream")
        rows = [transaction(number, value=noise_text())[1] for number in range(40)]

        def spooled() -> Manifest:
            manifest = tailer.manifest
            assert manifest is not None
            return manifest

        served.push(replace(entries_segment([transaction(0)[0], *rows]), cut=True))
        until(lambda: spooled().unread_bytes > 3 << 16, what="more than the budget", seconds=30)
        assert not any(segment.closed for segment in spooled().segments)
        until(lambda: "spoolMaxBytes" in tailer.trouble, what="why the spool grows")
        served.push(entries_segment([transaction(39)[-1]]))
        until(lambda: spooled().segments[-1].closed, what="the end of the transaction", seconds=30)
        assert tailer.trouble == ""
        served.push(entries_segment(transaction(50)))
        time.sleep(0.5)
        assert spooled().segments[-1].last.offset == 40_900
        tailer.done_up_to(spooled().next_seq - 1)
        until(lambda: spooled().segments[-1].last.offset == 51_900, what="what comes after it", seconds=30)
        tailer.stop()


def test_rows_that_come_again_behind_older_ones_of_another_server_are_kept(tmp_path: Path) -> None:
    """The source went to a standby without GTIDs, which sent an older row again, and back: the newer row has to follow.

    The spool had the newer row, byte by byte, so it was left out, and a table kept the older one.
    """
    b, a = Source(LOOPBACK, 3306, uuid="b"), Source(LOOPBACK, 3307, uuid="a")
    with Served() as served:
        given = {"servers": f"{LOOPBACK}:{served.port}", "destination": "example", "clientId": CLIENT}
        given |= {"spoolDir": tmp_path / "spool"}
        options = parse({name: str(value) for name, value in given.items()})
        storage = open_storage(options.spool_dir, "example", str(CLIENT))
        nodes = [f"{LOOPBACK}:{served.port}"]
        tailer = Tailer(
            options,
            "example",
            storage,
            unobserved,
            lambda judge: ClusterConnector(nodes, "example", CLIENT, filter="", call_timeout_s=5, judge=judge),
        )
        tailer.start()
        until(lambda: bool(served.feeds) and tailer.manifest, what="the tailer's stream")
        older, newer, last, there = (entries_segment(transaction(number)) for number in (1, 2, 3, 11))
        places = {
            source: replace(first.position(2, consumed=True), server=source.uuid, port=source.port)
            for source, first in ((b, older), (a, there))
        }

        def moves(before: Source, after: Source) -> None:
            served.feeds[-1].request.moved(Move(places[before], places[after], False, {}))

        def spooled(wanted: list[int]) -> None:
            until(lambda: ids(tmp_path / "spool", "example", tailer) == wanted, what=f"{wanted}")

        for segment in (older, newer):
            served.push(replace(segment, source=b))
        spooled([1, 2])
        moves(b, a)
        served.push(replace(there, source=a))
        spooled([1, 2, 11])
        moves(a, b)
        for segment in (newer, last):
            served.push(replace(segment, source=b))
        try:
            spooled([1, 2, 11, 2, 3])
        finally:
            tailer.stop()


@pytest.mark.real
def test_a_full_disk_is_waited_for(
    mariadb: MariaDB, node: Node, database: str, disk: Disk, tail: Callable[..., Tailer]
) -> None:
    """Meanwhile nothing is acknowledged, lost or doubled. Deletion of segments that Spark has read makes room, too."""
    mariadb.execute(f"CREATE TABLE {database}.noise (id INT PRIMARY KEY, v LONGTEXT)")
    disk.fill()
    tailer = tail(disk.path, retainBatches=1)
    until(lambda: "No space left" in tailer.trouble, what="no room for a claim", seconds=30)
    disk.free()
    noise(mariadb, database, 0, 5)
    until(lambda: 4 in ids(disk.path, database, tailer), what="the first rows", seconds=30)
    assert tailer.trouble == ""

    def read_all() -> None:
        manifest = tailer.manifest
        assert manifest is not None
        tailer.done_up_to(manifest.next_seq - 1)

    read_all()
    disk.fill()
    noise(mariadb, database, 5, 3)
    until(lambda: "No space left" in tailer.trouble, what="no room for a segment", seconds=30)
    durable = tailer.manifest and tailer.manifest.last
    assert durable
    assert acknowledged(node, database) <= (durable.journal, durable.offset)
    disk.free()
    until(lambda: 7 in ids(disk.path, database, tailer), what="the rest", seconds=30)
    assert ids(disk.path, database, tailer) == list(range(8))
    disk.fill()
    noise(mariadb, database, 8, 1)
    until(lambda: "No space left" in tailer.trouble, what="no room again", seconds=30)
    read_all()
    until(lambda: 8 in ids(disk.path, database, tailer), what="room by retention alone", seconds=30)
    assert ids(disk.path, database, tailer) == [5, 6, 7, 8]


@pytest.mark.real
def test_a_spool_that_becomes_read_only_ends_the_query(
    mariadb: MariaDB, node: Node, database: str, disk: Disk, tail: Callable[..., Tailer]
) -> None:
    """The error names the reason. No row is lost: the next driver gets every row."""
    tailer = tail(disk.path)
    mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 1)")
    until(lambda: 1 in ids(disk.path, database, tailer), what="a first row", seconds=30)
    disk.remount("ro")
    mariadb.execute(f"INSERT INTO {database}.t VALUES (2, 2)")

    def ended() -> bool:
        try:
            return tailer.manifest is None
        except SpoolUnusable as error:
            return "the spool cannot write" in str(error) and "Read-only file system" in str(error)

    until(ended, what="the error", seconds=30)
    disk.remount("rw")
    second = tail(disk.path)
    until(lambda: 2 in ids(disk.path, database, second), what="the second row", seconds=30)
    assert ids(disk.path, database, second) == [1, 2]


def create_client(tail: Callable[..., Tailer]) -> None:
    """Create the client id, so that it gets all later changes."""
    first = tail()
    until(lambda: first.manifest is not None, what="the connection", seconds=30)
    first.stop()


def at_end(work: Callable[[], None]) -> Steps:
    """Return steps that do this once when a tailer has asked where its run ends."""
    left = [work]

    def step(name: str) -> None:
        if name == "end" and left:
            left.pop()()

    return step


@pytest.mark.real
def test_a_run_ends_exactly_where_the_binlog_ended_when_it_began(
    mariadb: MariaDB, node: Node, database: str, tmp_path: Path, tail: Callable[..., Tailer]
) -> None:
    """Neither a row dated in the future ends it early, nor one that comes meanwhile late. The spool has room for none.

    Nothing shows that the stream has passed the last transactions, because the filter drops them.
    """
    create_client(tail)

    def insert(first: int, last: int) -> None:
        mariadb.execute(*(f"INSERT INTO {database}.t VALUES ({number}, 0)" for number in range(first, last + 1)))

    mariadb.execute("SET timestamp = 2000000000", f"INSERT INTO {database}.t VALUES (1, 0)")
    insert(2, 5)
    mariadb.execute(f"CREATE DATABASE other_{database}", f"CREATE TABLE other_{database}.u (id INT)")
    mariadb.execute(f"INSERT INTO other_{database}.u VALUES (1)")
    one = tail(until_now=True, steps=at_end(lambda: insert(6, 9)))
    until(lambda: one.complete(), what="the end", seconds=30)
    assert ids(tmp_path / "spool", database, one, wanted=True) == [1, 2, 3, 4, 5]
    until(lambda: 9 in ids(tmp_path / "spool", database, one), what="what came meanwhile", seconds=30)
    assert one.complete()
    assert ids(tmp_path / "spool", database, one, wanted=True) == [1, 2, 3, 4, 5]
    one.stop()
    mariadb.execute(f"INSERT INTO other_{database}.u VALUES (2)")
    two = tail(until_now=True, availableNowQuietMs=600_000)
    until(lambda: two.complete(), what="the end behind what is filtered out", seconds=30)
    assert ids(tmp_path / "spool", database, two, wanted=True) == list(range(1, 10))
    assert tail(tmp_path / "new", clientId=8, until_now=True, availableNowQuietMs=600_000).wanted == -1


@pytest.mark.real
def test_a_server_that_is_away_is_not_silent(
    mariadb: MariaDB, node: Node, database: str, tmp_path: Path, tail: Callable[..., Tailer]
) -> None:
    """Missing replies do not say that all has been read."""
    create_client(tail)
    mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 1)")
    tailer = tail(until_now=True, steps=at_end(node.kill))
    for _ in range(20):
        time.sleep(0.1)
        assert not tailer.complete()
    node.start()
    until(lambda: tailer.complete(), what="the end", seconds=30)
    assert ids(tmp_path / "spool", database, tailer) == [1]


@pytest.mark.real
def test_a_running_snapshot_is_not_the_end(
    mariadb: MariaDB, node: Node, database: str, tmp_path: Path, tail: Callable[..., Tailer]
) -> None:
    """A job that reads what there is waits for the existing rows, whatever else comes. A failed snapshot ends it."""
    mariadb.execute(
        f"CREATE TABLE {database}.old (id INT PRIMARY KEY)",
        f"CREATE TABLE {database}.none (id INT)",
        f"INSERT INTO {database}.old VALUES (1), (2), (3)",
    )
    with mariadb.connect() as locking, locking.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {database}.old WRITE")
        tailer = tail(snapshot=f"{database}.old", until_now=True)
        until(lambda: tailer.manifest is not None, what="the connection", seconds=30)
        mariadb.execute(f"INSERT INTO {database}.t VALUES (9, 9)")
        until(lambda: 9 in ids(tmp_path / "spool", database, tailer), what="the change", seconds=30)
        assert not tailer.complete()
        assert "the snapshot" in tailer.trouble
        time.sleep(1)
        assert not tailer.complete()
    until(lambda: tailer.complete(), what="the end of the snapshot", seconds=30)
    found = sorted(ids(tmp_path / "spool", database, tailer))
    assert found == [1, 1, 2, 2, 3, 3, 9], "each once from the binlog and once from the snapshot"
    assert tailer.trouble == ""
    failing = tail(tmp_path / "other", clientId=8, snapshot=f"{database}.none", until_now=True)
    with pytest.raises(SnapshotRefused, match=r"none has no primary key.*canal-ha snapshot resume"):
        until(lambda: failing.complete(), what="the failure", seconds=30)


@pytest.mark.real
def test_a_job_said_nothing_of_rows_that_a_paused_snapshot_has_left(
    mariadb: MariaDB, node: Node, database: str, tail: Callable[..., Tailer], caplog: pytest.LogCaptureFixture
) -> None:
    """It does not wait for them: somebody has to resume the snapshot."""
    mariadb.execute(f"CREATE TABLE {database}.old (id INT PRIMARY KEY)", f"INSERT INTO {database}.old VALUES (1), (2)")
    with mariadb.connect() as locking, locking.cursor() as cursor:
        cursor.execute(f"LOCK TABLES {database}.old WRITE")
        tailer = tail(snapshot=f"{database}.old", until_now=True)
        until(lambda: tailer.manifest is not None, what="the connection", seconds=30)
        snapshots(node, CLIENT, database).pause()
        until(lambda: tailer.complete(), what="the end", seconds=30)
    assert caplog.text.count("spark.snapshot_paused") == 1


@pytest.mark.real
def test_a_job_that_asked_for_no_rows_does_not_end_at_a_failed_snapshot(
    mariadb: MariaDB, node: Node, database: str, tmp_path: Path, tail: Callable[..., Tailer]
) -> None:
    """It ended with an error, while a query that goes on only logged the failure of an operator's snapshot."""
    mariadb.execute(f"CREATE TABLE {database}.none (id INT)")
    failing = tail(snapshot=f"{database}.none", until_now=True)
    with pytest.raises(SnapshotRefused, match="none has no primary key"):
        until(lambda: failing.complete(), what="the failure", seconds=30)
    failing.stop()
    mariadb.execute(f"INSERT INTO {database}.t VALUES (9, 9)")
    tailer = tail(until_now=True)
    until(lambda: tailer.complete(), what="the end", seconds=30)
    assert ids(tmp_path / "spool", database, tailer) == [9]


@pytest.mark.real
def test_a_client_id_without_a_snapshot_is_told_that_no_existing_rows_come(
    node: Node, database: str, tail: Callable[..., Tailer], caplog: pytest.LogCaptureFixture
) -> None:
    """The log tells it once: the option was ignored without a word."""
    with SimpleConnector(LOOPBACK, node.port, database, 7) as client:
        client.subscribe(rf"{database}\..*")
    tailer = tail(clientId=7, snapshot=f"{database}.t", until_now=True)
    until(lambda: tailer.complete(), what="the end", seconds=30)
    assert caplog.text.count("spark.no_snapshot") == 1
    assert "client id 7 exists already" in caplog.text


@pytest.mark.real
def test_rows_of_a_snapshot_do_not_come_twice_after_a_crash_of_the_driver(
    mariadb: MariaDB, node: Node, database: str, tmp_path: Path, tail: Callable[..., Tailer]
) -> None:
    """The driver dies again and again when segments are durable and not acknowledged. All chunks have one position."""
    mariadb.execute(f"CREATE TABLE {database}.old (id INT PRIMARY KEY, v VARCHAR(999))")
    rows = f"INSERT INTO {database}.old SELECT seq, REPEAT('x', 900) FROM seq_1_to_4000"
    mariadb.execute(f"USE {database}", "SET sql_log_bin = 0", rows)
    given = {"snapshot": f"{database}.old", "fetchSize": 64, "segmentBytes": 1 << 14}
    for number in range(6):
        dying = tail(steps=crash_at("ack", 2 + number), **given)
        until(partial(ended, dying), what="the crash", seconds=30)
    tailer = tail(**given, until_now=True)
    until(lambda: tailer.complete(), what="the end of the snapshot", seconds=60)
    assert ids(tmp_path / "spool", database, tailer) == list(range(1, 4001))


@pytest.mark.real
def test_a_table_is_read_again(
    mariadb: MariaDB, node: Node, database: str, tmp_path: Path, tail: Callable[..., Tailer]
) -> None:
    """Its rows come into the stream of the client, which goes on. A table that is gone by now holds up no other one."""
    tailer = tail()
    mariadb.execute(f"INSERT INTO {database}.t VALUES (1, 1)")
    until(lambda: ids(tmp_path / "spool", database, tailer) == [1], what="a change", seconds=30)
    given = {"servers": node.address, "destination": database, "clientId": str(CLIENT), "spoolDir": "/none"}
    read_again(parse(given), database, [f"{database}.gone", f"{database}.t"])
    until(lambda: ids(tmp_path / "spool", database, tailer) == [1, 1], what="the row again", seconds=30)
    mariadb.execute(f"INSERT INTO {database}.t VALUES (2, 2)")
    until(lambda: ids(tmp_path / "spool", database, tailer) == [1, 1, 2], what="a later change", seconds=30)


@pytest.mark.real
def test_a_refusal_to_read_a_table_again_is_no_success(
    mariadb: MariaDB, node: Node, database: str, tail: Callable[..., Tailer]
) -> None:
    """Else a copy that was emptied would stay empty."""
    tail()
    given = {"servers": node.address, "destination": database, "clientId": str(CLIENT), "spoolDir": "/none"}
    with pytest.raises(SnapshotRefused, match="cannot be read again"):
        read_again(parse(given), database, [f"{database}.t", "no table"])


@pytest.mark.real
def test_a_server_without_its_source_is_not_silent(database: str, tmp_path: Path) -> None:
    """The server's replies have no rows. A job that trusts them would end without reading anything."""
    with MariaDB() as source, Node({database: follow(source, {})}) as node:
        options = parse(
            {"servers": node.address, "destination": database, "clientId": "7", "spoolDir": str(tmp_path / "spool")}
        )
        storage = open_storage(options.spool_dir, database, str(CLIENT))
        tailer = Tailer(
            options,
            database,
            storage,
            at_end(source.kill),
            lambda judge: ClusterConnector([node.address], database, CLIENT, filter="", call_timeout_s=5, judge=judge),
            until_now=True,
        )
        tailer.start()
        until(lambda: not tailer.complete() and tailer.trouble, what="doubt", seconds=30)
        time.sleep(3)
        assert not tailer.complete()
        source.start()
        until(lambda: tailer.complete(), what="the end", seconds=60)
        assert tailer.trouble == ""
        tailer.stop()


@pytest.mark.real
def test_a_driver_without_a_connection_does_not_look_idle(
    mariadb: MariaDB, node: Node, database: str, tmp_path: Path, tail: Callable[..., Tailer]
) -> None:
    """Whoever shows progress reads in the spool what the driver waits for, until it is connected."""
    storage = open_storage(str(tmp_path / "spool"), database, str(CLIENT))

    def told_now() -> str:
        return told(storage, time.time_ns() // 1_000_000)

    node.kill()
    tailer = tail()
    until(lambda: "no connection to a node in time" in told_now(), what="the reason", seconds=40)
    assert "no connection" in tailer.trouble
    assert told(storage, time.time_ns() // 1_000_000 + 61_000) == "", "a driver that was killed leaves the file"
    node.start()
    until(lambda: not told_now(), what="the connection", seconds=40)
    assert tailer.trouble == ""


@pytest.mark.real
def test_a_query_whose_snapshot_has_failed_ends_with_the_reason(
    mariadb: MariaDB,
    node: Node,
    database: str,
    tmp_path: Path,
    tail: Callable[..., Tailer],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It went on as if it had all rows. First its micro-batches get all changes before the failure."""
    monkeypatch.setattr("canal_ha.spark.tailer.FAILED_LOOK_S", 0.3)
    mariadb.execute(f"CREATE TABLE {database}.none (id INT)")
    tailer = tail(snapshot=f"{database}.none")
    until(lambda: tailer.manifest is not None, what="the connection", seconds=30)
    mariadb.execute(f"INSERT INTO {database}.t VALUES (9, 9)")
    until(lambda: 9 in ids(tmp_path / "spool", database, tailer), what="the change", seconds=30)
    time.sleep(2)
    manifest = tailer.manifest
    assert manifest is not None
    tailer.done_up_to(manifest.next_seq - 1)
    with pytest.raises(SnapshotRefused, match=r"none has no primary key.*--leave-out"):
        until(lambda: tailer.manifest is None, what="the failure", seconds=30)
