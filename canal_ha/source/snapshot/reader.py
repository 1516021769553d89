"""The thread of one client's snapshot: reads chunk after chunk and puts them into the stream.

`SnapshotReader` starts one thread and runs on it, except `start` and `stop`; `Junction` calls its functions on the
feed's thread, too.
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
from canal_ha.errors import CanalError, RingClosed, SnapshotRefused, SourceUnavailable
from canal_ha.model.condition import names_in
from canal_ha.model.excerpt import some
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.source.connection.backoff import Backoff
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.snapshot.junction import Junction, Watched
from canal_ha.source.snapshot.keys import Key, TableKeys
from canal_ha.source.snapshot.local_time import repeated
from canal_ha.source.snapshot.marker import marker
from canal_ha.source.snapshot.pace import Pace
from canal_ha.source.snapshot.result_set import RawRows, values_of
from canal_ha.source.snapshot.source import Fetch, SelectTooLong, SnapshotSource, SnapshotTarget, TableChanged
from canal_ha.source.snapshot.statements import concerns
from canal_ha.source.snapshot.transaction import BEFORE, SnapshotTransactions
from canal_ha.source.snapshot.watermark import Reached, Visibility
from canal_ha.source.snapshot.window import Window
from canal_ha.source.snapshot.without_key import MakeDecoder, TableWithoutKey

LOCKED_S = 0.2  # the longest that a chunk's SELECT should lock its rows

_BEHIND_S = 0.2  # between looks whether the stream has caught up


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
    """See the module.

    state: how far the snapshot has come, with everything that was put into the stream.
    """

    def __init__(
        self,
        state: SnapshotState,
        route: Callable[[], SnapshotRoute],
        junction: Junction,
        make_decoder: MakeDecoder,
        *,
        protection: Callable[[str, str, str], Protection],
        limits: SnapshotLimits,
        failing: Callable[[CanalError, float], None],
        ended: Callable[[SnapshotState], None],
        name: str = "",
        random: Callable[[], float] | None = None,
    ) -> None:
        """Make a reader that waits for `start`.

        state: what the client has acknowledged; it is active.
        route: says what to read; asked before each connection, because the server may change.
        junction: takes the chunks.
        make_decoder: returns a decoder with the stream's filters and options.
        protection: how a column is kept from the client, by schema, table and name.
        limits: what it may ask of the server.
        failing: called with an error after which the reader tries again, and the seconds until then.
        ended: called with the state when an error ends the snapshot.
        name: of the thread.
        random: see Backoff.
        """
        self.state = state
        self._route = route
        self._junction = junction
        self._make_decoder = make_decoder
        self._protection = protection
        self._limits = limits
        self._failing = failing
        self._ended = ended
        self._backoff = Backoff(random or Random().random)
        self._stopping = threading.Event()
        self._stop_signal = StopSignal()
        self._thread = threading.Thread(target=self._run, name=name or f"snapshot-{state.id}", daemon=True)

    # ---- any thread

    def start(self) -> None:
        """Start the thread and return at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end, wake it if it waits, and return at once. A full ring has to be closed, too."""
        self._stopping.set()
        self._junction.stop()
        self._stop_signal.end()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end; return False if the time-out expires first."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # ---- the thread

    def _run(self) -> None:
        while self.state.active and not self._stopping.is_set():
            chunks = self.state.chunks
            try:
                self._read()
                continue
            except (_ReaderStopped, RingClosed):
                return
            except CanalError as error:
                failure = error
            except Exception as error:
                failure = SnapshotRefused(f"the snapshot {self.state.id} failed: {error!r}")
                failure.__cause__ = error
            if self._stopping.is_set():
                return
            if not failure.retryable:
                self.state = self.state.ended(SnapshotPhase.FAILED, int(time.time() * 1000), str(failure))
                self._ended(self.state)
                return
            if self.state.chunks != chunks:
                self._backoff.reset()
            delay_s = self._backoff.delay_s()
            self._failing(failure, delay_s)
            self._stopping.wait(delay_s)

    def _read(self) -> None:
        """Read over one connection until all tables are read."""
        route = self._route()
        source = SnapshotSource(
            route.config, route.fetch, opening=self._stop_signal.opened, select_s=self._limits.select_s
        )
        try:
            if not self.state.total:
                counts = (source.estimate(*_names(table)) for table in self.state.tables)
                read = 0 if self.state.key else self.state.rows  # of tables before these, if some were added
                self.state = replace(self.state, total=read + sum(counts))
            while self.state.active:
                if self.state.table < len(self.state.tables):
                    self._read_table(source)
                else:
                    self._finish(source)
        finally:
            source.close()

    def _read_table(self, source: SnapshotSource) -> None:
        """Read the rest of a table."""
        limits = self._limits
        if source.way is Visibility.LOCKING_READ:
            limits = replace(limits, chunk_s=min(limits.chunk_s, LOCKED_S))
        place = self.state.table
        target = self._target(source)
        if target.key is None:
            whole = TableWithoutKey(source, target, self._junction, self._make_decoder, self._limits, self._pause)
            for state in whole.read(self.state):
                self.state = state
            return
        self.state = self.state.without_attempt()
        pace = Pace(limits, target.size_bytes // target.count if target.count else 0)
        while self.state.active and self.state.table == place:
            try:
                self._read_chunk(source, target, pace)
            except TableChanged:
                target = self._target(source)
                if target.key is None:
                    return
            except _Unclear:
                pace.too_long()  # rows that nobody changes meanwhile come in a smaller chunk
            except SelectTooLong as error:
                if not pace.too_long():
                    raise SnapshotRefused(
                        f"{self.state.tables[place]}: the SELECT of one row takes longer than {limits.select_s:g} s"
                        " (canal.instance.snapshot.executionTime)"
                    ) from error

    def _target(self, source: SnapshotSource) -> SnapshotTarget:
        """Return the table that is being read, as it is now. Raises SnapshotRefused."""
        schema, name = _names(self.state.tables[self.state.table])
        target = source.target(schema, name, without_key=self.state.without_key)
        for column in target.key.names if target.key else ():
            if self._protection(schema, name, column) >= Protection.MASK:
                raise SnapshotRefused(
                    f"{schema}.{name}: the client does not see column {column} of the key (a filter of fields, or"
                    " canal.instance.privacy), so its rows cannot be told apart: leave the table out"
                )
        self._check_condition(target)
        return target

    def _check_condition(self, target: SnapshotTarget) -> None:
        """Raise SnapshotRefused if the rows that come would tell values of a protected column."""
        schema = target.table.schema
        condition = self.state.where.get(self.state.tables[self.state.table], "")
        columns = [each.name for each in schema.columns] if condition else []
        protected = [
            column for column in columns if self._protection(schema.schema, schema.name, column) > Protection.NONE
        ]
        named = names_in(condition) if protected else frozenset()
        if told := [column for column in protected if column.lower() in named]:
            raise SnapshotRefused(
                f"{target.name}: the condition names {some(told)}, whose values the client does not see (a filter of"
                " fields, or canal.instance.privacy): cancel the snapshot, and start it with another condition"
            )

    def _read_chunk(self, source: SnapshotSource, target: SnapshotTarget, pace: Pace) -> None:
        """Read one chunk and put it into the stream.

        Raises TableChanged, SelectTooLong, _Unclear, and ends of the reader.
        """
        began = time.monotonic()
        state = self.state
        assert target.key is not None
        if state.key and not target.key.continues(state.key):
            state = replace(state, key=())  # the table got another key: begin it again
        schema, name = _names(state.tables[state.table])
        keys = TableKeys(schema, name, target.key.names)
        watched = Watched(
            partial(_changed, keys),
            partial(concerns, schema=schema, table=name),
            partial(_shared, target.key.timestamps),
        )
        opened = self._junction.open(watched)
        if opened is None:
            raise _ReaderStopped
        window, reached = opened.window, opened.brought
        if reached.server not in ("", source.server.identity):
            raise SourceUnavailable(
                f"{target.name}: server {source.server.identity} answers the snapshot, and the stream reads"
                f" {reached.server}"
            )
        source.check(opened.before, self._pause)
        where = state.where.get(state.tables[state.table], "")
        limit = pace.rows
        read = source.read(target, state.key, where, limit, self._limits.bytes_most, reached, self._pause)
        rows = read.rows
        pace.took(rows.count, len(rows.packets), read.seconds)
        after = _after(state, target, rows, finished=rows.complete and rows.count < limit)
        chunk = _Chunk(bytes(rows.packets), target, keys, after, source.name, self._make_decoder)
        if window.recorded:
            window.read(chunk.keys(chunk.segment(opened.at, ())))
        if self._junction.put(read.end, partial(chunk.made, window)):
            self.state = after
            self._pause(pace.pause_s(rows.count, time.monotonic() - began))
        elif self._stopping.is_set():
            raise _ReaderStopped
        elif window.refused:
            raise window.refused
        elif window.altered:
            raise TableChanged
        elif window.unclear:
            raise _Unclear
        else:
            while not self._junction.caught_up(read.end):
                self._pause(_BEHIND_S)

    def _finish(self, source: SnapshotSource) -> None:
        """Tell the end of a snapshot that was paused behind its last chunk."""
        opened = self._junction.open(Watched(lambda segment: (), lambda entry: False))
        after = self.state.ended(SnapshotPhase.DONE, int(time.time() * 1000))
        if opened and self._junction.put(
            Reached.behind(opened.at), lambda at: _ending(marker(replace(at, sub_index=BEFORE), source.name), at, after)
        ):
            self.state = after

    def _pause(self, seconds: float) -> None:
        if self._stopping.wait(seconds) if seconds else self._stopping.is_set():
            raise _ReaderStopped


class _Chunk:
    """The rows of one chunk, and the progress once they are acknowledged."""

    def __init__(
        self,
        packets: bytes,
        target: SnapshotTarget,
        keys: TableKeys,
        after: SnapshotState,
        source: Source,
        make_decoder: MakeDecoder,
    ) -> None:
        self._packets = packets
        self._keys = keys
        self._after = after
        self._source = source
        history = History(lambda schema, table: target.definition).view(None)
        self._transactions = SnapshotTransactions(target.table, after.id, lambda at: make_decoder(source, at, history))

    def segment(self, at: LogPosition, skip: Sequence[int]) -> Segment | None:
        """Return the entries without some rows, before the entries of an event at this boundary."""
        return self._transactions.segment(self._packets, replace(at, sub_index=BEFORE), skip)

    def keys(self, segment: Segment | None) -> list[Key]:
        """Return the keys of the rows in order; [] if the filters drop them."""
        return [] if segment is None else [after for _, after in self._keys.of(segment) if after is not None]

    def made(self, window: Window, at: LogPosition) -> Segment:
        """Return the segment for the stream, without rows that the window has seen. at: where it stands."""
        segment = None
        if window.recorded and not window.narrowed:
            segment = self.segment(at, ())
            window.read(self.keys(segment))
            if window.unclear:
                raise _Unclear
        skip = window.left_out
        if segment is None or skip:
            segment = self.segment(at, skip)
        if segment is None:
            segment = marker(replace(at, sub_index=BEFORE), self._source)
        return _ending(segment, at, self._after)


def _ending(segment: Segment, at: LogPosition, after: SnapshotState) -> Segment:
    """Return a chunk's segment with the cursor once it is acknowledged: the boundary where it stands."""
    return replace(segment, chunk_end=replace(at, trail="", mark="", snapshot=after.text))


def _after(state: SnapshotState, target: SnapshotTarget, rows: RawRows, *, finished: bool) -> SnapshotState:
    """Return the state once these rows of a table are acknowledged. finished: they are its last ones."""
    state = replace(state, chunks=state.chunks + 1, rows=state.rows + rows.count)
    if not finished:
        assert target.key is not None
        return replace(state, key=target.key.texts(values_of(rows)))
    return state.behind_table(int(time.time() * 1000))


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
