"""meta.dat and parse.dat: canal's texts, and what crashes, full disks and damaged files do to them."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from canal_ha.errors import MetaUnreadable, MetaWriteFailed
from canal_ha.meta.files import FileBackend, meta_text
from canal_ha.meta.repository import (
    Change,
    CursorMoved,
    ServersChosen,
    Snapshot,
    StartForgotten,
    StartKept,
    Subscribed,
    Unsubscribed,
    apply,
)
from canal_ha.meta.write_behind import Meta
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from tests.sampling import examples

T = TypeVar("T")

CURSOR = LogPosition("mysql-bin.000001", 2034, 1699999999000, 1, "", "localhost", 3306)
START = LogPosition("mysql-bin.000001", 157, 0, None, None, "localhost", 3306)
CURSOR_TEXT = (
    '{"identity":{"slaveId":-1,"sourceAddress":{"address":"localhost","port":3306}},"postion":{"gtid":"","included":'
    'false,"journalName":"mysql-bin.000001","position":2034,"serverId":1,"timestamp":1699999999000}}'
)
META_TEXT = (
    '{"clientDatas":[{"clientIdentity":{"clientId":1001,"destination":"example","filter":""},"cursor":'
    + CURSOR_TEXT
    + '}],"destination":"example"}'
)
CLIENT = ClientIdentity("example", 1001)
FIRST: tuple[Change, ...] = (Subscribed(CLIENT), CursorMoved(1001, CURSOR))


def in_thread(call: Callable[[], T], /) -> Awaitable[T]:
    return asyncio.to_thread(call)


def backend(directory: Path) -> FileBackend:
    return FileBackend(directory, "example", in_thread)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def loaded(directory: Path) -> Snapshot:
    return run(backend(directory).load())


async def written(directory: Path, *writes: tuple[Change, ...]) -> FileBackend:
    files = backend(directory)
    await files.load()
    for changes in writes:
        await files.write(changes)
    return files


def test_what_a_cursor_keeps_beside_it_is_written_at_the_same_position(tmp_path: Path) -> None:
    """A mark or the progress of a snapshot was lost by a crash, because positions that are equal wrote nothing."""
    for kept in (replace(CURSOR, mark="m"), replace(CURSOR, mark="m", snapshot='{"id":"s1"}')):
        run(written(tmp_path, FIRST, (CursorMoved(1001, kept),)))
        found = loaded(tmp_path).cursors[1001]
        assert (found.mark, found.snapshot) == (kept.mark, kept.snapshot)


def test_text(tmp_path: Path) -> None:
    """meta.dat is canal's text, byte for byte; nothing else is left in the directory."""
    run(written(tmp_path, FIRST))
    assert (tmp_path / "example" / "meta.dat").read_bytes() == META_TEXT.encode()
    assert [file.name for file in (tmp_path / "example").iterdir()] == ["meta.dat"]


def test_text_with_consumed_and_gtid() -> None:
    """A consumed cursor has `consumed`, and a client without a cursor has no `cursor`; keys and clients are sorted."""
    consumed = LogPosition("b.000002", 9, 5, None, "u:1-7", "10.0.0.1", 3307, consumed=True)
    clients = {7: ClientIdentity("é", 7, r"a\..*"), 2: ClientIdentity("é", 2)}
    assert meta_text("é", Snapshot(clients, {7: consumed})) == (
        '{"clientDatas":[{"clientIdentity":{"clientId":2,"destination":"é","filter":""}},{"clientIdentity":{"clientId"'
        r':7,"destination":"é","filter":"a\\..*"},"cursor":{"identity":{"slaveId":-1,"sourceAddress":{"address":'
        '"10.0.0.1","port":3307}},"postion":{"consumed":9,"gtid":"u:1-7","included":false,"journalName":"b.000002",'
        '"position":9,"timestamp":5}}}],"destination":"é"}'
    )


def test_reads_what_canal_wrote(tmp_path: Path) -> None:
    """Blanks, unknown keys, Java's long integers, a missing filter and a missing cursor are accepted."""
    (tmp_path / "example").mkdir()
    text = META_TEXT.replace("2034", "2034L").replace('"clientDatas":', '"x" : null, "clientDatas" :')
    text = text.replace(',"filter":""', "").replace("}],", '},{"clientIdentity":{"clientId":2,"filter":":7L,"}}],')
    (tmp_path / "example" / "meta.dat").write_text(text)
    found = loaded(tmp_path)
    assert found.clients == {1001: CLIENT, 2: ClientIdentity("example", 2, ":7L,")}
    assert found.cursors == {1001: CURSOR}


def test_nothing_there(tmp_path: Path) -> None:
    """Without file or directory the snapshot is empty, and loading creates nothing."""
    assert loaded(tmp_path) == Snapshot()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"clientDatas":5}', '{"clientDatas":[{}]}', META_TEXT[:-20], "\x00" * 50]
    + [META_TEXT.replace(old, new) for old, new in (("1001", '"x"'), ("2034", '"x"'), ("postion", "position"))]
    + [META_TEXT.replace('"filter":""', r'"filter":"\ud800"')],
)
@pytest.mark.parametrize("name", ["meta.dat", "parse.dat"])
def test_damaged(tmp_path: Path, name: str, damage: str) -> None:
    """A damaged file raises an error that names it, and stays unchanged, even by a write that follows."""
    (tmp_path / "example").mkdir()
    file = tmp_path / "example" / name
    file.write_text(damage)
    files = backend(tmp_path)
    with pytest.raises(MetaUnreadable, match=str(file)):
        run(files.load())
    with pytest.raises(MetaUnreadable):
        run(files.write(FIRST))
    assert file.read_text() == damage


def test_not_utf8(tmp_path: Path) -> None:
    """A file in another encoding raises an error, too."""
    (tmp_path / "example").mkdir()
    (tmp_path / "example" / "meta.dat").write_bytes(META_TEXT.replace("localhost", "höst").encode("latin1"))
    with pytest.raises(MetaUnreadable, match=r"meta\.dat"):
        loaded(tmp_path)


def test_not_a_file(tmp_path: Path) -> None:
    """A directory in place of the file raises an error that names it."""
    (tmp_path / "example" / "meta.dat").mkdir(parents=True)
    with pytest.raises(MetaUnreadable, match=r"meta\.dat.*repair the file"):
        loaded(tmp_path)


def test_start(tmp_path: Path) -> None:
    """A kept start is stored in parse.dat, which is deleted with the first cursor."""

    async def story() -> None:
        files = await written(tmp_path, (StartKept(START),))
        assert (tmp_path / "example" / "parse.dat").read_text() == START.to_json(with_type=False)
        assert await backend(tmp_path).load() == Snapshot(start=START)
        await files.write((*FIRST, StartForgotten()))

    run(story())
    assert not (tmp_path / "example" / "parse.dat").exists()
    assert loaded(tmp_path) == Snapshot({1001: CLIENT}, {1001: CURSOR})


def test_start_without_cursor(tmp_path: Path) -> None:
    """A client without a cursor does not void the kept start."""
    run(written(tmp_path, (StartKept(START),), (Subscribed(CLIENT),)))
    assert loaded(tmp_path) == Snapshot({1001: CLIENT}, {}, START)


def test_full_disk(tmp_path: Path) -> None:
    """On a full disk the write fails and names the file, the old text stays, and the next write works."""

    async def story() -> None:
        files = await written(tmp_path, FIRST)
        (tmp_path / "example" / "meta.dat.new").symlink_to("/dev/full")
        with pytest.raises(MetaWriteFailed, match=r"meta\.dat: No space left on device"):
            await files.write((Unsubscribed(1001),))
        assert (tmp_path / "example" / "meta.dat").read_text() == META_TEXT
        await files.write((Unsubscribed(1001),))

    run(story())
    assert loaded(tmp_path) == Snapshot()


@pytest.fixture
def failing_fsync(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that lets the next fsync of a directory fail, after the file in it has been renamed."""
    fsync, failing = os.fsync, [False]

    def fail_for_directories(descriptor: int) -> None:
        if failing[0] and stat.S_ISDIR(os.fstat(descriptor).st_mode):
            failing[0] = False
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    def fail_next() -> None:
        failing[0] = True

    monkeypatch.setattr(os, "fsync", fail_for_directories)
    return fail_next


def test_a_refused_unsubscribe_does_not_come_back_at_a_restart(
    tmp_path: Path, failing_fsync: Callable[[], None]
) -> None:
    """The renamed file lacks the client although the write failed; the flush after it writes the client again."""

    async def story() -> None:
        meta = Meta("example", backend(tmp_path), turn=asyncio.Lock())
        await meta.load()
        await meta.subscribe(CLIENT, CURSOR)
        failing_fsync()
        with pytest.raises(MetaWriteFailed, match=r"meta\.dat: Input/output error"):
            await meta.unsubscribe(1001)
        assert [client_id for client_id, _ in await meta.flush()] == [1001]

    run(story())
    assert loaded(tmp_path) == Snapshot({1001: CLIENT}, {1001: CURSOR})


def test_a_refused_start_does_not_come_back_at_a_restart(tmp_path: Path, failing_fsync: Callable[[], None]) -> None:
    """The next write that succeeds removes it, or stores the start that is still kept."""

    async def story() -> None:
        files = await written(tmp_path)
        failing_fsync()
        with pytest.raises(MetaWriteFailed, match=r"parse\.dat"):
            await files.write((StartKept(START),))
        await files.write((Subscribed(CLIENT),))
        assert loaded_start() is None
        await files.write((StartKept(START),))
        failing_fsync()
        with pytest.raises(MetaWriteFailed, match=r"parse\.dat"):
            await files.write((StartKept(replace(START, offset=999)),))
        await files.write((Subscribed(CLIENT),))
        assert loaded_start() == START

    def loaded_start() -> LogPosition | None:
        file = tmp_path / "example" / "parse.dat"
        return LogPosition.from_json(file.read_text()) if file.exists() else None

    run(story())
    assert loaded(tmp_path) == Snapshot({1001: CLIENT}, {}, START)


def test_no_directory(tmp_path: Path) -> None:
    """If the directory cannot be created, the write fails. When it can be, the next write works."""

    async def story() -> None:
        files = await written(tmp_path / "data")
        (tmp_path / "data").write_text("in the way")
        with pytest.raises(MetaWriteFailed):
            await files.write(FIRST)
        (tmp_path / "data").unlink()
        await files.write((Subscribed(ClientIdentity("example", 5)),))

    run(story())
    assert loaded(tmp_path / "data").clients == {5: ClientIdentity("example", 5)}


KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.meta.test_files import CLIENT, CURSOR, START, written
from canal_ha.meta.repository import CursorMoved, StartForgotten, StartKept, Subscribed

event, directory = sys.argv[1], Path(sys.argv[2])

async def story():
    files = await written(directory, (StartKept(START),), (Subscribed(CLIENT),))
    sys.addaudithook(lambda name, arguments: name == event and os.kill(os.getpid(), signal.SIGKILL))
    await files.write((CursorMoved(1001, CURSOR), StartForgotten()))

asyncio.run(story())
"""


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("os.rename", Snapshot({1001: CLIENT}, {}, START)),
        ("os.remove", Snapshot({1001: CLIENT}, {1001: CURSOR})),
    ],
)
def test_killed_in_the_middle(tmp_path: Path, event: str, expected: Snapshot) -> None:
    """A kill before the rename leaves the old state; one after it leaves the new cursor, and the start is void."""
    child = subprocess.run([sys.executable, "-c", KILLED, event, str(tmp_path)], timeout=30, check=False)
    assert child.returncode == -9
    assert loaded(tmp_path) == expected
    run(written(tmp_path, (Unsubscribed(1001),)))
    assert loaded(tmp_path).start == expected.start


def test_the_node_can_read_what_root_wrote(tmp_path: Path) -> None:
    """`canal-ha cursor set` by root leaves the file to the user of the node, whom the directory belongs to."""
    directory = tmp_path / "example"
    directory.mkdir()
    if os.geteuid() == 0:
        os.chown(directory, 65534, 65533)
    run(written(tmp_path, (Subscribed(CLIENT),), (CursorMoved(1001, CURSOR),)))
    file, owner = (directory / "meta.dat").stat(), directory.stat()
    assert (file.st_uid, file.st_gid, file.st_mode & 0o777) == (owner.st_uid, owner.st_gid, 0o600)


POSITIONS = st.builds(
    LogPosition,
    journal=st.sampled_from(["mysql-bin.000001", "binlog.1"]),
    offset=st.integers(4, 1 << 40),
    timestamp_ms=st.integers(0, 1 << 42),
    server_id=st.none() | st.integers(0, 1 << 32),
    gtid=st.none() | st.sampled_from(["", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5,\nb:2"]),
    address=st.sampled_from(["localhost", "10.0.0.1", "::1", "hôte"]),
    port=st.integers(1, 65535),
    consumed=st.booleans(),
)
IDS = st.integers(1, 4)
FILTERS = st.sampled_from(["", " ", r".*\..*", 'quo"te', "ünï"])
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(CursorMoved, IDS, POSITIONS),
    st.builds(Subscribed, st.builds(ClientIdentity, st.just("example"), IDS, FILTERS)),
    st.builds(Unsubscribed, IDS),
)


@given(st.lists(st.lists(CHANGES, max_size=4), max_size=6))
@settings(deadline=None, max_examples=examples(40))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, writes: list[list[Change]]) -> None:
    """The next process reads what was written: clients with their filters, and the cursors of these clients."""
    directory = tmp_path_factory.mktemp("meta")
    run(written(directory, *(tuple(changes) for changes in writes)))
    expected = apply(Snapshot(), (change for changes in writes for change in changes))
    found = loaded(directory)
    assert found.clients == expected.clients
    assert found.cursors == {c: position for c, position in expected.cursors.items() if c in expected.clients}


def test_the_server_that_was_switched_to_is_in_the_file(tmp_path: Path) -> None:
    """The key is one that canal ignores; it is missing before the first switch, and it stays with later cursors."""

    async def write() -> None:
        store = backend(tmp_path)
        await store.load()
        await store.write(FIRST)
        assert (tmp_path / "example" / "meta.dat").read_text() == META_TEXT
        await store.write((ServersChosen(("db2:3306",)),))
        await store.write((CursorMoved(1001, CURSOR),))

    run(write())
    text = (tmp_path / "example" / "meta.dat").read_text()
    assert text == META_TEXT[:-1] + ',"source":["db2:3306"]}'
    assert loaded(tmp_path) == Snapshot({1001: CLIENT}, {1001: CURSOR}, None, ("db2:3306",))
