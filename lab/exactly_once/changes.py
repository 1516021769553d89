"""Changes of rows: those that a source made, those that a target has, and the verdict."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from lab.mysql import SqlServer

KEYS = 50


class Change(NamedTuple):
    """A change of a row. value: its own; of a deleted row: the last one that it had."""

    operation: str
    key: int
    value: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a target has.

    rows: changes at the source; the others count changes.
    disordered: keys; None if the target does not store the order in which it got changes.
    """

    target: str
    victim: str
    kills: int
    rows: int
    lost: int
    doubled: int
    disordered: int | None

    @property
    def well(self) -> bool:
        """Whether the target has each change once, in the order of its key."""
        return not (self.lost or self.doubled or self.disordered)


def judged(
    target: str, victim: str, kills: int, wanted: Sequence[Change], found: Sequence[Change], *, ordered: bool = True
) -> Verdict:
    """Compare the changes of a target with those of the source, which are in order.

    target, victim, kills: of the verdict.
    wanted: the changes of the source.
    found: those of the target.
    ordered: whether they are in the order in which the target got them.
    """
    here, there = Counter(wanted), Counter(found)
    lost, doubled = (here - there).total(), (there - here).total()
    disordered = None
    if ordered:
        both = by_key(wanted), by_key(found)
        disordered = sum(both[0][key] != both[1][key] for key in both[0]) if not lost + doubled else 0
    return Verdict(target, victim, kills, len(wanted), lost, doubled, disordered)


def by_key(changes: Iterable[Change]) -> dict[int, list[Change]]:
    """Return the changes of each key, in order."""
    found: defaultdict[int, list[Change]] = defaultdict(list)
    for each in changes:
        found[each.key].append(each)
    return found


@contextmanager
def written(server: SqlServer, table: str, random: Random) -> Iterator[list[Change]]:
    """Write transactions within the block. Yield the list of the committed changes.

    Raises what ended the writing, behind the block.
    """
    changes: list[Change] = []
    stopping = threading.Event()

    def write() -> None:
        rows: dict[int, int] = {}
        number = 0
        with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
            while not stopping.wait(0.01):
                made = []
                for _ in range(random.randint(1, 4)):
                    key, number = random.randint(1, KEYS), number + 1
                    if key not in rows:
                        cursor.execute(f"INSERT INTO {table} VALUES ({key}, {number})")
                        made.append(Change("insert", key, number))
                        rows[key] = number
                    elif random.random() < 0.3:
                        cursor.execute(f"DELETE FROM {table} WHERE id = {key}")
                        made.append(Change("delete", key, rows.pop(key)))
                    else:
                        cursor.execute(f"UPDATE {table} SET v = {number} WHERE id = {key}")
                        made.append(Change("update", key, number))
                        rows[key] = number
                connection.commit()
                changes.extend(made)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        try:
            yield changes
        finally:
            stopping.set()
        writing.result()
