"""The trail of a stream: by what the last transactions that were delivered are known again on another server. Pure.

Journals, offsets, table ids and XIDs are a server's own. A replica keeps of a transaction its times, its origin and its
rows, so a transaction is known by the second of its end and a hash of how many rows it had and what the last of them
were. Equal transactions in one second exist; a run of several is what counts. Nothing is parsed or hashed until it is
asked for: `Recent` copies the last entries of each piece, and keeps no segment, whose memory is to be used again.
"""

from __future__ import annotations

from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Generic, NamedTuple, Protocol, TypeVar

from canal_ha.model.segment import EntryKind, Segment
from canal_ha.wire.proto import entry_protocol_pb2 as pb

KEPT = 16  # transactions in a cursor's trail: 216 characters of its JSON
ROWS = 4  # of a transaction's rows, the last ones, are looked at

_TIME_BYTES = 4
_HASH_BYTES = 6
_MARK_BYTES = _TIME_BYTES + _HASH_BYTES
_COPIED_ENTRIES = 256  # of a piece, the last ones, and at most
_COPIED_BYTES = 1 << 17  # bytes of frames, but always what holds the last ROWS rows
_ENTRIES_MOST = 4096  # looked back over, at least one piece
_BYTES_MOST = 1 << 20  # copied


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """One transaction, or DDL statement. second: of its end, s since 1970, by the clock of the server of its origin."""

    second: int
    digest: bytes


class EntryLookup(Protocol):
    """Holds entries of a segment, under their indexes in it."""

    def entry(self, index: int, /) -> bytes:
        """The serialized Entry. Raises LookupError where it was not kept."""


class Copied(NamedTuple):
    """Entries first..last of a segment (last exclusive), of which those from `kept` on are copied. The arrays are the
    segment's.
    """

    kinds: bytes | bytearray
    row_counts: array[int]
    timestamps: array[int]
    ends: array[int]
    entry_ends: array[int]
    first: int
    last: int
    kept: int
    frames: bytes

    @classmethod
    def of(cls, segment: Segment, first: int, last: int) -> Copied:
        """While the frames are still the segment's. Of one large transaction only what is looked at is copied."""
        ends = segment.ends
        kept = _rows_before(segment.row_counts, first, last)
        kinds = segment.kinds
        if kinds.rfind(EntryKind.END, first, last - 1) >= 0 or kinds.rfind(EntryKind.DDL, first, last - 1) >= 0:
            most = max(first, last - _COPIED_ENTRIES)
            kept = min(kept, bisect_left(ends, ends[last - 1] - _COPIED_BYTES, most, last))
        frames = bytes(segment.frames_view(kept, last))
        return cls(kinds, segment.row_counts, segment.timestamps, ends, segment.entry_ends, first, last, kept, frames)

    def entry(self, index: int) -> bytes:
        """See Entries."""
        if not self.kept <= index < self.last:
            raise LookupError(index)
        end = self.ends[index] - (self.ends[self.kept - 1] if self.kept else 0)
        size = self.entry_ends[index] - (self.entry_ends[index - 1] if index else 0)
        return self.frames[end - size : end]


def _rows_before(row_counts: array[int], first: int, last: int) -> int:
    """Where, in first..last, the last ROWS rows before `last` begin."""
    rows = 0
    while last > first and rows < ROWS:
        last -= 1
        rows += row_counts[last]
    return last


Held = TypeVar("Held", Segment, Copied)


@dataclass(frozen=True, slots=True)
class Unit(Generic[Held]):
    """A transaction or DDL statement, ended by entry `index` of `entries`. tail: who holds row entries, and their
    indexes, the last one first.
    """

    entries: Held
    index: int
    rows: int
    tail: tuple[tuple[EntryLookup, int], ...]

    @property
    def second(self) -> int:
        """When it ended."""
        return self.entries.timestamps[self.index] // 1000

    def mark(self) -> Fingerprint:
        """By what it is known."""
        return Fingerprint(self.second, _digest(self))


@dataclass(slots=True)
class Units:
    """Cuts entries into units, piece after piece, from a transaction's begin on. Transactions without rows are none."""

    _rows: int = 0
    _tail: deque[tuple[EntryLookup, int]] = field(default_factory=lambda: deque(maxlen=ROWS))

    def feed(self, entries: Held) -> Iterator[Unit[Held]]:
        """The units that end in a segment, or among those of its entries that were copied."""
        first, last = (entries.first, entries.last) if isinstance(entries, Copied) else (0, len(entries))
        counts, kinds = entries.row_counts, entries.kinds
        for index in range(first, last):
            kind = kinds[index]
            if kind == EntryKind.ROWS:
                self._rows += counts[index]
                self._tail.append((entries, index))
            elif kind == EntryKind.BEGIN:
                self._forget()
            elif kind == EntryKind.DDL:
                yield Unit(entries, index, 0, ())
            elif kind == EntryKind.END:
                if self._rows:
                    yield Unit(entries, index, self._rows, tuple(reversed(self._tail)))
                self._forget()

    def skip(self, copied: Copied) -> None:
        """These entries come next, and nobody asks for what ends among them."""
        kinds, first, last = copied.kinds, copied.first, copied.last
        outside = max(kinds.rfind(EntryKind.BEGIN, first, last), kinds.rfind(EntryKind.END, first, last))
        if outside >= 0:
            self._forget()
            first = outside + 1
        if first < last:
            self._rows += sum(copied.row_counts[first:last])

    def _forget(self) -> None:
        self._rows = 0
        self._tail.clear()


class Recent:
    """What one stream delivered last. start: the trail of where it began; kept: marks to keep. One thread."""

    def __init__(self, start: str = "", kept: int = KEPT) -> None:
        self._kept = kept
        self._marks: deque[Fingerprint] = deque(marks(start), maxlen=kept)
        self._units = Units()
        self._pieces: deque[Copied] = deque()
        self._entries = 0
        self._bytes = 0

    def add(self, segment: Segment, first: int = 0, last: int | None = None) -> None:
        """These entries were delivered next."""
        last = len(segment) if last is None else last
        if first != last:
            self.add_copy(Copied.of(segment, first, last))

    @staticmethod
    def copy(segment: Segment, first: int, last: int) -> Copied:
        """What `add_copy` needs of entries that are being delivered, at least one. It keeps none of their frames."""
        return Copied.of(segment, first, last)

    def add_copy(self, piece: Copied) -> None:
        """These entries were delivered next."""
        self._pieces.append(piece)
        self._entries += piece.last - piece.first
        self._bytes += len(piece.frames)
        while len(self._pieces) > 1 and (self._entries > _ENTRIES_MOST or self._bytes > _BYTES_MOST):
            dropped = self._pieces.popleft()
            self._entries -= dropped.last - dropped.first
            self._bytes -= len(dropped.frames)
            self._units.skip(dropped)
            self._marks.clear()  # they are of transactions before a gap

    def marks(self) -> tuple[Fingerprint, ...]:
        """Of the last transactions that ended, oldest first."""
        units: deque[Unit[Copied]] = deque(maxlen=self._kept)
        for piece in self._newest():
            units.extend(self._units.feed(piece))
        self._pieces.clear()
        self._entries = self._bytes = 0
        for unit in units:
            try:
                self._marks.append(unit.mark())
            except LookupError:
                self._marks.clear()  # a gap
        return tuple(self._marks)

    def _newest(self) -> list[Copied]:
        """The pieces in which the last `kept` units end, and one more, whose begin may be missing; or all of them."""
        found = 0
        newest: list[Copied] = []
        for piece in reversed(self._pieces):
            newest.append(piece)
            found += sum(1 for _ in Units().feed(piece))  # or more: of one that began before, some rows are not seen
            if found > self._kept:
                break
        newest.reverse()
        return newest

    def trail(self) -> str:
        """The marks as a cursor carries them."""
        return text(self.marks())


def text(trail: Iterable[Fingerprint]) -> str:
    """Marks as text of the base64 alphabet for URLs."""
    raw = b"".join((mark.second & 0xFFFFFFFF).to_bytes(_TIME_BYTES, "big") + mark.digest for mark in trail)
    return urlsafe_b64encode(raw).decode().rstrip("=")


def marks(trail: str) -> tuple[Fingerprint, ...]:
    """The marks of such a text; none of what is no trail, which then finds nothing."""
    try:
        raw = urlsafe_b64decode(trail + "=" * (-len(trail) % 4))
    except (Base64Error, ValueError):
        return ()
    if len(raw) % _MARK_BYTES:
        return ()
    pieces = (raw[at : at + _MARK_BYTES] for at in range(0, len(raw), _MARK_BYTES))
    return tuple(Fingerprint(int.from_bytes(piece[:_TIME_BYTES], "big"), piece[_TIME_BYTES:]) for piece in pieces)


def _digest(unit: Unit[Held]) -> bytes:
    """Over what every server writes alike: not over types and names of columns, which follow the table's history."""
    hashed = blake2b(digest_size=_HASH_BYTES)
    if not unit.rows:
        _, change = _parsed(unit.entries, unit.index)
        hashed.update(f"{change.eventType}\0{change.sql}".encode())
        return hashed.digest()
    hashed.update(b"%d" % unit.rows)
    wanted = ROWS
    for entries, index in unit.tail:
        header, change = _parsed(entries, index)
        rows = change.rowDatas[-wanted:]
        for row in reversed(rows):  # however they are spread over events
            hashed.update(f"\0{header.schemaName}.{header.tableName}\0{change.eventType}".encode())
            for side, columns in ((b"-", row.beforeColumns), (b"+", row.afterColumns)):
                hashed.update(side)
                for column in columns:
                    value = b"" if column.isNull else column.value.encode()
                    hashed.update(b"%d:%d:%d:" % (column.index, column.isNull, len(value)) + value)
        wanted -= len(rows)
        if wanted <= 0:
            break
    return hashed.digest()


def _parsed(entries: EntryLookup, index: int) -> tuple[pb.Header, pb.RowChange]:
    entry = pb.Entry.FromString(entries.entry(index))
    return entry.header, pb.RowChange.FromString(entry.storeValue)


class Matching:
    """Finds a trail among the units of another binlog, which come in their order.

    The newest mark that is found counts; what the trail has behind it is not there. Where a mark is found more than
    once, the longest run of the trail up to it counts, then the first: rather again than not at all.
    """

    def __init__(self, trail: Sequence[Fingerprint]) -> None:
        self._trail = trail
        self._seconds = {mark.second for mark in trail}
        self._places: dict[Fingerprint, list[int]] = {}
        for place, mark in enumerate(trail):
            self._places.setdefault(mark, []).append(place)
        self._runs: dict[int, int] = {}
        self._best = (-1, 0)
        self.found: Unit[Segment] | None = None

    @property
    def missing(self) -> int:
        """How many transactions of the trail come behind the one that was found."""
        return len(self._trail) - 1 - self._best[0]

    def see(self, unit: Unit[Segment]) -> None:
        """The next unit of the binlog."""
        mark = unit.mark() if unit.second in self._seconds else None
        places = self._places.get(mark, ()) if mark else ()
        self._runs = {place: self._runs.get(place - 1, 0) + 1 for place in places}
        for place, run in self._runs.items():
            if (place, run) > self._best:
                self._best = (place, run)
                self.found = unit
