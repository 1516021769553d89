"""A client that counts the rows of entries and acknowledges; it looks at no column.

python -m bench.readers.count HOST:PORT DESTINATION CLIENT_ID ROWS BATCH_SIZE [START]

START: time.monotonic() of the beginning, for readers that begin together. `ended` in the answer is on that clock.
"""

from __future__ import annotations

import json
import sys
import time

from canal_ha.client.connector import SimpleConnector
from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.entries import Entries

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
            frames = bytes(message.frames)
            entry = Entries(frames, 0, len(frames))
            while entry.next():
                if entry.kind == codes.ROWDATA:
                    seen += entry.change()
            client.ack(message.id)
        return time.perf_counter() - began


if __name__ == "__main__":
    _address, _destination, _client_id, _rows, _batch_size, *_start = sys.argv[1:]
    time.sleep(max(0.0, float(_start[0]) - time.monotonic()) if _start else 0.0)
    _seconds = count(_address, _destination, int(_client_id), int(_rows), int(_batch_size))
    print(json.dumps({"rows": int(_rows), "seconds": _seconds, "ended": time.monotonic()}))
