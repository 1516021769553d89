"""Parquet files as a target, without a server."""

from __future__ import annotations

import errno
import json
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.file_area import PENDING, FileArea
from canal_ha.pipeline.targets.parquet import ParquetFiles
from canal_ha.pipeline.targets.target import PipelineTarget
from tests.pipeline.driver import described
from tests.pipeline.made import Writer
from tests.pipeline.test_latest import ID, NAME, NOTE, change, row
from tests.spark import entries as made


def opened(directory: Path, **options: Any) -> PipelineTarget:
    """Open a target."""
    return open_target(described(directory, {}, "parquet", "changelog", **options))


def files(directory: Path, name: str = "t") -> list[Path]:
    """Return the files of a table that readers see."""
    return sorted((directory / "parquet" / "s" / name).glob("*.parquet"))


def test_a_disk_that_was_full_at_the_start_ended_a_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every commit waits for room, so the check of a start does, too. Other errors of the place are refused."""
    target = opened(tmp_path)
    code = errno.ENOSPC

    def write(area: FileArea, name: str, data: bytes) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(FileArea, "write", write)
    with pytest.raises(TargetUnavailable, match="cannot be written"):
        target.check()
    code = errno.EROFS
    with pytest.raises(SinkRefused, match="cannot be written"):
        target.check()


def test_each_table_has_a_file_for_a_portion(tmp_path: Path) -> None:
    """Rows with other columns get another one; a statement stands behind the rows before it."""
    writer = Writer(opened(tmp_path))
    writer.commit(change(1, None, row(1)), change(2, None, row(1), table="u"), change(3, row(1), row(2)), offset=3)
    [file] = files(tmp_path)
    assert pq.read_table(file).column("_op").to_pylist() == ["insert", "delete", "insert"]
    assert len(files(tmp_path, "u")) == 1
    writer.commit(
        change(4, None, row(3)),
        made.ddl(5, "ALTER TABLE t ADD note VARCHAR(20)"),
        change(6, None, row(4, note="n"), ID, NAME, NOTE),
        offset=6,
    )
    [_, before, behind] = files(tmp_path)
    assert pq.read_table(before).column("_op").to_pylist() == ["insert", "ddl"]
    assert pq.read_table(behind).select(["id", "note"]).to_pylist() == [{"id": 4, "note": "n"}]
    assert pq.read_schema(behind).field("id").metadata[b"canal.key"] == b"1"
    assert opened(tmp_path).progress("d") == writer.progress
    seen = ds.dataset(tmp_path / "parquet", format="parquet")
    assert seen.count_rows() == 7


def test_readers_never_see_a_row_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies before the progress leaves nothing; one that dies behind it leaves a commit to complete."""
    writer = Writer(opened(tmp_path))
    writer.commit(change(1, None, row(1)), offset=1)

    def dying(count: int) -> Any:
        done, replace = [0], os.replace

        def replaced(*names: Any) -> None:
            done[0] += 1
            if done[0] == count:
                raise KeyboardInterrupt
            replace(*names)

        return replaced

    for count in (1, 2):
        with monkeypatch.context() as patched:
            patched.setattr(os, "replace", dying(count))
            with pytest.raises(KeyboardInterrupt):
                writer.commit(change(2, None, row(2)), offset=2)
        assert len(files(tmp_path)) == 1
        assert opened(tmp_path).progress("d") == writer.progress
        assert not list((tmp_path / "parquet").rglob("*.pending"))
    with monkeypatch.context() as patched:
        target = opened(tmp_path)
        patched.setattr(target, "_publish", lambda *_: None)
        last = writer.portion(change(2, None, row(2)), offset=2)
        target.commit(last)
    assert len(files(tmp_path)) == 1
    assert opened(tmp_path).progress("d") == last.progress
    assert len(files(tmp_path)) == 2


def test_looking_at_the_progress_leaves_a_commit_under_way_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the progress is written nor behind it."""
    target = opened(tmp_path)
    writer, looking = Writer(target), opened(tmp_path)
    assert looking.stored("another") is None
    write, before = FileArea.write, writer.progress
    seen: list[Progress | None] = []

    def looked_at(writing: FileArea, name: str, data: bytes) -> None:
        write(writing, name, data)
        seen.append(looking.stored("d"))

    monkeypatch.setattr(FileArea, "write", looked_at)
    writer.commit(change(1, None, row(1)), offset=1)
    assert seen == [before, writer.progress]
    assert [pq.read_table(file).num_rows for file in files(tmp_path)] == [1]


def test_a_commit_whose_files_another_process_removed_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that was active before is refused, and its rows come again."""
    writer = Writer(opened(tmp_path))
    write, before = FileArea.write, writer.progress

    def overtaken(writing: FileArea, name: str, data: bytes) -> None:
        write(writing, name, data)
        if name.endswith(PENDING):
            opened(tmp_path).progress("d")

    with monkeypatch.context() as patched:
        patched.setattr(FileArea, "write", overtaken)
        with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
            writer.commit(change(1, None, row(1)), offset=1)
    assert opened(tmp_path).progress("d") == before
    writer.commit(change(1, None, row(1)), offset=1)
    assert len(files(tmp_path)) == 1


def test_a_stored_commit_whose_files_are_gone_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows are not there, though the progress says so. The text has a way on."""
    writer = Writer(opened(tmp_path))
    with monkeypatch.context() as patched:
        patched.setattr(ParquetFiles, "_publish", lambda *_: None)
        writer.commit(change(1, None, row(1)), offset=1)
    [pending] = (tmp_path / "parquet").rglob("*.pending")
    pending.unlink()
    with pytest.raises(SinkRefused, match=r"s/t/run-000000000001-0-.*\.parquet is gone.*progress-0.*\.json"):
        opened(tmp_path).progress("d")
    [state] = (tmp_path / "parquet" / "_canal_ha" / "d").glob("progress-*.json")
    state.write_text(json.dumps({**json.loads(state.read_text()), "files": []}))
    assert opened(tmp_path).progress("d") == writer.progress


def test_another_writer_is_told(tmp_path: Path) -> None:
    """The text says what to do."""
    writer, other = Writer(opened(tmp_path)), Writer(opened(tmp_path))
    other.commit(change(1, None, row(1)), offset=1)
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        writer.commit(change(1, None, row(1)), offset=2)


def test_a_process_of_an_earlier_run_is_refused(tmp_path: Path) -> None:
    """Another process gave the run another name. The first one's rows come under the number that follows."""
    old, new = Writer(opened(tmp_path)), Writer(opened(tmp_path))
    new.progress = replace(new.progress, run="newer")
    new.target.commit(replace(new.portion(offset=0), progress=new.progress, frames=b""))
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        old.commit(change(1, None, row(1)), offset=1)
    old.progress = replace(old.progress, seq=-1)
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        old.commit(change(1, None, row(1)), offset=1)
    new.commit(change(1, None, row(1)), offset=1)
    assert len(files(tmp_path)) == 1


def test_no_message_shows_the_login_of_a_location(tmp_path: Path) -> None:
    """A URI may have user name and password."""
    with pytest.raises(OptionInvalid) as refused:
        ParquetFiles("nothing://user:secret@host/path", "zstd", stop=False)
    assert "secret" not in str(refused.value)


def test_a_bad_place_is_told(tmp_path: Path) -> None:
    """The texts say what to do."""
    Writer(opened(tmp_path), "check")
    assert opened(tmp_path).check() == f"parquet at {tmp_path}/parquet"
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "parquet").write_text("a file")
    with pytest.raises(SinkRefused, match="cannot be written"):
        opened(tmp_path / "plain").check()
    with pytest.raises(TargetUnavailable):
        opened(tmp_path / "plain").progress("d")


def test_a_change_of_columns_can_be_refused(tmp_path: Path) -> None:
    """With evolve: stop."""
    writer = Writer(opened(tmp_path, evolve="stop"))
    writer.commit(change(1, None, row(1)), made.ddl(2, "CREATE INDEX i ON t (name)", "CINDEX"), offset=2)
    with pytest.raises(SinkRefused, match="evolve is stop"):
        writer.commit(made.ddl(3, "ALTER TABLE t DROP name"), offset=3)


def test_a_source_schema_with_the_name_of_the_own_directory_is_refused(tmp_path: Path) -> None:
    """Its table `d` would share a place with the progress of destination `d`."""
    writer = Writer(opened(tmp_path))
    with pytest.raises(SinkRefused, match="leave the schema out of `tables`"):
        writer.commit(change(1, None, row(1), schema="_canal_ha", table="d"), offset=1)
    assert opened(tmp_path).progress("d") == writer.progress


def keys(directory: Path) -> list[int]:
    """Return the keys of all rows that readers see."""
    return sorted(key for file in files(directory) for key in pq.read_table(file).column("id").to_pylist())


@pytest.mark.parametrize("commits", [1, 2])
@pytest.mark.parametrize("place", ["before its files", "before its progress"])
def test_a_process_that_was_suspended_replaces_nothing(
    commits: int, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process has gone on meanwhile. The first one is refused, and no row is lost or comes twice."""
    target = opened(tmp_path)
    writer = Writer(target)
    writer.commit(change(10, None, row(0)), offset=10)
    others: list[Writer] = []

    def go_on() -> None:
        other = Writer(opened(tmp_path))
        others.append(other)
        other.commit(change(11, None, row(1)), change(12, None, row(2)), change(13, None, row(3)), offset=13)
        if commits > 1:
            other.commit(change(14, None, row(4)), offset=14)

    write, names = FileArea.write, [".parquet.pending" if place == "before its files" else ".json"]

    def resumed(writing: FileArea, name: str, data: bytes) -> None:
        if names and name.endswith(names[0]):
            names.clear()
            go_on()
        write(writing, name, data)

    monkeypatch.setattr(FileArea, "write", resumed)
    with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
        writer.commit(change(11, None, row(1)), offset=11)
    [other] = others
    other.commit(change(15, None, row(5)), offset=15)
    assert keys(tmp_path) == [0, 1, 2, 3, *([4] if commits > 1 else []), 5]
    assert opened(tmp_path).progress("d") == other.progress
    assert not list((tmp_path / "parquet").rglob("*.pending"))


def test_the_progress_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """It had one file, which is replaced by the first commit."""
    writer = Writer(opened(tmp_path))
    writer.commit(change(1, None, row(1)), offset=1)
    state = tmp_path / "parquet" / "_canal_ha" / "d"
    [newest] = state.glob("progress-*.json")
    newest.rename(state / "progress.json")
    target = opened(tmp_path)
    assert target.progress("d") == writer.progress
    Writer(target).commit(change(2, None, row(2)), offset=2)
    assert len(list(state.iterdir())) == 1
    assert keys(tmp_path) == [1, 2]


def test_two_commits_with_one_number_are_told(tmp_path: Path) -> None:
    """Nobody knows which one counts if both processes died before they looked."""
    Writer(opened(tmp_path)).commit(change(1, None, row(1)), offset=1)
    [newest] = (tmp_path / "parquet" / "_canal_ha" / "d").glob("progress-*.json")
    newest.with_name(newest.name.replace(".json", "0.json")).write_bytes(newest.read_bytes())
    with pytest.raises(SinkRefused, match="remove the newer one"):
        opened(tmp_path).progress("d")


class Paused:
    """A process that commits a row. It waits before it stores its progress, and again before it looks for others."""

    def __init__(self, directory: Path) -> None:
        self.writer = Writer(opened(directory))
        self.ready, self.stores, self.stored, self.looks = (threading.Event() for _ in range(4))
        self.refused = False
        self.thread = threading.Thread(target=self._commit)

    def _commit(self) -> None:
        try:
            self.writer.commit(change(11, None, row(1)), offset=11)
        except SinkRefused:
            self.refused = True

    def store(self) -> None:
        """Let it store its progress, and return when it has."""
        self.stores.set()
        assert self.stored.wait(10)

    def end(self) -> None:
        """Let it look, and return when it has ended."""
        self.looks.set()
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def paused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Paused, Paused]:
    """Two processes of a pipeline that are about to commit the same row, behind a commit with another one."""
    Writer(opened(tmp_path)).commit(change(10, None, row(0)), offset=10)
    found = Paused(tmp_path), Paused(tmp_path)
    write = FileArea.write

    def written(area: FileArea, name: str, data: bytes) -> None:
        own = [each for each in found if threading.current_thread() is each.thread and name.endswith(".json")]
        for each in own:
            each.ready.set()
            assert each.stores.wait(10)
        write(area, name, data)
        for each in own:
            each.stored.set()
            assert each.looks.wait(10)

    monkeypatch.setattr(FileArea, "write", written)
    for each in found:
        each.thread.start()
        assert each.ready.wait(10)
    return found


def test_rows_of_a_commit_that_is_taken_back_come_twice_by_a_process_that_starts(
    paused: tuple[Paused, Paused], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has found the commit of one process before another one stored the same number."""
    first, second = paused
    first.store()
    read, begun = FileArea.read, list[bool]()

    def overtaken(area: FileArea, name: str) -> bytes:
        text = read(area, name)
        if threading.current_thread() is threading.main_thread() and not begun:
            begun.append(True)
            second.store()
            first.end()
            second.end()
        return text

    with monkeypatch.context() as patched:
        patched.setattr(FileArea, "read", overtaken)
        with pytest.raises(SinkRefused, match="another process of this pipeline has gone on"):
            opened(tmp_path).progress("d")
    assert (first.refused, second.refused) == (True, False)
    assert opened(tmp_path).progress("d") == second.writer.progress
    assert keys(tmp_path) == [0, 1]


def test_a_commit_stands_if_a_process_that_starts_has_published_it(
    paused: tuple[Paused, Paused], tmp_path: Path
) -> None:
    """The process that stored it is refused, and so is one that stores the same number later."""
    first, second = paused
    first.store()
    starting = opened(tmp_path)
    progress = starting.progress("d")
    second.store()
    for each in (first, second):
        each.end()
        assert each.refused
    assert opened(tmp_path).progress("d") == progress
    assert keys(tmp_path) == [0, 1]


def test_a_process_that_starts_while_two_store_one_number_waits(paused: tuple[Paused, Paused], tmp_path: Path) -> None:
    """One of them at least takes its commit back."""
    for each in paused:
        each.store()
    first, second = paused

    def end() -> None:
        first.end()
        second.end()

    ending = threading.Timer(0.2, end)
    ending.start()
    progress = opened(tmp_path).progress("d")
    ending.join()
    assert progress is not None
    assert progress.seq in (1, 2)
    assert keys(tmp_path) == list(range(progress.seq))
