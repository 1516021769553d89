"""Fingerprints of the last delivered transactions, to find them in another server's binlog. Pure.

Journals, offsets, table ids and XIDs differ between servers. A replica keeps a transaction's times, origin and rows. So
a fingerprint is the second of the transaction's last rows, and a hash of its number of rows and its last rows. Equal
transactions can end in one second, so a run of several decides. A cursor carries fingerprints as text, its trail.
Small entries are not parsed or hashed until needed: `Recent` copies the last entries of each piece, and keeps no
segment, whose memory is reused. Of a large entry it keeps what `row_hashes` has taken from it.
"""

from __future__ import annotations

from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from typing import Generic, NamedTuple, Protocol, TypeVar

from canal_ha.model.segment import EntryKind, Segment
from canal_ha.source.positions.row_hashes import ROWS, rows_of
from canal_ha.wire.proto import entry_protocol_pb2 as pb

KEPT = 16  # transactions in a cursor's trail: 216 characters of its JSON

_TIME_BYTES = 4
_HASH_BYTES = 6
_FINGERPRINT_BYTES = _TIME_BYTES + _HASH_BYTES
_COPIED_ENTRIES = 256  # most of a piece, its last ones
_COPIED_BYTES = 1 << 17  # of frames at most, but always those with the last ROWS rows
_ENTRIES_MOST = 4096  # copied in all pieces, unless there is only one piece
_BYTES_MOST = 1 << 20  # copied in all pieces


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """One transaction or DDL statement. second: of its last rows, s since 1970, by the clock of its origin."""

    second: int
    digest: bytes


class EntryLookup(Protocol):
    """Entries of a segment, by their indexes in it."""

    @property
    def timestamps(self) -> array[int]:
        """Times of the entries, ms since 1970."""

    @property
    def hashed_rows(self) -> Mapping[int, tuple[bytes, ...]]:
        """See Segment."""

    def entry(self, index: int, /) -> bytes:
        """Return the serialized entry. Raises LookupError if it was not kept."""


class Copied(NamedTuple):
    """Entries first..last of a segment (last exclusive); those from `kept` on are copied, without `hashed_rows`.

    The arrays are the segment's.
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
    hashed_rows: Mapping[int, tuple[bytes, ...]]

    @classmethod
    def of(cls, segment: Segment, first: int, last: int) -> Copied:
        """Copy the entries while the segment still owns its frames. Of a large transaction copy only the last rows."""
        ends = segment.ends
        kept = _rows_before(segment.row_counts, first, last)
        kinds = segment.kinds
        if kinds.rfind(EntryKind.END, first, last - 1) >= 0 or kinds.rfind(EntryKind.DDL, first, last - 1) >= 0:
            most = max(first, last - _COPIED_ENTRIES)
            kept = min(kept, bisect_left(ends, ends[last - 1] - _COPIED_BYTES, most, last))
        hashed = segment.hashed_rows
        stops = [index for index in sorted(hashed) if kept <= index < last]
        spans = zip([kept, *(index + 1 for index in stops)], [*stops, last], strict=True)
        frames = b"".join(segment.frames_view(start, stop) for start, stop in spans)
        return cls(
            kinds, segment.row_counts, segment.timestamps, ends, segment.entry_ends, first, last, kept, frames, hashed
        )

    def entry(self, index: int) -> bytes:
        """See EntryLookup."""
        if not self.kept <= index < self.last:
            raise LookupError(index)
        end = self.ends[index] - (self.ends[self.kept - 1] if self.kept else 0)
        for left_out in self.hashed_rows:
            if self.kept <= left_out < index:
                end -= self.ends[left_out] - (self.ends[left_out - 1] if left_out else 0)
        size = self.entry_ends[index] - (self.entry_ends[index - 1] if index else 0)
        return self.frames[end - size : end]


def _rows_before(row_counts: array[int], first: int, last: int) -> int:
    """Return the index in first..last where the last ROWS rows before `last` begin."""
    rows = 0
    while last > first and rows < ROWS:
        last -= 1
        rows += row_counts[last]
    return last


Held = TypeVar("Held", Segment, Copied)


@dataclass(frozen=True, slots=True)
class Unit(Generic[Held]):
    """A transaction or DDL statement, which entry `index` of `entries` ends.

    tail: its last row entries, the last one first, each with the object that holds it and its index.
    """

    entries: Held
    index: int
    rows: int
    tail: tuple[tuple[EntryLookup, int], ...]

    @property
    def second(self) -> int:
        """When its last rows were written, or its statement, seconds since 1970.

        Not when it was committed: a replica of MySQL gives the commit the time of the last rows.
        """
        holder, index = self.tail[0] if self.tail else (self.entries, self.index)
        return holder.timestamps[index] // 1000

    def fingerprint(self) -> Fingerprint:
        """Return its fingerprint."""
        return Fingerprint(self.second, _digest(self))


@dataclass(slots=True)
class Units:
    """Cuts consecutive pieces into units. A transaction without rows is not a unit."""

    _rows: int = 0
    _tail: deque[tuple[EntryLookup, int]] = field(default_factory=lambda: deque(maxlen=ROWS))

    def feed(self, entries: Held) -> Iterator[Unit[Held]]:
        """Yield the units that end in a segment, or among its copied entries."""
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
        """Pass the next entries without yielding their units."""
        kinds, first, last = copied.kinds, copied.first, copied.last
        outside = max(kinds.rfind(EntryKind.BEGIN, first, last), kinds.rfind(EntryKind.END, first, last))
        if outside >= 0:
            self._forget()
            first = outside + 1
        self._rows += sum(copied.row_counts[first:last])
        rows = (index for index in range(last - 1, first - 1, -1) if kinds[index] == EntryKind.ROWS)
        self._tail.extend((copied, index) for index in reversed([*islice(rows, ROWS)]))

    def _forget(self) -> None:
        self._rows = 0
        self._tail.clear()


class Recent:
    """The last delivered transactions of one stream. start: trail of its start; kept: how many to keep. One thread."""

    def __init__(self, start: str = "", kept: int = KEPT) -> None:
        self._kept = kept
        self._fingerprints: deque[Fingerprint] = deque(from_text(start), maxlen=kept)
        self._units = Units()
        self._pieces: deque[Copied] = deque()
        self._entries = 0
        self._bytes = 0

    def add(self, segment: Segment, first: int = 0, last: int | None = None) -> None:
        """Add the entries that were delivered next."""
        last = len(segment) if last is None else last
        if first != last:
            self.add_copy(Copied.of(segment, first, last))

    @staticmethod
    def copy(segment: Segment, first: int, last: int) -> Copied:
        """Copy what `add_copy` needs of entries being delivered, at least one. The copy keeps none of their frames."""
        return Copied.of(segment, first, last)

    def add_copy(self, piece: Copied) -> None:
        """Add the entries that were delivered next, as copied."""
        self._pieces.append(piece)
        self._entries += piece.last - piece.first
        self._bytes += len(piece.frames)
        while len(self._pieces) > 1 and (self._entries > _ENTRIES_MOST or self._bytes > _BYTES_MOST):
            if not any(map(_ends_unit, islice(reversed(self._pieces), len(self._pieces) - 1))):
                self.fingerprints()  # of what comes before a transaction that is larger than all that is kept
                return
            dropped = self._pieces.popleft()
            self._entries -= dropped.last - dropped.first
            self._bytes -= len(dropped.frames)
            self._units.skip(dropped)
            self._fingerprints.clear()  # they belong to transactions before a gap

    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """Return the fingerprints of the last transactions that ended, oldest first."""
        units: deque[Unit[Copied]] = deque(maxlen=self._kept)
        for piece in self._newest():
            units.extend(self._units.feed(piece))
        self._pieces.clear()
        self._entries = self._bytes = 0
        for unit in units:
            try:
                self._fingerprints.append(unit.fingerprint())
            except LookupError:
                self._fingerprints.clear()  # there is a gap
        return tuple(self._fingerprints)

    def _newest(self) -> list[Copied]:
        """Return the pieces in which the last `kept` units and the unit before them end, or all pieces."""
        found = 0
        newest: list[Copied] = []
        for piece in reversed(self._pieces):
            newest.append(piece)
            found += sum(1 for _ in Units().feed(piece))  # may count too few: a unit that began in an earlier piece
            if found > self._kept:
                break
        newest.reverse()
        return newest

    def trail(self) -> str:
        """Return the fingerprints as a cursor carries them."""
        return to_text(self.fingerprints())


def _ends_unit(piece: Copied) -> bool:
    """Return whether a transaction or statement ends in a piece."""
    kinds, first, last = piece.kinds, piece.first, piece.last
    return kinds.rfind(EntryKind.END, first, last) >= 0 or kinds.rfind(EntryKind.DDL, first, last) >= 0


def to_text(fingerprints: Iterable[Fingerprint]) -> str:
    """Return fingerprints as text of the URL-safe base64 alphabet."""
    raw = b"".join((each.second & 0xFFFFFFFF).to_bytes(_TIME_BYTES, "big") + each.digest for each in fingerprints)
    return urlsafe_b64encode(raw).decode().rstrip("=")


def from_text(trail: str) -> tuple[Fingerprint, ...]:
    """Return the fingerprints in a cursor's trail; () if the text is not a trail."""
    try:
        raw = urlsafe_b64decode(trail + "=" * (-len(trail) % 4))
    except (Base64Error, ValueError):
        return ()
    if len(raw) % _FINGERPRINT_BYTES:
        return ()
    pieces = (raw[at : at + _FINGERPRINT_BYTES] for at in range(0, len(raw), _FINGERPRINT_BYTES))
    return tuple(Fingerprint(int.from_bytes(piece[:_TIME_BYTES], "big"), piece[_TIME_BYTES:]) for piece in pieces)


def _digest(unit: Unit[Held]) -> bytes:
    hashed = blake2b(digest_size=_HASH_BYTES)
    if not unit.rows:
        change = pb.RowChange.FromString(pb.Entry.FromString(unit.entries.entry(unit.index)).storeValue)
        hashed.update(f"{change.eventType}\0{change.sql}".encode())
        return hashed.digest()
    hashed.update(b"%d" % unit.rows)
    wanted = ROWS
    for entries, index in unit.tail:
        rows = entries.hashed_rows.get(index)
        if rows is None:
            rows = rows_of(entries.entry(index))
        for row in rows[:wanted]:  # rows count, not how they are grouped into events
            hashed.update(row)
        wanted -= len(rows)
        if wanted <= 0:
            break
    return hashed.digest()
