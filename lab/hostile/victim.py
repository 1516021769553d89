"""The victim: writes a row every tenth of a second, and reads it like any client of the cluster.

    python -m lab.hostile.victim ZOOKEEPER DATABASE-PORT

It prints a line of JSON for each row: its number, when it was written, and how long it took to arrive. Times are those
of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import json
import sys
import threading
import time

import pymysql

from canal_ha import logs
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.rows import rows_of
from lab.hostile.stage import DESTINATION, TABLE, VICTIM, VICTIM_ID
from lab.mysql import ADMIN
from lab.ports import LOOPBACK

EVERY_S = 0.1
BATCH_SIZE = 100
WAIT_MS = 1000


def _write(port: int, written: dict[int, float]) -> None:
    with pymysql.connect(host=LOOPBACK, port=port, user=ADMIN, password=ADMIN, autocommit=True) as connection:
        for number in range(1, sys.maxsize):
            written[number] = time.monotonic()
            with connection.cursor() as cursor:
                cursor.execute(f"INSERT INTO {TABLE} VALUES ({number})")
            time.sleep(EVERY_S)


def main() -> None:
    """Write and read until the process is killed."""
    logs.to_stderr()
    zookeeper, port = sys.argv[1], int(sys.argv[2])
    written: dict[int, float] = {}
    with ClusterConnector(
        zookeeper, DESTINATION, VICTIM_ID, *VICTIM, filter=TABLE.replace(".", r"\."), retry_interval_ms=100
    ) as connector:
        threading.Thread(target=_write, args=(port, written), daemon=True).start()
        while True:
            message = connector.get_without_ack(BATCH_SIZE, WAIT_MS, eager=True)
            if not message:
                continue
            now = time.monotonic()
            for row in rows_of(message):
                if row.type == "INSERT" and row.after is not None:
                    number = int(str(row.after["id"]))
                    sys.stdout.write(f"{json.dumps([number, written[number], now - written[number]])}\n")
            sys.stdout.flush()
            connector.ack(message.id)


if __name__ == "__main__":
    main()
