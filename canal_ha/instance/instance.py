"""Instance: one running destination, with its cursors, the health of its source and a stream per client id.

Everything here runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar, cast
from uuid import uuid4

from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure

from canal_ha.config.model import InstanceConfig, WhenLost
from canal_ha.decode.filters import effective
from canal_ha.decode.privacy import privacy_of
from canal_ha.errors import (
    CanalError,
    ClientConnected,
    Fenced,
    FilterInvalid,
    LocalProtocolError,
    MetaWriteFailed,
    NotRunningHere,
    NotSubscribed,
    PositionLost,
    SnapshotRefused,
    SnapshotUnreadable,
)
from canal_ha.instance.alarms import LOST, NO_END, PURGE, Alarms, Outlook
from canal_ha.instance.claim import Claim
from canal_ha.instance.feed_pace import FeedPaces
from canal_ha.instance.from_thread import answer_of
from canal_ha.instance.one_at_a_time import OneAtATime
from canal_ha.instance.origin import Origin, Remembered
from canal_ha.instance.places import Places, Quota
from canal_ha.instance.private_read import BinlogRead
from canal_ha.instance.round_queue import RoundQueue
from canal_ha.instance.rounds import Rounds
from canal_ha.instance.shown_tables import shown_definition, shown_tables
from canal_ha.instance.snapshots import Snapshots
from canal_ha.instance.status import InstanceStatus, SourceFacts, StreamStatus
from canal_ha.instance.stream import FromFeed, Reactor, Stream, StreamState
from canal_ha.instance.wake import Awaited
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.meta.files import RunBlocking
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import CursorLoss, OpenBackend
from canal_ha.meta.write_behind import Meta
from canal_ha.model.batch import GetAnswer
from canal_ha.model.excerpt import excerpt, printable, some
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import ANYTHING, NO_RULES, ColumnRules, Within
from canal_ha.model.snapshot import (
    NO_SNAPSHOT,
    InitialSnapshot,
    SnapshotAction,
    SnapshotRequest,
    SnapshotState,
    check_tables,
)
from canal_ha.model.surrogates import REASON, has_surrogate

T = TypeVar("T")

HEALTH_PERIOD_S = 5.0
FIRST_LOOK_S = 5.0  # how long the first start of a destination waits for its source
PARKING_PERIOD_S = 1.0
WATCH_PERIOD_S = 2.0  # what makes an alarm lasts for longer
WRITE_AGAIN_S = 1.0  # after a write that failed, if each ACK writes its cursor
KEEP_WITHIN_S = 10.0  # the choice of a server, before a switch
LAST_FLUSH_S = 5.0  # how long an orderly stop tries to make cursors durable, while this node owns them
LAST_FLUSH_PAUSE_S = 0.2
HASHING_S = 0.005  # that streams hash in a row before others get their turn


class InstanceListener(Protocol):
    """Hears what happens to an instance: the node's logs."""

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        """Something happened. alarm: whether a person should look."""

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        """This cursor is durable now."""


class Instance:
    """See the module. Implements meta.CursorEdits."""

    def __init__(
        self,
        config: InstanceConfig,
        origin: Origin,
        open_backend: OpenBackend,
        claim: Claim,
        reactor: Reactor,
        *,
        run_blocking: RunBlocking,
        run_long: RunBlocking | None = None,
        log: InstanceListener,
        flush_period_ms: int,
        batch_ids: BatchIds,
        from_feed: FromFeed | None = None,
        rounds: Rounds | None = None,
    ) -> None:
        """Wire the destination together; `start` begins to serve it.

        config: the destination's.
        origin: where its rows come from.
        open_backend: opens the store of its cursors; the instance hears what operators do to them.
        claim: this node's right to run the destination.
        reactor: Twisted's.
        run_blocking: runs a call that waits for MySQL on the pool.
        run_long: runs one that may read the binlog, on threads that no look waits for; None: the pool, too.
        log: hears what happens.
        flush_period_ms: how often acknowledged cursors are written; 0 writes them with each ACK.
        batch_ids: the node's, because ids go on from one instance of the destination to the next.
        from_feed: see Stream; None: the reactor's callFromThread.
        rounds: of all instances of the node; None: the instance has timers of its own.
        """
        self.config = config
        self.meta = Meta(config.destination, open_backend(self), turn=DeferredLock())
        self._origin = origin
        self._claim = claim
        self._reactor = reactor
        self._run_blocking = run_blocking
        self._run_long = run_long or run_blocking
        self._log = log
        self._flush_period_s = flush_period_ms / 1000
        self._batch_ids = batch_ids
        self._from_feed = from_feed or (lambda call, *args: reactor.callFromThread(call, *args))
        self._outlook: Mapping[int, Outlook] = {}
        self._alarms: dict[int, Alarms] = {}
        self._streams: dict[int, Stream] = {}
        self._reads: set[BinlogRead] = set()
        self._accounts: dict[int, str] = {}  # client id -> the account that asked for its rows last
        self._stream_places = Places(
            config.destination,
            self._open_streams,
            Quota("streams", "open streams", "canal.instance.stream.max", config.stream_max),
            Quota("account_streams", "open streams", "canal.instance.stream.account.max", config.stream_account_max),
        )
        self._read_places = Places(
            config.destination,
            lambda: {read: read.account for read in self._reads},
            Quota("reads", "private reads", "canal.instance.read.max", config.read_max),
            Quota("account_reads", "private reads", "canal.instance.read.account.max", config.read_account_max),
        )
        self._client_places = Places(
            config.destination,
            lambda: {each.client_id: self._accounts.get(each.client_id, "") for each in self.meta.clients()},
            Quota("client_ids", "client ids", "canal.instance.clients.max", config.clients_max),
            Quota("account_client_ids", "client ids", "canal.instance.clients.account.max", config.clients_account_max),
        )
        self._paces = FeedPaces(reactor.seconds)
        self._wakes = RoundQueue(reactor)
        self._newest: LogPosition | None = None
        self._first_seen: LogPosition | None = None  # where the source stood first, until a client has a cursor
        self._first_look: Deferred[None] = Deferred()  # the start waits for it
        self._source_error = ""
        self._write_error = ""
        self._flushed_at = reactor.seconds()
        self._start_unwritten = False
        self._unreadable_told = False
        self._compiling = OneAtATime(reactor)  # by account, or by client id without one
        self._snapshots = Snapshots(config, origin, self._run_long, self._compiling)
        self._compiled: dict[int, tuple[str, ColumnRules]] = {}  # of each client's last SUBSCRIBE
        self._asking = DeferredLock()  # clients' questions to the source take one thread of the pool
        self._subscribing = OneAtATime(reactor)  # by client id
        self._servers: tuple[str, ...] = ()  # the last choice that was durable in time
        self._rounds = rounds or Rounds(reactor)
        self._ends: list[Callable[[], None]] = []  # of the chores
        self._stopped = False

    # ---- life

    async def start(self) -> None:
        """Load the cursors and begin to serve. Streams open when their clients ask. Raises MetaUnreadable.

        When this returns, a client that begins later misses nothing that comes from now on. So the first start of a
        destination waits until the source has told where it stands, but not long for one that does not answer.
        """
        await self.meta.load()
        if self.meta.unreadable:
            self._unreadable_told = True
            texts = some(list(self.meta.unreadable.values()))
            self._log.event(self.config.destination, "cursor.unreadable", error=texts, alarm=True)
        self._servers = self.meta.servers
        switch, cursors = self._origin.source_switch, self.meta.cursors()
        if switch:
            await self._run_blocking(lambda: switch.begin(cursors, self.meta.servers, self._keep_servers))
        for identity in self.meta.clients():
            self._stream(identity)
        if self._has_begun or self.meta.start is not None:
            self.hurry()
        self._every(HEALTH_PERIOD_S, self._look_at_source, now=True)
        self._every(PARKING_PERIOD_S, self._park_idle)
        self._every(WATCH_PERIOD_S, self._watch)
        self._every(self._flush_period_s or WRITE_AGAIN_S, self._flush_due)
        with suppress(defer.TimeoutError):
            await self._first_look.addTimeout(FIRST_LOOK_S, cast(IReactorTime, self._reactor))
        self._log.event(self.config.destination, "instance.started", clients=len(self._streams))

    def hurry(self) -> None:
        """Let the start wait for the source no longer, because it has answered, or need not, or a stop is to come."""
        if not self._first_look.called:
            self._first_look.callback(None)

    async def stop(self, *, flush: bool = True) -> None:
        """End every stream, then make the cursors durable, unless this node no longer owns them."""
        if self._stopped:
            return
        self._stopped = True
        for end in self._ends:
            end()
        for stream in self._streams.values():
            stream.close(NotRunningHere(self.config.destination))
        for read in tuple(self._reads):
            read.close("the destination stopped on this node")
        self._origin.interrupt()  # first: the flush and the close may need threads that wait for the source
        if flush:
            await self._last_flush()
        self._report_unwritten()
        await self._run_blocking(self._origin.close)
        if self._ends:  # else it has never started
            self._log.event(self.config.destination, "instance.stopped")

    async def _last_flush(self) -> None:
        """Flush until it succeeds, because ZooKeeper may be back in a moment, or a disk have room again."""
        give_up_at = self._reactor.seconds() + LAST_FLUSH_S
        while not await self.flush() and self._reactor.seconds() < give_up_at:
            try:
                self._claim.check()
            except NotRunningHere:
                return
            await self._pause(LAST_FLUSH_PAUSE_S)

    def _report_unwritten(self) -> None:
        """Say whose acknowledged rows come again, because the stop has not made their cursors durable."""
        due = self.meta.due
        if due:
            self._log.event(
                self.config.destination,
                "cursor.not_written",
                clients=len(due),
                client_ids=excerpt(", ".join(map(str, due))),
                effect="rows acknowledged since the last flush come again",
                error=self._write_error or some(list(self.meta.refused.values())),
                alarm=True,
            )

    def _flush_due(self) -> Awaitable[bool] | None:
        """Flush if anything is due."""
        if self.meta.changed or self._write_error:
            return self.flush()
        self._flushed_at = self._reactor.seconds()
        return None

    async def flush(self) -> bool:
        """Make acknowledged cursors durable. Return False if the write failed: an alarm, and the next flush repeats it.

        A client whose cursor the store refuses has an alarm of its own.

        If the write is fenced, this node has lost the destination and nothing is left to do.
        """
        await self._hash_trails()
        try:
            written = await self.meta.flush(self._with_trail)
        except MetaWriteFailed as error:
            if str(error) != self._write_error:
                self._log.event(self.config.destination, "cursor.write_failed", error=str(error), alarm=True)
            self._write_error = str(error)
            return False
        except Fenced as error:
            self._claim.lost(error)
        else:
            self._flushed_at = self._reactor.seconds()
            if self._write_error:  # this flush has repeated the write that failed
                self._write_error = ""
                self._log.event(self.config.destination, "cursor.written_again")
            for client_id, cursor in written:
                self._log.cursor_persisted(self.config.destination, client_id, cursor)
        return True

    async def _flush_now(self, client_id: int) -> None:
        """Make the cursor of a client durable, and all others. Raises MetaWriteFailed, NotRunningHere."""
        written = await self.flush()
        self._check()  # the write may have been fenced
        if not written:
            raise MetaWriteFailed(self._write_error)
        if client_id in self.meta.refused:
            raise MetaWriteFailed(self.meta.refused[client_id])

    # ---- requests

    async def subscribe(
        self,
        identity: ClientIdentity,
        *,
        exact: bool = False,
        opens: bool = True,
        snapshot: InitialSnapshot = NO_SNAPSHOT,
    ) -> LogPosition | None:
        """Make the client and its first cursor durable, open its stream, and return its cursor.

        A SUBSCRIBE and an UNSUBSCRIBE of one client id are carried out one after the other, in the order in which they
        came. Else the one could take the cursor away that the other has found.

        identity: the client, with its filter.
        exact: the form of values that it will ask for; see GetRequest.
        opens: whether to open the stream. A client with a blank filter that only wants its cursor leaves it as it is.
        snapshot: what the client begins with, if it has no cursor yet.

        Raises FilterInvalid, QuotaReached, MetaUnreadable, SnapshotRefused. Raises SourceUnavailable, SourceRefused if
        the client has no cursor yet, because only the source can tell the first one.
        """
        self._check()
        if has_surrogate(identity.filter):
            raise FilterInvalid(f"table filter {printable(excerpt(identity.filter))}: it has {REASON}")
        async with self._subscribing.of(identity.client_id):
            return await self._subscribe(identity, exact=exact, opens=opens, snapshot=snapshot)

    async def _subscribe(
        self, identity: ClientIdentity, *, exact: bool, opens: bool, snapshot: InitialSnapshot
    ) -> LogPosition | None:
        self._check()
        self.meta.check_readable(identity.client_id)
        client_id, account = identity.client_id, identity.account
        only_looks = not opens and self.meta.cursor(client_id) is not None
        place = nullcontext() if only_looks else self._stream_places.reserved(client_id, account)
        exists = any(each.client_id == client_id for each in self.meta.clients())
        new_id = nullcontext() if exists else self._client_places.reserved(client_id, account)
        with new_id, place:
            await self._check_limits(identity)
            start = None
            if self.meta.cursor(identity.client_id) is None:
                # The table history must begin before the start. If the source does not answer, the next call reports it
                async with self._asking:
                    with suppress(CanalError):
                        await self._begin_history()
                    start = await self._start_position()
                    if snapshot.tables:
                        start = replace(start, snapshot=(await self._snapshots.initial(identity, snapshot)).text)
            await self.meta.subscribe(replace(identity, within=ANYTHING, account=""), start)
            if start is not None:
                self._first_seen = None
        # A known client's subscription may write nothing that could be fenced, and nobody would close a stream that
        # opens after the stop.
        self._check()
        known = next(held for held in self.meta.clients() if held.client_id == identity.client_id)
        stream = self._stream(known)
        self._accounts[client_id] = account
        self._compiled[client_id] = identity.filter, identity.within.privacy
        if opens or stream.within != identity.within:
            stream.subscribed(known.filter, exact=exact, within=identity.within, opens=opens)
        if (snapshot.gone or snapshot.again) and start is None:
            pace = self._paces.of(f"snapshots of {client_id}")  # each one is in two logs, and begins the stream again
            while wait_s := pace.wait_s:
                await self._pause(wait_s)
            pace.begins()
        if snapshot.gone and start is None:
            await self._leave_out(client_id, snapshot.gone)
        if snapshot.again and snapshot.tables and start is None:
            request = SnapshotRequest(SnapshotAction.ADD, snapshot.tables)
            await self.change_snapshot(client_id, request, identity.within)
        return stream.cursor

    def era(self, identity: ClientIdentity) -> object | None:
        """Return an object that stays the same while only the client moves its cursor and takes back batches.

        None if the client has no stream.
        """
        stream = self._streams.get(identity.client_id)
        return stream.era if stream else None

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """Return the client's cursor, as `subscribe` does; None if the client has no stream."""
        stream = self._streams.get(identity.client_id)
        return stream.cursor if stream else None

    async def unsubscribe(self, identity: ClientIdentity) -> None:
        """End the client's stream and delete its cursor and filter durably."""
        async with self._subscribing.of(identity.client_id):
            await self._remove(identity.client_id)

    async def _remove(self, client_id: int) -> None:
        self._check()
        stream = self._streams.pop(client_id, None)
        self._accounts.pop(client_id, None)
        self._compiled.pop(client_id, None)
        if stream:
            stream.close(NotSubscribed(self.config.destination, client_id))
        await self.meta.unsubscribe(client_id)
        self._tell_readable()

    async def get(
        self,
        identity: ClientIdentity,
        request: GetRequest,
        check: Callable[[], None] = lambda: None,
        awaited: Callable[[], Awaited] = Deferred,
    ) -> GetAnswer:
        """Return the client's next batch. Raises NotSubscribed, NotRunningHere, and the error that ended its stream.

        check, awaited: see Stream.get.
        """
        stream = self._subscribed(identity)
        if stream.within is not identity.within:
            self._check_within(stream, identity)
        if self._accounts.get(identity.client_id) != identity.account:
            self._stream_places.check(identity.client_id, identity.account)
            self._accounts[identity.client_id] = identity.account

        def still() -> None:
            self._check()  # the node may have lost the destination while the GET waited
            if stream.within is not identity.within:
                self._check_within(stream, identity)
            check()

        return await stream.get(request, still, awaited)

    async def ack(self, identity: ClientIdentity, batch_id: int, mark: str = "") -> None:
        """Close the client's oldest batch. With a flush period of 0 the cursor is durable when this returns.

        mark: kept with the cursor until something else moves it; "" for none.

        With a flush period of 0, raises MetaWriteFailed if the cursor could not be written. The batch is closed all the
        same, and the write is repeated until it succeeds.
        """
        if mark and has_surrogate(mark):
            raise LocalProtocolError(f"mark {printable(excerpt(mark))}: it has {REASON}")
        self._subscribed(identity).ack(batch_id, mark)
        if not self._flush_period_s:
            await self._flush_now(identity.client_id)

    def in_flight(self, identity: ClientIdentity) -> tuple[int, ...]:
        """Return the ids of the client's batches in flight, oldest first. Raises NotSubscribed, NotRunningHere."""
        return self._subscribed(identity).in_flight

    def entries_in_flight(self, identity: ClientIdentity) -> int:
        """Return how many entries the client's batches in flight have. Raises NotSubscribed, NotRunningHere."""
        return self._subscribed(identity).entries_in_flight

    async def tables(self, within: Within) -> Sequence[tuple[str, str]]:
        """See shown_tables."""
        self._check()
        async with self._asking:
            return await self._run_blocking(lambda: shown_tables(self._origin, within))

    async def definition(self, schema: str, table: str, within: Within) -> str | None:
        """See shown_definition."""
        self._check()
        async with self._asking:
            return await self._run_blocking(lambda: shown_definition(self._origin, within, schema, table))

    async def change_snapshot(self, client_id: int, request: SnapshotRequest, within: Within) -> SnapshotState:
        """Start, add to, pause, resume or cancel the snapshot of a client, and return its state, which is durable then.

        The stream begins again at its cursor, as after a roll-back.

        client_id: the client that gets the rows.
        request: what to do.
        within: the most that the account that asks may read. It may be another one than the client's.
        Raises NotSubscribed, SnapshotRefused, FilterInvalid, MetaWriteFailed.
        """
        self._check()
        cursor = self.meta.cursor(client_id)
        stream = self._streams.get(client_id)
        if cursor is None or stream is None:
            raise NotSubscribed(self.config.destination, client_id)
        if request.action in (SnapshotAction.START, SnapshotAction.ADD):
            check_tables(request.tables)
            async with self._asking:
                await self._snapshots.check_within(request, within)
                known = await self._snapshots.known_tables()
            client = ClientIdentity(self.config.destination, client_id, stream.filter, stream.within)
            await self._snapshots.check_kept(client, request.tables, known)
            self._check()
            cursor = self._cursor_of(client_id, stream)
            state = self._snapshots.begun(request, cursor.snapshot, known)
        elif request.leave_out:
            async with self._asking:
                shown = await self._snapshots.check_within(request, within)
            self._check()
            cursor = self._cursor_of(client_id, stream)
            state = self._snapshots.changed(request, cursor.snapshot, shown)
        else:
            state = self._snapshots.changed(request, cursor.snapshot)
        await self._put_snapshot(client_id, cursor, state)
        return state

    def _cursor_of(self, client_id: int, stream: Stream) -> LogPosition:
        """Return the cursor of a client whose stream is still this one. Raises NotSubscribed."""
        cursor = self.meta.cursor(client_id)
        if cursor is None or self._streams.get(client_id) is not stream:
            raise NotSubscribed(self.config.destination, client_id)
        return cursor

    async def _leave_out(self, client_id: int, gone: Sequence[str]) -> None:
        """Let an unfinished snapshot of a client go on without tables that are gone. Raises SourceUnavailable."""
        cursor = self.meta.cursor(client_id)
        if cursor is None or self._snapshots.without_gone(gone, cursor.snapshot, {}) is None:
            return  # the source need not be asked
        async with self._asking:
            known = await self._snapshots.known_tables()
        self._check()
        cursor = self.meta.cursor(client_id)
        state = self._snapshots.without_gone(gone, cursor.snapshot, known) if cursor else None
        if cursor and state and client_id in self._streams:
            await self._put_snapshot(client_id, cursor, state)

    async def _put_snapshot(self, client_id: int, cursor: LogPosition, state: SnapshotState) -> None:
        """Store the new state of a client's snapshot, and begin its stream again."""
        self.meta.move(client_id, replace(cursor, snapshot=state.text))
        self._streams[client_id].restart()
        self._log.event(
            self.config.destination,
            "snapshot.changed",
            client_id=client_id,
            snapshot=state.id,
            phase=state.phase.value,
            tables=some(state.tables),
            left_out=some(state.left_out),
            rows=state.rows,
        )
        await self._flush_now(client_id)

    async def rollback(self, identity: ClientIdentity, batch_id: int, *, unasked: bool = False) -> None:
        """Deliver again what the client has not acknowledged. Do nothing for an unknown client, as canal does.

        unasked: the client has not asked for it, so its era ends.
        """
        self._check()
        stream = self._streams.get(identity.client_id)
        if stream:
            stream.rollback(batch_id, unasked=unasked)

    async def read_from(
        self,
        identity: ClientIdentity,
        place: Place,
        until: Place | None,
        *,
        exact: bool = False,
        snapshot: InitialSnapshot = NO_SNAPSHOT,
        holder: str = "",
    ) -> BinlogRead:
        """Begin a private read. Reads have places of their own, so that they take none of the subscribers'.

        identity: of the client that asks, with the filter of this read.
        place: where the read begins.
        until: where it ends, None for no end; a journal and offset may lie ahead, a GTID set must be executed by now.
        exact: the form of values that its GETs will ask for.
        snapshot: tables whose existing rows are read; the read ends behind them. It has no `until` then.
        holder: whose reads begin no faster than the pace.

        Raises FilterInvalid, QuotaReached, PositionLost, SnapshotUnreadable, SourceUnavailable, SourceRefused.
        """
        self._check()
        if until is not None and snapshot.tables:
            raise LocalProtocolError("a read of existing rows ends after them: it takes no other end")
        if until is not None and self.config.group:
            raise LocalProtocolError(
                f"{self.config.destination} has several sources: one position cannot be the end of a read"
            )
        with self._read_places.reserved(object(), identity.account):
            await self._check_limits(identity)
            async with self._asking:
                start = await self._run_long(lambda: self._origin.view.find(place))
                end = None
                if until is not None and until.journal:
                    end = LogPosition(until.journal, until.offset)
                elif until is not None:
                    end = await self._run_long(lambda: self._origin.view.find(until))
                if snapshot.tables:
                    try:
                        state = await self._snapshots.initial(identity, snapshot)
                    except SnapshotRefused as refused:
                        raise SnapshotUnreadable(str(refused)) from refused
                    start = replace(start, snapshot=state.text)
        self._check()
        meta = Meta(self.config.destination, MemoryBackend(), turn=DeferredLock())
        await meta.subscribe(identity, start)
        read = BinlogRead(start, end, claim=self._claim, closed=self._reads.discard, account=identity.account)
        stream = Stream(
            self.config,
            identity.client_id,
            meta,
            self._origin.open_feed,
            self._reactor,
            check_room=lambda: None,  # the read keeps its place until it ends
            tell=partial(self._log.event, self.config.destination),
            batch_ids=self._batch_ids.reads,
            pace=self._paces.of(f"reads of {holder}"),
            soon=self._wakes.soon,
            from_feed=self._from_feed,
            filter_text=identity.filter,
            read=uuid4().hex,
            cut=read.cut,
        )
        read.begin(stream, identity.filter, exact=exact, within=identity.within)
        self._reads.add(read)
        return read

    async def move_cursor(self, client_id: int, place: Place, *, dry_run: bool) -> tuple[LogPosition, LogPosition]:
        """Move a client's cursor for an operator, and return the old one and the new one, which is durable then.

        The batches in flight are void, and the client's stream goes on from there.

        client_id: the client's.
        place: where to.
        dry_run: only find out where that is.
        Raises NotSubscribed, LocalProtocolError, MetaWriteFailed, and what SourceView.find raises.
        """
        self._check()
        if place.part and not self.config.group:
            raise LocalProtocolError(f"{self.config.destination} has one source: omit {place.part}/")
        async with self._asking:
            position = await self._run_long(lambda: self._origin.view.find(place))
        self._check()
        cursor = self.meta.cursor(client_id)
        if cursor is None:
            raise NotSubscribed(self.config.destination, client_id)
        position = position.beside(cursor.parts) if place.part else position
        if not self.config.decode.gtid_on:
            position = replace(position, gtid="")
        position = replace(position, snapshot=cursor.snapshot)
        if not dry_run:
            self.meta.reset(client_id, position)
            stream = self._streams.get(client_id)
            if stream:
                stream.rewind()
            self._log.event(self.config.destination, "cursor.moved", client_id=client_id, position=str(position))
            await self._flush_now(client_id)
        return cursor, position

    async def delete_cursor(self, client_id: int, connected: Callable[[], str], *, dry_run: bool) -> LogPosition:
        """Remove a client with its cursor and filter, for an operator, and return the cursor.

        A client that reads would subscribe again as a new one, at the newest position, and miss rows. One in a cluster
        has a lock, also while it is not connected.

        client_id: the client's.
        connected: returns who is connected with the client id; "" if nobody is. It is asked when no SUBSCRIBE of the
            client id is under way, and nothing comes between its answer and the end of the stream.
        dry_run: only return it.
        Raises NotSubscribed, ClientConnected, ZooKeeperUnavailable, MetaWriteFailed.
        """
        async with self._subscribing.of(client_id):
            self._check()
            held_by = await self.meta.holder(client_id)
            self._check()
            cursor = self.meta.cursor(client_id)
            if cursor is None:
                raise NotSubscribed(self.config.destination, client_id)
            if who := connected() or held_by:
                raise ClientConnected(self.config.destination, client_id, who)
            if dry_run:
                return cursor
            await self._remove(client_id)
            self._log.event(self.config.destination, "client.removed", client_id=client_id, position=str(cursor))
        return cursor

    def cursor_replaced(self, client_id: int, cursor: LogPosition) -> None:
        """See CursorEdits. The client's stream goes on from there."""
        if not self.meta.replaced(client_id, cursor):
            return  # unsubscribed meanwhile
        stream = self._streams.get(client_id)
        if stream:
            stream.rewind()
        self._log.event(self.config.destination, "cursor.replaced", client_id=client_id, position=str(cursor))

    def cursor_lost(self, client_id: int, loss: CursorLoss) -> None:
        """See CursorEdits."""
        name = f"cursor.{loss.value}"
        self._log.event(self.config.destination, name, client_id=client_id, action="written again", alarm=True)
        self.meta.rewrite(client_id)

    def client_mended(self, identity: ClientIdentity, cursor: LogPosition | None) -> None:
        """See CursorEdits. The client's stream opens when it subscribes."""
        self.meta.mended(identity, cursor)
        self._tell_readable()
        position = "" if cursor is None else str(cursor)
        self._log.event(self.config.destination, "client.mended", client_id=identity.client_id, position=position)

    def nodes_skipped(self, text: str) -> None:
        """See CursorEdits."""
        self._log.event(self.config.destination, "nodes.skipped", nodes=text, alarm=True)

    async def switch_source(self, to: str) -> str:
        """Carry out an operator's switch: see SourceSwitch.switch. Raises LocalProtocolError for a source of files."""
        self._check()
        switch = self._origin.source_switch
        if switch is None:
            raise LocalProtocolError(f"{self.config.destination} reads files: there is no other server")
        if "/" in to and not self.config.group:
            raise LocalProtocolError(f"{self.config.destination} has one source: do not name one")
        return await self._run_long(lambda: switch.switch(to, "an operator asked for it"))

    def status(self) -> InstanceStatus:
        """Return the figures of this moment."""
        switch = self._origin.source_switch
        facts = switch.facts() if switch else SourceFacts(self.config.source_name)
        return InstanceStatus(
            destination=self.config.destination,
            source_address=facts.address,
            source_role=facts.role,
            source_server=facts.server,
            source_switches=facts.switches,
            detecting_failures=facts.detecting_failures,
            source_version=self._origin.view.version,
            source_error=self._source_error,
            newest=self._newest,
            batch_mode=self.config.batch_mode.value,
            buffer_size=self.config.buffer_size,
            subscriptions=len(self._streams),
            flush_age_s=self._reactor.seconds() - self._flushed_at,
            streams=tuple(self._stream_status(stream) for stream in self._streams.values()),
        )

    def _stream_status(self, stream: Stream) -> StreamStatus:
        outlook, alarms = self._outlook.get(stream.client_id), self._alarms.get(stream.client_id)
        active = alarms.active if alarms else set()
        if stream.lost:  # told at once: until the next look, its state alone would be taken for another failure
            active = active - {PURGE} | {LOST}
        return replace(
            stream.status(self._newest),
            purge_in_s=outlook.purge_in_s if outlook else -1.0,
            alarms=tuple(sorted(active)),
        )

    # ---- inside

    def _keep_servers(self, addresses: tuple[str, ...]) -> None:
        """Implement KeepServers. What is refused without an answer is taken back if it is written later."""
        try:
            answer_of(self._reactor, lambda: self.meta.choose_servers(addresses), KEEP_WITHIN_S)
        except TimeoutError:
            kept = self._servers
            self._reactor.callFromThread(lambda: Deferred.fromCoroutine(self._take_back(kept)))
            raise MetaWriteFailed(f"{self.config.destination}: no answer to a write for {KEEP_WITHIN_S:g} s") from None
        self._servers = addresses

    async def _take_back(self, servers: tuple[str, ...]) -> None:
        await self.meta.keep_servers(servers)
        await self.flush()

    def _check(self) -> None:
        """Raise NotRunningHere if this node has lost the destination, or if this instance has been stopped."""
        if self._stopped:
            raise NotRunningHere(self.config.destination)
        self._claim.check()

    def _subscribed(self, identity: ClientIdentity) -> Stream:
        self._check()
        if self.meta.unreadable:
            self.meta.check_readable(identity.client_id)
        stream = self._streams.get(identity.client_id)
        if stream is None:
            raise NotSubscribed(self.config.destination, identity.client_id)
        return stream

    def _tell_readable(self) -> None:
        """Tell that no client is unreadable any more, if it was told that one is."""
        if self._unreadable_told and not self.meta.unreadable:
            self._unreadable_told = False
            self._log.event(self.config.destination, "cursor.readable")

    def _check_within(self, stream: Stream, identity: ClientIdentity) -> None:
        """Raise NotSubscribed if the last SUBSCRIBE on this node came from an account with other limits."""
        if stream.within != identity.within:
            raise NotSubscribed(self.config.destination, identity.client_id)

    def _stream(self, identity: ClientIdentity) -> Stream:
        client_id = identity.client_id
        if client_id not in self._streams:
            self._streams[client_id] = Stream(
                self.config,
                client_id,
                self.meta,
                self._origin.open_feed,
                self._reactor,
                check_room=partial(self._check_room, client_id),
                tell=partial(self._log.event, self.config.destination),
                batch_ids=self._batch_ids.of_client(self.config.destination, client_id),
                pace=self._paces.of(client_id),
                soon=self._wakes.soon,
                from_feed=self._from_feed,
                filter_text=identity.filter,
                position_lost=None
                if self.config.position_lost is WhenLost.FAIL
                else partial(self._lost_position, client_id),
                remember=self._remember,
            )
        return self._streams[client_id]

    @property
    def _remember(self) -> Callable[[LogPosition], Remembered] | None:
        """Begins to remember what a client acknowledges; None if that is of no use.

        Fingerprints are of transactions. Without the ends of transactions nobody can tell one from the next.
        """
        switch = self._origin.source_switch
        return None if switch is None or self.config.decode.filter_transaction_entry else switch.remember

    async def _hash_trails(self) -> None:
        """Hash what the streams that are due have delivered, for `_with_trail`, without delaying other work."""
        began = self._reactor.seconds()
        for client_id in self.meta.due:
            if client_id in self._streams:
                self._streams[client_id].hash_trail()
            if self._reactor.seconds() - began > HASHING_S:
                await self._pause(0)
                began = self._reactor.seconds()

    async def _pause(self, seconds: float) -> None:
        over: Deferred[None] = Deferred()
        self._reactor.callLater(seconds, lambda: over.callback(None))
        await over

    def _with_trail(self, client_id: int, cursor: LogPosition) -> LogPosition:
        stream = self._streams.get(client_id)
        return stream.with_trail(cursor) if stream else cursor

    def _lost_position(self, client_id: int, error: PositionLost) -> None:
        """The journal of a cursor is gone: go on where the configuration says."""
        Deferred.fromCoroutine(self._replace_lost(client_id, error)).addErrback(self._loop_broke)

    async def _replace_lost(self, client_id: int, lost: PositionLost) -> None:
        cursor = self.meta.cursor(client_id)
        if cursor is None:
            return
        try:
            instead = await self._run_long(lambda: self._origin.view.instead(cursor, self.config.position_lost))
        except CanalError as error:
            if client_id in self._streams:  # it may have unsubscribed meanwhile
                self._streams[client_id].not_found(error)
            return
        if self._stopped or client_id not in self._streams:
            return
        now = self.meta.cursor(client_id)
        if now is None or (now, now.server) != (cursor, cursor.server):
            self._streams[client_id].search_over()  # somebody has moved it: it counts
            return
        self.meta.reset(
            client_id, replace(instead, mark="", snapshot=now.snapshot)
        )  # the mark of the old cursor says nothing about this position
        self._streams[client_id].rewind()
        self._log.event(
            self.config.destination,
            "cursor.moved_past_lost",
            client_id=client_id,
            lost=str(cursor),
            position=str(instead),
            policy=self.config.position_lost.value,
            reason=str(lost),
            alarm=True,
        )

    async def _check_limits(self, identity: ClientIdentity) -> None:
        """Compile a client's filter and the rules of its account on the pool, unless they are its last ones.

        Whoever sends filters that take long waits for them alone. Raises FilterInvalid.
        """
        config, text, privacy = self.config, identity.filter, identity.within.privacy
        if (text, privacy) in (("", NO_RULES), self._compiled.get(identity.client_id)):
            return

        def compiled() -> None:
            effective(config.filter_regex, config.filter_black_regex, text, config.filter_client_mode)
            privacy_of(config.decode, privacy)

        async with self._compiling.of(identity.account or identity.client_id):
            await self._run_blocking(compiled)
        self._check()

    def _open_streams(self) -> dict[object, str]:
        return {
            client_id: self._accounts.get(client_id, "")
            for client_id, stream in self._streams.items()
            if stream.state is StreamState.OPEN
        }

    def _check_room(self, client_id: int) -> None:
        self._stream_places.check(client_id, self._accounts.get(client_id, ""))

    async def _begin_history(self) -> None:
        """Let the table history cover what comes from now on. Nothing is asked if it does so already."""
        if not self._origin.at_once(lambda: self._origin.keep_house(None, at_once=True)):
            await self._run_long(lambda: self._origin.keep_house(None))

    async def _start_position(self) -> LogPosition:
        """Return where a new client begins.

        The first client begins where the source stood when the destination first ran. Later ones begin at its end. A
        client without a cursor has not begun: its node in ZooKeeper exists as soon as its process looks for the node.
        """
        kept = self._kept_start
        start = None if kept is None else self._origin.at_once(lambda: self._origin.view.start(kept))
        if start is not None:
            return start
        start = await self._run_long(lambda: self._origin.view.start(kept))
        if kept is None and (seen := self._kept_start) is not None:  # a look was answered meanwhile
            start = await self._run_long(lambda: self._origin.view.start(seen))
        return start

    @property
    def _kept_start(self) -> LogPosition | None:
        """Where the first client begins, durable or not; None if a client has begun, or if nobody knows yet."""
        return None if self.meta.cursors() else self.meta.start or self._first_seen

    @property
    def _has_begun(self) -> bool:
        """Whether any client has a cursor, as far as the store can be read."""
        return bool(self.meta.cursors() or self.meta.unreadable)

    async def _look_at_source(self) -> None:
        """Ask where the binlog ends, and look after the table history: in one call, while nothing is new."""
        start_known = self._has_begun or self.meta.start is not None
        nothing_new = start_known and self._newest is not None and not self._source_error
        keep_house = self._keeping_house(at_once=True) if nothing_new else lambda: False

        def look() -> tuple[LogPosition, bool]:
            return self._origin.view.newest(), keep_house()

        try:
            known = self._origin.at_once(look) if nothing_new else None
            if known is None:
                known = await self._run_blocking(look)
            newest, kept = known
        except CanalError as error:
            if str(error) != self._source_error:
                self._log.event(self.config.destination, "source.unhealthy", error=str(error), alarm=True)
            self._source_error = str(error)
            self.hurry()
            return
        if self._source_error:
            self._log.event(self.config.destination, "source.healthy")
        self._source_error = ""
        self._newest = newest
        await self._keep_start(newest)
        self.hurry()
        if not kept:
            await self._run_long(self._keeping_house())

    async def _keep_start(self, seen: LogPosition) -> None:
        """Until there is a client, keep the first answer of the source as the start of the first one."""
        if self._has_begun:
            self._first_seen = None
            return
        if self._stopped or self.meta.start is not None:
            return
        self._first_seen = self._first_seen or seen
        try:
            await self.meta.keep_start(self._first_seen)
            if self._start_unwritten:
                self._start_unwritten = False
                self._log.event(self.config.destination, "start.written_again")
        except MetaWriteFailed as error:
            self._start_unwritten = True
            self._log.event(self.config.destination, "start.write_failed", error=str(error), alarm=True)
        except Fenced as error:
            self._claim.lost(error)

    def _keeping_house(self, *, at_once: bool = False) -> Callable[[], bool]:
        """Return what looks after the table history, and asks how long the source keeps what clients need: on threads.

        What it finds out counts at once. If the source goes away again, the next look reports it.

        at_once: as in Origin.keep_house.
        """
        start = self.meta.start
        cursors = {
            each.client_id: cursor for each in self.meta.clients() if (cursor := self.meta.cursor(each.client_id))
        }
        needed = self.meta.cursors() or (() if start is None else (start,))
        known = None if self.meta.unreadable else needed

        def keep_house() -> bool:
            with suppress(CanalError):
                if not self._origin.keep_house(known, at_once=at_once):
                    return False
                self._outlook = self._origin.outlook(cursors)
            return True

        return keep_house

    def _watch(self) -> None:
        """Report alarms that begin or end."""
        for gone in self._alarms.keys() - self._streams.keys():
            del self._alarms[gone]
        now = self._reactor.seconds()
        for client_id, stream in self._streams.items():
            outlook = self._outlook.get(client_id, NO_END)
            denied = self.meta.refused.get(client_id, "")
            if client_id in self._alarms and self._alarms[client_id].rests(stream.rest, outlook, now, denied):
                continue
            config = self.config
            limits = (config.alarm_lag_s, config.alarm_unmoved_s, config.alarm_blocked_s)
            alarms = self._alarms.setdefault(client_id, Alarms(*limits))
            for change in alarms.step(stream.status(self._newest), outlook, now, denied, lost=stream.lost):
                name = f"alarm.{change.alarm}" if change.begins else f"alarm.{change.alarm}_over"
                facts = change.facts
                self._log.event(self.config.destination, name, client_id=client_id, alarm=change.begins, **facts)

    def _park_idle(self) -> None:
        for stream in self._streams.values():
            stream.park_if_idle()
        for read in tuple(self._reads):
            if read.silent_s >= self.config.read_idle_s:
                read.close(f"no GET for {self.config.read_idle_s:g} s (canal.instance.read.idle)")

    def _every(self, period_s: float, call: Callable[[], object], *, now: bool = False) -> None:
        self._ends.append(self._rounds.every(period_s, call, self._loop_broke, now=now))

    def _loop_broke(self, failure: Failure) -> None:
        """A chore failed with an unexpected error: give the destination up, so that another node takes it over."""
        error = failure.value
        trace = failure.getTraceback()
        self._log.event(self.config.destination, "instance.broken", error=repr(error), trace=trace, alarm=True)
        broke = CanalError(f"destination:{self.config.destination} gave up: {error!r}")
        if self._first_look.called:
            self._claim.lost(broke)
        else:
            self._first_look.errback(broke)  # the start fails
