"""The shared part of readers through a node: connect, process and acknowledge batches, print the result.

python -m bench.readers.NAME HOST:PORT DESTINATION CLIENT_ID ROWS BATCH_SIZE [START]

CANAL_HA_TLS_CA, a variable of the environment, is the file of the node's authority: the reader then speaks TLS.
CANAL_HA_SNAPSHOT, another one, is a table whose existing rows a new client id begins with.
START: time.monotonic() at which to begin, for readers that begin together. `ended` in the result uses that clock.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.tls import ClientTls

WAIT_MS = 20  # timeout of a GET

Take = Callable[[SimpleConnector, int], tuple[int, int]]
"""Gets and processes a batch of a size; returns its id and number of rows."""


def tls() -> ClientTls | None:
    """Return the TLS that the environment asks for."""
    file = os.environ.get("CANAL_HA_TLS_CA")
    return ClientTls(file) if file else None


def main(take: Take) -> None:
    """Read the workload in the command line; print rows, seconds and the client's processor time."""
    address, destination, client_id, rows, batch_size, *start = sys.argv[1:]
    time.sleep(max(0.0, float(start[0]) - time.monotonic()) if start else 0.0)
    host, _, port = address.rpartition(":")
    began, cpu_began = time.perf_counter(), time.process_time()
    snapshot = os.environ.get("CANAL_HA_SNAPSHOT", "").split()
    with SimpleConnector(
        host, int(port), destination, int(client_id), read_ahead=True, snapshot=snapshot, tls=tls()
    ) as client:
        client.subscribe()
        seen = 0
        while seen < int(rows):
            batch_id, count = take(client, int(batch_size))
            seen += count
            client.ack(batch_id)
        seconds, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    print(json.dumps({"rows": int(rows), "seconds": seconds, "cpu_s": cpu_s, "ended": time.monotonic()}))
