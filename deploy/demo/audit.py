"""Collects the rows that arrive at the counting client. Reads the client in its own thread."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from deploy.demo.workload import COMPARED, SCHEMA, TABLE, Change, comparable
from lab import Client


@dataclass(frozen=True, slots=True)
class Arrival:
    """A changed row and its time of arrival, s since 1970."""

    change: Change
    at: float


class Audit:
    """Collects the rows of one client until it ends, and rebuilds the table from them."""

    def __init__(self, client: Client) -> None:
        self.arrivals: list[Arrival] = []
        self.table: dict[str, tuple[object, ...]] = {}
        self.statements = 0
        self._seen: set[Change] = set()
        self._thread = threading.Thread(target=self._read, args=(client,), daemon=True)
        self._thread.start()

    def wait(self, rows: int, timeout_s: float) -> None:
        """Wait until this many different rows arrived, the client ended, or the timeout expired."""
        deadline = time.monotonic() + timeout_s
        while len(self._seen) < rows and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.05)

    def first_after(self, moment: float) -> Arrival | None:
        """Return the first row that arrived after this moment, if there is one."""
        for index in range(len(self.arrivals) - 1, -1, -1):
            if self.arrivals[index].at < moment:
                return self.arrivals[index + 1] if index + 1 < len(self.arrivals) else None
        return self.arrivals[0] if self.arrivals else None

    def alive(self) -> bool:
        """Return whether the client still runs."""
        return self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait until the client has ended."""
        self._thread.join(timeout_s)

    def _read(self, client: Client) -> None:
        for row in client.rows():
            self._take(row)

    def _take(self, row: dict[str, Any]) -> None:
        if (row["schema"], row["table"]) != (SCHEMA, TABLE) or row["type"] not in ("INSERT", "UPDATE", "DELETE"):
            self.statements += 1
            return
        image = row["before"] if row["type"] == "DELETE" else row["after"]
        change = Change(row["type"], int(image["id"]), int(image["version"]))
        if row["type"] == "DELETE":
            self.table.pop(str(image["id"]), None)
        else:
            self.table[str(image["id"])] = tuple(comparable(column, image[column]) for column in COMPARED)
        self._seen.add(change)
        self.arrivals.append(Arrival(change, time.time()))
