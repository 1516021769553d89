"""AsyncEmbeddedServer: a node inside this program, for asyncio."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from canal_ha.client.iteration import WAIT_MS, messages_of
from canal_ha.client.message import Message, message_of
from canal_ha.embedded.requests import AT_ONCE_MS, Requests, Settings
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.snapshot import named_tables
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE


class AsyncEmbeddedServer:
    """A node inside this program; `async with` starts and stops it. It listens on no port.

    Arguments and behaviour as of EmbeddedServer. The node runs in a thread of its own, so nothing blocks the event
    loop. A GET that is cancelled loses nothing: the next one of the same client returns its batch. Other calls go on to
    their end when they are cancelled.
    """

    def __init__(
        self, conf_dir: str | os.PathLike[str] = "conf", settings: Settings | None = None, *, exact: bool = True
    ) -> None:
        """Create a server; see the class."""
        self._requests = Requests(conf_dir, settings or {}, exact=exact)

    # ---- the server and its destinations

    async def start(self) -> None:
        """Start the node and its destinations. See EmbeddedServer.start."""
        await (await asyncio.to_thread(self._requests.start))  # it starts a thread, and imports modules

    async def stop(self) -> None:
        """Make acknowledged cursors durable, and stop all destinations. See EmbeddedServer.stop."""
        stopping = self._requests.stop()
        if stopping:
            await stopping

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start_destination(self, destination: str, settings: Mapping[str, object] | None = None) -> None:
        """Start a destination. See EmbeddedServer.start_destination."""
        await self._requests.start_destination(destination, settings)

    async def stop_destination(self, destination: str) -> None:
        """Make the cursors of a destination durable, and stop it. Unknown destinations are no error."""
        await self._requests.stop_destination(destination)

    async def destinations(self) -> tuple[str, ...]:
        """Return the destinations that run here now."""
        return await self._requests.destinations()

    async def alarms(self) -> tuple[str, ...]:
        """Return what needs a person: what happened, where, and what to do."""
        return await self._requests.alarms()

    # ---- clients

    async def subscribe(self, identity: ClientIdentity, *, snapshot: Sequence[str] = ()) -> None:
        """Subscribe a client; durable on return. See EmbeddedServer.subscribe."""
        await self._requests.subscribe(identity, named_tables(snapshot))

    async def unsubscribe(self, identity: ClientIdentity) -> None:
        """Delete a client and its cursor; durable on return."""
        await self._requests.unsubscribe(identity)

    async def get(
        self, identity: ClientIdentity, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS
    ) -> Message:
        """Get a batch and acknowledge it at once. A crash before it is processed loses it."""
        message = await self.get_without_ack(identity, batch_size, timeout_ms)
        await self.ack(identity, message.id)
        return message

    async def get_without_ack(
        self,
        identity: ClientIdentity,
        batch_size: int = DEFAULT_FETCH_SIZE,
        timeout_ms: int = AT_ONCE_MS,
        *,
        eager: bool = False,
    ) -> Message:
        """Get the next batch after the last delivered one. See EmbeddedServer.get_without_ack."""
        return message_of(await self._requests.get(identity, batch_size, timeout_ms, eager=eager))

    async def ack(self, identity: ClientIdentity, batch_id: int) -> None:
        """Acknowledge the oldest batch in flight. See EmbeddedServer.ack."""
        await self._requests.ack(identity, batch_id)

    async def rollback(self, identity: ClientIdentity, batch_id: int = 0) -> None:
        """Deliver batches in flight again. batch_id: 0 for all, else the oldest, which includes all later ones."""
        await self._requests.rollback(identity, batch_id)

    async def list_batch_ids(self, identity: ClientIdentity) -> tuple[int, ...]:
        """Return the ids of the client's batches in flight, oldest first."""
        return await self._requests.list_batch_ids(identity)

    def messages(self, identity: ClientIdentity, batch_size: int = DEFAULT_FETCH_SIZE) -> AsyncIterator[Message]:
        """Iterate over the client's batches that are not empty. The caller acknowledges them."""
        return messages_of(lambda: self.get_without_ack(identity, batch_size, WAIT_MS, eager=True))
