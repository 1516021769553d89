"""What arrived at the counting client, compared with what was written. Reads the client in a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from deploy.demo.workload import COMPARED, SCHEMA, TABLE, Change, comparable
from tests.real import Client


class Audit:
    """Collects the rows of one client until it ends; rebuilds the table from them."""

    def __init__(self, client: Client) -> None:
        self.received: Counter[Change] = Counter()
        self.table: dict[str, tuple[object, ...]] = {}
        self.out_of_order = 0
        self.statements = 0
        self.finished = 0.0
        """Monotonic seconds of the last row."""
        self._last: tuple[str, int, int] = ("", 0, 0)
        self._thread = threading.Thread(target=self._read, args=(client,), daemon=True)
        self._thread.start()

    def wait(self, rows: int, timeout_s: float) -> None:
        """Wait until so many rows are here, or the client ends, or the time is over."""
        deadline = time.monotonic() + timeout_s
        while self.received.total() < rows and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)

    def join(self, timeout_s: float) -> None:
        """Wait until the client has ended."""
        self._thread.join(timeout_s)

    def _read(self, client: Client) -> None:
        for row in client.rows():
            self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        place = (str(row["journal"]), int(row["offset"]), int(row["row"] or 0))
        self.out_of_order += place < self._last
        self._last = place
        if (row["schema"], row["table"]) != (SCHEMA, TABLE) or row["type"] not in ("INSERT", "UPDATE", "DELETE"):
            self.statements += 1
            return
        image = row["before"] if row["type"] == "DELETE" else row["after"]
        self.received[Change(row["type"], int(image["id"]), int(image["version"]))] += 1
        if row["type"] == "DELETE":
            self.table.pop(str(image["id"]), None)
        else:
            self.table[str(image["id"])] = tuple(comparable(column, image[column]) for column in COMPARED)
        self.finished = time.monotonic()
