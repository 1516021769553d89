"""`canal-ha decode` turns binlog files into rows or entries."""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab import golden
from lab.dump import ColumnType, Dump

PROGRAM = str(Path(sys.executable).with_name("canal-ha"))
LONGTEXT = (ColumnType(252, b"\4"),)


def decode(*arguments: str | Path, zone: str = "UTC") -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "TZ": zone}
    return subprocess.run(
        [PROGRAM, "decode", *map(str, arguments)], capture_output=True, check=False, env=environment, timeout=60
    )


def lines(output: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def file_of(events: bytes) -> bytes:
    """Return a binlog file with the events of a dump's packets."""
    out = bytearray(b"\xfebin")
    at = 0
    while at < len(events):
        size = struct.unpack("<I", events[at : at + 3] + b"\0")[0]
        out += events[at + 5 : at + 4 + size]
        at += 4 + size
    return bytes(out)


def split(output: bytes) -> Sequence[bytes]:
    """Return the entries of an output, in which each follows its length."""
    found = []
    at = 0
    while at < len(output):
        size = shift = 0
        while True:
            byte = output[at]
            at += 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        found.append(output[at : at + size])
        at += size
    return found


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A recorded file under its original name."""
    path = tmp_path / golden.JOURNAL
    path.write_bytes(golden.binlog("mariadb10.11_gtid"))
    return path


def test_entries_are_canals(recorded: Path) -> None:
    """The output has canal's entries for a recorded file, with GTIDs, each behind its length."""
    result = decode(
        recorded,
        "--format",
        "entries",
        "--set",
        "canal.instance.gtidon=true",
        "--set",
        f"canal.instance.master.gtid={golden.MARIADB_GTIDS}",
    )
    assert (result.returncode, result.stderr) == (0, b"")
    found = split(result.stdout)[1:]  # the first statement is before canal's start
    assert found == [one.entry for one in golden.expected("mariadb10.11_gtid")]


@pytest.mark.parametrize("name", ["mariadb10.11_gtid", "mysql9_gtid"])
def test_gtids_without_a_configured_set(tmp_path: Path, name: str) -> None:
    """Without canal.instance.master.gtid entries carry canal's GTIDs too: the file names the set to begin with."""
    path = tmp_path / golden.JOURNAL
    path.write_bytes(golden.binlog(name))
    result = decode(path, "--format", "entries", "--set", "canal.instance.gtidon=true")
    assert (result.returncode, result.stderr) == (0, b"")
    wanted = [one.entry for one in golden.expected(name)]
    assert split(result.stdout)[-len(wanted) :] == wanted


def test_rows(recorded: Path) -> None:
    """The output has one JSON object for each row of the tables that the filter names."""
    everything = lines(decode(recorded).stdout)
    table = next(row["table"] for row in everything if row["type"] == "UPDATE")
    result = decode(recorded, "--filter", rf".*\.{table}", "--set", "canal.instance.filter.query.dml=true")
    rows = [row for row in lines(result.stdout) if row["table"]]
    assert {row["table"] for row in rows} == {table}
    assert {"schema", "table", "type", "before", "after", "journal", "offset", "row", "ts", "gtid", "sql"} == set(
        rows[0]
    )
    assert all(row["journal"] == recorded.name for row in rows)


def test_schema(tmp_path: Path) -> None:
    """Tables that the files do not create need --schema, which is checked against the events."""
    path = tmp_path / "b.000009"
    dump = Dump().format().begin()
    table_map = dump.position
    path.write_bytes(file_of(bytes(dump.table().insert(7).xid().data)))
    alone = decode(path)
    assert alone.returncode == 1
    assert alone.stdout == b""
    assert f"{path}: offset {table_map}: columns of s.t ".encode() in alone.stderr
    schema = tmp_path / "s.sql"
    schema.write_text("USE s; CREATE TABLE t (id int unsigned, PRIMARY KEY (id));")
    (row,) = lines(decode(path, "--schema", schema).stdout)
    assert row["after"] == {"id": 7}
    schema.write_text("CREATE TABLE t (id bigint);")
    assert b"does not agree" in decode(path, "--schema", schema).stderr
    schema.write_text("CREATE TABLE t (id bigint")
    assert f"{schema}: CREATE TABLE t".encode() in decode(path, "--schema", schema).stderr


def test_several_files(tmp_path: Path) -> None:
    """Tables created in one file are known in the next."""
    first = Dump().format().query("CREATE TABLE t (id int)").rotate("b.000002")
    second = Dump().format().begin().table().insert(1).insert(2).xid()
    paths = [tmp_path / "b.000001", tmp_path / "b.000002"]
    for path, dump in zip(paths, (first, second), strict=True):
        path.write_bytes(file_of(bytes(dump.data)))
    rows = lines(decode(*paths).stdout)
    assert [(row["journal"], row["type"]) for row in rows] == [
        ("b.000001", "CREATE"),
        ("b.000002", "INSERT"),
        ("b.000002", "INSERT"),
    ]


def test_time_zone(tmp_path: Path) -> None:
    """TIMESTAMP values of entries are text in the time zone of the process, those of rows in UTC."""
    path = tmp_path / "m"
    path.write_bytes(golden.binlog("mysql9"))
    arguments = (path, "--filter", r"golden\.t_time", "--set", "canal.instance.filter.query.ddl=true")
    for form, same in (("json", True), ("entries", False)):
        utc, shanghai = (decode(*arguments, "--format", form, zone=zone).stdout for zone in ("UTC", "Asia/Shanghai"))
        assert len(utc) == len(shanghai)
        assert (utc == shanghai) is same


@pytest.mark.parametrize(
    ("damage", "offset", "reason"),
    [
        (lambda data: data[:-1], None, "the file ends inside an event"),
        (lambda data: data[: data.rindex(b"BEGIN") + 9], None, "the file ends inside a transaction"),
        (lambda data: b"\xfdbin" + data[4:], 0, "this is an encrypted binlog file"),
        (lambda data: b"", 0, "this is not a binlog file"),
        (lambda data: data[:4] + data[125:], 4, "the file begins with an event of type 2, not its format"),
        (lambda data: data[:140] + b"\xff" + data[141:], 125, "the checksum of an event of type 2 does not hold"),
        (lambda data: data[:134] + b"\xff\xff\xff\xff" + data[138:], 125, "an event of 4294967295 bytes"),
    ],
)
def test_damage(tmp_path: Path, damage: object, offset: int | None, reason: str) -> None:
    """The exit code is 1, standard error has file, offset and reason, and complete transactions are written."""
    dump = Dump().format().query("CREATE TABLE t (id int)").begin().table().insert(1).xid()
    data = file_of(bytes(dump.begin().table().insert(2).xid().data))
    path = tmp_path / "b.000001"
    path.write_bytes(damage(data))  # type: ignore[operator] # a function of bytes
    result = decode(path)
    assert result.returncode == 1
    where = "" if offset is None else f"{offset}: "
    assert f"canal-ha: {path}: offset {where}".encode() in result.stderr
    assert reason.encode() in result.stderr
    if offset is None:
        assert [row["type"] for row in lines(result.stdout)] == ["CREATE", "INSERT"]


def test_an_unknown_key(recorded: Path) -> None:
    """A misspelt key in --set causes a warning with the likely key."""
    result = decode(recorded, "--set", "canal.instance.filter.regexp=x")
    assert b"unknown key canal.instance.filter.regexp, did you mean canal.instance.filter.regex?" in result.stderr


def test_a_reader_that_has_seen_enough(recorded: Path) -> None:
    """`canal-ha decode ... | head` ends without a traceback."""
    process = subprocess.Popen([PROGRAM, "decode", recorded], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    process.wait(30)


def test_files_are_not_loaded_whole(tmp_path: Path) -> None:
    """A file of 200 MB is decoded within 450 MiB of address space."""
    text = b"\0" + (60_000).to_bytes(4, "little") + b"x" * 60_000
    path = tmp_path / "b.000001"
    dump = Dump().format().query("CREATE TABLE t (b longtext)")
    path.write_bytes(file_of(bytes(dump.data)))
    with path.open("ab") as file:
        for _ in range(100):
            piece = Dump(position=dump.position)
            for _ in range(33):
                piece.begin().table(columns=LONGTEXT).rows(30, text).xid()
            dump.position = piece.position
            file.write(file_of(bytes(piece.data))[4:])
    assert path.stat().st_size > 190_000_000
    limit = 450 << 20

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    result = subprocess.run(
        [PROGRAM, "decode", path, "--format", "entries"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=limited,
        check=False,
        timeout=120,
    )
    assert (result.returncode, result.stderr) == (0, b"")
