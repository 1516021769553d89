"""A check, row by row, of what arrived at the clients of one destination.

The rows of all processes with one client id are one sequence: each row follows the one before it, or is the first row
of a transaction that was delivered before. Any other row counts as out of order.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

HUGE_ROWS = 1000
"""A transaction with more rows is a huge one."""


class Delivery:
    """Rows in order of arrival. Numbers begin at 1.

    inferred: a batch counts as acknowledged when the same process has got the next one on the same connection: the
        command line client acknowledges before it asks again, and the server answers in order. Otherwise only what
        confirm() says counts.
    flaw: returns what is wrong with the values of a row; "" if nothing is.
    """

    def __init__(self, *, inferred: bool = True, flaw: Callable[[Mapping[str, Any]], str] = lambda row: "") -> None:
        self.seen: set[int] = set()
        self.highest = 0
        self.out_of_order: list[str] = []
        self.repeated_rows = 0
        self.huge_again = 0
        """How often a huge transaction came again."""
        self.flaws: list[str] = []
        self.acked_again: list[float] = []
        """For each acknowledged transaction that came again: when the last of its rows was acknowledged."""
        self.came_again: list[float] = []
        """When each of `acked_again` came again."""
        self.active = ""
        self._lock = threading.Lock()
        self._current = 0
        self._inferred = inferred
        self._flaw = flaw
        self._acked: list[tuple[int, float]] = []  # ascending: up to which row, and when (monotonic seconds)
        self._news: list[float] = []  # when new rows came

    def take(self, process: str, rows: list[dict[str, Any]], at: float) -> None:
        """Add the rows of one batch. process: name of the client that got them; at: monotonic seconds."""
        with self._lock:
            before, highest = self._current, self.highest
            for row in rows:
                self._row(row, at)
            if self._inferred and process == self.active and self._current - len(rows) == before:
                self._acknowledge(before, at)
            self.active = process
            if self.highest > highest:
                self._news.append(at)

    @property
    def acked_transactions_repeated(self) -> int:
        """Return how many acknowledged transactions came again."""
        return len(self.acked_again)

    def confirm(self, to: int, at: float) -> None:
        """Note that the server has read acknowledgements up to this row at this moment (monotonic seconds)."""
        with self._lock:
            self._acknowledge(to, at)

    def _acknowledge(self, to: int, at: float) -> None:
        if not self._acked or to > self._acked[-1][0]:
            self._acked.append((to, at))

    def _row(self, row: dict[str, Any], at: float) -> None:
        number, nth, size = row["id"], row["nth"], row["size"]
        if flaw := self._flaw(row):
            self.flaws.append(f"row {number}: {flaw}")
        again = number <= self._current and nth == 1
        if number != self._current + 1 and not again:
            self.out_of_order.append(f"{number} after {self._current}")
        self._current = number
        if number in self.seen:
            self.repeated_rows += 1
            self.huge_again += nth == 1 and size > HUGE_ROWS
            after = bisect_left(self._acked, (number - 1 + size, 0.0))
            if nth == 1 and after < len(self._acked):
                self.acked_again.append(self._acked[after][1])
                self.came_again.append(at)
        self.seen.add(number)
        self.highest = max(self.highest, number)

    def lost(self, head: int) -> int:
        """Return how many rows up to `head` never came."""
        with self._lock:
            return head - sum(number <= head for number in self.seen)

    def silence_s(self, since: float) -> float:
        """Return the longest time without a new row from `since` (monotonic seconds) until now."""
        with self._lock:
            moments = [since, *(at for at in self._news if at > since), time.monotonic()]
        return max(after - before for before, after in pairwise(moments))
