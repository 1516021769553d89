"""Meta: one destination's clients and cursors, in memory and written to a backend. Reactor thread.

A subscription, with the client's first cursor, counts once it is durable. An acknowledged cursor counts at once; the
next flush writes the latest one of each client. So a crash loses at most the acknowledgements since the last flush:
those rows are delivered again, never skipped. A failed write stays due.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from canal_ha.errors import ClientsRefused, MetaUnreadable, MetaWriteFailed, NotSubscribed
from canal_ha.meta.repository import (
    Change,
    CursorMoved,
    MetaBackend,
    ServersChosen,
    StartForgotten,
    StartKept,
    Subscribed,
    Unsubscribed,
    same_or_filled,
)
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition, split_journal

Finish = Callable[[int, LogPosition], LogPosition]


class CoroutineLock(Protocol):
    """A lock for coroutines, first come first served: Twisted's DeferredLock, or asyncio.Lock."""

    def acquire(self) -> Awaitable[object]:
        """Wait for the lock."""
        ...

    def release(self) -> None:
        """Release the lock."""
        ...


class Meta:
    """One destination's clients and cursors.

    turn: a lock that keeps the backend's writes in order, one at a time.

    Every method that writes raises MetaWriteFailed, leaving memory as before the call, or Fenced.
    """

    def __init__(self, destination: str, backend: MetaBackend, *, turn: CoroutineLock) -> None:
        self.destination = destination
        self.start: LogPosition | None = None  # kept for the first client, void as soon as any has a cursor
        self.servers: tuple[str, ...] = ()  # see ServersChosen
        self._backend = backend
        self._turn = turn
        self._clients: dict[int, ClientIdentity] = {}
        self._cursors: dict[int, LogPosition] = {}
        self.unreadable: dict[int, str] = {}  # see Snapshot
        self.refused: dict[int, str] = {}  # why the last flush could not write a client
        self._first: dict[int, LogPosition] = {}  # first cursors that are being written
        self._edited: dict[int, LogPosition] = {}  # what an operator made of them, of clients whose write failed
        self._due_clients: set[int] = set()  # clients whose identity the next flush writes again
        self._due: set[int] = set()  # clients whose cursor the next flush writes
        self._servers_due = False  # the next flush writes the chosen servers again
        self._start_due = False  # the next flush writes the start again, or voids it
        self._writing = False  # a flush is under way

    async def load(self) -> None:
        """Load the backend's snapshot; call it once, before any other method. Raises MetaUnreadable."""
        snapshot = await self._backend.load()
        self._clients = dict(snapshot.clients)
        self._cursors = {client: cursor for client, cursor in snapshot.cursors.items() if client in self._clients}
        self.unreadable = dict(snapshot.unreadable)
        self.start = snapshot.start
        self.servers = snapshot.servers
        self._start_due = self.start is not None and bool(self._cursors)

    # ---- looking in

    def clients(self) -> tuple[ClientIdentity, ...]:
        """Return the subscribed clients by client id, each with its filter."""
        return tuple(self._clients[client_id] for client_id in sorted(self._clients))

    def cursor(self, client_id: int) -> LogPosition | None:
        """Return the client's cursor as of the last ACK, durable or not; None before its first."""
        return self._cursors.get(client_id)

    def cursors(self) -> tuple[LogPosition, ...]:
        """Return every client's cursor."""
        return tuple(self._cursors.values())

    def check_readable(self, client_id: int) -> None:
        """Raise MetaUnreadable if the client is stored, but damaged: a first cursor would skip rows."""
        if client_id in self.unreadable:
            raise MetaUnreadable(self.unreadable[client_id])

    @property
    def due(self) -> tuple[int, ...]:
        """Clients whose cursor waits for a flush, except those that are being written."""
        return tuple(sorted(self._due))

    @property
    def changed(self) -> bool:
        """Whether a flush has anything to write, or is writing."""
        void = self.start is not None and (self._start_due or bool(self._cursors))
        return bool(self._writing or void or self._due or self._due_clients or self._servers_due)

    # ---- clients come and go, durably

    async def subscribe(self, identity: ClientIdentity, start: LogPosition | None) -> None:
        """Add this client; a blank filter keeps its old one. If it has no cursor, `start` becomes its cursor.

        The destination's first cursor voids the kept start in the same write. A client that the backend may have lost
        is written again. Raises MetaUnreadable if its cursor cannot be read.
        """
        async with self._my_turn():
            self.check_readable(identity.client_id)
            known = self._clients.get(identity.client_id)
            identity = same_or_filled(known, identity)
            first = None if identity.client_id in self._cursors else self._edited.get(identity.client_id, start)
            lost = identity.client_id in self._due_clients
            changes: list[Change] = [Subscribed(identity)] if identity != known or lost else []
            if lost and identity.client_id in self._cursors:
                changes.append(CursorMoved(identity.client_id, self._cursors[identity.client_id]))
            if first is not None:
                changes.append(CursorMoved(identity.client_id, first))
                if self.start is not None:
                    changes.append(StartForgotten())
            if first is not None:
                self._first[identity.client_id] = first
            try:
                if changes:
                    await self._backend.write(tuple(changes))
            except MetaWriteFailed:
                if known is not None:
                    self.rewrite(identity.client_id)  # the backend may yet store the filter, which does not count
                raise
            finally:
                written, first = first, self._first.pop(identity.client_id, None)
                if first is not None and first is not written:  # an operator has edited it meanwhile
                    self._edited[identity.client_id] = first  # the backend tells that once
            self._edited.pop(identity.client_id, None)
            self._clients[identity.client_id] = identity
            self._due_clients.discard(identity.client_id)
            if first is not None:
                self._cursors.setdefault(identity.client_id, first)  # an ACK may have moved it meanwhile
                self.start = None

    async def unsubscribe(self, client_id: int) -> None:
        """Remove this client, its filter and its cursor. An unknown client is not an error."""
        async with self._my_turn():
            self._edited.pop(client_id, None)
            if client_id not in self._clients and client_id not in self.unreadable:
                return
            try:
                await self._backend.write((Unsubscribed(client_id),))
            except MetaWriteFailed:
                self.rewrite(client_id)  # the backend may yet remove the client, which still is subscribed
                raise
            self._clients.pop(client_id, None)
            self.unreadable.pop(client_id, None)
            self.refused.pop(client_id, None)
            self._cursors.pop(client_id, None)
            self._due.discard(client_id)
            self._due_clients.discard(client_id)

    async def holder(self, client_id: int) -> str:
        """See MetaBackend."""
        async with self._my_turn():
            return await self._backend.holder(client_id)

    async def keep_start(self, position: LogPosition) -> None:
        """Keep the position where the first client will begin, unless a client has a cursor or a start is kept."""
        async with self._my_turn():
            if self.start is None and not self._cursors:
                await self._backend.write((StartKept(position),))
                self.start = position

    async def choose_servers(self, addresses: tuple[str, ...]) -> None:
        """Make durable from which servers the destination reads. See ServersChosen.

        After a write without an answer the next flush writes the old choice again, because the new one may yet land.
        """
        async with self._my_turn():
            if addresses != self.servers:
                try:
                    await self._backend.write((ServersChosen(addresses),))
                except MetaWriteFailed:
                    self._servers_due = True
                    raise
                self.servers = addresses
                self._servers_due = False

    async def keep_servers(self, addresses: tuple[str, ...]) -> None:
        """Go back to an earlier choice after the choices under way; the next flush writes it. It never fails."""
        async with self._my_turn():
            self.servers = addresses
            self._servers_due = True

    # ---- cursors

    def move(self, client_id: int, position: LogPosition) -> bool:
        """Take an acknowledged position as the cursor; the next flush writes it. Return False and ignore a step back.

        Raises NotSubscribed: an ACK does not add a removed client again.
        """
        if client_id not in self._clients:
            raise NotSubscribed(self.destination, client_id)
        cursor = self._cursors.get(client_id)
        if cursor is not None and steps_back(cursor, position):
            return False
        if (
            cursor is None
            or position.offset != cursor.offset  # the usual case
            or position != cursor
            or _beside(position) != _beside(cursor)
        ):
            self._cursors[client_id] = position
            self._due.add(client_id)
        return True

    def replaced(self, client_id: int, position: LogPosition) -> bool:
        """Take over a cursor that was written from outside, forwards or backwards; it needs no flush.

        Return False and do nothing if the client is unknown. A client that subscribes for the first time is known: its
        first write may have had no answer, and an operator has edited what it left.
        """
        for first in (self._first, self._edited):
            if client_id in first:
                first[client_id] = position
                return True
        if client_id not in self._clients:
            return False
        self._cursors[client_id] = position
        self._due.discard(client_id)
        self._start_due |= self.start is not None
        return True

    def mended(self, identity: ClientIdentity, cursor: LogPosition | None) -> None:
        """Take over a client that was unreadable, as the backend has it now."""
        self.unreadable.pop(identity.client_id, None)
        self._clients[identity.client_id] = identity
        if cursor is not None:
            self._cursors[identity.client_id] = cursor
            self._start_due |= self.start is not None

    def reset(self, client_id: int, position: LogPosition) -> None:
        """Move a cursor anywhere, because its position is lost; the next flush writes it. Raises NotSubscribed."""
        if not self.replaced(client_id, position):
            raise NotSubscribed(self.destination, client_id)
        self._due.add(client_id)

    def rewrite(self, client_id: int | None = None) -> None:
        """Make the next flush write this client again, or everything if None, because the backend lost its data."""
        chosen = self._clients.keys() if client_id is None else self._clients.keys() & {client_id}
        self._due_clients |= chosen
        self._due |= chosen & self._cursors.keys()
        self._start_due |= client_id is None and self.start is not None

    async def flush(self, finish: Finish = lambda client_id, cursor: cursor) -> tuple[tuple[int, LogPosition], ...]:
        """Write everything due in one step and return the cursors written. What fails or moves meanwhile stays due.

        So do clients that the backend refuses; `refused` says why.

        finish: completes a cursor before it is written, with work that would cost too much at every ACK.
        """
        async with self._my_turn():
            clients = tuple(self._clients[client_id] for client_id in sorted(self._due_clients))
            cursors = tuple((client_id, finish(client_id, self._cursors[client_id])) for client_id in sorted(self._due))
            self._cursors |= cursors
            start_due = self._start_due
            void = self.start is not None and bool(self._cursors)
            changes: list[Change] = [Subscribed(identity) for identity in clients]
            changes += (CursorMoved(client_id, position) for client_id, position in cursors)
            if void:
                changes.append(StartForgotten())
            elif self.start is not None and start_due:
                changes.append(StartKept(self.start))
            servers_due = self._servers_due
            if servers_due:
                changes.append(ServersChosen(self.servers))
            if not changes:
                return ()
            # A change during the write must become due again, so clear the sets before it and restore them if it fails.
            self._due_clients, self._due, self._start_due, self._servers_due = set(), set(), False, False
            refused: Mapping[int, str] = {}

            def due_again(failed: Callable[[int], bool]) -> None:
                self._due_clients |= {identity.client_id for identity in clients if failed(identity.client_id)}
                self._due |= {each for each, due in cursors if failed(each) and self._cursors[each] is due}

            self._writing = True
            try:
                await self._backend.write(tuple(changes))
            except ClientsRefused as error:
                refused = error.clients
                due_again(refused.__contains__)
            except BaseException:
                due_again(lambda client_id: True)
                self._start_due |= start_due
                self._servers_due |= servers_due
                raise
            finally:
                self._writing = False
            tried = {identity.client_id for identity in clients} | {client_id for client_id, _ in cursors}
            self.refused = {each: why for each, why in self.refused.items() if each not in tried} | dict(refused)
            if void and not refused:
                self.start = None
            return tuple(each for each in cursors if each[0] not in refused)

    @asynccontextmanager
    async def _my_turn(self) -> AsyncIterator[None]:
        await self._turn.acquire()
        try:
            yield
        finally:
            self._turn.release()


def _beside(cursor: LogPosition) -> tuple[str, str]:
    """Return what is kept with a cursor and moves without it."""
    return cursor.mark, cursor.snapshot


def steps_back(cursor: LogPosition, position: LogPosition) -> bool:
    """Return whether `position` lies before `cursor` in one binlog.

    Only positions of one source are compared. A smaller offset with a later time belongs to another binlog behind the
    same host name (a switch, a reset) and is not a step back. With several sources, no source may step back.
    """
    if cursor.part and position.part:
        stood = {each.part: each for each in cursor.parts}
        return any(_steps_back(stood[each.part], each) for each in position.parts if each.part in stood)
    return _steps_back(cursor, position)


def _steps_back(cursor: LogPosition, position: LogPosition) -> bool:
    if position.offset > cursor.offset and position.journal == cursor.journal:
        return False  # the usual case
    if (cursor.address, cursor.port) != (position.address, position.port):
        return False
    if cursor.server and position.server and cursor.server != position.server:
        return False
    if split_journal(cursor.journal)[0] != split_journal(position.journal)[0] or position.order >= cursor.order:
        return False
    return not (0 < cursor.timestamp_ms < position.timestamp_ms)
