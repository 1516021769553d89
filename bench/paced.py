"""Commits single-row transactions at an even pace and records when each COMMIT was sent and answered.

The file holds two arrays of monotonic nanoseconds by id, like bench.readers.arrivals.

python -m bench.paced PORT A_SECOND ROWS FILE
"""

from __future__ import annotations

import json
import sys
import time
from array import array

import pymysql

from bench.workloads import SCHEMA
from lab.mysql import ADMIN
from lab.ports import LOOPBACK

TABLE = "paced"
LATE_S = 0.001  # delay after which a transaction counts as late


def main() -> None:
    """Read the command line, write, and print the number of late transactions."""
    port, rate, rows, file = (sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    sent, answered = (array("q", bytes(8 * (rows + 1))) for _ in range(2))
    late = 0
    with (
        pymysql.connect(
            host=LOOPBACK, port=int(port), user=ADMIN, password=ADMIN, autocommit=False, database=SCHEMA
        ) as connection,
        connection.cursor() as cursor,
    ):
        began = time.monotonic()
        for number in range(1, rows + 1):
            due = began + number / rate - time.monotonic()
            if due > 0:
                time.sleep(due)
            late += due < -LATE_S
            cursor.execute(f"INSERT INTO {TABLE} VALUES ({number}, {number % 1000}, 'paced')")
            sent[number] = time.monotonic_ns()
            connection.commit()
            answered[number] = time.monotonic_ns()
        seconds = time.monotonic() - began
    with open(file, "wb") as out:
        sent.tofile(out)
        answered.tofile(out)
    print(json.dumps({"rows": rows, "seconds": seconds, "late": late}))


if __name__ == "__main__":
    main()
