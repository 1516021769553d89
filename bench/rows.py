"""The rows that benchmarks read: workload A, the kind sysbench writes.

(id int primary key, k int, c char(120), pad char(60)) in utf8mb4, one INSERT of 1,000 rows a transaction, full row
images and metadata, CRC32 checksums.
"""

from __future__ import annotations

import random
from typing import Any

import pymysql

from tests.real import SqlServer

SCHEMA, TABLE = "bench", "sbtest"
PER_INSERT = 1000


def write(server: SqlServer, rows: int) -> tuple[str, int]:
    """Make the table, start a new journal, insert so many rows; return where they begin in the binlog."""
    server.execute(
        f"CREATE DATABASE {SCHEMA}",
        f"CREATE TABLE {SCHEMA}.{TABLE} (id INT NOT NULL PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL,"
        " pad CHAR(60) NOT NULL) DEFAULT CHARSET=utf8mb4",
        "FLUSH BINARY LOGS",
    )
    start = server.position()
    with server.connect() as connection:
        for first in range(1, rows + 1, PER_INSERT):
            _insert(connection, range(first, min(first + PER_INSERT, rows + 1)))
    return start


def _insert(connection: pymysql.Connection[Any], ids: range) -> None:
    draw = random.Random(ids.start)
    values = ",".join(f"({i},{draw.randrange(10**6)},'{_digits(draw, 10)}','{_digits(draw, 5)}')" for i in ids)
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {SCHEMA}.{TABLE} VALUES {values}")


def _digits(draw: random.Random, groups: int) -> str:
    """Return groups of eleven digits with dashes between them, as sysbench does."""
    return "-".join(f"{draw.randrange(10**11):011d}" for _ in range(groups))
