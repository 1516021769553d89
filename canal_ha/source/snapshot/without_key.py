"""The read of a table without a key: all its rows in one consistent read, at one place of the stream.

Without a key, a row of the read cannot be recognised when the stream brings it, too, and a read cannot go on behind its
last row. So the stream is held before changes of the table that the read does not see, until all rows are in it, and a
read that breaks begins again.

The place: MariaDB tells it for a consistent snapshot. MySQL does not. There the end of the binlog before and behind the
opening of the snapshot encloses it; if the table changes between the two, the snapshot is opened again. After some
tries, or where nobody tells what is visible, LOCK TABLES keeps writers of the table away for that moment. That is so on
MariaDB, too, once XA transactions commit; see `watermark`.

A second session guards the opening: while its transaction has the table open, no statement can alter the table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pymysql

from canal_ha.config.model import SnapshotLimits, WhenXa
from canal_ha.decode.ddl.create_table import quoted
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.history.history import History, TableHistory
from canal_ha.errors import SnapshotRefused, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Segment, Source
from canal_ha.model.snapshot import SnapshotRange, SnapshotState
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.snapshot.hold import Hold, touching
from canal_ha.source.snapshot.junction import Junction
from canal_ha.source.snapshot.marker import marker
from canal_ha.source.snapshot.result_set import RawRows, RowStream
from canal_ha.source.snapshot.running import RunningSelect
from canal_ha.source.snapshot.source import NO_RIGHT, SnapshotSource, SnapshotTarget, TableChanged
from canal_ha.source.snapshot.transaction import BEFORE, SnapshotTransactions
from canal_ha.source.snapshot.watermark import (
    Pause,
    Reached,
    Visibility,
    consistent_snapshot,
    snapshot_places,
    wait_visible,
)

TRIES = 10  # without a lock, then as many with it
STALL_S = 7200  # the server ends the read of a client that takes no rows for so long
_LOCK_WAIT_S = 2
_AGAIN_S = 0.05

MakeDecoder = Callable[[Source, LogPosition, TableHistory], Decoder]


@dataclass(frozen=True, slots=True)
class TableWithoutKey:
    """The reads of one table.

    source: the server.
    target: the table.
    junction: takes the pieces.
    make_decoder: see SnapshotReader.
    limits: of a piece.
    pause: see wait_visible. It raises once the reader is stopped, also for 0 seconds.
    rest: waits behind a piece as long as the limit of rows a second wants it, by its rows and the monotonic time of its
        beginning. It raises as `pause`.
    """

    source: SnapshotSource
    target: SnapshotTarget
    junction: Junction
    make_decoder: MakeDecoder
    limits: SnapshotLimits
    pause: Pause
    rest: Callable[[int, float], None]

    def read(self, state: SnapshotState, whole: SnapshotRange) -> Iterator[SnapshotState]:
        """Put all rows into the stream; yield the state behind each piece.

        state: before the first one. If the table turns out to have another definition than the target, nothing is put
            in.
        whole: the range of the table in it.
        Raises SnapshotRefused; SourceUnavailable if the read broke or could not begin, and has to begin again.
        """
        source, name = self.source, self.target.table.schema
        _refuse(source, self.target)
        locked = source.way is Visibility.LOCKING_READ
        for tries in range(2 * TRIES):
            self.pause(_AGAIN_S if tries else 0.0)
            locked = locked or (tries >= TRIES and not source.server.mariadb)
            # an open snapshot makes the server keep old rows, so the stream comes near first
            self.junction.catch_up(source.end(), self.pause)
            with closing(_Read(source, self.target)) as read:
                try:
                    held = self.junction.hold(Hold(touching(name.schema, name.name)))
                    if held is None:
                        continue  # stopped
                    source.check(*held, self.pause)
                    sees = read.open(held[0], self.pause, locked=locked)
                    if sees is None:
                        return
                    if self.junction.limit(*sees):
                        yield from self._pieces(state, whole, read)
                        return
                except TableChanged:
                    continue
                except _Unseen:
                    locked = True
                finally:
                    self.junction.release()
        raise SourceUnavailable(
            f"{self.target.name} changes all the time, or a statement keeps it locked, so no read of it could begin:"
            " pause its writers for a moment"
        )

    def _pieces(self, state: SnapshotState, whole: SnapshotRange, read: _Read) -> Iterator[SnapshotState]:
        """Put the rows of an open read into the stream; yield the state behind each piece."""
        state = state.new_attempt(whole, int(time.time() * 1000))
        read.start(state.where.get(self.target.name, ""))
        complete, piece = False, 0
        while not complete:
            began = time.monotonic()
            rows = read.take(self.limits)
            complete, piece = rows.complete, piece + 1
            state = state.with_piece(rows.count)
            if complete:
                state = state.behind(whole, int(time.time() * 1000))
            if not self.junction.enter(partial(self._made, rows.whole().packets, state.piece_id(piece), state.text)):
                self.pause(0.0)
                raise SourceUnavailable(
                    f"{self.target.name}: the stream went on with another server: its read begins again"
                )
            yield state
            self.rest(rows.count, began)

    def _made(self, packets: bytes, piece_id: str, after: str, at: LogPosition) -> Segment:
        """Return the segment of a piece. after: the state once it is acknowledged. at: where the stream is."""
        source = self.source.name
        history = History(lambda schema, table: self.target.definition).view(None)
        transactions = SnapshotTransactions(
            self.target.table, piece_id, lambda place: self.make_decoder(source, place, history)
        )
        place = replace(at, consumed=False, sub_index=at.sub_index + 1 if at.consumed else BEFORE)
        segment = transactions.segment(packets, place) or marker(place, source)
        return replace(segment, chunk_end=replace(at, trail="", mark="", snapshot=after))


class _Unseen(Exception):
    """A transaction may stay between its binlog and its commit, so nobody can tell what a SELECT sees."""


class _Read:
    """One consistent read of a table: a session for it, and one that guards its opening."""

    def __init__(self, source: SnapshotSource, target: SnapshotTarget) -> None:
        """Connect. Raises SourceUnavailable, SourceRefused."""
        self._source, self._target = source, target
        schema = target.table.schema
        self._names = (schema.schema, schema.name)
        self._table = f"{quoted(schema.schema)}.{quoted(schema.name)}"
        self._session = source.session()
        self._guard: SourceSession | None = None
        self._rows: RowStream | None = None
        self._where = ""
        self._select: RunningSelect | None = None  # until all rows are taken

    def open(self, brought: Reached, pause: Pause, *, locked: bool) -> tuple[Reached, Reached] | None:
        """Open the read; return what it sees, as `Hold.limit` takes it. Return None if the table is another one.

        brought: what the stream has brought.
        pause: see wait_visible.
        locked: keep writers away meanwhile.
        Raises TableChanged if a statement about the table is in the way, _Unseen, SnapshotRefused, SourceUnavailable.
        """
        source, session = self._source, self._session
        session.query(f"SET SESSION net_write_timeout = {STALL_S}, lock_wait_timeout = {_LOCK_WAIT_S}")
        guard = self._guard = source.session()
        guard.query(f"SET SESSION lock_wait_timeout = {_LOCK_WAIT_S}")
        with source.translating(*self._names):
            if locked:
                self._lock(guard)
            else:
                guard.ask("START TRANSACTION")
                guard.ask(f"SELECT 1 FROM {self._table} LIMIT 0")
        if source.definition(*self._names) != self._target.definition:
            return None
        sees = self._place(brought, pause, locked=locked)
        with source.translating(*self._names):
            session.ask(f"SELECT 1 FROM {self._table} LIMIT 0")  # from now on, this session guards the table itself
        guard.close()
        return sees

    def start(self, where: str) -> None:
        """Begin to read. where: a condition in SQL; "" for all rows."""
        sql = f"SELECT {self._target.table.select_list} FROM {self._table}"
        if where:
            sql += f" WHERE ({where}\n)"  # the condition may end in a comment
        self._where = where
        with self._reading():
            select = self._select = self._source.begin(self._session)
            self._rows = RowStream(self._session, select.comment + sql)

    def take(self, limits: SnapshotLimits) -> RawRows:
        """Return the next rows."""
        assert self._rows is not None
        with self._reading():
            rows = self._rows.take(limits.bytes_most, limits.chunk_rows)
        if rows.complete:
            self._over()
        return rows

    def close(self) -> None:
        """Close both sessions, and end the SELECT on the server if rows are left."""
        for session in (self._session, self._guard):
            if session is not None:
                session.close()
        if select := self._over():
            select.end()

    def _over(self) -> RunningSelect | None:
        """Forget the SELECT; return it if it is still to be ended."""
        select, self._select = self._select, None
        return select if select and self._source.selects.over(select) else None

    def _place(self, brought: Reached, pause: Pause, *, locked: bool) -> tuple[Reached, Reached]:
        """Open the snapshot; return up to where it sees everything, and from where it sees nothing."""
        source, session = self._source, self._session
        if source.server.mariadb:
            consistent_snapshot(session, source.to_see(brought), pause)
            first, last = (Reached(*place, source.server.identity) for place in snapshot_places(session))
            if not locked and source.way_now() is Visibility.LOCKING_READ:
                raise _Unseen
            return first, last
        doubt = source.end(session)
        if not locked and wait_visible(session, source.way_now(), doubt, pause):
            raise _Unseen
        session.query("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        end = source.end(session)
        return (end if locked else doubt), end

    def _lock(self, guard: SourceSession) -> None:
        """Keep writers of the table away; wait until those that have written it are committed in the engine."""
        # InnoDB's own lock: MariaDB gives a prepared XA transaction's other one up with the connection
        guard.query(f"SET SESSION autocommit = 0, innodb_table_locks = 1, innodb_lock_wait_timeout = {_LOCK_WAIT_S}")
        try:
            guard.ask(f"LOCK TABLES {self._table} READ")
        except pymysql.MySQLError as error:
            if error.args[0] not in NO_RIGHT:
                raise
            account, name = guard.where.account, self._target.name
            grant = f"GRANT LOCK TABLES ON {quoted(self._names[0])}.* TO {account}"
            if self._source.way is Visibility.LOCKING_READ:
                raise SnapshotRefused(
                    f"{name} has no key, and the server does not tell what a read sees, so its writers have to wait for"
                    f" a moment while its read begins: run {grant}"
                ) from error
            raise SourceUnavailable(
                f"{name} changes so often that its read could not begin: pause its writers for a moment, or run {grant}"
            ) from error

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the errors of the read into ours: a read that broke has to begin again."""
        try:
            with self._source.translating(*self._names, self._where):
                yield
        except TableChanged as error:
            raise SourceUnavailable(
                f"{self._target.name}: its read broke and begins again: {error.__cause__}"
            ) from error


def _refuse(source: SnapshotSource, target: SnapshotTarget) -> None:
    """Raise SnapshotRefused for a table that no consistent read can be joined to the stream."""
    if source.xa is WhenXa.PREPARE:
        raise SnapshotRefused(
            f"{target.name} has no key, and with canal.instance.xa = prepare the stream brings rows that no read sees"
            " yet: leave the table out"
        )
    if not source.transactional(target):
        raise SnapshotRefused(
            f"{target.name} has no key, and its storage engine has no transactions, so no read of it is consistent:"
            " add a key, or leave the table out"
        )
