"""Records when each row of bench/paced.py arrives: monotonic nanoseconds by id, as an array in a file.

python -m bench.readers.arrivals canal HOST:PORT ROWS FILE  a client of the destination `bench`, entries parsed
python -m bench.readers.arrivals lines HOST:PORT ROWS FILE  a TCP connection on which each line is a row as JSON

CANAL_HA_TLS_CA: see bench.readers.session.
"""

from __future__ import annotations

import json
import socket
import sys
import time
from array import array
from collections.abc import Iterator

from bench.readers import session
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of

ALL = 1000  # kilobytes
WAIT_MS = 1000


def canal(address: str) -> Iterator[int]:
    """Yield ids in the order of arrival."""
    host, _, port = address.rpartition(":")
    with SimpleConnector(host, int(port), "bench", lazy_acks=True, tls=session.tls()) as client:
        client.subscribe()
        while True:
            message = client.get_without_ack(ALL, WAIT_MS, eager=True)
            for row in rows_of(message):
                if row.after is not None:
                    yield int(str(row.after["id"]))
            client.ack(message.id)


def lines(address: str) -> Iterator[int]:
    with _connected(address) as connection, connection.makefile("rb") as stream:
        for line in stream:
            yield int(json.loads(line)[0])


def _connected(address: str) -> socket.socket:
    """Connect as soon as the port listens. A connection that only tests the port would count as the client."""
    host, _, port = address.rpartition(":")
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def main() -> None:
    """Read the command line, and record until the last row."""
    kind, address, rows, file = sys.argv[1:]
    arrived = array("q", bytes(8 * (int(rows) + 1)))
    for number in lines(address) if kind == "lines" else canal(address):
        arrived[number] = time.monotonic_ns()
        if number == int(rows):
            break
    with open(file, "wb") as out:
        arrived.tofile(out)
    print(json.dumps({"rows": int(rows)}))


if __name__ == "__main__":
    main()
