"""A writer of numbered rows that survives its server, follows it to the standby, alters its table and writes huge
transactions. Row numbers have no gaps: after a lost connection it asks the server which rows it has."""

from __future__ import annotations

import random
import threading
import time
from typing import Any, Self

import pymysql

from lab.chaos.rows import FIXED, letter, value
from lab.mysql import SqlServer

SCHEMA = "chaos"
TABLE = f"{SCHEMA}.ledger"
PAUSE_S = 0.03
MOST_ROWS = 8
ROLLED_BACK = 0.05
MOST_ADDED = 6
_PAD_BYTES = 8192  # of a row in a huge transaction
_ROWS_A_STATEMENT = 64


class Writer:
    """A thread that writes until the block ends.

    turn: held during each transaction; whoever else holds it stops the writer. server: where it writes; set it while
    holding turn. head: the last committed row.
    """

    def __init__(self, server: SqlServer, seed: int) -> None:
        self.server = server
        self.turn = threading.Lock()
        self.head = 0
        self.transactions = 0
        self.statements = 0
        self.error: BaseException | None = None
        self._columns = list(FIXED)
        self._added = 0
        self._alterations = 0
        self._huge_bytes = 0
        self._chance = random.Random(f"writer {seed}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)

    def create(self) -> None:
        """Create the table."""
        self.server.execute(
            f"CREATE DATABASE {SCHEMA}",
            f"CREATE TABLE {TABLE} (id BIGINT PRIMARY KEY, txn INT, nth INT, size INT, form VARCHAR(250),"
            " pad MEDIUMTEXT) CHARSET=utf8mb4",
        )

    def alter(self, times: int) -> None:
        """Alter the table so many times, with transactions between."""
        self._alterations += times

    def write_huge(self, size_bytes: int) -> None:
        """Write a transaction of about this size next."""
        self._huge_bytes = size_bytes

    @property
    def busy(self) -> bool:
        """Return whether alterations or a huge transaction are still to be written."""
        return bool(self._alterations or self._huge_bytes)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60.0)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._write()
                except (pymysql.OperationalError, pymysql.InterfaceError, OSError):
                    time.sleep(0.1)  # the server is down, or another one by now
        except BaseException as error:
            self.error = error
            raise

    def _write(self) -> None:
        """Write on one connection until it is lost or the server is another one."""
        with self.turn:
            server = self.server
            connection = server.connect(autocommit=False, read_timeout=120, write_timeout=120)
        with connection, connection.cursor() as cursor:
            with self.turn:
                self._look(cursor)
            while not self._stopping.is_set():
                with self.turn:
                    if server is not self.server:
                        return
                    if self._alterations:
                        self._alter(cursor)
                    else:
                        self._insert(connection, cursor)
                time.sleep(PAUSE_S)

    def _look(self, cursor: Any) -> None:
        """Learn what the server has committed of what was in doubt."""
        cursor.execute(f"SELECT MAX(id), MAX(txn) FROM {TABLE}")
        head, transactions = cursor.fetchone()
        cursor.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = %s AND table_name = 'ledger'"
            " ORDER BY ordinal_position",
            (SCHEMA,),
        )
        columns = [str(name) for (name,) in cursor.fetchall()]
        assert (head or 0) >= self.head, f"{self.server.name} has rows up to {head}, and had committed {self.head}"
        self.head, self.transactions, self._columns = head or 0, transactions or 0, columns

    def _alter(self, cursor: Any) -> None:
        added = [name for name in self._columns if name not in FIXED]
        if added and (len(added) >= MOST_ADDED or self._chance.random() < 0.4):
            name = self._chance.choice(added)
            cursor.execute(f"ALTER TABLE {TABLE} DROP COLUMN {name}")
            self._columns.remove(name)
        else:
            self._added += 1
            behind = self._chance.randrange(len(self._columns))
            name = f"c{self._added}"
            cursor.execute(f"ALTER TABLE {TABLE} ADD COLUMN {name} INT AFTER {self._columns[behind]}")
            self._columns.insert(behind + 1, name)
        self._alterations -= 1
        self.statements += 1

    def _insert(self, connection: pymysql.Connection[Any], cursor: Any) -> None:
        if self._huge_bytes:
            size, pad = max(1, self._huge_bytes // _PAD_BYTES), _PAD_BYTES
        else:
            size, pad = self._chance.randint(1, MOST_ROWS), self._chance.randint(0, 200)
        for first in range(1, size + 1, _ROWS_A_STATEMENT):
            rows = [self._row(nth, size, pad) for nth in range(first, min(first + _ROWS_A_STATEMENT, size + 1))]
            cursor.execute(f"INSERT INTO {TABLE} ({','.join(self._columns)}) VALUES {','.join(rows)}")
        if not self._huge_bytes and self._chance.random() < ROLLED_BACK:
            connection.rollback()
            return
        connection.commit()
        self._huge_bytes = 0
        self.head += size
        self.transactions += 1

    def _row(self, nth: int, size: int, pad: int) -> str:
        number = self.head + nth
        fixed = {
            "id": str(number),
            "txn": str(self.transactions + 1),
            "nth": str(nth),
            "size": str(size),
            "form": f"'{','.join(self._columns)}'",
            "pad": f"REPEAT('{letter(number)}',{pad})",
        }
        return "(" + ",".join(fixed.get(name) or str(value(number, name)) for name in self._columns) + ")"
