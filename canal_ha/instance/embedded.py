"""Embedded: the server without a network. It passes each request to the instance of the destination."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from twisted.internet.defer import Deferred

from canal_ha.errors import NotRunningHere
from canal_ha.instance.endings import Endings
from canal_ha.instance.instance import Instance
from canal_ha.instance.private_read import BinlogRead
from canal_ha.instance.status import InstanceStatus
from canal_ha.instance.wake import Awaited
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import Within
from canal_ha.model.snapshot import NO_SNAPSHOT, InitialSnapshot, SnapshotRequest, SnapshotState

T = TypeVar("T")


class _Start(NamedTuple):
    """A start under way, and the requests that wait for it."""

    instance: Instance
    waiting: list[Deferred[None]]


class Embedded:
    """The instances that run on this node. A request for an instance that is starting waits until it has started.

    batch_ids: for every instance here. Connections outlive instances, so the ids must do so too.
    """

    def __init__(
        self,
        demand: Callable[[str], Awaitable[None]] | None = None,
        configured: Callable[[str], bool] = lambda destination: False,
        batch_ids: BatchIds | None = None,
        connected: Callable[[str, int], str] = lambda destination, client_id: "",
    ) -> None:
        """Begin without instances.

        demand: called when a client asks for a destination that does not run here, by SUBSCRIBE or by the ROLLBACK
            that canal's clients send before it; may start the destination (a lazy one) or do nothing.
        configured: whether a destination could run here.
        batch_ids: gives the ids of batches; None: new ones.
        connected: who is connected with a client id of a destination; "" if nobody is.
        """
        self.batch_ids = batch_ids or BatchIds()
        self._running: dict[str, Instance] = {}
        self._starting: dict[str, _Start] = {}
        self._endings = Endings()
        self._demand = demand
        self._configured = configured
        self._connected = connected

    async def start(self, instance: Instance) -> None:
        """Start an instance and serve it. If the start fails, the destination is not served.

        If the instance before it is stopping, wait for its end, because its last flush writes the cursors that this one
        loads. A stop is bounded: see LAST_FLUSH_S.

        The source of a failed start may have been asked already, and is closed. Everybody who waits for the start waits
        for that too, even if this call is cancelled meanwhile.
        """
        destination = instance.config.destination
        self._starting[destination] = _Start(instance, [])
        try:
            await self._endings.over(destination)
            await instance.start()
        except Exception:
            closing: Deferred[None] = Deferred.fromCoroutine(instance.stop(flush=False))
            closing.addBoth(self._started, destination)
            await _end_of(closing)
            raise
        self._running[destination] = instance
        self._started(None, destination)

    def _started(self, result: T, destination: str) -> T:
        """Wake everybody who waits for the start. Return the result, for a chain of callbacks."""
        for waiting in self._starting.pop(destination).waiting:
            if not waiting.called:  # the connection may have cancelled it
                waiting.callback(None)
        return result

    async def stop(self, destination: str, *, flush: bool = True) -> None:
        """Stop serving first, then stop the instance. Unknown destinations are no error.

        A start under way ends first, and waits no longer for its source. A caller that wants it to end earlier cancels
        it.
        """
        if destination in self._starting:
            self._starting[destination].instance.hurry()
        await self._start_of(destination)
        instance = self._running.pop(destination, None)
        if instance:
            with self._endings.of(destination):
                await instance.stop(flush=flush)

    async def ended(self, destination: str) -> None:
        """Wait until no instance of the destination is stopping here. Its files are quiet then."""
        await self._endings.over(destination)

    def running(self, destination: str) -> Instance | None:
        """The instance that serves this destination here, if any."""
        return self._running.get(destination)

    def knows(self, destination: str) -> bool:
        """Whether the destination runs here, starts, or could."""
        return destination in self._running or destination in self._starting or self._configured(destination)

    @property
    def destinations(self) -> tuple[str, ...]:
        """The names of the instances here."""
        return tuple(self._running)

    @property
    def starting(self) -> tuple[str, ...]:
        """The names of the instances that are starting here."""
        return tuple(self._starting)

    @property
    def instances(self) -> tuple[Instance, ...]:
        """The instances here."""
        return tuple(self._running.values())

    def status(self) -> Sequence[InstanceStatus]:
        """Return the figures of every instance here."""
        return [instance.status() for instance in self._running.values()]

    async def switch_source(self, destination: str, to: str) -> str:
        """See Instance.switch_source. Raises NotRunningHere."""
        return await self._here(destination).switch_source(to)

    async def change_snapshot(
        self, destination: str, client_id: int, request: SnapshotRequest, within: Within
    ) -> SnapshotState:
        """See Instance.change_snapshot. Raises NotRunningHere."""
        return await self._here(destination).change_snapshot(client_id, request, within)

    async def move_cursor(
        self, destination: str, client_id: int, place: Place, *, dry_run: bool
    ) -> tuple[LogPosition, LogPosition]:
        """See Instance.move_cursor. Raises NotRunningHere."""
        return await self._here(destination).move_cursor(client_id, place, dry_run=dry_run)

    async def delete_cursor(self, destination: str, client_id: int, *, dry_run: bool) -> LogPosition:
        """See Instance.delete_cursor. Raises NotRunningHere."""
        connected = partial(self._connected, destination, client_id)
        return await self._here(destination).delete_cursor(client_id, connected, dry_run=dry_run)

    async def tables(self, destination: str, within: Within) -> Sequence[tuple[str, str]]:
        """See Instance.tables. Raises NotRunningHere."""
        return await self._here(destination).tables(within)

    async def definition(self, destination: str, schema: str, table: str, within: Within) -> str | None:
        """See Instance.definition. Raises NotRunningHere."""
        return await self._here(destination).definition(schema, table, within)

    async def subscribe(
        self,
        identity: ClientIdentity,
        *,
        exact: bool = False,
        opens: bool = True,
        snapshot: InitialSnapshot = NO_SNAPSHOT,
    ) -> LogPosition | None:
        """See Instance.subscribe. Raises NotRunningHere."""
        await self._demanded(identity)
        instance = await self._instance(identity)
        return await instance.subscribe(identity, exact=exact, opens=opens, snapshot=snapshot)

    def era(self, identity: ClientIdentity) -> object | None:
        """See Instance.era; None where the destination does not run."""
        instance = self._running.get(identity.destination)
        return instance.era(identity) if instance else None

    def cursor(self, identity: ClientIdentity) -> LogPosition | None:
        """See Instance.cursor; None where the destination does not run."""
        instance = self._running.get(identity.destination)
        return instance.cursor(identity) if instance else None

    async def unsubscribe(self, identity: ClientIdentity) -> None:
        """See Instance.unsubscribe. Raises NotRunningHere."""
        await (await self._instance(identity)).unsubscribe(identity)

    async def get(
        self,
        identity: ClientIdentity,
        request: GetRequest,
        check: Callable[[], None] = lambda: None,
        awaited: Callable[[], Awaited] = Deferred,
    ) -> GetAnswer:
        """See Instance.get. Raises NotRunningHere."""
        instance = self._running.get(identity.destination) or await self._instance(identity)
        return await instance.get(identity, request, check, awaited)

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
        """See Instance.read_from. Raises NotRunningHere."""
        instance = await self._instance(identity)
        return await instance.read_from(identity, place, until, exact=exact, snapshot=snapshot, holder=holder)

    async def ack(self, identity: ClientIdentity, batch_id: int, mark: str = "") -> None:
        """See Instance.ack. Raises NotRunningHere."""
        instance = self._running.get(identity.destination) or await self._instance(identity)
        await instance.ack(identity, batch_id, mark)

    async def rollback(self, identity: ClientIdentity, batch_id: int, *, unasked: bool = False) -> None:
        """See Instance.rollback. Raises NotRunningHere."""
        await self._demanded(identity)
        await (await self._instance(identity)).rollback(identity, batch_id, unasked=unasked)

    async def in_flight(self, identity: ClientIdentity) -> tuple[int, ...]:
        """See Instance.in_flight. Raises NotRunningHere."""
        return (await self._instance(identity)).in_flight(identity)

    async def entries_in_flight(self, identity: ClientIdentity) -> int:
        """See Instance.entries_in_flight. Raises NotRunningHere."""
        return (await self._instance(identity)).entries_in_flight(identity)

    async def _start_of(self, destination: str) -> None:
        """Wait until a start under way has succeeded or failed."""
        if destination in self._starting:
            waiting: Deferred[None] = Deferred()
            self._starting[destination].waiting.append(waiting)
            await waiting

    async def _demanded(self, identity: ClientIdentity) -> None:
        destination = identity.destination
        if self._demand and destination not in self._running and destination not in self._starting:
            await self._demand(destination)

    async def _instance(self, identity: ClientIdentity) -> Instance:
        # a client that watches `running` in ZooKeeper connects within milliseconds of the claim
        await self._start_of(identity.destination)
        return self._here(identity.destination)

    def _here(self, destination: str) -> Instance:
        instance = self._running.get(destination)
        if instance is None:
            raise NotRunningHere(destination)
        return instance


def _end_of(work: Deferred[None]) -> Deferred[None]:
    """Return a Deferred that ends with this work. Cancelling it does not cancel the work."""
    end: Deferred[None] = Deferred()

    def ended(result: T) -> T:
        if not end.called:
            end.callback(None)
        return result

    work.addBoth(ended)
    return end
