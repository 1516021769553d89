"""The spool: durable segments, one writer, retention, damage."""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from pathlib import Path

import pyarrow.fs as arrow_fs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.errors import NoRoom, SpoolFenced, SpoolUnusable
from canal_ha.model.position import LogPosition
from canal_ha.spark import segments
from canal_ha.spark import storage as storage_module
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.spool import SpoolWriter, newest_manifest
from canal_ha.spark.steps import unobserved
from canal_ha.spark.storage import ArrowStorage, LocalStorage, Storage, open_storage


@pytest.fixture(params=["local", "arrow"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """Return each kind of storage."""
    if request.param == "local":
        return LocalStorage(tmp_path / "spool")
    return ArrowStorage(arrow_fs.LocalFileSystem(), str(tmp_path / "spool"), (tmp_path / "spool").as_uri())


def writer(storage: Storage, retain: int = 100) -> SpoolWriter:
    """Return the next writer."""
    return SpoolWriter(storage, "d", retain, unobserved)


def append(spool: SpoolWriter, offset: int, frames: bytes = b"frames") -> None:
    """Append one segment."""
    position = LogPosition("bin.000001", offset, 1000, 1)
    spool.append([frames], {"s.t": 3}, position, closed=True, ddl={})


def test_what_was_appended_is_there_for_the_next_writer(storage: Storage) -> None:
    """Segments, numbers and the last position pass to the next epoch; the spool keeps its identity."""
    first = writer(storage)
    append(first, 10)
    append(first, 20)
    second = writer(storage)
    assert second.manifest == first.manifest
    assert second.epoch.number == first.epoch.number + 1
    append(second, 30)
    found = newest_manifest(storage)
    assert found == second.manifest
    assert [segment.seq for segment in found.segments] == [0, 1, 2]
    contents = segments.decode(storage.read(found.segments[2].name), "x")
    assert contents == segments.Contents("d", {"s.t": 3}, b"frames")


def test_segments_of_earlier_versions_can_have_statements(storage: Storage) -> None:
    """Their index does not say that they have none."""
    spool = writer(storage)
    for statements in (True, False):
        spool.append([b"f"], {}, LogPosition("b.1", 4, 1, 1), closed=True, ddl={}, statements=statements)
        data = storage.read(spool.manifest.segments[-1].name)
        assert segments.decode(data, "x").statements is statements
    head = struct.Struct(">III")
    start = len(segments.MAGIC) + head.size
    index_size, body_size, _ = head.unpack_from(data, len(segments.MAGIC))
    index = data[start : start + index_size].replace(b',"statements":false', b"")
    rest = index + data[start + index_size :]
    assert len(rest) < index_size + body_size
    older = segments.MAGIC + head.pack(len(index), body_size, zlib.crc32(rest)) + rest
    assert segments.decode(older, "x").statements


def test_the_server_of_the_last_position_is_kept(storage: Storage) -> None:
    """Manifests of earlier versions have no server."""
    spool = writer(storage)
    for server in ("a", "b"):
        spool.append([b"f"], {}, LogPosition("b.1", 4, 1, 1, server=server), closed=True, ddl={})
        found = newest_manifest(storage)
        assert found is not None
        assert found.last is not None
        assert found.last.server == server
    body = json.loads(spool.manifest.to_bytes())
    del body["server"]
    former = Manifest.from_bytes(json.dumps(body).encode(), "m")
    assert former.last is not None
    assert former.last.server == ""


def test_an_older_writer_is_fenced(storage: Storage) -> None:
    """Later segments of the older writer are not durable, and the newer writer never lists them."""
    first = writer(storage)
    append(first, 10)
    second = writer(storage)
    with pytest.raises(SpoolFenced, match="another driver"):
        append(first, 20)
    append(second, 20)
    assert [segment.last.offset for segment in second.manifest.segments] == [10, 20]
    assert newest_manifest(storage) == second.manifest


def test_a_claim_alone_fences(storage: Storage) -> None:
    """A new writer that has not read yet will read only what is durable, so the old one must not add segments."""
    first = writer(storage)
    storage.write("epoch-00000009-ffffffff", b"")
    with pytest.raises(SpoolFenced):
        append(first, 10)
    assert first.manifest.segments == ()


def test_retention_keeps_what_the_last_batches_need(storage: Storage) -> None:
    """Files of older batches are deleted; the newest segment always stays."""
    spool = writer(storage, retain=2)
    for number in range(6):
        append(spool, number * 10)
    for seq in (1, 2, 3, 4):
        spool.read_up_to(seq)
    assert [segment.seq for segment in spool.manifest.segments] == [3, 4, 5]
    assert sum(name.startswith("segment") for name in storage.names()) == 3
    for _ in range(5):
        spool.read_up_to(5)
    assert spool.manifest.last is not None


def test_segments_that_went_before_the_manifest_did_are_no_longer_listed(storage: Storage) -> None:
    """On a full disk segments may go first. A later gap stays in the list, for the reader to report."""
    spool = writer(storage)
    for number in range(5):
        append(spool, number * 10)
    names = [segment.name for segment in spool.manifest.segments]
    storage.delete([names[0], names[1], names[3]])
    assert [segment.seq for segment in writer(storage).manifest.segments] == [2, 3, 4]
    storage.delete(names)
    assert [segment.seq for segment in writer(storage).manifest.segments] == [4]


def test_what_no_manifest_lists_is_swept(storage: Storage) -> None:
    """Files left by a crash between segment and manifest are deleted."""
    first = writer(storage)
    append(first, 10)
    storage.write(f"segment-000000000001-{first.epoch}.zst", b"torn")
    second = writer(storage)
    names = storage.names()
    assert sum(name.startswith("segment") for name in names) == 1
    assert sorted(name for name in names if not name.startswith("segment")) == [
        f"epoch-{second.epoch}",
        f"manifest-{second.epoch}.json",
    ]


def test_what_a_crash_left_half_written_is_swept(tmp_path: Path) -> None:
    """The file is hidden, and may be as large as a segment. A file that a newer writer is writing stays."""
    storage = LocalStorage(tmp_path)
    first = writer(storage)
    torn = tmp_path / f".segment-000000000000-{first.epoch}.zst.4711"
    newer = tmp_path / ".segment-000000000000-00000009-aaaaaaaa.zst.4712"
    for path in (torn, newer):
        path.write_bytes(b"half")
    writer(storage)
    assert not torn.exists()
    assert newer.exists()


@given(st.integers(min_value=0), st.binary(min_size=1, max_size=1))
def test_any_changed_byte_of_a_segment_is_noticed(place: int, replacement: bytes) -> None:
    """Every byte is covered by the checksum or checked on its own."""
    good = segments.encode("d", {"s.t": 1}, [b"some frames"] * 10)
    place %= len(good)
    bad = good[:place] + replacement + good[place + 1 :]
    if bad != good:
        with pytest.raises(SpoolUnusable):
            segments.decode(bad, "x")


def test_a_cut_segment_is_noticed() -> None:
    """A segment that is cut at any length is refused."""
    good = segments.encode("d", {}, [b"fra", b"mes"])
    for size in range(len(good)):
        with pytest.raises(SpoolUnusable):
            segments.decode(good[:size], "x")


def test_a_manifest_of_something_else_is_refused() -> None:
    """The error names the file."""
    for data in (b"", b"{}", b"[]", b'{"v":9}', b"\xff"):
        with pytest.raises(SpoolUnusable, match="manifest-x"):
            Manifest.from_bytes(data, "manifest-x")


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in place of the directory stands for every error except a full disk."""
    (tmp_path / "spool").write_text("")
    with pytest.raises(SpoolUnusable, match="spool"):
        writer(open_storage(str(tmp_path / "spool"), "d"))


def test_a_full_disk_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write raises NoRoom, so that the caller can wait, and leaves no half-written file."""

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    storage = LocalStorage(tmp_path / "spool")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NoRoom, match="No space left"):
        storage.write("x", b"data")
    assert list((tmp_path / "spool").iterdir()) == []


def test_nobody_else_reads_the_rows_of_a_spool(tmp_path: Path) -> None:
    """Files that an earlier version left readable are closed when the next driver starts."""
    before = os.umask(0)
    try:
        directory = tmp_path / "spool" / "d" / "1001"
        append(writer(LocalStorage(directory)), 10)
        for file in directory.iterdir():
            file.chmod(0o644)
        append(writer(LocalStorage(directory)), 20)
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "spool", *(tmp_path / "spool").rglob("*"))}
    assert modes == {path: 0o700 if path.is_dir() else 0o600 for path in modes}


@pytest.mark.parametrize("root", ["{}/my spool", "file://{}/my%20spool"])
@pytest.mark.parametrize("destination", ["shop", "字", "a%2F..%2Fb", "a?b#c", "a.b"])
def test_an_executor_finds_the_spool_of_any_destination(tmp_path: Path, root: str, destination: str) -> None:
    """An executor has only the storage's URI, in which characters are escaped."""
    storage = open_storage(root.format(tmp_path), destination, "1001")
    storage.write("file", b"data")
    assert (tmp_path / "my spool" / destination / "1001" / "file").read_bytes() == b"data"
    assert open_storage(storage.uri).read("file") == b"data"


@pytest.mark.parametrize(
    "root", ["s3://bucket/my%20spool?region=us-east-1", "s3://k:s@bucket/my%20spool/?region=us-east-1"]
)
@pytest.mark.parametrize("destination", ["shop", "字", "a%2F..%2Fb", "a?b#c", "a.b"])
def test_an_executor_finds_the_spool_of_any_destination_in_an_object_store(root: str, destination: str) -> None:
    """The directories are part of the URI's path, also if it has a query."""
    uri = open_storage(root, destination, "1001").uri
    assert arrow_fs.FileSystem.from_uri(uri)[1] == f"bucket/my spool/{destination}/1001"
    assert uri.partition("?")[2] == root.partition("?")[2]


# ---- places that a spool cannot be in

MOUNTS = """\
/dev/sda1 / ext4 rw,relatime 0 0
nas:/a /srv/spool nfs4 rw,vers=4.2,acregmin=3 0 0
nas:/b /srv/spool/strict nfs4 rw,noac 0 0
nas:/c /srv/with\\040blank nfs rw,acdirmin=0,acdirmax=0 0 0
"""


@pytest.mark.parametrize(
    ("path", "good"),
    [("/var/spool", True), ("/srv/spool/d", False), ("/srv/spool/strict/d", True), ("/srv/with blank", True)],
)
def test_nfs_is_refused_unless_its_listings_are_not_cached(
    path: str, good: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fencing needs listings that show a later writer."""
    monkeypatch.setattr(storage_module, "_mounts", lambda: MOUNTS)
    place = LocalStorage(Path(path))
    assert (not place.problem) is good
    if not good:
        with pytest.raises(SpoolUnusable, match=r"is on NFS.*noac or actimeo=0"):
            SpoolWriter(place, "d", 1, unobserved)


def test_hdfs_is_refused() -> None:
    """A crash while it replaces a manifest would leave an empty one."""

    class Hdfs:
        type_name = "hdfs"

    place = ArrowStorage(Hdfs(), "a", "hdfs://nn/a")  # nothing of it is called
    with pytest.raises(SpoolUnusable, match="spoolDir: hdfs://nn/a is on HDFS"):
        SpoolWriter(place, "d", 1, unobserved)


def test_a_uri_of_hadoop_names_the_one_to_write() -> None:
    """pyarrow knows s3://, not s3a://."""
    with pytest.raises(SpoolUnusable, match="s3a://bucket/spool cannot be opened: write s3:// instead"):
        open_storage("s3a://bucket/spool")
