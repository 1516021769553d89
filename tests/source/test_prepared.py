"""The search for the prepared part of an XA transaction, in a directory of binlog files."""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from canal_ha.decode.decoder import MAGIC
from canal_ha.decode.prepared import XaCommit, Xid
from canal_ha.errors import PreparedLost, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.files.prepared import file_journals
from canal_ha.source.positions import prepared, resume
from canal_ha.source.positions.prepared import PreparedReader
from canal_ha.source.positions.resume import OFFSET_MAX
from lab.dump import Dump
from tests.decode.test_payload import TRANSACTION_PAYLOAD, body, events

A = Xid(1, b"a", b"")


def unpacked(dump: Dump) -> bytes:
    """Return the events of a dump as a file has them."""
    data, raw, at = bytes(dump.data), bytearray(MAGIC), 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 3], "little")
        raw += data[at + 5 : at + 4 + size]
        at += 4 + size
    return bytes(raw)


def prepare(dump: Dump, *numbers: int, name: bytes = b"a") -> int:
    """Append a prepared part; return the offset of its first event."""
    began = dump.position
    text = f"X'{name.hex()}',X'',1"
    dump.query(f"XA START {text}").table()
    for number in numbers:
        dump.insert(number)
    dump.query(f"XA END {text}").add(38, struct.pack("<BiII", 0, 1, len(name), 0) + name)
    return began


def written(directory: Path, *dumps: Dump) -> list[str]:
    """Write the files; return their names."""
    names = [f"mysql-bin.{number:06}" for number in range(1, len(dumps) + 1)]
    for name, dump in zip(names, dumps, strict=True):
        (directory / name).write_bytes(unpacked(dump))
    return names


def inserted(events: bytes) -> list[int]:
    """Return the numbers of the WRITE_ROWS events, which have no checksums."""
    found, at = [], 0
    while at < len(events):
        size = int.from_bytes(events[at + 9 : at + 13], "little")
        if events[at + 4] == 30:
            found.append(int.from_bytes(events[at + size - 4 : at + size], "little"))
        at += size
    return found


def read(
    directory: Path, at: LogPosition, begin: LogPosition | None = None, reader: PreparedReader | None = None
) -> list[int]:
    reader = reader or PreparedReader("here", partial(file_journals, directory))
    return [number for part in reader.read_again(XaCommit(A, at, at.offset + 90), begin) for number in inserted(part)]


def test_the_last_part_of_that_name_counts(tmp_path: Path) -> None:
    """Decided ones, those of other names, and one prepared behind the commit under the same name are passed over."""
    first, second = Dump().format(), Dump().format()
    prepare(first, 1)
    first.query("XA COMMIT X'61',X'',1")
    prepare(first, 2)
    prepare(first, 3, name=b"b")
    at = second.position
    second.query("XA COMMIT X'61',X'',1")
    prepare(second, 4)
    names = written(tmp_path, first, second)
    assert read(tmp_path, LogPosition(names[1], at)) == [2]


def test_a_commit_that_is_repeated_after_a_crash_names_no_purged_journal_alone(tmp_path: Path) -> None:
    """MariaDB shows the transaction as prepared after a crash in XA COMMIT, so a person commits it once more."""
    dump = Dump().format()
    prepare(dump, 1)
    dump.query("XA COMMIT X'61',X'',1")
    at = dump.position
    dump.query("XA COMMIT X'61',X'',1")
    (name,) = written(tmp_path, dump)
    with pytest.raises(PreparedLost, match=r"crashed in an earlier XA COMMIT .* came with the earlier one"):
        read(tmp_path, LogPosition(name, at))


def test_pieces_of_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of any size comes complete and in order, a few events at a time."""
    monkeypatch.setattr(prepared, "PIECE_BYTES", 100)
    dump = Dump().format()
    prepare(dump, *range(50))
    (name,) = written(tmp_path, dump)
    assert read(tmp_path, LogPosition(name, dump.position)) == list(range(50))


def test_a_part_beyond_the_offsets_of_the_dump_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal is read from its beginning then, and nothing before the part is taken for it."""
    monkeypatch.setattr(prepared, "PIECE_BYTES", 100)
    monkeypatch.setattr(resume, "OFFSET_MAX", 4)
    dump = Dump().format()
    prepare(dump, 100)
    dump.query("XA ROLLBACK X'61',X'',1")
    began = prepare(dump, *range(20))
    (name,) = written(tmp_path, dump)
    assert read(tmp_path, LogPosition(name, dump.position), LogPosition(name, began)) == list(range(20))


@pytest.mark.parametrize("most", [4, OFFSET_MAX])
def test_a_compressed_part_comes_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """It is one event, however large its content, also if the journal is read from its beginning."""
    monkeypatch.setattr(prepared, "PIECE_BYTES", 100)
    monkeypatch.setattr(resume, "OFFSET_MAX", most)
    dump = Dump().format().begin().table().insert(1).xid()
    inside = Dump(checksum=False)
    prepare(inside, *range(50))
    began = dump.position
    packed = body(events(inside))
    dump.add(TRANSACTION_PAYLOAD, packed)
    (name,) = written(tmp_path, dump)
    reader = PreparedReader("here", partial(file_journals, tmp_path))
    for begin in (LogPosition(name, began), None):
        (event,) = reader.read_again(XaCommit(A, LogPosition(name, dump.position), 0), begin)
        assert event[4] == TRANSACTION_PAYLOAD
        assert event[19:] == packed


def test_each_journal_is_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search for one transaction notes all others that are prepared."""
    dump = Dump().format()
    for name in (b"c", b"b", b"a"):
        prepare(dump, name[0], name=name)
    (journal,) = written(tmp_path, dump)
    reader = PreparedReader("here", partial(file_journals, tmp_path))
    at = LogPosition(journal, dump.position)
    assert read(tmp_path, at, reader=reader) == [ord("a")]
    searched = dict(reader._searched)
    assert list(reader.read_again(XaCommit(Xid(1, b"c", b""), at, 0), None))
    assert reader._searched == searched


def test_a_part_is_found_again_after_its_reading_failed(tmp_path: Path) -> None:
    """A reader of files outlives a broken attempt. The next one took the part for lost, which stopped the stream."""
    dump = Dump().format()
    prepare(dump, 1, 2)
    (name,) = written(tmp_path, dump)
    reader = PreparedReader("here", partial(file_journals, tmp_path))
    at = LogPosition(name, dump.position)
    broken = reader.read_again(XaCommit(A, at, 0), None)
    whole = (tmp_path / name).read_bytes()
    with pytest.MonkeyPatch.context() as patch:
        found = reader._found

        def found_and_cut(*arguments: Any) -> LogPosition:
            place = found(*arguments)
            (tmp_path / name).write_bytes(whole[:-20])
            return place

        patch.setattr(reader, "_found", found_and_cut)
        with pytest.raises(SourceUnavailable, match="was not read to its end"):
            list(broken)
    (tmp_path / name).write_bytes(whole)
    assert read(tmp_path, at, reader=reader) == [1, 2]


@pytest.mark.parametrize("known", [True, False])
def test_a_part_whose_journal_is_gone(tmp_path: Path, known: bool) -> None:
    """The error names the transaction, the commit, the oldest journal, and where to go on."""
    dump = Dump().format()
    (name,) = written(tmp_path, dump)
    begin = LogPosition("mysql-bin.000000", 4) if known else None
    with pytest.raises(
        PreparedLost,
        match=rf"here: the XA transaction X'61',X'',1 commits at {name}:200, .*{name}\)\..* the cursor to {name}:290 ",
    ):
        read(tmp_path, LogPosition(name, 200), begin)
