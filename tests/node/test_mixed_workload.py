"""20,000 mixed row changes (100,000 in long runs) through a node that is killed five times.

The rows are compared with mysql-replication and with SELECT.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from lab import Client, Node, SqlServer, follow
from tests.node import workload
from tests.node.canal_values import change_of
from tests.node.reference import changes
from tests.node.workload import Change, Row
from tests.sampling import LONG

CHANGES = 100_000 if LONG else 20_000
KILLS = 5


class Received:
    """Rows in order of arrival. They must form one contiguous history, even if parts of it repeat."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.repeated = 0
        self._places: list[tuple[str, int, int]] = []
        self._known: dict[tuple[str, int, int], int] = {}
        self._next = 0

    def restarted(self) -> None:
        """Note that a new client starts, which may first get any row received before."""
        self._next = -1

    def add(self, row: dict[str, Any]) -> None:
        """Add one object of --format json if it is a row."""
        if row["type"] not in ("INSERT", "UPDATE", "DELETE") or row["sql"]:
            return
        place = (row["journal"], row["offset"], row["row"])
        if place in self._known:
            at = self._known[place]
            assert self._next in (-1, at), f"redelivery jumps to {place}"
            assert self.changes[at] == change_of(row), f"{place} differs when it comes again"
            self.repeated += 1
            self._next = at + 1
            return
        assert self._next in (-1, len(self.changes)), f"{place} is new, but redelivery had not caught up"
        self._known[place] = len(self.changes)
        self.changes.append(change_of(row))
        self._next = len(self.changes)


def fold(history: Sequence[Change], table: str) -> list[Row]:
    """Return the rows that a table holds after its changes."""
    rows: dict[str, list[Row]] = defaultdict(list)
    for name, _, before, after in history:
        if name == table:
            if before is not None:
                rows[_key(before)].remove(before)
            if after is not None:
                rows[_key(after)].append(after)
    return [row for same in rows.values() for row in same]


def difference(mine: Change, other: Change) -> str:
    """Return a text with the differences of two changes."""
    if mine[:2] != other[:2]:
        return f"{mine[:2]} is not {other[:2]}"
    sides = [(mine[2] or {}, other[2] or {}), (mine[3] or {}, other[3] or {})]
    return "; ".join(
        f"{name}: {ours.get(name)!r} is not {theirs.get(name)!r}"
        for ours, theirs in sides
        for name in ours | theirs
        if ours.get(name) != theirs.get(name)
    )


def _key(row: Row) -> str:
    return str(row.get("id", row.get("seq", row.get("a"))))


def through_kills(server: SqlServer, database: str) -> tuple[Received, int]:
    """Run the workload while the node is killed; return the received rows and the number of changed rows."""
    workload.create(server, database)
    written: list[int] = []
    writer = threading.Thread(target=lambda: written.append(workload.run(server, database, CHANGES)))
    received = Received()
    with Node({"example": follow(server)}) as node:
        arguments = ("--filter", rf"{database}\..*", "--batch-size", "500", "--timeout", "200")
        first = Client(node.address, "example", *arguments, "--max-rows", "1", "--idle-exit", "1")
        list(first.rows())  # the first SUBSCRIBE sets the start of this client
        writer.start()
        for kill in range(KILLS + 1):
            last = kill == KILLS
            if last:
                writer.join()
            received.restarted()
            limit = CHANGES // (KILLS + 1)
            with Client(node.address, "example", *arguments, "--idle-exit", "4") as client:
                for count, row in enumerate(client.rows()):
                    received.add(row)
                    if not last and count == limit:
                        node.kill()
            if not last:
                node.start()
    print(
        f"{server.flavor}: rows written {written[0]}, received {len(received.changes)}, repeated {received.repeated}"
        f" over {KILLS} kills"
    )
    return received, written[0]


def check_sums(received: Received, server: SqlServer, database: str) -> None:
    """Check that the changes fold to the rows that SELECT returns."""
    for table in workload.TABLES:
        order = sorted(fold(received.changes, table), key=repr)
        assert order == sorted(workload.selected(server, database, table), key=repr)


@pytest.mark.real
@pytest.mark.nightly("the test above: the same rows; tests/cluster_faults: killed nodes")
def test_nothing_is_lost_when_the_node_is_killed_five_times(source_server: SqlServer, database: str) -> None:
    """Rows equal those of mysql-replication and fold to those of SELECT; repeated rows are contiguous."""
    start = source_server.position()
    received, written = through_kills(source_server, database)
    expected = list(changes(source_server, database, start))
    print(f"lost {len(expected) - len(received.changes)}")
    assert len(received.changes) == len(expected) == written
    for at, (mine, other) in enumerate(zip(received.changes, expected, strict=True)):
        assert mine == other, f"change {at}: {difference(mine, other)}"
    check_sums(received, source_server, database)
