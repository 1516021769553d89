"""A cluster client that keeps batches in flight, acknowledges the oldest one late, and rests when it gets SIGUSR1.

    python -m lab.cluster.holding --zk HOSTS --destination NAME --client-id ID [--depth BATCHES] [--rest SECONDS]

It prints each row as `canal-ha client --format json` does. `{"confirmed": n}` means that the server has read the
acknowledgements of all rows up to n: it has answered a later request of the same connection.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import deque

from canal_ha import logs
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.rows import rows_of

BATCH_KIB = 100
WAIT_MS = 50


def run(connector: ClusterConnector, depth: int, rest_s: float) -> None:
    """Read until the process is killed."""
    rest: list[bool] = []
    signal.signal(signal.SIGUSR1, lambda *_: rest.append(True))
    flying: deque[tuple[int, int]] = deque()  # batch id, its highest row
    acknowledged = 0
    on = -1
    while True:
        if rest:
            rest.clear()
            time.sleep(rest_s)
        message = connector.get_without_ack(BATCH_KIB, WAIT_MS)
        if connector.connection != on:
            flying.clear()
            acknowledged, on = 0, connector.connection
        lines = [json.dumps({"confirmed": acknowledged})] if acknowledged else []
        highest = 0
        if message:
            for row in rows_of(message):
                lines.append(row.to_json())
                if row.type == "INSERT" and row.after is not None:
                    highest = int(str(row.after["id"]))
            flying.append((message.id, highest))
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        while flying and (len(flying) > depth or not message):
            batch, row_number = flying.popleft()
            connector.ack(batch)
            if row_number:  # a batch of statements, or of a transaction's end, has no row
                acknowledged = row_number


def main() -> None:
    """Parse the command line and read."""
    parser = argparse.ArgumentParser(prog="python -m lab.cluster.holding", description=__doc__)
    parser.add_argument("--zk", required=True)
    parser.add_argument("--destination", required=True)
    parser.add_argument("--client-id", type=int, required=True)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--rest", type=float, default=6.0)
    options = parser.parse_args()
    logs.to_stderr()
    with ClusterConnector(options.zk, options.destination, options.client_id) as connector:
        connector.subscribe()
        run(connector, options.depth, options.rest)


if __name__ == "__main__":
    main()
