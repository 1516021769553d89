"""Binlog files as a source: reading them in order, waiting for them, finding positions, and errors."""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from canal_ha.config.model import DecodeOptions, InstanceConfig, LocalFiles, SourceConfig, WhenLost
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.errors import CanalError, MalformedEvent, PositionLost, RingClosed, SourceRefused, SourceUnavailable
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.source.files import dump
from canal_ha.source.files.dump import LocalDump
from canal_ha.source.files.view import LocalTables, LocalView
from canal_ha.source.server.dump import DumpFailed, DumpStarted
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import golden
from tests.waiting import until

FIRST, SECOND, THIRD = "mysql-bin.000001", "mysql-bin.000002", "mysql-bin.000003"
ROTATE = 4


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a file count as complete after half a second without growth."""
    monkeypatch.setattr(dump, "QUIET_S", 0.5)


def event(kind: int, body: bytes, at: int, seconds: int = 1_700_000_000) -> bytes:
    """Return an event that starts at an offset, with its checksum."""
    size = 19 + len(body) + 4
    raw = struct.pack("<IBIIIH", seconds, kind, 1, size, at + size, 0) + body
    return raw + struct.pack("<I", zlib.crc32(raw))


def rotation(data: bytes, journal: str = SECOND) -> bytes:
    """Return the file with a rotate event to another journal at its end."""
    return data + event(ROTATE, struct.pack("<Q", 4) + journal.encode(), len(data))


def boundaries(tag: str) -> list[int]:
    """Return the offsets at which the transactions of a recorded file end."""
    return [offset + length for offset, length, kind in _events(golden.binlog(tag)) if kind == 16]


def _events(data: bytes) -> Iterator[tuple[int, int, int]]:
    at = 4
    while at < len(data):
        length = struct.unpack_from("<I", data, at + 9)[0]
        yield at, length, data[at + 4]
        at += length


def moved(tag: str, start: int) -> bytes:
    """Return a file with the format description and the events from `start` on, with new positions in the headers."""
    data = golden.binlog(tag)
    out = bytearray(data[: 4 + struct.unpack_from("<I", data, 13)[0]])
    for at, length, _ in _events(data):
        if at >= start:
            one = bytearray(data[at : at + length - 4])
            one[13:17] = struct.pack("<I", len(out) + length)
            out += one + struct.pack("<I", zlib.crc32(one))
    return bytes(out)


def schema_of(tag: str, directory: Path) -> Path:
    """Write an SQL file with the definition that canal had to ask the server for; return its path."""
    path = directory / "schema.sql"
    path.write_text(next(text for name, text in golden.definitions(tag).items() if name.endswith("/t_syn")) + ";")
    return path


class Reading:
    """A LocalDump of a directory, with its entries and reports."""

    def __init__(self, directory: Path, start: LogPosition, schema: Path | None = None) -> None:
        self.entries: list[pb.Entry] = []
        self.events: list[DumpStarted | DumpFailed] = []
        self._config = config_of(directory, schema)
        assert self._config.local
        self._tables = LocalTables(self._config, self._config.local, lambda schema, table: None)
        self._closed = threading.Event()
        self.dump = LocalDump(
            self._config,
            self._config.local,
            name="test",
            start=start,
            make_decoder=self._decoder,
            accept=self._accept,
            report=self.events.append,
        )

    def wait(self, count: int) -> list[pb.Entry]:
        """Wait until this many entries are delivered; return them."""
        until(lambda: len(self.entries) >= count, what=f"{count} entries, not {len(self.entries)}; {self.events}")
        return self.entries

    def failure(self, kind: type[CanalError]) -> DumpFailed:
        """Wait for a report of this kind of failure; return it."""
        return until(
            lambda: next(
                (one for one in self.events if isinstance(one, DumpFailed) and isinstance(one.error, kind)), None
            ),
            what=f"{kind.__name__} among {self.events}",
        )

    def close(self) -> None:
        self._closed.set()
        self.dump.stop()
        assert self.dump.join(10)

    def _decoder(self, source: Source, start: LogPosition) -> Decoder:
        history = self._tables.view(start)
        self._tables.follow(self.dump)
        return Decoder(
            source=source,
            journal=start.journal,
            position=start.offset,
            options=self._config.decode,
            tables=TableFilter(*golden.ALL_TABLES),
            fields=FieldFilter("", ""),
            history=history,
        )

    def _accept(self, segment: Segment) -> None:
        if self._closed.is_set():
            raise RingClosed("closed")
        self.entries += map(pb.Entry.FromString, segment.entries())


@contextmanager
def reading(directory: Path, start: LogPosition | None = None, schema: Path | None = None) -> Iterator[Reading]:
    """Run a dump for a block."""
    found = Reading(directory, start or LogPosition(FIRST, 4), schema)
    found.dump.start()
    try:
        yield found
    finally:
        found.close()


def config_of(directory: Path, schema: Path | None = None, **source: object) -> InstanceConfig:
    """Return the configuration of a destination over a directory. source: fields of its configured start."""
    master = SourceConfig("", 0, **source)  # type: ignore[arg-type]  # a test's few fields
    return InstanceConfig("example", master, local=LocalFiles(directory, schema))


def view_of(directory: Path, **source: object) -> LocalView:
    """Return the view of a directory. source: fields of its configured start."""
    config = config_of(directory, None, **source)
    assert config.local
    return LocalView(config, config.local)


def test_files_follow_each_other_and_more_is_waited_for(tmp_path: Path) -> None:
    """Bytes that are appended in any pieces, and new files, are read as they come, each entry once."""
    data, wanted = golden.binlog("mysql9"), golden.expected("mysql9")
    cut = boundaries("mysql9")[40]
    first, second = rotation(data[:cut]), moved("mysql9", cut)
    (tmp_path / FIRST).write_bytes(first[:1000])
    with reading(tmp_path, schema=schema_of("mysql9", tmp_path)) as found:
        until(lambda: found.dump.idle, what="the end of what there is")
        with (tmp_path / FIRST).open("ab") as file:
            for at in range(1000, len(first), 7001):
                file.write(first[at : at + 7001])
                file.flush()
        before = found.wait(sum(one.offset < cut for one in wanted))
        until(lambda: found.dump.idle, what="the end of the first file")
        (tmp_path / SECOND).write_bytes(second[:60])
        with (tmp_path / SECOND).open("ab") as file:
            file.write(second[60:])
        entries = found.wait(len(wanted))
        assert len(before) <= len(entries) == len(wanted)
    assert [one.header.logfileName for one in entries] == [FIRST if one.offset < cut else SECOND for one in wanted]
    for mine, other in zip(entries, wanted, strict=True):
        entry = pb.Entry.FromString(other.entry)
        assert (mine.entryType, mine.storeValue) == (entry.entryType, entry.storeValue)


def test_a_file_without_a_rotation_ends_when_the_next_one_exists(tmp_path: Path) -> None:
    """The dump goes on after a file without a rotate event, as a crash leaves it, without loss or repeat."""
    data, wanted = golden.binlog("mariadb10.11"), golden.expected("mariadb10.11")
    cut = boundaries("mariadb10.11")[40]
    (tmp_path / FIRST).write_bytes(data[:cut])
    (tmp_path / SECOND).write_bytes(moved("mariadb10.11", cut))
    with reading(tmp_path) as found:
        entries = found.wait(len(wanted))
        until(lambda: found.dump.idle, what="the end of the last file")
    assert len(entries) == len(wanted)


def test_a_start_behind_statements_knows_the_tables(tmp_path: Path) -> None:
    """A start in mid-file gives the same entries as the beginning; inside a transaction it goes back to the begin."""
    data, wanted = golden.binlog("mysql9"), golden.expected("mysql9")
    (tmp_path / FIRST).write_bytes(data)
    start = boundaries("mysql9")[60]
    rest = [one for one in wanted if one.offset >= start]
    with reading(tmp_path, LogPosition(FIRST, start), schema_of("mysql9", tmp_path)) as found:
        entries = found.wait(len(rest))
        assert [one.SerializeToString() for one in entries] == [
            pb.Entry.FromString(one.entry).SerializeToString() for one in rest
        ]
    rows = next(at for at, _, kind in _events(data) if kind in (30, 31, 32) and at > start)
    with reading(tmp_path, LogPosition(FIRST, rows)) as found:
        assert "lies inside a transaction" in str(found.failure(SourceUnavailable).error)
        found.wait(1)
        assert found.entries[0].header.logfileOffset < rows


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda path: path.write_bytes(b"no binlog" * 9), "not a binlog file"),
        (lambda path: path.write_bytes(b"\xfdbin" + bytes(99)), "an encrypted binlog file"),
        (lambda path: path.write_bytes(path.read_bytes()[:-50] + bytes(50)), "malformed event at mysql-bin.000001:"),
        (
            lambda path: path.write_bytes(rotation(path.read_bytes()) + bytes(30)),
            "mysql-bin.000001:4: after the rotate event: an event of 0 bytes",
        ),
    ],
)
def test_a_damaged_file_stops_the_stream(tmp_path: Path, spoil: Callable[[Path], object], error: str) -> None:
    """A damaged file ends the dump for good, with an error that names the file, the offset and the reason."""
    path = tmp_path / FIRST
    path.write_bytes(golden.binlog("mariadb10.11_gtid"))
    spoil(path)
    with reading(tmp_path) as found:
        failed = found.failure(MalformedEvent)
        assert error in str(failed.error)
        assert failed.retry_in_s is None


def test_a_file_that_ends_inside_an_event_stops_the_stream_once_there_is_a_next_one(tmp_path: Path) -> None:
    """A file that ends inside an event is waited for, until a next file shows that the rest will not come."""
    data = golden.binlog("mysql9_gtid")
    (tmp_path / FIRST).write_bytes(data[:-10])
    with reading(tmp_path) as found:
        until(lambda: found.dump.idle, what="the end of what there is")
        assert not [one for one in found.events if isinstance(one, DumpFailed)]
        (tmp_path / SECOND).write_bytes(moved("mysql9_gtid", len(data)))
        assert "the file ends inside" in str(found.failure(MalformedEvent).error)


def test_missing_files_are_waited_for(tmp_path: Path) -> None:
    """The dump waits for the first file, and for a file that is missing between others; it never skips one."""
    data, wanted = golden.binlog("mysql9_gtid"), golden.expected("mysql9_gtid")
    cut = boundaries("mysql9_gtid")[5]
    with reading(tmp_path, LogPosition(FIRST, wanted[0].offset)) as found:
        assert "no binlog files found" in str(found.failure(SourceUnavailable).error)
        (tmp_path / THIRD).write_bytes(moved("mysql9_gtid", len(data)))
        (tmp_path / FIRST).write_bytes(rotation(data[:cut]))
        until(lambda: "number 2 is missing" in str(found.events[-1]), what="word of the gap")
        (tmp_path / SECOND).write_bytes(rotation(moved("mysql9_gtid", cut), THIRD))
        assert len(found.wait(len(wanted))) == len(wanted)


def test_places(tmp_path: Path) -> None:
    """Positions are found by end, configured start, time and offset; the error for a lost one names what exists."""
    data = golden.binlog("mysql9")
    ends = boundaries("mysql9")
    (tmp_path / FIRST).write_bytes(data)
    view = view_of(tmp_path)
    assert str(view.oldest()) == str(view.start(None)) == f"{FIRST}:4"
    assert str(view.newest()) == f"{FIRST}:{len(data)}"
    assert view.version.startswith("9.7")
    assert view.find(Place(journal=FIRST, offset=ends[9] + 1)).offset == ends[9]
    assert view.find(Place(end="latest")).offset == len(data)
    gtids = InstanceConfig(
        "example", SourceConfig("", 0, gtid="u:1"), local=LocalFiles(tmp_path), decode=DecodeOptions(gtid_on=True)
    )
    view = LocalView(gtids, LocalFiles(tmp_path))
    assert (view.start(None).gtid, view.find(Place(journal=FIRST, offset=ends[9])).gtid) == ("u:1", "")
    assert view.find(Place(timestamp_ms=1000)).offset == 4
    assert str(view_of(tmp_path, journal=FIRST, position=ends[3]).start(None)) == f"{FIRST}:{ends[3]}"
    middle = next(at for at, _, kind in _events(data) if kind == 16 and at > len(data) // 2)
    seconds = struct.unpack_from("<I", data, middle)[0]
    assert view_of(tmp_path, timestamp_ms=seconds * 1000).start(None).offset <= middle
    with pytest.raises(
        PositionLost, match=r"mysql-bin\.000009:4 does not exist; the files reach from mysql-bin\.000001:4"
    ):
        view.find(Place(journal="mysql-bin.000009", offset=4))
    lost = LogPosition("mysql-bin.000000", 4, timestamp_ms=seconds * 1000)
    assert view.instead(lost, WhenLost.EARLIEST).offset == 4
    assert view.instead(lost, WhenLost.LATEST).offset == len(data)
    assert 4 <= view.instead(lost, WhenLost.TIMESTAMP).offset <= middle
    assert "its journal is gone" in view.reach(lost)
    with reading(tmp_path, lost) as found:
        assert found.failure(PositionLost).retry_in_s is None
    (tmp_path / "relay-bin.000001").write_bytes(data)
    with pytest.raises(SourceRefused, match="more than one binlog"):
        view.newest()


def test_definitions_that_cannot_be_read(tmp_path: Path) -> None:
    """The error for definitions that cannot be read names the key, the file and the reason or statement."""
    schema = tmp_path / "schema.sql"
    with pytest.raises(SourceRefused, match=r"canal.instance.parser.schema: .*schema.sql: No such file"):
        Reading(tmp_path, LogPosition(FIRST, 4), schema)
    schema.write_text("CREATE TABLE broken (")
    with pytest.raises(SourceRefused, match=r"canal.instance.parser.schema: .*schema.sql: CREATE TABLE broken"):
        Reading(tmp_path, LogPosition(FIRST, 4), schema)
