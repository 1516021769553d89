"""A node that serves a directory of binlog files (canal's local-instance) to its own client and to canal's."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import Node, golden
from lab.node import PROGRAM
from lab.ports import LOOPBACK
from tests.peers import lines
from tests.source.test_binlog_files import FIRST, SECOND, boundaries, moved, rotation, schema_of
from tests.waiting import until

CLIENT = 2001  # the Java client has 1001
TEMPLATE = {"canal.instance.global.spring.xml": "classpath:spring/local-instance.xml"}


def entries_of(node: Node, count: int, *, acknowledge: int) -> list[bytes]:
    """Return at least `count` entries, read in small batches.

    acknowledge: batches that end within so many entries are acknowledged.
    """
    found: list[bytes] = []
    with SimpleConnector(LOOPBACK, node.port, "example", CLIENT, exact=False) as client:
        client.subscribe("")
        while len(found) < count:
            message = client.get_without_ack(20, 50)
            if message:
                found += message.raw_entries
                if len(found) <= acknowledge:
                    client.ack(message.id)
    return found


def rows_of(entries: list[bytes]) -> list[str]:
    """Return the rows of entries in the peers' form."""
    return [line for entry in entries for line in lines.lines(pb.Entry.FromString(entry))]


@pytest.mark.real
def test_a_directory_is_served_as_canal_served_its_server(tmp_path: Path) -> None:
    """Every entry arrives byte for byte, also after a crash of the node. The Java client reads the same rows, and those
    of a file that is added later.
    """
    directory = tmp_path / "files"
    directory.mkdir()
    recorded = golden.binlog("mysql9")
    wanted = [one.entry for one in golden.expected("mysql9")]
    (directory / FIRST).write_bytes(recorded)
    follows = {
        "canal.instance.parser.directory": str(directory),
        "canal.instance.xa": "prepare",  # the entries of an XA transaction as canal makes them
        "canal.instance.parser.schema": str(schema_of("mysql9", tmp_path)),
        "canal.instance.filter.black.regex": golden.ALL_TABLES[1].replace("\\", "\\\\"),
    }
    with Node({"example": follows}, properties=TEMPLATE, environment={"TZ": "UTC"}) as node, ExitStack() as stack:
        first = entries_of(node, 400, acknowledge=250)
        assert first == wanted[: len(first)]
        until((node.conf / "example" / "meta.dat").exists, what="a cursor on disk")
        node.kill()
        node.start()
        rest = entries_of(node, 450, acknowledge=10**6)
        again = wanted.index(rest[0])
        assert again <= 250
        assert rest == wanted[again : again + len(rest)]
        check = subprocess.run(
            [PROGRAM, "check", "--conf", str(node.conf)], capture_output=True, text=True, check=False
        )
        assert f"{directory} holds 1 of 9.7" in check.stdout, check.stdout + check.stderr
        assert f"client {CLIENT} at {FIRST}:" in check.stdout

        expected = rows_of(wanted)
        last = rows_of([one.entry for one in golden.expected("mysql9") if one.offset >= boundaries("mysql9")[-2]])
        java = lines.java(tmp_path / "java", node.port, "example", "", len(expected) + len(last), 100)
        stack.callback(java.kill)
        with (directory / FIRST).open("ab") as file:
            file.write(rotation(recorded)[len(recorded) :])
        (directory / SECOND).write_bytes(moved("mysql9", boundaries("mysql9")[-2]))  # the last transaction once more
        rows = [line for line in java.read() if not line.startswith("batches ")]
    assert last
    assert rows == expected + last
