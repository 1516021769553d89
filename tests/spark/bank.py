"""A bank with accounts in two tables. Money moves between them; accounts close, open again and change their numbers.

No transaction changes the total.
"""

from __future__ import annotations

import random
import threading
from typing import Any

from lab import SqlServer

ACCOUNTS = 1000
START_BALANCE = 100
TOTAL = ACCOUNTS * START_BALANCE
TABLES = ("checking", "savings")


class Bank:
    """A thread that writes transactions until it is stopped."""

    def __init__(self, server: SqlServer, schema: str, seed: int = 1) -> None:
        self.schema = schema
        self.transactions = 0
        self._server = server
        self._random = random.Random(seed)
        self._accounts: dict[str, list[int]] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._error: Exception | None = None

    def create(self) -> None:
        """Create both tables and fill them in one transaction."""
        self._server.execute(f"CREATE DATABASE {self.schema}")
        for table in TABLES:
            self._server.execute(
                f"CREATE TABLE {self.schema}.{table} (id INT PRIMARY KEY, owner VARCHAR(40),"
                " balance DECIMAL(12,2) NOT NULL, changed DATETIME(3))"
            )
        half = ACCOUNTS // 2
        with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            for number, table in enumerate(TABLES):
                ids = range(number * half, (number + 1) * half)
                self._accounts[table] = list(ids)
                rows = [(account, f"owner {account} ü", START_BALANCE) for account in ids]
                cursor.executemany(f"INSERT INTO {self.schema}.{table} VALUES (%s, %s, %s, NOW(3))", rows)
            connection.commit()

    def start(self) -> None:
        """Start to write."""
        self._thread.start()

    def alter(self) -> None:
        """Add a column to one of the tables."""
        self._server.execute(f"ALTER TABLE {self.schema}.savings ADD COLUMN note VARCHAR(20)")

    def stop(self) -> None:
        """Stop the thread. Raises the writer's error."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(30)
        if self._error is not None:
            raise self._error

    def rows(self, table: str) -> dict[int, dict[str, Any]]:
        """Return the table's current rows by account."""
        return {row["id"]: row for row in self._server.query(f"SELECT * FROM {self.schema}.{table}")}

    def _write(self) -> None:
        try:
            with self._server.connect(autocommit=False) as connection, connection.cursor() as cursor:
                while not self._stopped.wait(0.02):
                    self._transaction(cursor)
                    connection.commit()
                    self.transactions += 1
        except Exception as error:
            self._error = error

    def _transaction(self, cursor: Any) -> None:
        kind = self._random.random()
        source, target = self._random.sample(TABLES, 2)
        giver = self._random.choice(self._accounts[source])
        taker = self._random.choice(self._accounts[target])
        if kind < 0.05:  # the account closes: its balance goes to another one
            self._sql(
                cursor,
                target,
                "SET balance = balance + (SELECT balance FROM {o} WHERE id = %s)",
                giver,
                taker,
                o=source,
            )
            cursor.execute(f"DELETE FROM {self.schema}.{source} WHERE id = %s", (giver,))
            self._accounts[source].remove(giver)
            back = self._random.choice((source, target))
            if giver not in self._accounts[back]:
                cursor.execute(
                    f"INSERT INTO {self.schema}.{back} (id, owner, balance, changed) VALUES (%s, 'again', 0, NOW(3))",
                    (giver,),
                )
                self._accounts[back].append(giver)
        elif kind < 0.08:  # the account gets another number
            number = 10_000 + self.transactions
            self._sql(cursor, source, "SET id = %s", number, giver)
            self._accounts[source].remove(giver)
            self._accounts[source].append(number)
        else:
            amount = self._random.randint(1, 20)
            self._sql(cursor, source, "SET balance = balance - %s, changed = NOW(3)", amount, giver)
            self._sql(cursor, target, "SET balance = balance + %s, changed = NOW(3)", amount, taker)

    def _sql(self, cursor: Any, table: str, change: str, value: int, account: int, o: str = "") -> None:
        other = f"{self.schema}.{o}"
        cursor.execute(f"UPDATE {self.schema}.{table} {change.replace('{o}', other)} WHERE id = %s", (value, account))
