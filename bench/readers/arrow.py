"""A client that makes Arrow record batches of entries and acknowledges.

python -m bench.readers.arrow HOST:PORT DESTINATION CLIENT_ID ROWS BATCH_SIZE
"""

from __future__ import annotations

import json
import sys
import time

import canal_ha.client.arrow  # noqa: F401  # loading pyarrow is not counted
from canal_ha.client.connector import SimpleConnector

WAIT_MS = 20


def read(address: str, destination: str, client_id: int, rows: int, batch_size: int) -> float:
    """Subscribe, read until so many rows were made; return the seconds it took."""
    host, _, port = address.rpartition(":")
    began = time.perf_counter()
    with SimpleConnector(host, int(port), destination, client_id) as client:
        client.subscribe()
        seen = 0
        while seen < rows:
            message = client.get_arrow(batch_size, WAIT_MS)
            seen += sum(batch.rows.num_rows for batch in message.batches)
            client.ack(message.id)
        return time.perf_counter() - began


if __name__ == "__main__":
    _address, _destination, _client_id, _rows, _batch_size = sys.argv[1:]
    _seconds = read(_address, _destination, int(_client_id), int(_rows), int(_batch_size))
    print(json.dumps({"rows": int(_rows), "seconds": _seconds}))
