"""A client that counts rows from the headers of the entries. Prints seconds from connecting to the last row.

python -m bench.count HOST:PORT DESTINATION ROWS
"""

from __future__ import annotations

import socket
import sys
import time

from canal_ha.model.identity import ClientIdentity
from canal_ha.wire.client_session import Answer, ClientSession
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry

FETCH_SIZE = 10_000
WAIT_MS = 1000


def count(address: str, destination: str, rows: int) -> float:
    """Subscribe and acknowledge batches until so many rows were counted; return the seconds it took."""
    host, _, port = address.rpartition(":")
    identity = ClientIdentity(destination, 1001, "")
    session = ClientSession()
    began = time.perf_counter()
    with socket.create_connection((host, int(port))) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def answer(request: bytes = b"") -> Answer:
            connection.sendall(request)
            while (reply := session.next()) is None:
                data = connection.recv(1 << 18)
                if not data:
                    raise SystemExit("the node closed the connection")
                session.receive(data)
            return reply

        answer()
        answer(session.authenticate("", None, 3_600_000))
        answer(session.subscribe(identity))
        seen = 0
        while seen < rows:
            fetched = answer(session.get(identity, FETCH_SIZE, WAIT_MS))
            assert isinstance(fetched, Fetched)
            if fetched.batch_id != -1:
                seen += sum(map(row_count, fetched.entries()))
                connection.sendall(session.ack(identity, fetched.batch_id))
        return time.perf_counter() - began


def row_count(data: bytes) -> int:
    """Return how many rows a serialized entry carries, as its header says."""
    entry = Entry.FromString(data)
    if entry.entryType != ROWDATA:
        return 0
    return next((int(pair.value) for pair in entry.header.props if pair.key == "rowsCount"), 0)


if __name__ == "__main__":
    print(count(sys.argv[1], sys.argv[2], int(sys.argv[3])))
