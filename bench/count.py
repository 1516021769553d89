"""A client that counts rows from the headers of the entries. Prints seconds from connecting to the last row.

python -m bench.count HOST:PORT DESTINATION ROWS
"""

from __future__ import annotations

import sys
import time

from canal_ha.client.connector import SimpleConnector
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry

FETCH_SIZE = 10_000
WAIT_MS = 20  # a GET that waits returns when the batch is full or this is over


def count(address: str, destination: str, rows: int) -> float:
    """Subscribe and acknowledge batches until so many rows were counted; return the seconds it took."""
    host, _, port = address.rpartition(":")
    began = time.perf_counter()
    with SimpleConnector(host, int(port), destination) as client:
        client.subscribe()
        seen = 0
        while seen < rows:
            message = client.get_without_ack(FETCH_SIZE, WAIT_MS)
            seen += sum(map(row_count, message.entries))
            client.ack(message.id)
        return time.perf_counter() - began


def row_count(entry: Entry) -> int:
    """Return how many rows an entry carries, as its header says."""
    if entry.entryType != ROWDATA:
        return 0
    return next((int(pair.value) for pair in entry.header.props if pair.key == "rowsCount"), 0)


if __name__ == "__main__":
    print(count(sys.argv[1], sys.argv[2], int(sys.argv[3])))
