"""Parts: a table history as compressed pieces of bounded size. Pure.

A part is JSON, compressed with zlib and cut into pieces that fit into a znode. A part holds statements, or what a
snapshot changes in the snapshot before it.
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from canal_ha.decode.history.ranges import edge
from canal_ha.decode.history.store import Kept, Record, TableSnapshot
from canal_ha.model.position import LogPosition
from canal_ha.source.history.coverage import Coverage, from_place, place_of

PIECE_BYTES = 1 << 19  # half of ZooKeeper's default jute.maxbuffer, which limits a request and an answer
NAME_LENGTH = 32  # of a piece
INFLATED_BYTES = 1 << 30  # of all parts of a destination: what a node reads into its memory
_STATEMENTS = 256  # in the part that grows
_GROWING_BYTES = 1 << 17  # of the part that grows, which is compressed again for each statement
_TABLES = 2048  # in one part
_GONE, _LEFT_OUT = -1, -2  # in place of a definition's number

Name = tuple[str, str]


@dataclass(slots=True)
class StoredPiece:
    """One znode.

    name: repeats no other one, also not one that a crashed owner left behind; "" for the index.
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

    def replace(self, data: bytes) -> None:
        """Hold other data."""
        if data != self.data:
            self.data, self.stored = data, False

    def doubt(self) -> None:
        """Assume nothing about what ZooKeeper holds."""
        self.version, self.stored = None, False


@dataclass(slots=True)
class StoredPart:
    """Some JSON in pieces. size: of its text, bytes."""

    pieces: list[StoredPiece]
    size: int

    @classmethod
    def of(cls, content: object) -> StoredPart:
        """Make a new part."""
        text = _text(content)
        data = zlib.compress(text)
        cuts = range(0, len(data), PIECE_BYTES)
        return cls([StoredPiece(uuid4().hex, data[cut : cut + PIECE_BYTES]) for cut in cuts], len(text))

    @classmethod
    def read(cls, pieces: list[StoredPiece]) -> StoredPart:
        """Return a stored part. Raises ValueError, zlib.error if it is damaged."""
        part = cls(pieces, 0)
        part.size = len(part._inflated())
        return part

    def content(self) -> Any:
        """Return the JSON."""
        return json.loads(self._inflated())

    def grow(self, content: object) -> None:
        """Hold more than before: at most _GROWING_BYTES, which fit into one piece."""
        text = _text(content)
        self.pieces[0].replace(zlib.compress(text))
        self.size = len(text)

    def _inflated(self) -> bytes:
        inflater = zlib.decompressobj()
        text = inflater.decompress(b"".join(piece.data for piece in self.pieces), INFLATED_BYTES)
        if not inflater.eof:
            raise ValueError(f"the part {self.pieces[0].name} is cut off, or larger than {INFLATED_BYTES} bytes")
        return text


@dataclass(slots=True)
class _Taken:
    """A stored snapshot. Its parts hold only the difference to the snapshot before it in the list.

    complete: see TableSnapshot.left_out.
    """

    at: LogPosition
    complete: bool
    parts: list[StoredPart]


@dataclass(slots=True)
class SourceHistory:
    """What is stored of one source.

    snapshots: in the order in which they were taken.
    statements: parts with records; the last one grows.
    records: by position and table.
    tables: those of the last snapshot; None until they are needed.
    """

    covered: Coverage = field(default_factory=Coverage)
    snapshots: list[_Taken] = field(default_factory=list)
    statements: list[StoredPart] = field(default_factory=list)
    records: dict[tuple[object, ...], Record] = field(default_factory=dict)
    tables: dict[Name, str] | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any], part: Callable[[Sequence[str]], StoredPart]) -> SourceHistory:
        """Read what an index says of a source.

        body: as from `body`.
        part: returns the part of these pieces.
        Raises ValueError, LookupError, TypeError, AttributeError, zlib.error if something is damaged.
        """
        snapshots = [
            _Taken(_at(stored["at"]), stored["complete"], [part(names) for names in stored["parts"]])
            for stored in body["snapshots"]
        ]
        statements = [part(names) for names in body["statements"]]
        records = {_key(record): record for each in statements for record in map(_record, each.content())}
        return cls(Coverage.read(body), snapshots, statements, records)

    def body(self) -> dict[str, Any]:
        """Return what the index says of this source."""
        return {
            **self.covered.body(),
            "snapshots": [
                {
                    "at": _at_row(taken.at),
                    "complete": taken.complete,
                    "parts": [_names(part) for part in taken.parts],
                }
                for taken in self.snapshots
            ],
            "statements": [_names(part) for part in self.statements],
        }

    def parts(self) -> Iterator[StoredPart]:
        """Yield every part."""
        for taken in self.snapshots:
            yield from taken.parts
        yield from self.statements

    def pieces(self) -> Iterator[StoredPiece]:
        """Yield every piece."""
        for part in self.parts():
            yield from part.pieces

    def kept(self) -> Kept:
        """Return it as HistoryStore.load does."""
        return Kept(
            tuple(self.covered.ranges), tuple(self.records.values()), tuple(self._each_snapshot()), self.covered.times
        )

    def add(self, records: Iterable[Record]) -> None:
        """Add the records that are new."""
        last = self.statements[-1] if self.statements else None
        rows = last.content() if last and last.size < _GROWING_BYTES else []
        if not 0 < len(rows) < _STATEMENTS:
            last, rows = None, []
        size = last.size if last else 0
        for record in records:
            if self.records.setdefault(_key(record), record) is not record:
                continue
            row = _row(record)
            length = len(_text(row))
            if rows and (len(rows) >= _STATEMENTS or size + length > _GROWING_BYTES):
                self._close_part(last, rows)
                last, rows, size = None, [], 0
            rows.append(row)
            size += length
        self._close_part(last, rows)

    def _close_part(self, growing: StoredPart | None, rows: Sequence[object]) -> None:
        if growing is not None:
            growing.grow(rows)
        elif rows:
            self.statements.append(StoredPart.of(rows))

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
        """Drop what lies before a position; return the names of the pieces that are not needed any more.

        What shrinks gets a new name: until the index names it, the stored index must find everything that it covers.
        """
        limit = edge(before).order
        names = {piece.name for piece in self.pieces()}
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
                statements.append(part if len(rows) == len(content) else StoredPart.of(rows))
        self.statements = statements
        return sorted(names - {piece.name for piece in self.pieces()})

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


def _difference(previous: Mapping[Name, str], snapshot: TableSnapshot) -> Iterator[StoredPart]:
    """Yield the parts that turn the tables before into those of a snapshot."""
    changed = [(*name, sql) for name, sql in snapshot.tables.items() if previous.get(name) != sql]
    gone = [(*name, _GONE) for name in previous if name not in snapshot.tables]
    left_out = [(*name, _LEFT_OUT) for name in sorted(snapshot.left_out or ())]
    rows: list[tuple[str, str, str | int]] = [*changed, *gone, *left_out]
    for first in range(0, len(rows), _TABLES):
        numbers: dict[str, int] = {}
        tables = [
            (schema, table, numbers.setdefault(what, len(numbers)) if isinstance(what, str) else what)
            for schema, table, what in rows[first : first + _TABLES]
        ]
        yield StoredPart.of({"tables": tables, "definitions": list(numbers)})


def _names(part: StoredPart) -> list[str]:
    return [piece.name for piece in part.pieces]


def _text(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _key(record: Record) -> tuple[object, ...]:
    return (record.at.journal, record.at.offset, record.at.sub_index, record.table)


def _row(record: Record) -> list[object]:
    at, since = record.at, record.since
    return [*_at_row(at), record.schema, record.sql, record.table, place_of(since) if since else None]


def _record(row: Sequence[Any]) -> Record:
    return Record(_at(row), str(row[4]), str(row[5]), str(row[6]), from_place(row[7]) if row[7] else None)


def _at_row(at: LogPosition) -> list[object]:
    return [at.journal, at.offset, at.timestamp_ms, at.sub_index]


def _at(row: Sequence[Any]) -> LogPosition:
    return LogPosition(str(row[0]), int(row[1]), int(row[2]), sub_index=int(row[3]))
