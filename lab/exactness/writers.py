"""Threads that update, insert, delete and move rows as fast as they can, most of them where the snapshot reads."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any, Self

import pymysql

from lab.exactness.table import TABLE, VERSIONS, pad
from lab.mysql import SqlServer
from lab.transactions import committed

THREADS = 4
MOST_KEYS = 4  # of a transaction
NEAR = 0.9  # of the keys are near the snapshot


class Writers:
    """See the module. They write while the block lasts.

    server: where they write; change it while they are stopped.
    keys: how many there are.
    near: returns the keys that the snapshot reads now.
    xa: they write in XA transactions.

    commits: transactions. errors: that ended a writer.
    """

    def __init__(self, server: SqlServer, keys: int, near: Callable[[], range], seed: int, *, xa: bool = False) -> None:
        self.server = server
        self.commits = 0
        self.errors: list[BaseException] = []
        self._keys = keys
        self._near = near
        self._xa = xa
        self._xids = count()
        self._stopping = threading.Event()
        self._turns = [threading.Lock() for _ in range(THREADS)]
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(f"writer {number} {seed}"), turn), daemon=True)
            for number, turn in enumerate(self._turns)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the writers."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Let nobody write while the block lasts."""
        with ExitStack() as stack:
            for turn in self._turns:
                stack.enter_context(turn)
            yield

    def _run(self, chance: random.Random, turn: threading.Lock) -> None:
        try:
            while not self._stopping.is_set():
                with turn:
                    server = self.server
                    connection = server.connect(autocommit=False)
                with connection:
                    while server is self.server and not self._stopping.is_set():
                        with turn:
                            if server is self.server:
                                xid = f"exact-{next(self._xids)}" if self._xa else ""
                                self.commits += committed(connection, lambda cursor: self._write(cursor, chance), xid)
        except BaseException as error:
            self.errors.append(error)

    def _write(self, cursor: Any, chance: random.Random) -> None:
        near = self._near()
        keys = {
            chance.choice(near) if chance.random() < NEAR else chance.randrange(self._keys)
            for _ in range(chance.randint(1, MOST_KEYS))
        }
        versions = {}
        for key in sorted(keys):
            cursor.execute(f"UPDATE {VERSIONS} SET v = LAST_INSERT_ID(v + 1) WHERE id = {key}")
            versions[key] = int(cursor.lastrowid)
        for key in sorted(keys):
            if key in versions:
                _change(cursor, chance, key, versions)


def _change(cursor: Any, chance: random.Random, key: int, versions: dict[int, int]) -> None:
    """Change the row of a key. versions: of the keys that the transaction has yet to change."""
    version, dice = versions[key], chance.random()
    if dice < 0.15:
        cursor.execute(f"DELETE FROM {TABLE} WHERE id = {key}")
        if dice < 0.05:
            cursor.execute(f"INSERT INTO {TABLE} VALUES ({key}, {version}, {pad(version)})")
    elif dice < 0.2 and key != max(versions):
        _move(cursor, key, versions)
    elif not cursor.execute(f"UPDATE {TABLE} SET version = {version}, pad = {pad(version)} WHERE id = {key}"):
        cursor.execute(f"INSERT INTO {TABLE} VALUES ({key}, {version}, {pad(version)})")


def _move(cursor: Any, key: int, versions: dict[int, int]) -> None:
    """Give a row the highest key of the transaction, unless that has a row."""
    other = max(versions)
    try:
        cursor.execute(f"UPDATE {TABLE} SET id = {other}, version = {versions[other]} WHERE id = {key}")
    except pymysql.IntegrityError:
        return
    del versions[other]
