"""A client that counts rows, as the headers of the entries tell them, and acknowledges.

python -m bench.readers.count HOST:PORT DESTINATION CLIENT_ID ROWS BATCH_SIZE [START]

START: time.monotonic() of the beginning, for readers that begin together. `ended` in the answer is on that clock.
"""

from __future__ import annotations

import json
import sys
import time

from canal_ha.client.connector import SimpleConnector
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry

WAIT_MS = 20  # a GET that waits returns when the batch is full or this is over


def count(address: str, destination: str, client_id: int, rows: int, batch_size: int) -> float:
    """Subscribe and acknowledge batches until so many rows were counted; return the seconds it took."""
    host, _, port = address.rpartition(":")
    began = time.perf_counter()
    with SimpleConnector(host, int(port), destination, client_id) as client:
        client.subscribe()
        seen = 0
        while seen < rows:
            message = client.get_without_ack(batch_size, WAIT_MS)
            seen += sum(map(row_count, message.entries))
            client.ack(message.id)
        return time.perf_counter() - began


def row_count(entry: Entry) -> int:
    """Return how many rows an entry carries, as its header says."""
    if entry.entryType != ROWDATA:
        return 0
    return next((int(pair.value) for pair in entry.header.props if pair.key == "rowsCount"), 0)


if __name__ == "__main__":
    _address, _destination, _client_id, _rows, _batch_size, *_start = sys.argv[1:]
    time.sleep(max(0.0, float(_start[0]) - time.monotonic()) if _start else 0.0)
    _seconds = count(_address, _destination, int(_client_id), int(_rows), int(_batch_size))
    print(json.dumps({"rows": int(_rows), "seconds": _seconds, "ended": time.monotonic()}))
