"""The threads of one client's snapshot: each reads chunk after chunk over its connection and puts them into the stream.

`SnapshotReader` starts the threads and runs on them, except `start`, `stop` and `join`; `Junction` calls its functions
on the feed's thread, too. A thread connects when there is a part for it to read. When one has nothing to read, another
splits its part.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from canal_ha.config.model import InstanceConfig, SnapshotLimits
from canal_ha.decode.history.history import History
from canal_ha.decode.privacy import Protection
from canal_ha.errors import CanalError, RingClosed, SnapshotRefused, SourceUnavailable, TableMissing
from canal_ha.model.buffers import Buffers
from canal_ha.model.condition import check_names
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.model.snapshot import SnapshotState
from canal_ha.source.connection.backoff import Backoff
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.snapshot.junction import Junction, Opened, Watched
from canal_ha.source.snapshot.key import TableKey
from canal_ha.source.snapshot.keys import Key, TableKeys
from canal_ha.source.snapshot.local_time import repeated
from canal_ha.source.snapshot.marker import ending, marker
from canal_ha.source.snapshot.pace import Pace, Rate
from canal_ha.source.snapshot.progress import SnapshotPart, SnapshotProgress
from canal_ha.source.snapshot.result_set import RawRows, RowPiece, values_of
from canal_ha.source.snapshot.running import RunningSelects
from canal_ha.source.snapshot.source import (
    RESUME,
    Fetch,
    SelectTooLong,
    SnapshotSource,
    SnapshotTarget,
    StillLocked,
    TableChanged,
)
from canal_ha.source.snapshot.statements import concerns
from canal_ha.source.snapshot.transaction import BEFORE, SnapshotTransactions
from canal_ha.source.snapshot.watermark import Reached
from canal_ha.source.snapshot.window import Window
from canal_ha.source.snapshot.without_key import MakeDecoder, TableWithoutKey

MOST_STATEMENTS = 6  # that keep one chunk out of the stream, until the snapshot reports it
_COMES_BACK_S = 2.5  # for a table without its name: tools swap tables by DROP, or RENAME, and then another RENAME
_PIECE_BYTES = 1 << 20  # of a chunk's rows, as the server sends them, that enter the stream at once
_LIVE_PIECE_BYTES = 256 << 10  # the same while changes flow in the stream
_LIVE_AHEAD_BYTES = 64 << 10  # of the stream, that no GET has taken, when a piece enters while changes flow


@dataclass(frozen=True, slots=True)
class SnapshotRoute:
    """The server to read. config: of the destination; its master is the server. fetch: see SnapshotSource."""

    config: InstanceConfig
    fetch: Fetch


class _Unclear(Exception):
    """The stream brought a key that may be the one of another row of the chunk."""


class _ReaderStopped(Exception):
    """stop() was called."""


class SnapshotReader:
    """See the module."""

    def __init__(
        self,
        progress: SnapshotProgress,
        route: Callable[[], SnapshotRoute],
        junction: Junction,
        make_decoder: MakeDecoder,
        *,
        kept: Callable[[str, str], bool],
        protection: Callable[[str, str, str], Protection],
        limits: SnapshotLimits,
        failing: Callable[[CanalError, float], None],
        goes_on: Callable[[], None] = lambda: None,
        ended: Callable[[SnapshotState], None],
        begins_again: Callable[[Sequence[str]], None] = lambda tables: None,
        sorts: Callable[[str, Sequence[str]], None] = lambda table, key: None,
        await_taken: Callable[[int], None] = lambda most: None,
        go_on: Callable[[str, bool], str] = lambda table, gone: "",
        advice: str = RESUME,
        name: str = "",
        random: Callable[[], float] | None = None,
    ) -> None:
        """Make a reader that waits for `start`.

        progress: of an active snapshot, from what the client has acknowledged on.
        route: says what to read; asked before each connection, because the server may change.
        junction: takes the chunks.
        make_decoder: returns a decoder with the stream's filters and options.
        kept: whether the stream delivers the rows of a table, by schema and table.
        protection: how a column is kept from the client, by schema, table and name.
        limits: what it may ask of the server.
        failing: called with an error after which the reader tries again, and the seconds until then.
        goes_on: called when rows have come after such an error.
        ended: called with the state when an error ends the snapshot.
        begins_again: called with a table that is read again from its first row: it has another key now, or is gone.
        sorts: called with a large table that is read by sorting all that is left of it again and again, and its key.
        await_taken: see FeedRequest.
        go_on: says how the snapshot goes on behind a table at which it has failed; behind the error. It gets the table,
            and whether that is gone.
        advice: see SnapshotSource.target.
        name: of the threads.
        random: see Backoff.
        """
        self._progress = progress
        self._route = route
        self._junction = junction
        self._make_decoder = make_decoder
        self._kept = kept
        self._protection = protection
        self._limits = limits
        self._rate = Rate(limits.rows_per_s)
        self._pacing = threading.Lock()  # of the rate
        self._turn = threading.Lock()  # of the thread whose piece enters while changes flow
        self._begins_again = begins_again
        self._missing: dict[str, float] = {}  # tables, and since when, monotonic, s
        self._sorts = sorts
        self._told_sorts: set[str] = set()  # tables
        self._await_taken = await_taken
        self._buffers = Buffers()
        self._retries = _Retries(failing, goes_on)
        self._ended = ended
        self._go_on = go_on
        self._advice = advice
        self._random = random or Random().random
        self._stopping = threading.Event()
        self._stop_signal = StopSignal()
        self._selects = RunningSelects()
        self._watched: dict[tuple[str, TableKey], Watched] = {}  # by table and key
        names = [f"{name or f'snapshot-{progress.state.id}'}-{number}" for number in range(1, limits.connections + 1)]
        self._threads = [threading.Thread(target=self._run, name=each, daemon=True) for each in names]

    # ---- any thread

    def start(self) -> None:
        """Start the threads and return at once."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ask the threads to end, wake those that wait, and return at once. A full ring has to be closed, too."""
        self._stopping.set()
        self._progress.stop()
        self._junction.stop()
        self._stop_signal.end()
        self._selects.end()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the threads to end; return False if the time-out expires first."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(None if until is None else max(0.0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # ---- a thread of a connection

    def _run(self) -> None:
        source: SnapshotSource | None = None
        table: _KnownTable | None = None
        backoff = Backoff(self._random)
        failure: CanalError
        try:
            while part := self._progress.take():
                chunks = part.chunks
                try:
                    source = source or self._connected()
                    table = self._read(source, part, table)
                    backoff.reset()
                    continue
                except (_ReaderStopped, RingClosed):
                    return
                except TableMissing as error:
                    self._begin_again(part)  # another table may have the name soon, or when somebody resumes
                    failure = error
                except CanalError as error:
                    failure = error
                except Exception as error:
                    failure = SnapshotRefused(f"the snapshot {self._progress.state.id} failed: {error!r}")
                    failure.__cause__ = error
                finally:
                    self._progress.give_back(part)
                if self._stopping.is_set():
                    return
                if not failure.retryable and not self._may_come_back(failure, part):
                    if ended := self._progress.fail(self._told(failure, part)):
                        self._ended(ended)
                    return
                if source:
                    source.close()
                    source = table = None
                if part.chunks != chunks:
                    backoff.reset()
                delay_s = backoff.delay_s()
                self._retries.failed(failure, delay_s)
                self._stopping.wait(delay_s)
        finally:
            if source:
                source.close()

    def _told(self, failure: CanalError, part: SnapshotPart) -> str:
        """Return what a person reads about an error that ends the snapshot. part: that was being read."""
        tables = self._progress.state.tables
        gone = isinstance(failure, TableMissing)
        more = self._go_on(tables[part.range.table], gone) if part.range.table < len(tables) else ""
        return f"{failure}. {more}" if more else str(failure)

    def _may_come_back(self, failure: CanalError, part: SnapshotPart) -> bool:
        """Return whether a table has been missing for so short a time that another one may be about to get its name."""
        if not isinstance(failure, TableMissing):
            return False
        now = time.monotonic()
        return now - self._missing.setdefault(self._progress.state.tables[part.range.table], now) < _COMES_BACK_S

    def _begin_again(self, part: SnapshotPart) -> None:
        """Let the whole table of a part be read again."""
        table = self._progress.state.tables[part.range.table]
        if self._progress.begin_again(part):
            self._begins_again([table])

    def _connected(self) -> SnapshotSource:
        """Return a connection to the server that is read now."""
        route = self._route()
        source = SnapshotSource(
            route.config,
            route.fetch,
            opening=self._stop_signal.opened,
            select_s=self._limits.select_s,
            selects=self._selects,
        )
        self._progress.count(lambda table: source.estimate(*_names(table)))
        return source

    def _read(self, source: SnapshotSource, part: SnapshotPart, before: _KnownTable | None) -> _KnownTable | None:
        """Read a part to its end.

        before: what this returned for the last part that this connection has read.
        """
        tables = self._progress.state.tables
        if part.range.table == len(tables):
            self._finish(source)
            return None
        name = tables[part.range.table]
        table = before if before and before.name == name else self._looked_at(source, name)
        pace = table.pace
        whole = False  # the part is too small to be split
        locked = False  # the chunk has waited in vain for a lock
        again = 0  # times that the chunk was read in vain, because a statement came
        while self._progress.holds(part):
            target, key = table.target, table.target.key
            if key:
                self._progress.read_beside_others(part, key.names)
            places = [texts for texts in (part.range.after, part.range.until) if texts]
            if not all(key and key.continues(texts) for texts in places):
                self._begin_again(part)
                return None
            if key is None:
                self._read_alone(source, target, part)
                return None
            try:
                if not whole and self._progress.wanted:
                    middle = source.middle(target, part.range, pace.rows)
                    whole = middle is None or not self._progress.split(part, middle)
                self._read_chunk(source, target, key, table.transactions, part, pace)
                self._missing.pop(name, None)
                locked, again = False, 0
            except StillLocked as error:
                if locked:
                    raise SourceUnavailable(str(error)) from error
                locked = True
            except TableChanged as error:
                again += 1
                if again == MOST_STATEMENTS:
                    raise SourceUnavailable(
                        f"{name}: statements about the table come so often that no chunk of it can be read between two"
                        " of them: let them pause (one whose text the client may not see counts for every table)"
                    ) from error
                if again > 1:
                    pace.too_long()  # fewer rows take less time
                table = self._looked_at(source, name, pace)
            except _Unclear:
                pace.too_long()  # rows that nobody changes meanwhile come in a smaller chunk
            except SelectTooLong as error:
                if not pace.too_long():
                    raise SnapshotRefused(
                        f"{name}: the SELECT of one row takes longer than {self._limits.select_s:g} s"
                        " (canal.instance.snapshot.executionTime)"
                    ) from error
        return table

    def _looked_at(self, source: SnapshotSource, name: str, pace: Pace | None = None) -> _KnownTable:
        """Return a table as it is now. pace: that of the chunks before; a new one by default."""
        standing = self._junction.standing()
        if standing is None:
            raise _ReaderStopped
        source.check(*standing, self._pause)  # a standby that lags can lack the table, or a statement about it
        target = self._target(source, name)
        # with a condition, it counts the rows to look at, few of which may come
        limits = replace(self._limits, rows_per_s=0) if self._progress.state.where.get(name) else self._limits
        sorts = target.key is not None and not target.key.index
        pace = pace or Pace(limits, target.size_bytes // target.count if target.count else 0, sorts=sorts)
        if sorts and target.size_bytes > limits.bytes_most and name not in self._told_sorts:
            self._told_sorts.add(name)
            self._sorts(name, target.key.names if target.key else ())
        return _KnownTable(name, target, self._transactions(source, target), pace)

    def _read_alone(self, source: SnapshotSource, target: SnapshotTarget, part: SnapshotPart) -> None:
        """Read a table without a key, if no other one is being read."""
        if not self._progress.read_alone(part):
            return
        table = TableWithoutKey(
            source, target, self._junction, self._make_decoder, self._limits, self._pause, self._rest
        )
        for state in table.read(self._progress.state, part.range):
            if not self._progress.put_piece(part, state):
                return
            self._missing.pop(target.name, None)
            self._retries.went_on()

    def _target(self, source: SnapshotSource, table: str) -> SnapshotTarget:
        """Return a table as it is now. Raises SnapshotRefused."""
        schema, name = _names(table)
        if not self._kept(schema, name):
            raise SnapshotRefused(
                f"{table}: no row of it would reach the client, because of its filter, the destination's, or its"
                " account's: let the client subscribe with a filter that keeps the table, or leave the table out"
            )
        target = source.target(schema, name, without_key=self._progress.state.without_key, advice=self._advice)
        for column in target.key.names if target.key else ():
            if self._protection(schema, name, column) >= Protection.MASK:
                raise SnapshotRefused(
                    f"{schema}.{name}: the client does not see column {column} of the key (a filter of fields, or"
                    " canal.instance.privacy), so its rows cannot be told apart: leave the table out"
                )
        self._check_condition(target)
        return target

    def _transactions(self, source: SnapshotSource, target: SnapshotTarget) -> SnapshotTransactions:
        """Return what makes the segments of a table."""
        name = source.name
        history = History(lambda schema, table: target.definition).view(None)
        return SnapshotTransactions(
            target.table, self._progress.state.id, lambda at: self._make_decoder(name, at, history), self._buffers
        )

    def _check_condition(self, target: SnapshotTarget) -> None:
        """Raise SnapshotRefused if the rows that come would tell values of a protected column."""
        schema = target.table.schema
        condition = self._progress.state.where.get(target.name, "")
        columns = [each.name for each in schema.columns] if condition else []
        hidden = [
            column for column in columns if self._protection(schema.schema, schema.name, column) > Protection.NONE
        ]
        check_names(condition, target.name, columns, hidden)

    def _watching(self, table: str, key: TableKey) -> Watched:
        """Return what the windows on a table look for; the same for all of them."""
        schema, name = _names(table)
        keys = TableKeys(schema, name, key.names)
        made = Watched(
            partial(_changed, keys), partial(concerns, schema=schema, table=name), partial(_shared, key.timestamps)
        )
        return self._watched.setdefault((table, key), made)

    def _read_chunk(
        self,
        source: SnapshotSource,
        target: SnapshotTarget,
        key: TableKey,
        transactions: SnapshotTransactions,
        part: SnapshotPart,
        pace: Pace,
    ) -> None:
        """Read one chunk and put it into the stream.

        key, transactions: of the target.
        Raises TableChanged, SelectTooLong, _Unclear, and ends of the reader.
        """
        opened = self._junction.open(self._watching(target.name, key))
        if opened is None:
            raise _ReaderStopped
        try:
            self._read_window(source, target, key, transactions, part, pace, opened)
        finally:
            self._junction.close(opened.window)

    def _read_window(
        self,
        source: SnapshotSource,
        target: SnapshotTarget,
        key: TableKey,
        transactions: SnapshotTransactions,
        part: SnapshotPart,
        pace: Pace,
        opened: Opened,
    ) -> None:
        """Read one chunk in a window. See _read_chunk."""
        began = time.monotonic()
        window, reached = opened.window, opened.brought
        source.check(reached, opened.before, self._pause)
        keys = pace.rows
        limit = min(keys, self._limits.chunk_rows)
        read = source.read(
            target,
            part.range,
            self._progress.state.where.get(target.name, ""),
            limit,
            self._limits.bytes_most,
            reached,
            self._pause,
            most_keys=keys,
        )
        rows = read.rows
        ended = rows.complete and rows.count < limit  # no row is left up to read.until
        pace.took(keys if ended and read.until else rows.count, rows.size, read.seconds, locked=read.locked)
        chunk = _Chunk(rows, target, key, source.name, transactions)
        if window.recorded:
            self._junction.narrow(window, chunk.keys(opened.at))
        for piece in rows.pieces(self._piece_bytes):
            last = piece.first + piece.count == rows.count
            after = read.until if last and ended else key.texts(values_of(piece))
            if not self._put(window, read.end, partial(self._made, chunk, window, part, piece, after)):
                self._rest(piece.first, began)
                self._not_put(window, read.end)
                return
            self._retries.went_on()
        self._rest(rows.count, began)

    def _piece_bytes(self) -> int:
        """Return how many bytes of rows enter the stream at once."""
        return _LIVE_PIECE_BYTES if self._junction.flows else _PIECE_BYTES

    def _put(self, window: Window, end: Reached, made: Callable[[LogPosition], Segment | None]) -> bool:
        """Put a piece of a chunk into the stream; see Junction.put.

        While changes flow, the client gets them soon: only a little of the snapshot is before them.
        """
        if not self._junction.flows:
            return self._junction.put(window, end, made)
        with self._turn:
            self._await_taken(_LIVE_AHEAD_BYTES)
            return self._junction.put(window, end, made)

    def _made(
        self,
        chunk: _Chunk,
        window: Window,
        part: SnapshotPart,
        piece: RowPiece,
        after: tuple[str, ...] | None,
        at: LogPosition,
    ) -> Segment | None:
        """Return the segment of a piece; None if nobody is to read the part any more.

        after: the key of its last row; None at the end of the part. at: where the segment stands.
        """
        segment = chunk.made(window, piece, at)
        state = self._progress.put(part, piece.count, after)
        return ending(segment, at, state) if state else None

    def _not_put(self, window: Window, end: Reached) -> None:
        """Raise the reason why a piece did not enter the stream, or wait until the rest can be read again."""
        if self._stopping.is_set():
            raise _ReaderStopped
        if window.refused:
            raise window.refused
        if window.altered:
            raise TableChanged
        if window.unclear:
            raise _Unclear
        if window.overflowed:
            self._junction.catch_up(end, self._pause)

    def _finish(self, source: SnapshotSource) -> None:
        """Tell the end of a snapshot that was paused behind its last chunk."""
        opened = self._junction.open(Watched(lambda segment: (), lambda entry: False))
        if opened is None:
            raise _ReaderStopped
        try:
            self._junction.put(
                opened.window,
                Reached.behind(opened.at),
                lambda at: ending(marker(replace(at, sub_index=BEFORE), source.name), at, self._progress.end()),
            )
        finally:
            self._junction.close(opened.window)

    def _rest(self, rows: int, began: float) -> None:
        """Wait behind a chunk as long as the limit of rows a second wants it. began: when it began, monotonic, s."""
        with self._pacing:
            pause_s = self._rate.pause_s(rows, began, time.monotonic())
        self._pause(pause_s)

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds) if seconds else self._stopping.is_set():
            raise _ReaderStopped


class _Retries:
    """The failures of all connections, as one: rows of any connection end the last one once its wait is over."""

    def __init__(self, failing: Callable[[CanalError, float], None], goes_on: Callable[[], None]) -> None:
        """failing, goes_on: see SnapshotReader."""
        self._failing, self._goes_on = failing, goes_on
        self._lock = threading.Lock()
        self._again_at: float | None = None  # monotonic, s; None without a failure

    def failed(self, error: CanalError, delay_s: float) -> None:
        """A connection tries again after this time."""
        with self._lock:
            self._again_at = time.monotonic() + delay_s
            self._failing(error, delay_s)

    def went_on(self) -> None:
        """Rows have entered the stream."""
        if self._again_at is None:
            return
        with self._lock:
            if self._again_at is not None and time.monotonic() >= self._again_at:
                self._again_at = None
                self._goes_on()


@dataclass(frozen=True, slots=True)
class _KnownTable:
    """What a connection knows of the table that it reads. A source tells if the target is no longer true."""

    name: str
    target: SnapshotTarget
    transactions: SnapshotTransactions
    pace: Pace


class _Chunk:
    """The rows of one chunk."""

    def __init__(
        self, rows: RawRows, target: SnapshotTarget, key: TableKey, source: Source, transactions: SnapshotTransactions
    ) -> None:
        schema = target.table.schema
        self._rows = rows
        self._keys = TableKeys(schema.schema, schema.name, key.names)
        self._source = source
        self._transactions = transactions

    def keys(self, at: LogPosition) -> list[Key]:
        """Return the keys of all rows in order; [] if the filters drop them. at: a place of the stream."""
        found: list[Key] = []
        for piece in self._rows.pieces(lambda: _PIECE_BYTES):
            if segment := self._segment(piece, at, ()):
                found += [after for _, after in self._keys.of(segment) if after is not None]
                segment.recycle()
        return found

    def made(self, window: Window, piece: RowPiece, at: LogPosition) -> Segment:
        """Return the segment of a piece, without rows that the window has seen. at: where it stands."""
        if window.recorded and not window.narrowed:
            window.read(self.keys(at))
        if window.unclear:
            raise _Unclear
        behind = piece.first + piece.count
        skip = [number - piece.first for number in window.left_out if piece.first <= number < behind]
        return self._segment(piece, at, skip) or marker(replace(at, sub_index=BEFORE), self._source)

    def _segment(self, piece: RowPiece, at: LogPosition, skip: Sequence[int]) -> Segment | None:
        """Return the entries without some rows, before the entries of an event at this boundary."""
        return self._transactions.segment(piece.packets, replace(at, sub_index=BEFORE), skip)


def _changed(keys: TableKeys, segment: Segment) -> Iterator[Key]:
    """Yield the keys of rows before and after each change."""
    for before, after in keys.of(segment):
        if before is not None:
            yield before
        if after is not None and after != before:
            yield after


def _shared(timestamps: Sequence[int], key: Key) -> bool:
    """Return whether another key may have the same texts. timestamps: places of its values in local time."""
    return any(repeated(key[place]) for place in timestamps)


def _names(table: str) -> tuple[str, str]:
    schema, _, name = table.partition(".")
    return schema, name
