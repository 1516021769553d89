"""AsyncClusterConnector: canal's connector with fail-over (docs/protocol.md#cluster-connector), for asyncio.

ClusterConnector runs the same coroutines on a thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from canal_ha import logs
from canal_ha.client.async_connector import AT_ONCE_MS, AsyncConnector
from canal_ha.client.exchange import Access, Exchange
from canal_ha.client.iteration import WAIT_MS, messages_of
from canal_ha.client.loop_runtime import LOOP
from canal_ha.client.message import Message
from canal_ha.client.numbering import Numbering
from canal_ha.client.reading import Reading
from canal_ha.client.running import TAKEOVER_DELAY_S
from canal_ha.client.runtime import Runtime
from canal_ha.client.tls import ClientTls
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import LocalProtocolError
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.place import Place, end_of_read
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import named_tables
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.client.arrow import ArrowMessage, Pages

log = logs.get(__name__)


class AsyncClusterConnector:
    """One client of one destination, on whichever node runs it; `async with` connects and disconnects.

    runtime: where the calls run; by default on the event loop of their caller.
    Other arguments as in ClusterConnector. The judge is called on the event loop.

    `async for message in connector` yields batches that are not empty. The caller acknowledges them. It goes on after
    fail-overs, and ends at the end of a private read.

    Calls of several tasks run one after the other. After a GET that is cancelled, the connection stays as it is, and
    the next GET returns the batch. A GET without a time limit (timeout_ms=0) and any other request that is cancelled
    end the connection; the next call makes another one, where batches in flight are delivered again.

    A thread of its own talks to ZooKeeper.
    """

    def __init__(
        self,
        where: str | Sequence[str],
        destination: str,
        client_id: int = 1001,
        username: str = "",
        password: str | None = "",
        so_timeout_ms: int = 60_000,
        idle_timeout_ms: int = 3_600_000,
        *,
        filter: str | None = None,
        retry_times: int | None = None,
        retry_interval_ms: int = 5000,
        call_timeout_s: float | None = None,
        rollback_on_connect: bool = True,
        rollback_on_disconnect: bool = False,
        zk_session_timeout_ms: int = 6000,
        zk_auth: str | ZooKeeperAccess = "",
        takeover_delay_s: float = TAKEOVER_DELAY_S,
        private: bool = False,
        judge: Callable[[LogPosition | None], None] | None = None,
        snapshot: Sequence[str] = (),
        exact: bool = True,
        tls: ClientTls | None = None,
        runtime: Runtime = LOOP,
    ) -> None:
        """Create a connector; see the class. Raises ValueError if `where` names no valid address."""
        servers = where if isinstance(where, str) else None
        if servers is not None and not servers.strip():
            raise ValueError("where: expected ZooKeeper servers, as host:2181,host:2181")
        self.destination = destination
        self.client_id = client_id
        self._numbering = Numbering()
        self._pages: Pages | None = None
        self._private = private
        self._reading = Reading()
        self._exchange = Exchange(
            Access(
                servers,
                () if isinstance(where, str) else tuple(where),
                destination,
                client_id,
                username,
                password,
                so_timeout_ms,
                idle_timeout_ms,
                retry_times,
                retry_interval_ms,
                call_timeout_s,
                rollback_on_connect and not private,
                rollback_on_disconnect and not private,
                zk_session_timeout_ms,
                zk_auth if isinstance(zk_auth, ZooKeeperAccess) else ZooKeeperAccess(zk_auth),
                takeover_delay_s,
                private,
                exact,
                tls,
                named_tables(snapshot),
            ),
            filter,
            self._numbering.new_connection,
            runtime,
            judge,
        )

    # ---- connection

    @property
    def filter(self) -> str | None:
        """The filter of the next connection's subscription; None: it does not subscribe."""
        return self._exchange.filter

    @property
    def connected(self) -> bool:
        """Whether connect() was called. As in canal, the process need not be active."""
        return self._exchange.is_open

    @property
    def active(self) -> bool:
        """Whether this process is the active one; without ZooKeeper, whether connect() was called."""
        return self._exchange.active

    @property
    def node(self) -> str | None:
        """Address of the connected node; None without a connection."""
        return self._exchange.node

    @property
    def connection(self) -> int:
        """Number of the connection of the last reply. A new number means: batches in flight are delivered again."""
        return self._exchange.connection

    @property
    def standing_by(self) -> str | None:
        """Address of the active process if it is another one; None if none is known."""
        return self._exchange.standing_by

    def check_valid(self) -> bool:
        """Return whether this process is active and connected."""
        return self.active and self.node is not None

    async def connect(self) -> None:
        """Find the node, connect, subscribe if there is a filter, and roll back. See ClusterConnector.connect."""
        await self._exchange.open()

    async def disconnect(self) -> None:
        """Close the connection and let another process become active; the server keeps subscription and cursor.

        Other calls that wait raise ConnectorStopped.
        """
        await self._exchange.close()

    def stop_running(self) -> None:
        """Make waiting calls raise ConnectorStopped, now and until the next connect().

        Delivered batches can still be acknowledged. Callable from any thread and from signal handlers.
        """
        self._exchange.stop()

    interrupt = stop_running

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    # ---- requests

    async def subscribe(self, filter: str | None = None) -> None:
        """Subscribe on this and every later connection. filter: None or "" keeps the server's."""
        if self._private:
            raise LocalProtocolError("this connector is private: create one without private=True to subscribe")
        async with self._exchange.calling() as stay:
            await self._exchange.call("subscribe", lambda link: link.subscribe(filter), stay)
            self._exchange.filter = filter or ""

    async def read_from(
        self, start: str, until: str = "", filter: str = "", snapshot: Sequence[str] = ()
    ) -> LogPosition | None:
        """Start a private read. See ClusterConnector.read_from."""
        if not self._private:
            raise LocalProtocolError("create the connector with private=True to read from a position")
        Place.parse(start), end_of_read(until)
        async with self._exchange.calling() as stay:
            self._reading = Reading(start, until, filter, snapshot)
            self._exchange.greet = None
            await self._exchange.call("read", self._reading.begin, stay)
            self._exchange.greet = self._reading.begin
            return self._reading.begun

    @property
    def read_begun(self) -> LogPosition | None:
        """Where the private read began on the newest connection; None if the server did not say."""
        return self._reading.begun

    async def unsubscribe(self) -> None:
        """Unsubscribe; the server also deletes the cursor."""
        async with self._exchange.calling() as stay:
            await self._exchange.call("unsubscribe", AsyncConnector.unsubscribe, stay)
            self._exchange.filter = None

    async def get(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """Get a batch and acknowledge it at once. A crash before it is processed loses it."""
        message = await self.get_without_ack(batch_size, timeout_ms)
        await self.ack(message.id)
        return message

    async def get_without_ack(
        self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS, *, eager: bool = False
    ) -> Message:
        """Get the next batch after the last delivered one. See ClusterConnector.get_without_ack."""
        async with self._exchange.calling() as stay:
            return await self._fetch(stay, batch_size, timeout_ms, eager=eager)

    async def get_arrow(
        self,
        batch_size: int = DEFAULT_FETCH_SIZE,
        timeout_ms: int = AT_ONCE_MS,
        *,
        time_zone: str = "UTC",
        eager: bool = False,
    ) -> ArrowMessage:
        """Get a batch as Arrow record batches. See SimpleConnector.get_arrow."""
        from canal_ha.client.arrow import Pages, arrow_message

        async with self._exchange.calling() as stay:  # the lock also protects the pages in which batches are built
            message = await self._fetch(stay, batch_size, timeout_ms, eager=eager)
            self._pages = Pages.kept(self._pages, time_zone)
            return arrow_message(message, time_zone, self._pages)

    async def _fetch(self, stay: int, batch_size: int, timeout_ms: int, *, eager: bool) -> Message:
        message = await self._exchange.call(
            "fetch the data", lambda link: link.get_without_ack(batch_size, timeout_ms, eager=eager), stay
        )
        if message.id != EMPTY_BATCH_ID:
            message.id = self._numbering.handed_out(message.id)
            if self._private:
                self._reading.handed_out(message)
        return message

    async def ack(self, batch_id: int, mark: str = "") -> None:
        """Acknowledge the oldest batch in flight. See ClusterConnector.ack."""
        if batch_id == EMPTY_BATCH_ID:
            return
        async with self._exchange.calling():
            server_id = self._numbering.server_id(batch_id)
            if server_id is not None and await self._exchange.call_if_connected(lambda link: link.ack(server_id, mark)):
                self._numbering.acknowledged(batch_id)
                self._reading.acknowledged(batch_id)
                return
        log.warning(
            "client.ack_dropped",
            destination=self.destination,
            client_id=self.client_id,
            batch_id=batch_id,
            reason="its connection is lost; the batch is delivered again",
        )

    async def rollback(self, batch_id: int = 0) -> None:
        """Make the server deliver batches in flight again. See ClusterConnector.rollback."""

        async def roll_back(link: AsyncConnector) -> bool:
            server_id = self._numbering.server_id(batch_id) if batch_id else 0
            if server_id is None:
                return False
            await link.rollback(server_id)
            return True

        async with self._exchange.calling() as stay:
            if await self._exchange.call("rollback", roll_back, stay):
                self._numbering.rolled_back(batch_id)

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over batches with entries; see the class."""
        return messages_of(lambda: self.get_without_ack(timeout_ms=WAIT_MS, eager=True))
