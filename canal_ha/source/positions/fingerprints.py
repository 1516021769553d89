"""Fingerprints of the last delivered transactions, to find them in another server's binlog. Pure.

Journals, offsets, table ids and XIDs differ between servers. A replica keeps a transaction's times, origin and rows. So
a fingerprint is the second of the transaction's last rows, and a hash of its number of rows and its last rows. Equal
transactions can end in one second, so a run of several decides. A cursor carries fingerprints as text, its trail.
Small entries are not parsed or hashed until needed: `Recent` copies the last entries of each piece, and keeps no
segment, whose memory is reused. Of a large entry it keeps what `row_hashes` has taken from it.
A transaction's origin is the server that wrote it first. For each origin, the stream also remembers a place in that
server's own binlog, however old it is. Everything that the origin wrote before this place was delivered. The place is
the last transaction that was read from the origin's own binlog. If the stream read later ones from a replica, it is a
time: that of the last one, less the time by which a replica may have another order.
A replica that does not keep the order can commit a transaction behind many later ones. If the last transactions were
read from such a replica, the record NO_ORDER says so.
"""

from __future__ import annotations

import re
from array import array
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from canal_ha.model.segment import EntryKind, Segment, Source
from canal_ha.source.positions.row_hashes import ROWS, rows_of
from canal_ha.wire.proto import entry_protocol_pb2 as pb

KEPT = 16  # transactions in a cursor's trail: 216 characters of its JSON
ORIGINS = 8  # whose place is kept: 19 characters each
NO_ORDER = 0  # in the place of an origin; no server that can be read has this id
DISORDER_S = 60  # the most to expect of a replica that keeps the order; innodb_lock_wait_timeout is 50 s by default

_TIME_BYTES = 4
_HASH_BYTES = 6
_FINGERPRINT_BYTES = _TIME_BYTES + _HASH_BYTES
_ORIGIN_BYTES = 4
_COPIED_ENTRIES = 256  # most of a piece, its last ones
_COPIED_BYTES = 1 << 17  # of frames at most, but always those with the last ROWS rows
_ENTRIES_MOST = 4096  # copied in all pieces, unless there is only one piece
_BYTES_MOST = 1 << 20  # copied in all pieces
_ONLY_TIME = bytes(_HASH_BYTES)
_UNIT = re.compile(  # in the kinds of entries: from rows to the next end, without a begin between them, or a DDL
    b"%c[^%c%c]*%c|%c" % (EntryKind.ROWS, EntryKind.BEGIN, EntryKind.END, EntryKind.END, EntryKind.DDL)
)
_PIECES_MOST = 64  # that are not hashed; each takes memory, and garbage collections visit it
_SMALL_PIECES = 32  # if there are more, they are small, and the oldest ones are hashed before too few are left
_SMALL_ENTRIES = 32  # of a small piece
_COUNTED_ENTRIES = 256  # the last ones of a piece, whose ends of transactions are counted
_SMALL_BYTES = 1 << 14  # of a small segment
_NEW_PIECES = 32  # that are looked at together
_FROM_FIRST = (0,)  # the starts of one run
_END, _DDL = int(EntryKind.END), int(EntryKind.DDL)  # numbers are found faster than members


@dataclass(frozen=True, slots=True, order=True)
class Fingerprint:
    """One transaction or DDL statement, or any that is not older than a second.

    second: of its last rows, s since 1970, by the clock of its origin.
    digest: of its rows or its statement; zeros: any.
    """

    second: int
    digest: bytes

    @classmethod
    def any_since(cls, second: int) -> Fingerprint:
        """Return that of any transaction whose last rows are not older than this, seconds since 1970."""
        return cls(second, _ONLY_TIME)

    @property
    def is_any(self) -> bool:
        """Whether it tells only a time."""
        return self.digest == _ONLY_TIME


class EntryLookup(Protocol):
    """Entries of a segment, by their indexes in it."""

    @property
    def timestamps(self) -> Sequence[int]:
        """Times of the entries, ms since 1970."""

    @property
    def hashed_rows(self) -> Mapping[int, tuple[bytes, ...]]:
        """See Segment."""

    def entry(self, index: int, /) -> bytes:
        """Return the serialized entry. Raises LookupError if it was not kept."""


class Copied(NamedTuple):
    """Some consecutive entries of a segment, counted from 0. Those from `kept` on are copied, without `hashed_rows`.

    A small piece has few objects that a garbage collection visits: it forgets tuples of numbers once it has seen them.
    ended: how many transactions with rows and DDL statements end here, at least.
    frames: of the copied entries. The ends of theirs and of their entries are counted from `before` of both, in bytes.
    """

    source: Source
    run_starts: Sequence[int]
    run_server_ids: Sequence[int]
    kinds: bytes
    row_counts: Sequence[int]
    timestamps: Sequence[int]
    ended: int
    kept: int
    frames: bytes
    ends: Sequence[int]
    entry_ends: Sequence[int]
    before: tuple[int, int]
    hashed_rows: Mapping[int, tuple[bytes, ...]]

    @classmethod
    def of(cls, segment: Segment, first: int, last: int) -> Copied:
        """Copy the entries while the segment still owns its frames. Of a large transaction copy only the last rows.

        Those of the last transaction of each origin are always copied.
        """
        if first == 0 and last == len(segment):
            if segment.copied is not None:
                whole: Copied = segment.copied
                return whole
            if last <= _SMALL_ENTRIES and len(segment.run_starts) == 1 and not segment.hashed_rows:
                return cls._of_small(segment)
        ends = segment.ends
        kept = min([_rows_before(segment.row_counts, first, end) for end in _last_of_origins(segment, first, last)])
        kinds = bytes(segment.kinds[first:last])
        if kinds.rfind(EntryKind.END, 0, -1) >= 0 or kinds.rfind(EntryKind.DDL, 0, -1) >= 0:
            most = max(first, last - _COPIED_ENTRIES)
            kept = min(kept, bisect_left(ends, ends[last - 1] - _COPIED_BYTES, most, last))
        hashed = segment.hashed_rows
        if hashed:
            stops = [index for index in sorted(hashed) if kept <= index < last]
            spans = zip([kept, *(index + 1 for index in stops)], [*stops, last], strict=True)
            frames = b"".join([segment.frames_view(start, stop) for start, stop in spans])
            hashed = {index - first: rows for index, rows in hashed.items() if first <= index < last}
        else:
            frames = bytes(segment.frames_view(kept, last))
        run_starts, run_server_ids = _runs(segment, first, last)
        return cls(
            segment.source,
            run_starts,
            run_server_ids,
            kinds,
            _part(segment.row_counts, first, last),
            _part(segment.timestamps, first, last),
            len(_UNIT.findall(kinds, max(0, last - first - _COUNTED_ENTRIES))),
            kept - first,
            frames,
            _part(ends, kept, last),
            _part(segment.entry_ends, kept, last),
            (ends[kept - 1], segment.entry_ends[kept - 1]) if kept else (0, 0),
            hashed,
        )

    @classmethod
    def _of_small(cls, segment: Segment) -> Copied:
        """Return what `of` makes of a segment with few entries, all of one origin: nearly all are like that."""
        kinds, ends, entry_ends = bytes(segment.kinds), segment.ends, segment.entry_ends
        last = len(kinds)
        kept = _rows_before(segment.row_counts, 0, last) if segment.row_ends[-1] > ROWS else 0
        if kept and (kinds.rfind(_END, 0, -1) >= 0 or kinds.rfind(_DDL, 0, -1) >= 0):
            kept = min(kept, bisect_left(ends, ends[-1] - _COPIED_BYTES))
        return cls(
            segment.source,
            _FROM_FIRST,
            tuple(segment.run_server_ids),
            kinds,
            tuple(segment.row_counts),
            tuple(segment.timestamps),
            _ended(kinds),
            kept,
            bytes(segment.frames_view(kept, last)),
            tuple(ends[kept:]),
            tuple(entry_ends[kept:]),
            (ends[kept - 1], entry_ends[kept - 1]) if kept else (0, 0),
            segment.hashed_rows,
        )

    @property
    def origins(self) -> set[int]:
        """The servers that first wrote these entries."""
        return set(self.run_server_ids)

    def units(self) -> list[int]:
        """Return the origins of the transactions with rows here and the DDL statements, if they end here."""
        origins = self.run_server_ids
        return [origins[self.run_of(found.end() - 1)] for found in _UNIT.finditer(self.kinds)]

    def run_of(self, index: int) -> int:
        """See Segment."""
        return bisect_right(self.run_starts, index) - 1

    def entry(self, index: int) -> bytes:
        """See EntryLookup."""
        at = index - self.kept
        if not 0 <= at < len(self.ends):
            raise LookupError(index)
        end = self.ends[at] - self.before[0]
        for left_out in self.hashed_rows:
            if self.kept <= left_out < index:
                other = left_out - self.kept
                end -= self.ends[other] - (self.ends[other - 1] if other else self.before[0])
        size = self.entry_ends[at] - (self.entry_ends[at - 1] if at else self.before[1])
        return self.frames[end - size : end]


_KINDS_OF, _FRAMES_OF = attrgetter("kinds"), attrgetter("frames")
_ENDED_OF, _SERVERS_OF = attrgetter("ended"), attrgetter("run_server_ids")


def keep_copy(segment: Segment, made: Copied | None = None) -> None:
    """Give a segment its copy, before other threads get it, so that they make none.

    made: the copy of a segment with the same source and entries; None makes one.
    """
    object.__setattr__(segment, "copied", made or Copied.of(segment, 0, len(segment)))


def keep_small_copy(segment: Segment) -> None:
    """Give a segment that is small its copy, which it may have as long as it is in a ring, unless it has one."""
    if segment.copied is None and segment.ends[-1] <= _SMALL_BYTES:
        keep_copy(segment, Copied.of(segment, 0, len(segment.ends)))


@lru_cache(256)
def _ended(kinds: bytes) -> int:
    """Return how many transactions with rows and DDL statements end among a few entries."""
    return len(_UNIT.findall(kinds))


def _part(numbers: array[int], first: int, last: int) -> Sequence[int]:
    part = numbers[first:last]
    return tuple(part) if last - first <= _SMALL_ENTRIES else part


def _runs(segment: Segment, first: int, last: int) -> tuple[Sequence[int], Sequence[int]]:
    """Return the starts of the runs in first..last, counted from `first`, and their servers."""
    starts, servers = segment.run_starts, segment.run_server_ids
    if len(starts) == 1:
        return _FROM_FIRST, tuple(servers)
    begin, end = segment.run_of(first), segment.run_of(last - 1) + 1
    return [0, *(start - first for start in starts[begin + 1 : end])], servers[begin:end]


def _last_of_origins(segment: Segment, first: int, last: int) -> list[int]:
    """Return behind which entries of first..last the last ones of each origin end, the newest first."""
    origins = segment.run_server_ids
    if origins.count(origins[0]) == len(origins):
        return [last]
    found: dict[int, int] = {}
    for run in range(segment.run_of(last - 1), segment.run_of(first) - 1, -1):
        found.setdefault(origins[run], last)
        last = segment.run_starts[run]
    return list(found.values())


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

    @property
    def origin(self) -> int:
        """Server id where it was first written."""
        return self.entries.run_server_ids[self.entries.run_of(self.index)]

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
        counts = entries.row_counts
        for index, kind in enumerate(entries.kinds):
            if kind == EntryKind.ROWS:
                self._rows += counts[index]
                self._tail.append((entries, index))
            elif kind == EntryKind.BEGIN:
                self.forget()
            elif kind == EntryKind.DDL:
                yield Unit(entries, index, 0, ())
            elif kind == EntryKind.END:
                if self._rows:
                    yield Unit(entries, index, self._rows, tuple(reversed(self._tail)))
                self.forget()

    def skip(self, copied: Copied) -> None:
        """Pass the next entries without yielding their units."""
        kinds, last = copied.kinds, len(copied.kinds)
        outside = max(kinds.rfind(EntryKind.BEGIN), kinds.rfind(EntryKind.END))
        if outside >= 0:
            self.forget()
        first = outside + 1
        if first == last:
            return
        self._rows += sum(copied.row_counts[first:last])
        rows = (index for index in range(last - 1, first - 1, -1) if kinds[index] == EntryKind.ROWS)
        self._tail.extend((copied, index) for index in reversed([*islice(rows, ROWS)]))

    def forget(self) -> None:
        """Begin outside a transaction."""
        self._rows = 0
        self._tail.clear()


class Recent:
    """The last delivered transactions of one stream. One thread."""

    def __init__(self, start: str = "", origins: str = "", kept: int = KEPT, pieces_most: int = _PIECES_MOST) -> None:
        """Begin behind those of a cursor.

        start: its trail.
        origins: its last transactions of each origin.
        kept: how many of the last transactions to keep.
        pieces_most: how many added pieces to keep as they are. Beyond that, the oldest transactions are hashed.
        """
        self._kept = kept
        self._pieces_most = pieces_most
        # as bytes, which no garbage collection visits
        self._fingerprints: deque[bytes] = deque(map(_raw, from_text(start)), maxlen=kept)
        self._last_of = last_from_text(origins)
        self._units = Units()
        self._pieces: deque[Copied] = deque()
        self._new: list[Copied] = []  # behind them, not looked at yet
        self._at_once = _NEW_PIECES if pieces_most >= 2 * kept else 1  # if it is less, pieces are hashed one by one
        self._entries = 0
        self._bytes = 0
        self._ended = 0  # units in them, at least

    def add(self, segment: Segment, first: int = 0, last: int | None = None) -> None:
        """Add the entries that were delivered next."""
        if segment.copied is not None and not first and last is None:
            self.add_copy(segment.copied)
            return
        last = len(segment) if last is None else last
        if first != last:
            self.add_copy(Copied.of(segment, first, last))

    @staticmethod
    def copy(segment: Segment, first: int, last: int) -> Copied:
        """Copy what `add_copy` needs of entries being delivered, at least one. The copy keeps none of their frames."""
        return Copied.of(segment, first, last)

    @staticmethod
    def copies(pieces: Sequence[tuple[Segment, int, int]]) -> list[Copied]:
        """Copy what `add_copies` needs of several pieces, each as for `copy`."""
        return [
            segment.copied
            if segment.copied is not None and not first and last == len(segment.ends)
            else Copied.of(segment, first, last)
            for segment, first, last in pieces
        ]

    def add_copies(self, pieces: Sequence[Copied]) -> None:
        """Add the entries of several pieces that were delivered next."""
        new = self._new
        if self._at_once == 1:
            for piece in pieces:
                self.add_copy(piece)
            return
        new += pieces
        if len(new) >= self._at_once or sum(map(len, map(_FRAMES_OF, pieces))) > _SMALL_BYTES:
            self._take_in()

    def add_copy(self, piece: Copied) -> None:
        """Add the entries that were delivered next, as copied. Most calls do no more, because their caller waits."""
        new = self._new
        new.append(piece)
        if len(new) >= self._at_once or len(piece.frames) > _SMALL_BYTES:
            self._take_in()

    def _take_in(self) -> None:
        """Count the new pieces among the others, and keep no more than allowed.

        It drops many at once, or hashes one, or few: others wait for the interpreter.
        """
        pieces, new = self._pieces, self._new
        self._new = []
        pieces.extend(new)
        self._entries += sum(map(len, map(_KINDS_OF, new)))
        self._bytes += sum(map(len, map(_FRAMES_OF, new)))
        self._ended += sum(map(_ENDED_OF, new))
        count = len(pieces) - self._pieces_most
        if self._entries > _ENTRIES_MOST or self._bytes > _BYTES_MOST:
            count = max(count, len(new))
        if 1 < count < len(pieces):
            self._drop_many(count)
        while len(pieces) > self._pieces_most:
            self._keep_fewer()
        while len(pieces) > 1 and (self._entries > _ENTRIES_MOST or self._bytes > _BYTES_MOST):
            if len(pieces) > _SMALL_PIECES:
                self._keep_fewer()
            elif any(map(_ends_unit, islice(reversed(pieces), len(pieces) - 1))):
                self._drop()
            else:
                self._hash()  # what comes before a transaction that is larger than all that is kept
                return

    def _drop_many(self, count: int) -> None:
        """Drop the oldest pieces if all are of one origin, and enough transactions end in the others."""
        oldest, newest = list(islice(self._pieces, count)), self._pieces[-1]
        ended = sum(map(_ENDED_OF, oldest))
        one_origin = list(map(_SERVERS_OF, oldest)) == [newest.run_server_ids] * count and len(newest.run_starts) == 1
        if self._ended - ended > self._kept and oldest[-1].kinds[-1] == _END and one_origin:
            for _ in oldest:
                self._pieces.popleft()
            self._entries -= sum(map(len, map(_KINDS_OF, oldest)))
            self._bytes -= sum(map(len, map(_FRAMES_OF, oldest)))
            self._ended -= ended
            self._fingerprints.clear()
            self._units.forget()

    def _keep_fewer(self) -> None:
        """Drop the oldest piece, or hash its transactions if fewer than `kept` would end in the others."""
        oldest = self._pieces[0]
        if self._ended - oldest.ended > self._kept:
            if oldest.kinds[-1] == _END and _one_origin(oldest, self._pieces[-1]):  # the usual case, in few steps
                self._pop()
                self._fingerprints.clear()
                self._units.forget()
            else:
                self._drop()
        else:
            for unit in self._units.feed(self._pop()):
                self._remember(unit)

    def _pop(self) -> Copied:
        piece = self._pieces.popleft()
        self._entries -= len(piece.kinds)
        self._bytes -= len(piece.frames)
        self._ended -= piece.ended
        return piece

    def _drop(self) -> None:
        """Pass the oldest piece; remember the last transactions of the origins that no other piece has."""
        piece = self._pop()
        self._fingerprints.clear()  # they belong to transactions before a gap
        newest = self._pieces[-1]
        # nearly all pieces have the one origin that the newest has, and need no sets
        gone = set[int]() if _one_origin(piece, newest) else piece.origins - newest.origins
        if gone:
            gone = gone.difference(*(other.origins for other in self._pieces))
        if not gone:
            self._units.skip(piece)
            return
        last = {unit.origin: unit for unit in self._units.feed(piece)}
        for origin in gone & last.keys():
            self._learn(last[origin])

    def fingerprints(self) -> tuple[Fingerprint, ...]:
        """Return the fingerprints of the last transactions that ended, oldest first."""
        self._hash()
        return tuple(map(_fingerprint, self._fingerprints))

    def _hash(self) -> None:
        """Make fingerprints of the pieces and forget the pieces."""
        if self._new:
            self._take_in()
        units: deque[Unit[Copied]] = deque()
        older: dict[int, Unit[Copied]] = {}  # by origin, before those
        for piece in self._newest():
            for unit in self._units.feed(piece):
                units.append(unit)
                if len(units) > self._kept:
                    past = units.popleft()
                    older[past.origin] = past
        self._pieces.clear()
        self._entries = self._bytes = self._ended = 0
        for origin in older.keys() - {unit.origin for unit in units}:
            self._learn(older[origin])
        for unit in units:
            self._remember(unit)

    def _remember(self, unit: Unit[Copied]) -> None:
        """Add the fingerprint of the next unit, or begin anew behind it if it cannot be hashed."""
        fingerprint = self._learn(unit)
        if fingerprint:
            self._fingerprints.append(_raw(fingerprint))
        else:
            self._fingerprints.clear()  # there is a gap

    def last_of_origins(self) -> dict[int, Fingerprint]:
        """Return, by server id, up to which transaction of each origin all were delivered, in the origin's own order.

        That one was delivered too, unless it is any since a time. NO_ORDER is among the ids if the last transactions
        were read from a replica that does not keep the order. As of the last call of `fingerprints` or `trail`.
        """
        return dict(self._last_of)

    def _learn(self, unit: Unit[Copied]) -> Fingerprint | None:
        """Return the fingerprint of a unit that comes next of its origin; None if too little of it was copied."""
        origin, source = unit.origin, unit.entries.source
        if source.keeps_order:
            self._last_of.pop(NO_ORDER, None)
        elif origin != source.server_id:
            self._keep(NO_ORDER, Fingerprint.any_since(unit.second))
        try:
            fingerprint = unit.fingerprint()
        except LookupError:
            return None
        if origin == source.server_id:
            self._keep(origin, fingerprint)
        elif source.keeps_order:
            last = self._last_of.get(origin)
            since = Fingerprint.any_since(max(0, fingerprint.second - DISORDER_S))
            self._keep(origin, since if last is None or last.second < since.second else last)
        return fingerprint

    def _keep(self, origin: int, last: Fingerprint) -> None:
        self._last_of.pop(origin, None)
        self._last_of[origin] = last
        if len(self._last_of) > ORIGINS:
            del self._last_of[next(iter(self._last_of))]

    def _newest(self) -> list[Copied]:
        """Return the last pieces: with the last `kept` units, the last of each origin, and the unit before them."""
        missing = set[int]().union(*(piece.origins for piece in self._pieces))
        found = 0
        newest: list[Copied] = []
        unsure: list[int] = []  # the origin of the first unit in `newest`, which may begin in an earlier piece
        for piece in reversed(self._pieces):
            newest.append(piece)
            ended = piece.units()
            if not ended:
                continue
            found += len(ended)
            missing.difference_update(unsure, ended[1:])
            unsure = ended[:1]
            if piece.kinds[0] == EntryKind.BEGIN:  # not every server writes it
                missing.difference_update(unsure)
            if found > self._kept and not missing:
                break
        newest.reverse()
        return newest

    def trail(self) -> str:
        """Return the fingerprints as a cursor carries them."""
        return to_text(self.fingerprints())

    def origins(self) -> str:
        """Return `last_of_origins` as a cursor carries them."""
        return last_to_text(self._last_of)


def _one_origin(piece: Copied, newest: Copied) -> bool:
    """Return whether a piece has one run, of the origin of the newest piece."""
    return len(piece.run_starts) == 1 and piece.run_server_ids == newest.run_server_ids


def _ends_unit(piece: Copied) -> bool:
    """Return whether a transaction or statement ends in a piece."""
    return EntryKind.END in piece.kinds or EntryKind.DDL in piece.kinds


def to_text(fingerprints: Iterable[Fingerprint]) -> str:
    """Return fingerprints as text of the URL-safe base64 alphabet."""
    return _text(map(_raw, fingerprints))


def from_text(trail: str) -> tuple[Fingerprint, ...]:
    """Return the fingerprints in a cursor's trail; () if the text is not a trail."""
    return tuple(map(_fingerprint, _records(trail, _FINGERPRINT_BYTES)))


def last_to_text(last_of: Mapping[int, Fingerprint]) -> str:
    """Return fingerprints, each behind the server id of its origin, in the same alphabet."""
    return _text(origin.to_bytes(_ORIGIN_BYTES, "big") + _raw(each) for origin, each in last_of.items())


def last_from_text(origins: str) -> dict[int, Fingerprint]:
    """Return the fingerprints by origin in a text of `last_to_text`; {} if it is another text."""
    records = _records(origins, _ORIGIN_BYTES + _FINGERPRINT_BYTES)[-ORIGINS:]
    return {int.from_bytes(each[:_ORIGIN_BYTES], "big"): _fingerprint(each[_ORIGIN_BYTES:]) for each in records}


def _raw(fingerprint: Fingerprint) -> bytes:
    return (fingerprint.second & 0xFFFFFFFF).to_bytes(_TIME_BYTES, "big") + fingerprint.digest


def _fingerprint(raw: bytes) -> Fingerprint:
    return Fingerprint(int.from_bytes(raw[:_TIME_BYTES], "big"), raw[_TIME_BYTES:])


def _text(records: Iterable[bytes]) -> str:
    return urlsafe_b64encode(b"".join(records)).decode().rstrip("=")


def _records(text: str, size: int) -> list[bytes]:
    """Return the records of `size` bytes in a text; [] if it does not consist of them."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (Base64Error, ValueError):
        return []
    return [] if len(raw) % size else [raw[at : at + size] for at in range(0, len(raw), size)]


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
