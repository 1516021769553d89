"""Calls from other threads to the reactor's that wait for the answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import TypeVar

from twisted.internet.defer import Deferred

from canal_ha.instance.stream import Reactor

T = TypeVar("T")


def answer_of(reactor: Reactor, request: Callable[[], Awaitable[T]], within_s: float) -> T:
    """Make a request on the reactor's thread and return its answer, or raise its error. Any other thread.

    reactor: Twisted's.
    request: begins to answer when it is called on the reactor.
    within_s: how long to wait, seconds.

    Raises TimeoutError when there is no answer in time; the request goes on.
    """
    answer: Future[T] = Future()

    async def ask() -> None:
        try:
            answer.set_result(await request())
        except Exception as error:
            answer.set_exception(error)

    reactor.callFromThread(lambda: Deferred.fromCoroutine(ask()))
    return answer.result(within_s)
