"""Iteration over batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from canal_ha.client.message import Message
from canal_ha.errors import ServerRefused
from canal_ha.wire.client_session import END_OF_RANGE

WAIT_MS = 1000  # of one GET; the next one follows. A server that ignores `eager` waits so long for a full batch


async def messages_of(get: Callable[[], Awaitable[Message]]) -> AsyncIterator[Message]:
    """Yield the batches, without those that are empty; return at the end of a private read. get: fetches one."""
    while True:
        try:
            message = await get()
        except ServerRefused as error:
            if END_OF_RANGE in str(error):
                return
            raise
        if message:
            yield message
