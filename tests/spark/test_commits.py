"""Tasks that commit segments of a spool, without Spark: what they write, and when they stop."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.dataset as dataset
import pytest
from pyiceberg.catalog import load_catalog

from canal_ha.errors import CanalError, DataLoss, SinkRefused, TargetUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.delta import DeltaTables
from canal_ha.spark import commits, portions
from canal_ha.spark.commits import SegmentRange, Terms, Written
from canal_ha.spark.spool import SpoolWriter
from canal_ha.spark.steps import unobserved
from canal_ha.spark.storage import open_storage
from lab import lake
from tests.pipeline.given import described
from tests.pipeline.lake_writer import options as catalog
from tests.pipeline.receiver import Receiver
from tests.spark import entries as made


class Spool:
    """A spool of destination d, and the tasks that write it into a target."""

    def __init__(self, directory: Path, description: Description, retain: int = 100) -> None:
        self.directory = directory / "spool"
        self.terms = Terms(description, "UTC", fail_on_data_loss=True, snapshot=False)
        self._retain = retain
        self.open()

    def open(self) -> None:
        """Open the spool with the next writer."""
        storage = open_storage(str(self.directory))
        self.uri = storage.uri
        self.writer = SpoolWriter(storage, "d", self._retain, unobserved)
        self.writer.follows = True

    def add(self, *entries: bytes, offset: int, server: str = "uuid") -> None:
        """Append a segment that ends with a transaction. offset: of its last entry."""
        last = LogPosition("bin.000001", offset, timestamp_ms=1000, server_id=1, server=server)
        self.writer.append([made.frames(entries)], {"s.t": len(entries)}, last, closed=True, ddl={})

    def rows(self, *keys: int, server: str = "uuid") -> None:
        """Append a segment with a row for each key, at the offset of that number."""
        self.add(*(made.insert(key, key) for key in keys), offset=keys[-1], server=server)

    def write(self, after: int = -1, last: int | None = None, **terms: Any) -> Written:
        """Write a micro-batch; the whole spool unless other segments are given. Raises what the task reports."""
        end = self.writer.manifest.next_seq - 1 if last is None else last
        done = commits.write(replace(self.terms, **terms), SegmentRange("d", self.uri, after, end))
        if done.problem is not None:
            raise done.problem
        return done


def log(directory: Path) -> Description:
    """Return a pipeline into Parquet files."""
    return described("parquet", "changelog", directory, {"path": str(directory / "log")})


def mirror(directory: Path, **more: Any) -> Description:
    """Return a pipeline into copies in Delta."""
    return replace(described("delta", "mirror", directory, {"path": str(directory / "lake")}), **more)


def logged(directory: Path) -> list[int]:
    """Return the keys of all rows of the log, in order."""
    table = dataset.dataset(directory / "log" / "s" / "t").to_table()
    return sorted(key for key in table["id"].to_pylist() if key is not None)


def keys_of(directory: Path, kind: str, table: str = "t") -> list[int]:
    """Return the keys of all rows of a log in Delta or Iceberg, in order."""
    if kind == "delta":
        return sorted(row["id"] for row in lake.rows(directory / "lake" / "s" / table))
    access = dict(catalog(directory)["catalog"])
    found = load_catalog(access.pop("name"), **access).load_table(("s", table))
    return sorted(found.scan().to_arrow().column("id").to_pylist())


def test_a_micro_batch_that_comes_again_in_other_parts_writes_each_row_once(tmp_path: Path) -> None:
    """After a crash or with a restored checkpoint; the rows of a task are those that it has written."""
    spool = Spool(tmp_path, log(tmp_path))
    spool.rows(1, 2)
    assert spool.write().rows == 2
    spool.rows(3)
    assert spool.write().rows == 1
    assert spool.write(after=0, last=0).rows == 0
    spool.rows(4)
    assert spool.write(after=1).rows == 1
    assert logged(tmp_path) == [1, 2, 3, 4]


def test_a_large_micro_batch_is_committed_in_portions_of_one_server_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions of two servers cannot be compared, so a portion never has both."""
    monkeypatch.setattr(portions, "PORTION_ROWS", 2)
    spool = Spool(tmp_path, log(tmp_path))
    for keys, server in (((1, 2), "a"), ((3,), "a"), ((4,), "b"), ((5,), "b")):
        spool.rows(*keys, server=server)
    assert spool.write().rows == 5
    progress = open_target(spool.terms.description).stored("d")
    assert progress is not None
    assert (progress.seq, progress.last.server, progress.last.offset) == (4, "b", 5)
    assert progress.spooled.endswith("segment 3")
    assert logged(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_after_a_reset_of_the_binlog_are_not_taken_for_those_that_a_table_has(tmp_path: Path, kind: str) -> None:
    """Positions begin again, and times do not tell it: a session has set one to the future, or a second is not over."""
    options = {"path": str(tmp_path / "lake")} if kind == "delta" else catalog(tmp_path)
    spool = Spool(tmp_path, described(kind, "changelog", tmp_path, options))
    spool.add(made.insert(500, 1), made.insert(500, 1, table="other"), offset=500)
    spool.write()
    spool.add(made.insert(100, 2, table="other"), offset=100)
    spool.write()
    spool.rows(200)
    spool.write()
    assert keys_of(tmp_path, kind) == [1, 200]


def test_a_commit_after_a_reset_of_the_binlog_that_was_interrupted_writes_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A portion has entries of one of the two binlogs, and the next try knows which tables have it."""
    spool = Spool(tmp_path, described("delta", "changelog", tmp_path, {"path": str(tmp_path / "lake")}))
    spool.rows(500)
    spool.write()
    spool.rows(600)
    spool.add(made.insert(90, 90), made.insert(100, 100, table="other"), offset=100)
    uri = DeltaTables.uri

    def died(target: DeltaTables, schema: str, name: str) -> str:
        if name == "other":
            raise OSError("died")
        return uri(target, schema, name)

    with monkeypatch.context() as patched:
        patched.setattr(DeltaTables, "uri", died)
        patched.setattr(commits, "PATIENCE_S", 0.0)
        with pytest.raises(TargetUnavailable):
            spool.write()
    assert keys_of(tmp_path, "delta") == [90, 500, 600]
    spool.write()
    assert keys_of(tmp_path, "delta") == [90, 500, 600]
    assert keys_of(tmp_path, "delta", "other") == [100]


def test_a_target_whose_progress_is_a_file_continues_in_the_next_task(tmp_path: Path) -> None:
    """HTTP: the file is in `state`, which driver and executors share."""
    with Receiver() as receiver:
        spool = Spool(tmp_path, described("http", "events", tmp_path / "state", {"url": receiver.url}))
        for key in (1, 2):
            spool.rows(key)
            assert spool.write(after=key - 2).rows == 1
            assert spool.write(after=key - 2).rows == 0
        assert [json.loads(line)["after"]["id"] for line in receiver.rows()] == [1, 2]


def test_a_target_that_needs_a_place_for_its_progress_gets_it(tmp_path: Path) -> None:
    """Iceberg keeps it in a table."""
    spool = Spool(tmp_path, described("iceberg", "mirror", tmp_path, catalog(tmp_path)))
    for key in (1, 2):
        spool.rows(key)
        assert spool.write().rows == 1


def test_transforms_reach_the_target(tmp_path: Path) -> None:
    """They are those of a pipeline without Spark."""
    transforms = ({"mask": {"tables": "s.t", "columns": "name"}}, {"rename": {"tables": "s.t", "to": "s.people"}})
    spool = Spool(tmp_path, mirror(tmp_path, transforms=transforms))
    spool.rows(1)
    spool.write()
    assert lake.rows(tmp_path / "lake" / "s" / "people") == [{"id": 1, "name": "***"}]


def test_a_restored_target_gets_what_the_spool_still_has(tmp_path: Path) -> None:
    """Behind the checkpoint too. If the spool has removed some of it, the task stops before it writes."""
    spool = Spool(tmp_path, log(tmp_path), retain=1)
    spool.rows(1)
    spool.write()
    shutil.copytree(tmp_path / "log", tmp_path / "old")
    spool.rows(2)
    spool.rows(3)
    spool.write(after=0)
    shutil.rmtree(tmp_path / "log")
    shutil.copytree(tmp_path / "old", tmp_path / "log")
    assert spool.write(after=1).rows == 2
    assert logged(tmp_path) == [1, 2, 3]
    shutil.rmtree(tmp_path / "log")
    shutil.copytree(tmp_path / "old", tmp_path / "log")
    spool.writer.read_up_to(1)
    spool.writer.read_up_to(2)
    spool.rows(4)
    with pytest.raises(DataLoss, match=r"it was restored from an older copy.*begins with segment 2 \(retainBatches\)"):
        spool.write(after=2)
    assert logged(tmp_path) == [1]
    spool.write(after=2, fail_on_data_loss=False)
    spool.rows(5)
    assert spool.write(after=3).rows == 1
    assert logged(tmp_path) == [1, 3, 4, 5]


def test_an_empty_target_behind_an_old_spool_is_a_gap(tmp_path: Path) -> None:
    """A wrong path, or a target that somebody emptied, must not look like a beginning."""
    spool = Spool(tmp_path, log(tmp_path), retain=1)
    for key in (1, 2, 3):
        spool.rows(key)
        spool.writer.read_up_to(key - 1)
    with pytest.raises(DataLoss, match=r"it has no progress; the spool \S+ begins with segment 2 "):
        spool.write()


@pytest.mark.parametrize("spooled", ["", "spool other writer none segment 3"])
def test_a_target_of_another_pipeline_stops_the_task(spooled: str, tmp_path: Path) -> None:
    """Of the other engine, or of another spool."""
    spool = Spool(tmp_path, log(tmp_path))
    spool.rows(1)
    spool.write()
    target = open_target(spool.terms.description)
    stored = target.stored("d")
    assert stored is not None
    other = replace(stored, run="other", spooled=spooled)
    target.commit(Portion("d", b"", other, 0, True, ChangeReader(lambda schema, table: True)))
    spool.rows(2)
    with pytest.raises(DataLoss, match="another spool" if spooled else "a pipeline without Spark"):
        spool.write()
    assert logged(tmp_path) == [1]


@pytest.mark.parametrize("mode", ["mirror", "changelog"])
def test_a_restored_spool_goes_on_in_a_mirror_alone(mode: str, tmp_path: Path) -> None:
    """The node delivers the lost segments again, in other pieces. A log of changes would have them twice."""
    spool = Spool(tmp_path, mirror(tmp_path) if mode == "mirror" else log(tmp_path))
    spool.rows(1)
    spool.write()
    shutil.copytree(tmp_path / "spool", tmp_path / "old")
    spool.rows(2)
    spool.rows(3)
    spool.write(after=0)
    shutil.rmtree(tmp_path / "spool")
    shutil.copytree(tmp_path / "old", tmp_path / "spool")
    spool.open()
    spool.rows(2, 3, 4)
    if mode == "changelog":
        with pytest.raises(DataLoss, match="a log of changes would get them twice"):
            spool.write(after=0)
        assert logged(tmp_path) == [1, 2, 3]
    else:
        spool.write(after=0)
        assert sorted(row["id"] for row in lake.rows(tmp_path / "lake" / "s" / "t")) == [1, 2, 3, 4]


def test_a_swapped_table_is_read_again_also_if_the_target_has_the_swap(tmp_path: Path) -> None:
    """A driver that died behind the commit asks at the next start. Without a snapshot, nothing is written."""
    spool = Spool(tmp_path, mirror(tmp_path))
    spool.rows(1)
    spool.write()
    swap = "RENAME TABLE `s`.`t` TO `s`.`_t_del`, `s`.`_t_gho` TO `s`.`t`"
    spool.add(made.ddl(10, swap, "RENAME"), offset=10)
    with pytest.raises(SinkRefused, match="Set `snapshot: initial`"):
        spool.write(after=0)
    for _ in range(2):
        assert "s.t" in spool.write(after=0, snapshot=True).read_again
    assert lake.rows(tmp_path / "lake" / "s" / "t") == []


def test_a_target_that_does_not_answer_is_tried_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task must not wait for ever: Spark shows nothing meanwhile."""
    monkeypatch.setattr(commits, "PAUSES_S", (0.05,))
    monkeypatch.setattr(commits, "PATIENCE_S", 0.12)
    options = {"address": "127.0.0.1:1", "user": "u", "database": "copy", "stateDatabase": "state"}
    spool = Spool(tmp_path, described("mysql", "mirror", tmp_path, options))
    spool.rows(1)
    with pytest.raises(CanalError, match=r"127\.0\.0\.1:1"):
        spool.write()
