"""A cluster client that begins with a snapshot and keeps a copy of the table. It acknowledges what the copy has.

python -m lab.exactness.client --zk HOSTS --destination NAME --copy FILE [--seed N]
"""

from __future__ import annotations

import argparse
import os
import random
import time
from pathlib import Path

from canal_ha import logs
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.rows import rows_of
from lab.exactness.copy import Copy
from lab.exactness.table import FILTER, TABLE

CLIENT_ID = 1001
BATCH_KIB = 64
WAIT_MS = 50
SESSION_MS = 2000
LATE_S = 0.02  # the longest time between the copy and the acknowledgement


def main() -> None:
    """Parse the command line and read until the process is killed."""
    parser = argparse.ArgumentParser(prog="python -m lab.exactness.client", description=__doc__)
    parser.add_argument("--zk", required=True)
    parser.add_argument("--destination", required=True)
    parser.add_argument("--copy", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    logs.to_stderr()
    chance = random.Random(options.seed)
    copy = Copy(options.copy)
    with ClusterConnector(
        options.zk,
        options.destination,
        CLIENT_ID,
        filter=FILTER,
        snapshot=[TABLE],
        zk_session_timeout_ms=SESSION_MS,
    ) as connector:
        while True:
            message = connector.get_without_ack(chance.randint(1, BATCH_KIB), WAIT_MS)
            if not message:
                continue
            copy.take(f"{os.getpid()}/{connector.connection}", rows_of(message))
            if chance.random() < 0.05:
                time.sleep(chance.uniform(0.0, LATE_S))
            connector.ack(message.id)


if __name__ == "__main__":
    main()
