"""Table histories in ZooKeeper, beside the cursors: the next owner of a destination finds what the last one knew.

`{d}/history` is an index: what is covered of each source, and the names of the parts' pieces, which are its children
and hold at most half a megabyte each. Only the owner writes. Every write is a transaction that checks `{d}` at the
owner's epoch, so ZooKeeper refuses the writes of an earlier owner. The index is written after the pieces that it names
and before unused pieces are deleted, so it is complete at any time. Any thread; a lock; blocks on ZooKeeper.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Protocol

from canal_ha import logs
from canal_ha.decode.history.ranges import Range
from canal_ha.decode.history.store import HistoryStore, Kept, Record, TableSnapshot
from canal_ha.errors import Fenced, HistoryFenced, HistoryUnavailable, TransactionRefused, ZooKeeperUnavailable
from canal_ha.model.excerpt import excerpt
from canal_ha.model.position import LogPosition
from canal_ha.source.history.parts import (
    INFLATED_BYTES,
    NAME_LENGTH,
    PIECE_BYTES,
    SourceHistory,
    StoredPart,
    StoredPiece,
)
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Znode

LOG = logs.get(__name__)
MOST_BYTES = 64 << 20  # of one destination: ZooKeeper keeps all znodes in memory
_ATTEMPTS = 8  # each new attempt means that somebody else wrote, or that an unanswered write succeeded
_DELETES = 64  # in one transaction
_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError, zlib.error)


class WaitingZnodes(Protocol):
    """A ZooKeeper session whose requests block. Every method raises ZooKeeperUnavailable."""

    def get(self, path: str) -> Znode | None:
        """Return the node, or None when it does not exist."""

    def children(self, path: str) -> tuple[str, ...]:
        """Return the names of the children; none when the node does not exist."""

    def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """Do all operations or none; see Znodes. Raises TransactionRefused, and Fenced without a lease."""


class ZnodeStore:
    """Implements HistoryStore for the owner of a destination. It keeps the compressed parts in memory.

    path: of the index.
    fence: `{d}` at the owner's epoch.
    znodes: ZooKeeper.
    before: where an earlier version kept the history; it moves here if the index does not exist. None: nowhere.
    """

    def __init__(self, path: str, fence: Check, znodes: WaitingZnodes, before: HistoryStore | None = None) -> None:
        self._path = path
        self._fence = fence
        self._znodes = znodes
        self._before = before
        self.shared = True
        self._lock = threading.Lock()
        self._closed = False
        self._read = False
        self._index = StoredPiece("", b"")
        self._sources: dict[str, SourceHistory] = {}
        self._unused: list[str] = []
        self._inflated = 0  # bytes of the parts that were read

    # ---- HistoryStore

    def load(self, source: str) -> Kept:
        """See HistoryStore. Reads everything again."""
        with self._lock, self._translated():
            self._read = False
            self._fill()
            if self._index.version is None and self._before is not None:
                self._move_in(source, self._before)
            known = self._sources.get(source)
            return known.kept() if known else Kept()

    def others(self, source: str) -> Mapping[str, Kept]:
        """See HistoryStore."""
        with self._lock, self._translated():
            self._fill()
            return {name: known.kept() for name, known in self._sources.items() if name != source}

    def sources(self) -> tuple[str, ...]:
        """Return the sources of which something is stored."""
        with self._lock, self._translated():
            self._fill()
            return tuple(self._sources)

    def count(self) -> int:
        """See HistoryStore."""
        with self._lock, self._translated():
            self._fill()
            return sum(len(known.records) for known in self._sources.values())

    def add(self, source: str, records: Sequence[Record]) -> None:
        """See HistoryStore."""
        with self._lock, self._translated():
            self._of(source).add(records)
            self._save()

    def add_snapshot(self, source: str, snapshot: TableSnapshot) -> None:
        """See HistoryStore."""
        with self._lock, self._translated():
            self._of(source).add_snapshot(snapshot)
            self._save()

    def cover(self, source: str, ranges: Sequence[Range], times: Mapping[str, int]) -> None:
        """See HistoryStore."""
        with self._lock, self._translated():
            self._of(source).covered.add(ranges, times)
            self._save()

    def expire(self, source: str, before: LogPosition, stale_ms: int) -> None:
        """See HistoryStore."""
        with self._lock, self._translated():
            self._unused += self._of(source).expire(before)
            stale = [
                name
                for name, known in self._sources.items()
                if name != source and max((taken.at.timestamp_ms for taken in known.snapshots), default=0) < stale_ms
            ]
            for name in stale:
                self._forget(name)
            self._save()

    def clear(self, source: str) -> None:
        """See HistoryStore."""
        with self._lock, self._translated():
            self._fill()
            self._forget(source)
            self._save()

    def close(self) -> None:
        """See HistoryStore. From now on another store may write, for the same owner and its next source."""
        with self._lock:
            self._closed = True
        if self._before is not None:
            self._before.close()

    # ---- holding the lock: what is stored

    def _of(self, source: str) -> SourceHistory:
        self._fill()
        return self._sources.setdefault(source, SourceHistory())

    def _forget(self, source: str) -> None:
        if known := self._sources.pop(source, None):
            self._unused += [piece.name for piece in known.pieces()]

    def _move_in(self, source: str, before: HistoryStore) -> None:
        """Take over what this node kept by itself before. If that is unreadable, the history begins here."""
        try:
            kept = before.load(source)
        except HistoryUnavailable as error:
            LOG.warning("history.not_moved", error=str(error), to=self._path)
            return
        known = self._sources[source] = SourceHistory()
        for snapshot in sorted(kept.snapshots, key=lambda taken: taken.at.order):
            known.add_snapshot(snapshot)
        known.add(kept.records)
        known.covered.add(kept.ranges, kept.times)
        self._save()
        with suppress(HistoryUnavailable):  # else it would come back when somebody deletes the index
            before.clear(source)

    # ---- holding the lock: reading

    def _fill(self) -> None:
        """Read the index and its parts, unless they are in memory. Parts that no index names are deleted later."""
        if self._closed:
            raise HistoryUnavailable(f"{self._path}: the table history of another source is kept there now")
        if self._read:
            return
        with self._translated():
            # a transaction that only checks the epoch: from now on no earlier owner writes
            self._znodes.transaction([self._fence])
            index = self._znodes.get(self._path)
            self._index = StoredPiece("", index.data, index.version, stored=True) if index else StoredPiece("", b"")
            body = json.loads(self._index.data or b"{}")
            self._sources, self._inflated = {}, 0
            for name, stored in body.get("sources", {}).items():
                self._sources[name] = SourceHistory.read(stored, self._part)
            named = {piece.name for piece in self._pieces()}
            self._unused = [
                name for name in self._znodes.children(self._path) if len(name) == NAME_LENGTH and name not in named
            ]
        self._read = True

    def _part(self, names: Sequence[str]) -> StoredPart:
        """Return a stored part. Raises ValueError if it is damaged, or if there is too much."""
        pieces = []
        for name in names:
            node = self._znodes.get(f"{self._path}/{name}")
            if node is None:
                raise ValueError(f"the part {name} is missing")
            pieces.append(StoredPiece(name, node.data, node.version, stored=True))
        part = StoredPart.read(pieces)
        self._inflated += part.size
        if self._inflated > INFLATED_BYTES:
            raise ValueError(f"its parts are larger than {INFLATED_BYTES} bytes")
        return part

    # ---- holding the lock: writing

    def _save(self) -> None:
        """Write the changed parts and the index, then delete what the index names no more."""
        with self._translated():
            for _ in range(_ATTEMPTS):
                if self._write():
                    break
                # an operator deleted nodes, or ZooKeeper came back empty or from a backup: nothing there is certain
                self._index.doubt()
                for piece in self._pieces():
                    piece.doubt()
            else:
                raise HistoryUnavailable(f"{self._path} changed in all {_ATTEMPTS} attempts to write it")
            self._delete_unused()

    def _write(self) -> bool:
        """Write what is not stored. Return False if a node is not as this store left it."""
        if self._index.version is None and not self._open_index():
            return False
        pieces = self._pieces()
        index = json.dumps({"sources": {name: known.body() for name, known in self._sources.items()}}).encode()
        inflated = sum(part.size for known in self._sources.values() for part in known.parts())
        if (
            sum(len(piece.data) for piece in pieces) > MOST_BYTES
            or inflated > INFLATED_BYTES
            or len(index) > PIECE_BYTES
        ):
            raise HistoryUnavailable(
                f"{self._path}: the table history is larger than {MOST_BYTES >> 20} MB ({INFLATED_BYTES >> 20} MB as"
                f" text, {PIECE_BYTES >> 10} KB for its index): keep it in MySQL (canal.instance.tsdb.url)"
            )
        if not all(self._put(piece) for piece in pieces if not piece.stored):
            return False
        self._index.replace(index)
        return self._index.stored or self._put(self._index)

    def _open_index(self) -> bool:
        """Learn the version of the index. Create it if it is missing, because the parts need their parent.

        Return False if somebody else created it meanwhile, as another source of the group does with the node above.
        """
        node = self._znodes.get(self._path)
        if node is None:
            above = self._path.rpartition("/")[0]
            missing = [self._path] if self._znodes.get(above) else [above, self._path]
            try:
                self._znodes.transaction([self._fence, *(Create(path, b"") for path in missing)])
            except TransactionRefused as refused:
                if refused.index == 0:
                    raise
                return False
        self._index.version = node.version if node else 0
        return True

    def _put(self, piece: StoredPiece) -> bool:
        """Write a piece or the index. Return False if the node is not as this store left it."""
        path = f"{self._path}/{piece.name}" if piece.name else self._path
        while True:
            write = Create(path, piece.data) if piece.version is None else SetData(path, piece.data, piece.version)
            try:
                piece.version = self._znodes.transaction([self._fence, write])[1]
            except ZooKeeperUnavailable:
                piece.unsure = piece.data
                raise
            except TransactionRefused as refused:
                if refused.index == 0:
                    raise
                node = self._znodes.get(path)
                if node is None or (piece.version is not None and node.data not in (piece.data, piece.unsure)):
                    return False
                piece.version = node.version  # an earlier write of ours succeeded without an answer
                if node.data != piece.data:
                    continue
            piece.stored = True
            return True

    def _delete_unused(self) -> None:
        while self._unused:
            names = self._unused[:_DELETES]
            try:
                self._znodes.transaction([self._fence, *(Delete(f"{self._path}/{name}") for name in names)])
            except TransactionRefused as refused:
                if refused.index == 0:
                    raise
                self._unused.remove(names[refused.index - 1])  # it is gone already
            else:
                del self._unused[: len(names)]

    def _pieces(self) -> list[StoredPiece]:
        return [piece for known in self._sources.values() for piece in known.pieces()]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise HistoryUnavailable for errors of ZooKeeper and of what it holds."""
        try:
            yield
        except Fenced as error:
            raise HistoryFenced(f"{self._path}: {error}") from error
        except TransactionRefused as error:
            if error.index == 0:
                raise HistoryFenced(f"{self._path}: another node has claimed the destination") from error
            raise HistoryUnavailable(f"cannot use the table history in {self._path}: {error}") from error
        except ZooKeeperUnavailable as error:
            raise HistoryUnavailable(f"cannot use the table history in {self._path}: {error}") from error
        except _DAMAGED as error:
            raise HistoryUnavailable(
                f"{self._path} is unreadable: {excerpt(repr(error))}; delete the node with zkCli (deleteall) to begin a"
                " new history"
            ) from error
