"""Table histories in ZooKeeper, beside the cursors: the next owner of a destination finds what the last one knew.

`{d}/history` is an index: what is covered of each source, and the names of the parts. Its children are the parts:
zlib-compressed JSON of at most half a megabyte, with the tables of a snapshot or with statements. Only the owner
writes. Every write is a transaction that checks `{d}` at the owner's epoch, so ZooKeeper refuses the writes of an
earlier owner. The index is written after the parts that it names and before unused parts are deleted, so it is complete
at any time. Therefore a part may grow in place, but what shrinks gets a new name. Any thread; a lock; blocks on
ZooKeeper.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import uuid4

from canal_ha import logs
from canal_ha.decode.history.ranges import Range, edge
from canal_ha.decode.history.store import HistoryStore, Kept, Record, TableSnapshot
from canal_ha.errors import Fenced, HistoryFenced, HistoryUnavailable, TransactionRefused, ZooKeeperUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.source.history.coverage import Coverage, from_place, place_of
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Znode

LOG = logs.get(__name__)
PART_BYTES = 1 << 19  # half of ZooKeeper's default jute.maxbuffer, which limits a request and an answer
MOST_BYTES = 64 << 20  # of one destination: ZooKeeper keeps all znodes in memory
_ATTEMPTS = 8  # each new attempt means that somebody else wrote, or that an unanswered write succeeded
_STATEMENTS = 256  # in one part, which is written again for each statement
_TABLES = 2048  # in one part of a snapshot, if they fit
_DELETES = 64  # in one transaction
_NAME_LENGTH = 32  # of a part: a group's members stand beside the parts
_GONE, _LEFT_OUT = -1, -2  # in place of a definition's number

Name = tuple[str, str]


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
        self._index = _StoredPart("", b"")
        self._sources: dict[str, _Source] = {}
        self._unused: list[str] = []

    # ---- HistoryStore

    def load(self, source: str) -> Kept:
        """See HistoryStore. Reads everything again."""
        with self._lock:
            self._read = False
            self._fill()
            if self._index.version is None and self._before is not None:
                self._move_in(source, self._before)
            known = self._sources.get(source)
            return known.kept() if known else Kept()

    def sources(self) -> tuple[str, ...]:
        """Return the sources of which something is stored."""
        with self._lock:
            self._fill()
            return tuple(self._sources)

    def count(self) -> int:
        """See HistoryStore."""
        with self._lock:
            self._fill()
            return sum(len(known.records) for known in self._sources.values())

    def add(self, source: str, records: Sequence[Record]) -> None:
        """See HistoryStore."""
        with self._lock:
            self._of(source).add(records)
            self._save()

    def add_snapshot(self, source: str, snapshot: TableSnapshot) -> None:
        """See HistoryStore."""
        with self._lock:
            self._of(source).add_snapshot(snapshot)
            self._save()

    def cover(self, source: str, ranges: Sequence[Range], times: Mapping[str, int]) -> None:
        """See HistoryStore."""
        with self._lock:
            self._of(source).covered.add(ranges, times)
            self._save()

    def expire(self, source: str, before: LogPosition, stale_ms: int) -> None:
        """See HistoryStore."""
        with self._lock:
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
        with self._lock:
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

    def _of(self, source: str) -> _Source:
        self._fill()
        return self._sources.setdefault(source, _Source())

    def _forget(self, source: str) -> None:
        if known := self._sources.pop(source, None):
            self._unused += [part.name for part in known.parts()]

    def _move_in(self, source: str, before: HistoryStore) -> None:
        """Take over what this node kept by itself before. If that is unreadable, the history begins here."""
        try:
            kept = before.load(source)
        except HistoryUnavailable as error:
            LOG.warning("history.not_moved", error=str(error), to=self._path)
            return
        known = self._sources[source] = _Source()
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
            self._index = _StoredPart("", index.data, index.version, stored=True) if index else _StoredPart("", b"")
            body = json.loads(self._index.data or b"{}")
            self._sources = {name: self._source_of(stored) for name, stored in body.get("sources", {}).items()}
            named = {part.name for part in self._parts()}
            self._unused = [
                name for name in self._znodes.children(self._path) if len(name) == _NAME_LENGTH and name not in named
            ]
        self._read = True

    def _source_of(self, body: Mapping[str, Any]) -> _Source:
        snapshots = [
            _Taken(_at(stored["at"]), stored["complete"], [self._part(name) for name in stored["parts"]])
            for stored in body["snapshots"]
        ]
        statements = [self._part(name) for name in body["statements"]]
        records = {_key(record): record for part in statements for record in map(_record, part.content())}
        return _Source(Coverage.read(body), snapshots, statements, records)

    def _part(self, name: str) -> _StoredPart:
        node = self._znodes.get(f"{self._path}/{name}")
        if node is None:
            raise ValueError(f"the part {name} is missing")
        return _StoredPart(name, node.data, node.version, stored=True)

    # ---- holding the lock: writing

    def _save(self) -> None:
        """Write the changed parts and the index, then delete what the index names no more."""
        with self._translated():
            for _ in range(_ATTEMPTS):
                if self._write():
                    break
                # an operator deleted nodes, or ZooKeeper came back empty or from a backup: nothing there is certain
                self._index.doubt()
                for part in self._parts():
                    part.doubt()
            else:
                raise HistoryUnavailable(f"{self._path} changed in all {_ATTEMPTS} attempts to write it")
            self._delete_unused()

    def _write(self) -> bool:
        """Write what is not stored. Return False if a node is not as this store left it."""
        if self._index.version is None and not self._open_index():
            return False
        if sum(len(part.data) for part in self._parts()) > MOST_BYTES:
            raise HistoryUnavailable(
                f"{self._path}: the table history is larger than {MOST_BYTES >> 20} MB: keep it in MySQL"
                " (canal.instance.tsdb.url)"
            )
        if not all(self._put(part) for part in self._parts() if not part.stored):
            return False
        self._index.replace(
            json.dumps({"sources": {name: known.body() for name, known in self._sources.items()}}).encode()
        )
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

    def _put(self, part: _StoredPart) -> bool:
        """Write a part or the index. Return False if the node is not as this store left it."""
        path = f"{self._path}/{part.name}" if part.name else self._path
        while True:
            write = Create(path, part.data) if part.version is None else SetData(path, part.data, part.version)
            try:
                part.version = self._znodes.transaction([self._fence, write])[1]
            except ZooKeeperUnavailable:
                part.unsure = part.data
                raise
            except TransactionRefused as refused:
                if refused.index == 0:
                    raise
                node = self._znodes.get(path)
                if node is None or (part.version is not None and node.data not in (part.data, part.unsure)):
                    return False
                part.version = node.version  # an earlier write of ours succeeded without an answer
                if node.data != part.data:
                    continue
            part.stored = True
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

    def _parts(self) -> list[_StoredPart]:
        return [part for known in self._sources.values() for part in known.parts()]

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
        except (ValueError, LookupError, TypeError, AttributeError, zlib.error) as error:
            raise HistoryUnavailable(
                f"{self._path} is unreadable: {error!r}; delete the node with zkCli (deleteall) to begin a new history"
            ) from error


@dataclass(slots=True)
class _StoredPart:
    """One znode.

    name: below the index; "" for the index itself.
    data: what it has to hold.
    version: as last known; None if the node does not exist or is in doubt.
    stored: ZooKeeper holds `data`.
    unsure: the data of a write without an answer.
    """

    name: str
    data: bytes
    version: int | None = None
    stored: bool = False
    unsure: bytes | None = None

    @classmethod
    def of(cls, content: object) -> _StoredPart:
        """Make a new part. Its name repeats no other one, also not one that a crashed owner left behind."""
        return cls(uuid4().hex, _packed(content))

    def content(self) -> Any:
        return json.loads(zlib.decompress(self.data))

    def replace(self, data: bytes) -> None:
        if data != self.data:
            self.data, self.stored = data, False

    def doubt(self) -> None:
        self.version, self.stored = None, False


@dataclass(slots=True)
class _Taken:
    """A stored snapshot. Its parts hold only the difference to the snapshot before it in the list.

    complete: see TableSnapshot.left_out.
    """

    at: LogPosition
    complete: bool
    parts: list[_StoredPart]


@dataclass(slots=True)
class _Source:
    """The history of one source.

    snapshots: in the order in which they were taken.
    statements: parts with records; records are added to the last one.
    records: by position and table.
    tables: those of the last snapshot; None until they are needed.
    """

    covered: Coverage = field(default_factory=Coverage)
    snapshots: list[_Taken] = field(default_factory=list)
    statements: list[_StoredPart] = field(default_factory=list)
    records: dict[tuple[object, ...], Record] = field(default_factory=dict)
    tables: dict[Name, str] | None = None

    def parts(self) -> Iterator[_StoredPart]:
        """Yield every part."""
        for taken in self.snapshots:
            yield from taken.parts
        yield from self.statements

    def body(self) -> dict[str, Any]:
        """Return what the index says of this source."""
        return {
            **self.covered.body(),
            "snapshots": [
                {
                    "at": _at_row(taken.at),
                    "complete": taken.complete,
                    "parts": [part.name for part in taken.parts],
                }
                for taken in self.snapshots
            ],
            "statements": [part.name for part in self.statements],
        }

    def kept(self) -> Kept:
        """Return it as HistoryStore.load does."""
        return Kept(
            tuple(self.covered.ranges), tuple(self.records.values()), tuple(self._each_snapshot()), self.covered.times
        )

    def add(self, records: Iterable[Record]) -> None:
        """Add the records that are new. Raises HistoryUnavailable, and adds none, if one is larger than a part."""
        new: dict[tuple[object, ...], Record] = {}
        for record in records:
            if _key(record) not in self.records:
                new.setdefault(_key(record), record)
        rows = [_row(record) for record in new.values()]
        last = self.statements[-1] if self.statements else None
        held = last.content() if last and len(last.data) < PART_BYTES // 8 else []
        if last is not None and 0 < len(held) < _STATEMENTS:
            (data, *others) = _statement_parts([*held, *rows])
            parts = [_StoredPart(uuid4().hex, other) for other in others]
            last.replace(data)
        else:
            parts = [_StoredPart(uuid4().hex, data) for data in _statement_parts(rows)]
        self.statements += parts
        self.records |= new

    def add_snapshot(self, snapshot: TableSnapshot) -> None:
        """Add a snapshot, unless it is there."""
        if any(taken.at == snapshot.at for taken in self.snapshots):
            return
        if self.tables is None:
            self.tables = deque(({}, *(held.tables for held in self._each_snapshot())), maxlen=1)[0]
        parts = list(_difference(self.tables, snapshot))
        self.snapshots.append(_Taken(snapshot.at, snapshot.left_out is not None, parts))
        self.tables = snapshot.tables

    def expire(self, before: LogPosition) -> list[str]:
        """Drop what lies before a position; return the names of the parts that are not needed any more."""
        limit = edge(before).order
        names = {part.name for part in self.parts()}
        self.covered.expired = before
        previous: dict[Name, str] = {}
        kept: list[_Taken] = []
        apart = False  # the snapshot before this one is dropped
        for taken, snapshot in zip(self.snapshots, self._each_snapshot(), strict=True):
            if taken.at.order < limit:
                apart = True
                continue
            if apart:
                taken.parts = list(_difference(previous, snapshot))
            kept.append(taken)
            previous, apart = snapshot.tables, False
        self.snapshots = kept
        self.records = {key: record for key, record in self.records.items() if record.at.order >= limit}
        statements = []
        for part in self.statements:
            content = part.content()
            rows = [row for row in content if _key(_record(row)) in self.records]
            if rows:
                statements.append(part if len(rows) == len(content) else _StoredPart.of(rows))
        self.statements = statements
        return sorted(names - {part.name for part in self.parts()})

    def _each_snapshot(self) -> Iterator[TableSnapshot]:
        tables: dict[Name, str] = {}
        same: dict[str, str] = {}  # one string for equal definitions
        for taken in self.snapshots:
            left_out = set()
            for part in taken.parts:
                content = part.content()
                texts = [same.setdefault(text, text) for text in content["definitions"]]
                for schema, table, number in content["tables"]:
                    if number >= 0:
                        tables[schema, table] = texts[number]
                    elif number == _GONE:
                        tables.pop((schema, table), None)
                    else:
                        left_out.add((schema, table))
            yield TableSnapshot(taken.at, dict(tables), frozenset(left_out) if taken.complete else None)


def _difference(previous: Mapping[Name, str], snapshot: TableSnapshot) -> Iterator[_StoredPart]:
    """Yield the parts that turn the tables before into those of a snapshot."""
    changed = [(*name, sql) for name, sql in snapshot.tables.items() if previous.get(name) != sql]
    gone = [(*name, _GONE) for name in previous if name not in snapshot.tables]
    left_out = [(*name, _LEFT_OUT) for name in sorted(snapshot.left_out or ())]
    rows: list[tuple[str, str, str | int]] = [*changed, *gone, *left_out]
    for first in range(0, len(rows), _TABLES):
        yield from _bounded(rows[first : first + _TABLES])


def _bounded(rows: Sequence[tuple[str, str, str | int]]) -> Iterator[_StoredPart]:
    """Yield these rows in parts of bounded size. Raises HistoryUnavailable if one row alone is larger."""
    numbers: dict[str, int] = {}
    tables = [
        (schema, table, numbers.setdefault(what, len(numbers)) if isinstance(what, str) else what)
        for schema, table, what in rows
    ]
    part = _StoredPart.of({"tables": tables, "definitions": list(numbers)})
    if len(part.data) <= PART_BYTES:
        yield part
    elif len(rows) > 1:
        yield from _bounded(rows[: len(rows) // 2])
        yield from _bounded(rows[len(rows) // 2 :])
    else:
        schema, table, _ = rows[0]
        raise HistoryUnavailable(
            f"the definition of {schema}.{table} is larger than a znode ({PART_BYTES >> 10} KB compressed): keep the"
            " table history in MySQL (canal.instance.tsdb.url)"
        )


def _statement_parts(rows: Sequence[Sequence[object]]) -> Iterator[bytes]:
    """Yield these statements, packed in parts of bounded size. Raises HistoryUnavailable if one alone is larger."""
    for first in range(0, len(rows), _STATEMENTS):
        some = rows[first : first + _STATEMENTS]
        data = _packed(some)
        if len(data) <= PART_BYTES:
            yield data
        elif len(some) > 1:
            yield from _statement_parts(some[: len(some) // 2])
            yield from _statement_parts(some[len(some) // 2 :])
        else:
            journal, offset = some[0][:2]
            raise HistoryUnavailable(
                f"the statement at {journal}:{offset} is larger than a znode ({PART_BYTES >> 10} KB compressed): what"
                " follows it is not stored; keep the table history in MySQL (canal.instance.tsdb.url)"
            )


def _packed(content: object) -> bytes:
    return zlib.compress(
        json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    )


def _key(record: Record) -> tuple[object, ...]:
    return (record.at.journal, record.at.offset, record.at.sub_index, record.table)


def _row(record: Record) -> list[object]:
    at, since = record.at, record.since
    return [*_at_row(at), record.schema, record.sql, record.table, place_of(since) if since else None]


def _record(row: Sequence[Any]) -> Record:
    return Record(_at(row), row[4], row[5], row[6], from_place(row[7]) if row[7] else None)


def _at_row(at: LogPosition) -> list[object]:
    return [at.journal, at.offset, at.timestamp_ms, at.sub_index]


def _at(row: Sequence[Any]) -> LogPosition:
    return LogPosition(row[0], row[1], row[2], sub_index=row[3])
