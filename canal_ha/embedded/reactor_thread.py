"""The thread of Twisted's reactor, and calls to it from other threads and from event loops.

A reactor runs once in a process, so the thread lasts as long as the program's main thread. Then it ends what still runs
on it, and itself. If the program already runs the reactor, that one is used.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, Generic, TypeVar

from canal_ha import logs
from canal_ha.errors import LocalProtocolError

T = TypeVar("T")
LOG = logs.get(__name__)
_FORKED = "the embedded server's thread is in the process that this one was forked from: call it there"
LOOK_S = 0.2  # how often the reactor's thread looks whether the main thread has ended

_starting = threading.Lock()
_home = 0  # the process in which the reactor was found or started; a process forked from it has no such thread


def running_reactor(at_exit: Callable[[], Awaitable[None]]) -> Any:
    """Return the reactor, which is started if necessary.

    at_exit: called on the reactor, before it stops, when the main thread has ended; only for a reactor started here.
    Raises LocalProtocolError if the program has run the reactor before and stopped it, or was forked from one that runs
    it.
    """
    global _home
    from twisted.internet import reactor as installed

    from canal_ha.node.run import steady_reactor  # installs the reactor

    reactor: Any = installed
    with _starting:
        if is_forked():
            raise LocalProtocolError(_FORKED)
        if not reactor.running:
            steady_reactor()
            begun = threading.Event()
            reactor.callWhenRunning(begun.set)
            reactor.callWhenRunning(_watch_main_thread, reactor, at_exit)
            # not a daemon: the interpreter waits for it, and so for the last flush
            threading.Thread(target=_run, args=(reactor, begun), name="canal-embedded", daemon=False).start()
            begun.wait()
            if not reactor.running:
                raise LocalProtocolError("Twisted's reactor has stopped in this program, and cannot run a second time")
        _home = os.getpid()
    return reactor


def is_forked() -> bool:
    """Return whether this process was forked from one that has the reactor's thread."""
    return _home not in (0, os.getpid())


def _run(reactor: Any, begun: threading.Event) -> None:
    from twisted.internet.error import ReactorNotRestartable

    try:
        reactor.run(installSignalHandlers=False)
    except ReactorNotRestartable:
        begun.set()


def _watch_main_thread(reactor: Any, at_exit: Callable[[], Awaitable[None]]) -> None:
    from twisted.internet.defer import Deferred

    async def end() -> None:
        try:
            await at_exit()
        except Exception as error:
            LOG.exception("embedded.stop_broken", error=repr(error))
        reactor.stop()

    if threading.main_thread().is_alive():
        reactor.callLater(LOOK_S, _watch_main_thread, reactor, at_exit)
    else:
        Deferred.fromCoroutine(end())


class ReactorCall(Generic[T]):
    """A coroutine that runs on the reactor. Its caller waits on a thread (`wait`) or on an event loop (`await`).

    If the caller is interrupted or cancelled, the coroutine goes on to its end, unless there is `unheard`.
    """

    def __init__(
        self, reactor: Any, work: Callable[[], Coroutine[Any, Any, T]], unheard: Callable[[T], None] | None = None
    ) -> None:
        """Begin.

        reactor: the running one.
        work: makes the coroutine, on the reactor.
        unheard: cancel the coroutine if the caller stops waiting; called on the reactor with a result that is here
            all the same.
        Raises LocalProtocolError in a forked process.
        """
        if is_forked():
            raise LocalProtocolError(_FORKED)
        self._reactor = reactor
        self._unheard = unheard
        self._future: Future[T] = Future()
        self._cancel: Callable[[], None] = lambda: None
        reactor.callFromThread(self._begin, work)

    def wait(self) -> T:
        """Block until the result is here, and return it. Raises LocalProtocolError on the reactor's own thread."""
        from twisted.python.threadable import isInIOThread

        if isInIOThread():
            raise LocalProtocolError("a blocking call on the reactor's thread would wait for itself")
        try:
            while not wait([self._future], LOOK_S).done:
                if not self._reactor.running:
                    raise LocalProtocolError("the program ends, and its embedded server has stopped")
        except BaseException:
            self._leave()
            raise
        return self._future.result()

    def __await__(self) -> Generator[Any, None, T]:
        return self._result().__await__()

    async def _result(self) -> T:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def tell(future: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done.set)

        self._future.add_done_callback(tell)
        try:
            await done.wait()
        except asyncio.CancelledError:
            self._leave()
            raise
        return self._future.result()

    def _begin(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        from twisted.internet.defer import Deferred

        async def run() -> T:
            return await work()

        deferred = Deferred.fromCoroutine(run())
        self._cancel = deferred.cancel
        deferred.addCallbacks(self._future.set_result, lambda failure: self._future.set_exception(failure.value))

    def _leave(self) -> None:
        if self._unheard is not None:
            self._reactor.callFromThread(self._give_back, self._unheard)

    def _give_back(self, unheard: Callable[[T], None]) -> None:
        self._cancel()  # does nothing if the result is here
        if self._future.done() and self._future.exception() is None:
            unheard(self._future.result())
