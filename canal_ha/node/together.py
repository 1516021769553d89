"""together: works side by side, none of which delays another one or keeps it from being carried out."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, DeferredList


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Carry out works side by side. When all are over, raise what the first of those that failed has raised."""
    running = [Deferred.fromCoroutine(work) for work in works]
    results: list[tuple[bool, Any]] = await DeferredList(running, consumeErrors=True)
    for well, result in results:
        if not well:
            result.raiseException()
