"""A client that turns entries into Python rows, looks at every value of every column, and acknowledges.

python -m bench.readers.rows HOST:PORT DESTINATION CLIENT_ID ROWS BATCH_SIZE
"""

from __future__ import annotations

import json
import sys
import time

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of

WAIT_MS = 20


def read(address: str, destination: str, client_id: int, rows: int, batch_size: int) -> float:
    """Subscribe, read until so many rows were seen; return the seconds it took."""
    host, _, port = address.rpartition(":")
    began = time.perf_counter()
    with SimpleConnector(host, int(port), destination, client_id) as client:
        client.subscribe()
        seen = nulls = 0
        while seen < rows:
            message = client.get_without_ack(batch_size, WAIT_MS)
            for row in rows_of(message):
                for side in (row.before, row.after):
                    if side is not None:
                        nulls += sum(value is None for value in side.values())
                seen += 1
            client.ack(message.id)
        return time.perf_counter() - began


if __name__ == "__main__":
    _address, _destination, _client_id, _rows, _batch_size = sys.argv[1:]
    _seconds = read(_address, _destination, int(_client_id), int(_rows), int(_batch_size))
    print(json.dumps({"rows": int(_rows), "seconds": _seconds}))
