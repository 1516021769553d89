"""A search for cursor writes that ZooKeeper should not have accepted: by an earlier owner, unfenced, or backwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from lab.cluster.history import Operation, Transaction


@dataclass(slots=True)
class Fencing:
    """Counts of claims and cursor writes, and lists of wrong writes, which must be empty.

    claimed_at: when each claim took effect, also those of a node that owned the destination before; seconds since 1970.
    """

    claims: int = 0
    cursor_writes: int = 0
    from_old_epoch: list[str] = field(default_factory=list)
    unfenced: list[str] = field(default_factory=list)
    backwards: list[str] = field(default_factory=list)
    claimed_at: list[float] = field(default_factory=list)


def judge(transactions: Iterable[Transaction], destinations: Iterable[str]) -> Fencing:
    """Follow claims and cursors through the transactions, and return what was found."""
    result = Fencing()
    known = set(destinations)
    claimed = {(destination, ()) for destination in known}
    owners: dict[str, int] = {}  # destination -> session of the newest claim
    cursors: dict[str, LogPosition] = {}
    for transaction in transactions:
        touched = {operation.path for operation in transaction.operations}
        if any(operation.kind == "set" and _split(operation.path) in claimed for operation in transaction.operations):
            result.claimed_at.append(transaction.at)
        for operation in transaction.operations:
            destination, rest = _split(operation.path)
            if destination not in known:
                continue
            if rest == ("running",) and operation.kind == "create":
                result.claims += 1
                owners[destination] = transaction.session
            elif len(rest) == 2 and rest[1] == "cursor" and operation.kind in ("create", "set", "delete"):
                where = f"{operation.path} at zxid {transaction.zxid:#x} by {transaction.session:#x}"
                result.cursor_writes += 1
                if owners.get(destination) != transaction.session:
                    result.from_old_epoch.append(where)
                if tree.destination(destination) not in touched:
                    result.unfenced.append(where)
                _move(result, cursors, operation, where)
    return result


def _move(result: Fencing, cursors: dict[str, LogPosition], operation: Operation, where: str) -> None:
    """Compare a cursor with the one before it in the same server's binlog; a switch of the source begins anew."""
    if operation.kind == "delete":
        cursors.pop(operation.path, None)
        return
    now = LogPosition.from_json(operation.data.decode())
    before = cursors.get(operation.path, now)
    if now.server == before.server and now.order < before.order:
        result.backwards.append(f"{where}: {before} to {now}")
    cursors[operation.path] = now


def _split(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the destination that a path belongs to, and the parts of the path behind it."""
    if not path.startswith(tree.DESTINATIONS + "/"):
        return "", ()
    destination, *rest = path.removeprefix(tree.DESTINATIONS + "/").split("/")
    return destination, tuple(rest)
