"""together: runs coroutines side by side. Neither a slow one nor one that fails affects the others."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred, DeferredList


async def together(*works: Coroutine[Any, Any, None]) -> None:
    """Run coroutines side by side. When all have ended, raise the error of the first one in the list that failed."""
    running = [Deferred.fromCoroutine(work) for work in works]
    results: list[tuple[bool, Any]] = await DeferredList(running, consumeErrors=True)
    for well, result in results:
        if not well:
            result.raiseException()
