"""What each session wrote to an ensemble, in order, from ZooKeeper's own transaction logs.

Watches show neither every value nor who wrote it. Source of the format: ZooKeeper 3.8, FileTxnLog and zookeeper.jute.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab import Ensemble

_MAGIC = b"ZKLG"
_CREATES = (1, 15, 19, 21)  # create, create2, createContainer, createTTL
_DELETE, _SET_DATA, _CHECK, _MULTI, _CLOSE_SESSION = 2, 5, 13, 14, -11


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. kind: create, delete, set or check. version: after a set; the checked one plus 1; otherwise -1."""

    kind: str
    path: str
    data: bytes = b""
    ephemeral: bool = False
    version: int = -1


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transaction that took effect. session: who sent it; operations: all of a multi, empty when it ends a session.

    at: seconds since 1970 by the leader's clock.
    """

    zxid: int
    session: int
    at: float
    operations: tuple[Operation, ...]


def transactions(ensemble: Ensemble) -> list[Transaction]:
    """Return the transactions in the logs of all servers, each once, in the order of the ensemble."""
    found: dict[int, Transaction] = {}
    for node in ensemble.nodes:
        for path in sorted((node.directory / "data" / "version-2").glob("log.*")):
            for transaction in _file(path):
                found.setdefault(transaction.zxid, transaction)
    return [found[zxid] for zxid in sorted(found)]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, form: str) -> int:
        size = struct.calcsize(form)
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += size
        return int(value)

    def buffer(self) -> bytes:
        size = self.number(">i")
        if size < 0:
            return b""
        self._at += size
        return self._data[self._at - size : self._at]

    def text(self) -> str:
        return self.buffer().decode()


def _file(path: Path) -> Iterator[Transaction]:
    """Yield the transactions of a log file. A file that is being written ends with zeros or within a record."""
    with path.open("rb") as log:
        if log.read(16)[:4] != _MAGIC:
            return
        while len(head := log.read(12)) == 12:
            (size,) = struct.unpack_from(">i", head, 8)
            if size <= 0:
                return
            record = log.read(size + 1)
            if len(record) <= size or record[-1:] != b"B":
                return
            transaction = _transaction(_Reader(record))
            if transaction is not None:
                yield transaction


def _transaction(reader: _Reader) -> Transaction | None:
    session, _, zxid, at_ms, kind = (reader.number(form) for form in (">q", ">i", ">q", ">q", ">i"))
    if kind == _CLOSE_SESSION:
        return Transaction(zxid, session, at_ms / 1000, ())
    if kind == _MULTI:
        parts = [(reader.number(">i"), reader.buffer()) for _ in range(reader.number(">i"))]
        operations = tuple(made for part, data in parts if (made := _operation(part, _Reader(data))) is not None)
        # a multi that was refused is logged as a list of errors
        return Transaction(zxid, session, at_ms / 1000, operations) if len(operations) == len(parts) else None
    operation = _operation(kind, reader)
    return None if operation is None else Transaction(zxid, session, at_ms / 1000, (operation,))


def _operation(kind: int, reader: _Reader) -> Operation | None:
    if kind in _CREATES:
        path, data = reader.text(), reader.buffer()
        for _ in range(reader.number(">i")):
            reader.number(">i")
            reader.text()
            reader.text()
        ephemeral = reader.number(">b") == 1 if kind in (1, 15) else False
        return Operation("create", path, data, ephemeral)
    if kind == _DELETE:
        return Operation("delete", reader.text())
    if kind == _SET_DATA:
        return Operation("set", reader.text(), reader.buffer(), version=reader.number(">i"))
    if kind == _CHECK:
        return Operation("check", reader.text(), version=reader.number(">i"))
    return None
