"""Our client reads from canal's own server, and on the same source our entries equal canal's byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from lab import MariaDB, Node, SqlServer, StartFailed, follow
from lab.mysql import CANAL, cache_directory
from lab.ports import LOOPBACK, free_port, listens
from lab.process import Process
from tests.node import workload

CHANGES = 20_000
QUIET = Path(__file__).parents[2] / "bench" / "peers" / "java" / "logback.xml"


class CanalServer(Process):
    """canal.server 1.1.7 from Maven Central, as bench/peers compiles it: the destination `bench`, from a position on.

    It logs in to a schema of that name.
    """

    def __init__(self, source: SqlServer, start: tuple[str, int], tables: str) -> None:
        super().__init__("canal", free_port())
        self._arguments = [str(source.port), CANAL, CANAL, start[0], str(start[1]), tables]

    def command(self) -> Sequence[str]:
        peer = cache_directory() / "bench" / "java"
        if not (peer / "installed").exists():
            raise StartFailed(f"there is no {peer}; run: bash bench/peers/install.sh java")
        options = ["-Xmx512m", "-Dfile.encoding=UTF-8", "-Duser.timezone=UTC", f"-Dlogback.configurationFile={QUIET}"]
        return ["java", *options, "-cp", f"{peer}/classes:{peer}/lib/*", "Server", str(self.port), *self._arguments]

    def ready(self) -> bool:
        return listens(self.port)


def entries(port: int, destination: str, tables: str, last: str) -> list[bytes]:
    """Return every entry up to the end of the transaction that inserts into the table `last`."""
    found: list[bytes] = []
    with SimpleConnector(LOOPBACK, port, destination, exact=False) as client:
        client.subscribe(tables)
        ending = False
        while True:
            message = client.get_without_ack(1000, 200)
            if not message:
                continue
            for raw, entry in zip(message.raw_entries, message.entries, strict=True):
                found.append(raw)
                ending |= entry.header.tableName == last and entry.header.eventType == pb.INSERT
                if ending and entry.entryType == pb.TRANSACTIONEND:
                    return found
            client.ack(message.id)


def text(raw: bytes) -> str:
    """Return an entry as text, for a message."""
    entry = pb.Entry.FromString(raw)
    change = pb.RowChange.FromString(entry.storeValue) if entry.entryType == pb.ROWDATA else ""
    return f"{entry.header}{change}"[:3000]


@pytest.mark.long
def test_the_same_entries() -> None:
    """A mixed workload, without the table history, which canal stores in another form than the server shows."""
    with MariaDB() as server:
        server.execute("CREATE DATABASE bench")
        workload.create(server, "mixed")
        start = server.position()
        workload.run(server, "mixed", CHANGES)
        server.execute("CREATE TABLE mixed.the_end (id int PRIMARY KEY)", "INSERT INTO mixed.the_end VALUES (1)")
        tables = r"mixed\..*"
        with CanalServer(server, start, tables) as canal:
            theirs = entries(canal.port, "bench", tables, "the_end")
        settings = {
            "canal.instance.tsdb.enable": "false",
            "canal.instance.master.journal.name": start[0],
            "canal.instance.master.position": str(start[1]),
        }
        with Node({"example": follow(server, settings)}, environment={"TZ": "UTC"}) as node:
            mine = entries(node.port, "example", tables, "the_end")
    print(f"{len(theirs)} entries")
    for one, other in zip(mine, theirs, strict=False):
        assert one == other, f"{text(one)}\n--- canal:\n{text(other)}"
    assert len(mine) == len(theirs)
