"""AsyncConnector: canal's connector to one server (docs/protocol.md#connector), for asyncio.

SimpleConnector runs the same coroutines on a thread.
"""

from __future__ import annotations

import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from canal_ha.client.iteration import WAIT_MS, messages_of
from canal_ha.client.loop_runtime import LOOP
from canal_ha.client.message import Message
from canal_ha.client.runtime import Link, Runtime
from canal_ha.client.tls import ClientTls
from canal_ha.decode.kernel.entries import only_frames, whole_reply
from canal_ha.errors import LocalProtocolError, RemoteProtocolError, ServerRefused
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place, end_of_read
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import InitialSnapshot, named_tables
from canal_ha.wire.client_session import LARGEST_FRAME_BYTES, Accepted, Answer, ClientSession
from canal_ha.wire.messages import Fetched
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.client.arrow import ArrowMessage, Pages

AT_ONCE_MS = -1
WITHOUT_LIMIT_MS = 0


class AsyncConnector:
    """One client of one destination on one server; `async with` connects and disconnects.

    lazy_acks: has no effect on an event loop.
    runtime: where the calls run; by default on the event loop of their caller.
    Other arguments as in SimpleConnector.

    `async for message in connector` yields batches that are not empty. The caller acknowledges them. It ends at the end
    of a private read.

    Calls of several tasks run one after the other; `ack` does not wait for a GET. After a GET that is cancelled, the
    connection stays as it is, and the next GET returns the batch. A GET without a time limit (timeout_ms=0) and any
    other request that is cancelled close the connection, as an error does.
    """

    def __init__(
        self,
        host: str,
        port: int,
        destination: str,
        client_id: int = 1001,
        username: str = "",
        password: str | None = "",
        so_timeout_ms: int = 60_000,
        idle_timeout_ms: int = 3_600_000,
        *,
        connect_timeout_ms: int | None = None,
        filter: str | None = None,
        rollback_on_connect: bool = True,
        rollback_on_disconnect: bool = False,
        max_frame_bytes: int = LARGEST_FRAME_BYTES,
        read_ahead: bool = False,
        lazy_acks: bool = False,
        snapshot: Sequence[str] | InitialSnapshot = (),
        exact: bool = True,
        tls: ClientTls | None = None,
        runtime: Runtime = LOOP,
    ) -> None:
        self.host = host
        self.port = port
        self.identity = ClientIdentity(destination, client_id, filter or "")
        self.filter = filter
        self._username = username
        self._password = password
        self._so_timeout_ms = so_timeout_ms
        self._connect_timeout_ms = so_timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._rollback_on_connect = rollback_on_connect
        self._rollback_on_disconnect = rollback_on_disconnect
        self._max_frame_bytes = max_frame_bytes
        self._link: Link | None = None
        if not isinstance(snapshot, InitialSnapshot):
            snapshot = InitialSnapshot(named_tables(snapshot), filter or "")
        self._snapshot = snapshot
        self._session = ClientSession(exact=exact, snapshot=self._snapshot)
        self._pages: Pages | None = None
        if read_ahead and not rollback_on_connect:
            raise ValueError("read_ahead needs rollback_on_connect")
        self._read_ahead = read_ahead
        self._lazy_acks = lazy_acks
        self._exact = exact
        self._tls = tls
        self._runtime = runtime
        self._turn = runtime.new_turn()
        self._asked: int | None = None  # timeout of a GET that has no reply yet
        self._ahead: Fetched | None = None  # the reply to a GET that nobody has taken

    # ---- connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end of the connection."""
        return self._linked().local_address

    async def connect(self) -> None:
        """Connect, authenticate, subscribe if there is a filter, and roll back if rollback_on_connect.

        Does nothing if connected. Raises ConnectionLost, ServerRefused or RemoteProtocolError; afterwards the connector
        is not connected.
        """
        async with self._turn:
            if self._link is not None:
                return
            self._link = await self._runtime.open_link(self.host, self.port, self._connect_timeout_ms, self._tls)
            self._session = ClientSession(
                max_frame_bytes=self._max_frame_bytes,
                only_frames=only_frames,
                whole_reply=whole_reply,
                exact=self._exact,
                snapshot=self._snapshot,
            )
            try:
                await self._answer()
                await self._ask(self._session.authenticate(self._username, self._password, self._idle_timeout_ms))
                if self.filter is not None:
                    await self._subscribe(self.filter)
                if self._rollback_on_connect:
                    await self._linked().send(self._session.rollback(self.identity, 0))
            except BaseException:
                await self._drop()
                raise

    async def disconnect(self) -> None:
        """Close the connection; the server keeps subscription, cursor and batches in flight."""
        if self._link is None:
            return
        try:
            if self._rollback_on_disconnect and self._session.in_step:  # does not wait for a GET sent ahead
                await self._link.send(self._session.rollback(self.identity, 0))
        finally:
            await self._drop()

    def interrupt(self) -> None:
        """Make the current request, or the next one, raise ConnectionLost. For signal handlers and other threads."""
        link = self._link
        if link is not None:
            link.interrupt()

    def abort(self) -> None:
        """End the connection at once; a waiting request raises ConnectionLost. Callable from any thread."""
        link = self._link
        if link is not None:
            link.abort()

    def discard(self) -> None:
        """Close the connection at once and send nothing more. Callable from any thread while no request waits."""
        link = self._forget()
        if link is not None:
            link.discard()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    # ---- requests

    async def subscribe(self, filter: str | None = None, *, tell_cursor: bool = False) -> LogPosition | None:
        """Subscribe to the destination. See SimpleConnector.subscribe."""
        async with self._turn:
            return await self._subscribe(filter, tell_cursor=tell_cursor)

    async def read_from(
        self, start: str, until: str = "", filter: str = "", snapshot: Sequence[str] = ()
    ) -> LogPosition | None:
        """Start a private read on this connection. See SimpleConnector.read_from."""
        place, end = Place.parse(start), end_of_read(until)
        identity = ClientIdentity(self.identity.destination, self.identity.client_id, filter)
        async with self._turn:
            await self._settle()
            answer = await self._ask(self._session.read_from(identity, place, end, named_tables(snapshot)))
            self._ahead = None
        begin = answer.cursor if isinstance(answer, Accepted) else None
        if snapshot and not (begin and begin.snapshot):
            raise ServerRefused(f"{self.host}:{self.port}: this version of the node reads no existing rows: update it")
        return begin

    async def unsubscribe(self) -> None:
        """Unsubscribe; the server also deletes the cursor."""
        async with self._turn:
            await self._settle()
            await self._ask(self._session.unsubscribe(self.identity))
            self._ahead = None

    async def get(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """Get a batch and acknowledge it at once. A crash before it is processed loses it."""
        message = await self.get_without_ack(batch_size, timeout_ms)
        await self.ack(message.id)
        return message

    async def get_without_ack(
        self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS, *, eager: bool = False
    ) -> Message:
        """Get the next batch after the last delivered one. See SimpleConnector.get_without_ack."""
        size = batch_size if batch_size > 0 else DEFAULT_FETCH_SIZE
        timeout_ms = max(timeout_ms, AT_ONCE_MS)
        async with self._turn:
            await self._settle()
            fetched, self._ahead = self._ahead, None
            if fetched is None:
                await self._send_get(size, timeout_ms, eager=eager)
                fetched = await self._asked_for(timeout_ms)
            if self._read_ahead and timeout_ms != WITHOUT_LIMIT_MS and fetched.batch_id != EMPTY_BATCH_ID:
                await self._send_get(size, timeout_ms, eager=eager)
            return Message(fetched)

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

        message = await self.get_without_ack(batch_size, timeout_ms, eager=eager)
        self._pages = Pages.kept(self._pages, time_zone)
        return arrow_message(message, time_zone, self._pages)

    async def ack(self, batch_id: int, mark: str = "") -> None:
        """Acknowledge the oldest batch in flight. See SimpleConnector.ack."""
        if batch_id != EMPTY_BATCH_ID:
            request = self._session.ack(self.identity, batch_id, mark)
            lazy = self._lazy_acks and self._asked is None  # a GET sent ahead may wait for this ack's space
            await self._linked().send(request, more=lazy)

    async def rollback(self, batch_id: int = 0) -> None:
        """Make the server deliver batches in flight again; there is no reply. batch_id: 0 for all, else the oldest."""
        async with self._turn:
            await self._settle()
            self._ahead = None  # a rollback of the oldest batch includes later ones
            await self._linked().send(self._session.rollback(self.identity, batch_id))

    def check_valid(self) -> bool:
        """Return True: a connector to one server is always active."""
        return True

    def __aiter__(self) -> AsyncIterator[Message]:
        """Iterate over batches with entries; see the class."""
        return messages_of(lambda: self.get_without_ack(timeout_ms=WAIT_MS, eager=True))

    # ---- inside

    async def _subscribe(self, filter: str | None, *, tell_cursor: bool = False) -> LogPosition | None:
        await self._settle()
        identity = ClientIdentity(self.identity.destination, self.identity.client_id, filter or "")
        answer = await self._ask(self._session.subscribe(identity, tell_cursor=tell_cursor))
        self.identity = identity
        return answer.cursor if isinstance(answer, Accepted) else None

    def _linked(self) -> Link:
        if self._link is None:
            raise LocalProtocolError("should connect first")
        return self._link

    async def _settle(self) -> None:
        """Wait for the reply to a GET that has none yet, so that the next reply belongs to the next request.

        An empty reply is discarded, because entries may have arrived since.
        """
        if self._asked is not None:
            fetched = await self._asked_for(self._asked)
            self._ahead = fetched if fetched.batch_id != EMPTY_BATCH_ID else None

    async def _send_get(self, size: int, timeout_ms: int, *, eager: bool) -> None:
        request = self._session.get(self.identity, size, timeout_ms, eager=eager)
        self._asked = timeout_ms
        await self._send(request)

    async def _asked_for(self, wait_ms: int) -> Fetched:
        """Return the reply to the GET under way. If the wait is cancelled, the next request waits for it again."""
        try:
            answer = await self._reply(wait_ms)
        except ServerRefused:
            self._asked = None
            raise
        self._asked = None
        if not isinstance(answer, Fetched):
            raise RemoteProtocolError(f"unexpected reply to GET: {type(answer).__name__}")
        return answer

    async def _ask(self, request: bytes) -> Answer:
        """Send a request and wait for its reply."""
        await self._send(request)
        return await self._reply()

    async def _send(self, request: bytes) -> None:
        link = self._linked()
        try:
            await link.send(request)
        except BaseException:
            await self._drop()
            raise

    async def _reply(self, wait_ms: int = AT_ONCE_MS) -> Answer:
        try:
            return await self._answer(wait_ms)
        except ServerRefused:
            if not self._session.in_step:
                await self._drop()
            raise
        except CancelledError:
            if self._asked is None or self._asked == WITHOUT_LIMIT_MS:
                await self._drop()
            raise
        except BaseException:
            await self._drop()
            raise

    async def _answer(self, wait_ms: int = AT_ONCE_MS) -> Answer:
        """Wait for the next reply. wait_ms: the timeout in a GET."""
        link = self._linked()
        endless = wait_ms == WITHOUT_LIMIT_MS or self._so_timeout_ms <= 0
        deadline = None if endless else time.monotonic() + (self._so_timeout_ms + max(wait_ms, 0)) / 1000
        while (answer := self._session.next()) is None:
            self._session.receive(await link.receive(deadline, self._session.missing))
        return answer

    def _forget(self) -> Link | None:
        """Return the connection, which is no longer this connector's."""
        link, self._link = self._link, None
        self._asked = self._ahead = None
        return link

    async def _drop(self) -> None:
        link = self._forget()
        if link is not None:
            await link.close(linger=self._session.unconfirmed)
