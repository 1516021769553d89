"""Writes the workloads to a real server. Each has its own journals, so that a reader finds nothing else there.

A  INSERTs of 1,000 rows a transaction: (id int primary key, k int, c char(120), pad char(60)) in utf8mb4, as sysbench's
B  the same rows, one a transaction
C  INSERTs of rows of 200 columns of mixed types, a fifth of them NULL, 1,000 a transaction
D  UPDATEs of one column in rows of 100 such columns, 1,000 a transaction
E  INSERTs of a blob of 1 KB of any bytes and a JSON document, 1,000 a transaction

Full row images and metadata, CRC32 checksums. The server itself multiplies a thousand rows that are sent once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lab import MariaDB, MySQL, SqlServer

SCHEMA = "bench"
POOL = 1000  # different rows, and rows of a transaction

SBTEST = (
    "id INT NOT NULL PRIMARY KEY",
    "k INT NOT NULL",
    "c CHAR(120) NOT NULL",
    "pad CHAR(60) NOT NULL",
)
BLOBS = ("id INT NOT NULL PRIMARY KEY", "data BLOB NOT NULL", "document JSON NOT NULL")

Cell = Callable[[random.Random], object]
MIXED: tuple[tuple[str, Cell], ...] = (
    ("INT", lambda draw: draw.randrange(-(10**6), 10**6)),
    ("BIGINT UNSIGNED", lambda draw: draw.randrange(10**12)),
    ("TINYINT", lambda draw: draw.randrange(-128, 128)),
    ("VARCHAR(32)", lambda draw: f"text {draw.randrange(10**9):025d}"),
    ("DECIMAL(14,4)", lambda draw: draw.randrange(10**12) / 10**4),
    ("DATETIME", lambda draw: f"2026-{draw.randrange(1, 13):02d}-{draw.randrange(1, 29):02d} 12:30:59"),
    ("TIMESTAMP(6) NULL", lambda draw: f"2026-11-{draw.randrange(1, 29):02d} 01:02:03.{draw.randrange(10**6):06d}"),
    ("DOUBLE", lambda draw: draw.randrange(10**8) / 100 if draw.random() < 0.7 else draw.gauss(0, 1)),
    ("DATE", lambda draw: f"2026-11-{draw.randrange(1, 29):02d}"),
    ("ENUM('a','b')", lambda draw: draw.choice("ab")),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload. share: rows relative to A. wide: columns of mixed types, 0 for other tables."""

    name: str
    title: str
    share: float
    wide: int = 0


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("A", "1,000 rows a transaction", 1.0),
        Workload("B", "single-row transactions", 0.15),
        Workload("C", "200 columns of mixed types", 0.05, wide=200),
        Workload("D", "updates of one column of 100", 0.05, wide=100),
        Workload("E", "1 KB blobs and JSON", 0.25),  # with fewer, connecting would dominate
    )
}


@dataclass(frozen=True, slots=True)
class Written:
    """A workload in a server's binlog. journal, offset: where it begins; journals: all its journals."""

    workload: str
    table: str
    rows: int
    journal: str
    offset: int
    journals: tuple[str, ...]
    size_bytes: int

    @property
    def filter(self) -> str:
        """canal's regular expression of its table."""
        return rf"{SCHEMA}\\.{self.table}"


def server(database: str) -> SqlServer:
    """Return a server to measure on, not started. database: mariadb or mysql."""
    quick = [  # faster writes; the tables are not read
        "--innodb-buffer-pool-size=512M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-doublewrite=OFF",
        "--innodb-checksum-algorithm=crc32",
    ]
    if database == "mysql":
        return MySQL(extra=[*quick, "--innodb-redo-log-capacity=1G"])
    # with statements, the binlog would contain each change twice
    return MariaDB(extra=[*quick, "--innodb-log-file-size=512M", "--binlog-annotate-row-events=OFF"])


def write(server: SqlServer, name: str, rows: int) -> Written:
    """Create the table, start a new journal, write the rows, and end the journal.

    rows: number of rows; rounded to complete transactions.
    Raises PyMySQL's errors.
    """
    workload = WORKLOADS[name]
    table = table_of(name)
    rows = max(rows, 1) if name == "B" else -(-rows // POOL) * POOL
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {SCHEMA}")
        cursor.execute(f"USE {SCHEMA}")
        _make_pool(cursor, workload, table)
        if name == "D":
            cursor.execute(f"INSERT INTO {table} SELECT * FROM pool")
        cursor.execute("FLUSH BINARY LOGS")
        journal, offset = server.position()
        if name == "B":
            cursor.execute(f"CALL fill({rows})")
        else:
            for first in range(0, rows, POOL):
                cursor.execute(_transaction(workload, table, first))
        cursor.execute("SHOW BINARY LOGS")
        logs = {str(log[0]): int(log[1]) for log in cursor.fetchall()}
        cursor.execute("FLUSH BINARY LOGS")
    journals = tuple(sorted(log for log in logs if log >= journal))
    size = sum(logs[log] for log in journals) - offset
    return Written(name, table, rows, journal, offset, journals, size)


def write_transaction(server: SqlServer, rows: int) -> Written:
    """Write rows of workload A in one transaction. rows: number of rows; rounded to complete statements."""
    table = table_of("A")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {SCHEMA}")
        cursor.execute(f"USE {SCHEMA}")
        _make_pool(cursor, WORKLOADS["A"], table)
        cursor.execute("FLUSH BINARY LOGS")
        journal, offset = server.position()
        cursor.execute("BEGIN")
        for first in range(0, rows, POOL):
            cursor.execute(_transaction(WORKLOADS["A"], table, first))
        cursor.execute("COMMIT")
    return Written("A", table, -(-rows // POOL) * POOL, journal, offset, (journal,), 0)


def table_of(name: str) -> str:
    """Return the name of a workload's table in SCHEMA."""
    return f"t{name.lower()}"


def forget(server: SqlServer) -> None:
    """Drop the written tables and their journals."""
    newest = server.journals()[-1]
    server.execute(f"DROP DATABASE IF EXISTS {SCHEMA}", f"PURGE BINARY LOGS TO '{newest}'")


def _make_pool(cursor: Any, workload: Workload, table: str) -> None:
    columns = _columns(workload)
    for name in (table, "pool"):
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        cursor.execute(f"CREATE TABLE {name} ({', '.join(columns)}) DEFAULT CHARSET=utf8mb4")
    draw = random.Random(workload.name)
    row = _row_maker(workload)
    marks = ",".join(["%s"] * len(columns))
    cursor.executemany(f"INSERT INTO pool VALUES ({marks})", [(number, *row(draw)) for number in range(1, POOL + 1)])
    if workload.name == "B":
        cursor.execute("DROP PROCEDURE IF EXISTS fill")
        cursor.execute(
            "CREATE PROCEDURE fill(IN total INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < total DO"
            f" INSERT INTO {table} SELECT i + 1, k + i, c, pad FROM pool WHERE id = 1 + i % {POOL};"
            " SET i = i + 1; END WHILE; END"
        )


def _transaction(workload: Workload, table: str, first: int) -> str:
    if workload.name == "D":
        return f"UPDATE {table} SET c1 = c1 + 1"
    if workload.wide:
        rest = ", ".join(f"c{index}" for index in range(1, workload.wide))
    else:
        rest = "data, document" if workload.name == "E" else f"k + {first}, c, pad"
    return f"INSERT INTO {table} SELECT id + {first}, {rest} FROM pool"


def _columns(workload: Workload) -> Sequence[str]:
    if not workload.wide:
        return BLOBS if workload.name == "E" else SBTEST
    kinds = [MIXED[index % len(MIXED)][0] for index in range(workload.wide)]
    return [
        "id INT NOT NULL PRIMARY KEY",
        f"c1 {kinds[1]} NOT NULL",
        *(f"c{index} {kinds[index]}" for index in range(2, workload.wide)),
    ]


def _row_maker(workload: Workload) -> Callable[[random.Random], Sequence[object]]:
    """Return the declaration of each column except the first."""
    if workload.wide:
        cells = [MIXED[index % len(MIXED)][1] for index in range(workload.wide)]
        return lambda draw: [
            None if index > 1 and draw.random() < 0.2 else cells[index](draw) for index in range(1, workload.wide)
        ]
    if workload.name == "E":
        return lambda draw: (draw.randbytes(1024), _document(draw))
    return lambda draw: (draw.randrange(10**6), _digits(draw, 10), _digits(draw, 5))


def _document(draw: random.Random) -> str:
    return json.dumps({"name": "x" * 20, "tags": ["a", "b", 1, 2.5], "more": {"id": draw.randrange(10**9)}})


def _digits(draw: random.Random, groups: int) -> str:
    """Return groups of eleven digits with dashes between them, like sysbench."""
    return "-".join(f"{draw.randrange(10**11):011d}" for _ in range(groups))
