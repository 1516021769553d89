"""Prints when each row of the table `paced` arrives, while a snapshot may be in the same stream: id, monotonic ns.

python -m bench.readers.beside HOST:PORT DESTINATION CLIENT_ID
"""

from __future__ import annotations

import sys
import time

from bench.paced import TABLE
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import rows_of
from canal_ha.decode.kernel import codes

ALL = 1000  # kilobytes
WAIT_MS = 1000


def main() -> None:
    """Read the command line, and read until the process is ended."""
    address, destination, client_id = sys.argv[1:]
    host, _, port = address.rpartition(":")
    with SimpleConnector(host, int(port), destination, int(client_id), lazy_acks=True) as client:
        client.subscribe()
        while True:
            message = client.get_without_ack(ALL, WAIT_MS, eager=True)
            entry, index = message.walk(), -1
            while entry.next():
                index += 1
                if entry.kind == codes.ROWDATA and entry.text(entry.table_start, entry.table_stop) == TABLE:
                    for row in rows_of([message.raw_entries[index]]):
                        if row.after is not None:
                            print(row.after["id"], time.monotonic_ns(), flush=True)
            client.ack(message.id)


if __name__ == "__main__":
    main()
