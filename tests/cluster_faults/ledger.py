"""Writers of numbered rows, in transactions of different sizes, at a steady pace: one writer for each server.

Each destination follows one schema with one table. Row numbers have no gaps. Deliveries are compared with the rows
that the writer knows to be committed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from lab import SqlServer

TABLE = "ledger"
PAUSE_S = 0.04
MOST_ROWS = 5


class Ledger:
    """The committed rows of one destination. head: number of the last one."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.head = 0
        self.transactions = 0

    def statements(self, random: random.Random) -> tuple[str, int]:
        """Return the next transaction, and the head after its commit. nth of size: a row's place in its transaction."""
        size = random.randint(1, MOST_ROWS)
        rows = ",".join(
            f"({self.head + nth},{self.transactions + 1},{nth},{size},REPEAT('x',{random.randint(0, 200)}))"
            for nth in range(1, size + 1)
        )
        return f"INSERT INTO {self.schema}.{TABLE} VALUES {rows}", self.head + size


class Writer:
    """A thread that writes to the schemas of one server in turn until the block ends."""

    def __init__(self, server: SqlServer, schemas: Sequence[str], seed: int) -> None:
        self.ledgers: Mapping[str, Ledger] = {schema: Ledger(schema) for schema in schemas}
        self.error: BaseException | None = None
        self._server = server
        self._random = random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{server.name}", daemon=True)

    def create(self) -> None:
        """Create the tables."""
        for schema in self.ledgers:
            self._server.execute(
                f"CREATE DATABASE {schema}",
                f"CREATE TABLE {schema}.{TABLE}"
                " (id BIGINT PRIMARY KEY, txn INT, nth INT, size INT, pad VARCHAR(200)) CHARSET=utf8mb4",
            )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(20.0)

    def _run(self) -> None:
        try:
            with self._server.connect() as connection, connection.cursor() as cursor:
                while not self._stopping.is_set():
                    for ledger in self.ledgers.values():
                        statement, head = ledger.statements(self._random)
                        cursor.execute(statement)
                        ledger.head = head
                        ledger.transactions += 1
                    time.sleep(PAUSE_S)
        except BaseException as error:
            self.error = error
            raise
