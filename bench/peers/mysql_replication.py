"""Counts the binlog's rows with mysql-replication, as its users iterate them.

python -m bench.peers.mysql_replication PORT JOURNAL OFFSET ROWS
"""

from __future__ import annotations

import json
import sys
import time

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from lab.mysql import ADMIN
from lab.ports import LOOPBACK


def count(port: int, journal: str, offset: int, rows: int) -> float:
    """Read this many rows from a position; return the seconds from connecting to the last row."""
    began = time.perf_counter()
    stream = BinLogStreamReader(
        connection_settings={"host": LOOPBACK, "port": port, "user": ADMIN, "passwd": ADMIN, "ssl_disabled": True},
        server_id=4001,
        log_file=journal,
        log_pos=offset,
        resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
    )
    seen = 0
    for event in stream:
        for _row in event.rows:
            seen += 1
        if seen >= rows:
            break
    else:
        raise SystemExit(f"the binlog ended after {seen} of {rows} rows")
    seconds = time.perf_counter() - began
    stream.close()
    return seconds


if __name__ == "__main__":
    _seconds = count(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    print(json.dumps({"rows": int(sys.argv[4]), "seconds": _seconds}))
