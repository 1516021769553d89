"""Measures a database's sending rate: receives a dump like canal-ha and discards it.

python -m bench.readers.discard PORT JOURNAL OFFSET ROWS
"""

from __future__ import annotations

import json
import sys
import time

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection import flavor
from canal_ha.source.connection.dump_connection import Eater
from canal_ha.source.connection.identity import replica
from canal_ha.source.connection.reader import DumpRequest, run
from canal_ha.source.connection.session import SourceSession
from lab.mysql import CANAL
from lab.ports import LOOPBACK

SERVER_ID = 4005
_EOF = b"\x05\x00\x00"  # length of the packet at the end of a non-blocking dump
_EOF_BYTES = 9


class _Ended(Exception):
    """The server reported the end of the binlog."""


def discard(port: int, journal: str, offset: int) -> float:
    """Return the seconds from connecting to the end of the binlog."""
    config = InstanceConfig(
        destination="bench", master=SourceConfig(host=LOOPBACK, port=port), username=CANAL, password=CANAL
    )
    began = time.perf_counter()
    session = SourceSession(config, config.master)
    request = DumpRequest(
        server_id=SERVER_ID,
        replica=replica("discard", 1001),
        mariadb=flavor.examine(session).mariadb,
        journal=journal,
        offset=offset,
        blocking=False,
    )

    last = b""

    def eat(data: memoryview) -> list[bytes]:
        nonlocal last
        last = (last + bytes(data[-_EOF_BYTES:]))[-_EOF_BYTES:]
        if last[:3] == _EOF and last[4] == 0xFE:
            raise _Ended
        return []

    try:
        run(request, session, config, config.master, Eater(eat))
    except _Ended:
        return time.perf_counter() - began
    raise SystemExit("the connection ended before the end of the dump")


def main() -> None:
    """Read the command line, and print the figures."""
    port, journal, offset, rows = sys.argv[1:]
    print(json.dumps({"rows": int(rows), "seconds": discard(int(port), journal, int(offset))}))


if __name__ == "__main__":
    main()
