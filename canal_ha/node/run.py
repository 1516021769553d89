"""Start a node from its configuration, wait for a signal, stop in order, and return an exit code."""

from __future__ import annotations

import gc
import select
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from twisted.internet.defer import Deferred

from canal_ha import logs, steady_time
from canal_ha.config.model import CanalConfig
from canal_ha.errors import ConfigError
from canal_ha.node.descriptors import raise_limit
from canal_ha.node.node import Node
from canal_ha.server.conversation import TURN_S

LOG = logs.get(__name__)
SWITCH_S = TURN_S / 2  # how long a thread keeps the interpreter while another one waits for it; Python's default: 5 ms
READY_AT_ONCE = 16  # connections that are read from before timers get their turn; each takes some 0.3 to 1 ms
CALLS_S = 0.005  # of processor time, for calls from other threads before timers get their turn


def steady_reactor() -> Any:
    """Return Twisted's reactor with steady time, for `seconds` and for the timers. Call it before any timer is set.

    By itself the reactor uses time.time(): a step back of the system clock would delay all timers and extend leases.
    It also reads from all connections that are ready, and makes all calls of other threads, before it looks at a timer,
    which takes long with hundreds: one transaction can wake the streams of all clients.
    """
    from twisted.internet import reactor as installed

    reactor: Any = installed
    reactor.seconds = steady_time.seconds
    poller = getattr(reactor, "_poller", None)
    if hasattr(select, "epoll") and isinstance(poller, select.epoll):
        reactor._poller = FewAtOnce(poller)
    reactor.threadCallQueue = FewCallsAtOnce(reactor.threadCallQueue)
    return reactor


class FewAtOnce:
    """An epoll object that reports a few ready connections at a time; the system takes turns among them."""

    def __init__(self, poller: Any) -> None:
        self._poller = poller

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """Return ready file descriptors with their events."""
        found: list[tuple[int, int]] = self._poller.poll(timeout, min(maxevents, READY_AT_ONCE))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)


class FewCallsAtOnce(list[Any]):
    """The reactor's queue of calls from other threads. It shows those of CALLS_S at a time, the first one always.

    The reactor removes the calls that it has made. If any are left, it goes on with them after its timers.
    """

    def __iter__(self) -> Iterator[Any]:
        until = time.thread_time() + CALLS_S
        for call in super().__iter__():
            yield call
            if time.thread_time() > until:
                return


def share_interpreter() -> None:
    """Let a waiting thread have the interpreter after half of a connection's turn.

    Between two turns the reactor gives the interpreter up for a microsecond. That is too short for a waiting thread to
    take it, and it restarts the thread's wait for the interval. If the interval were longer than a turn, streams would
    stand still while the reactor has requests to carry out.
    """
    sys.setswitchinterval(SWITCH_S)


def serve(config: CanalConfig) -> int:
    """Run a node until SIGTERM or SIGINT. With TLS, SIGHUP makes it read its certificates again.

    Returns 0 after an orderly stop, 1 when it broke, 2 when its configuration cannot be used (a port that is taken).
    """
    raise_limit(config.connections_max)
    share_interpreter()
    reactor = steady_reactor()
    node = Node(config, reactor)
    reload = node.reload_certificates
    if reload is not None:
        signal.signal(signal.SIGHUP, lambda number, frame: reactor.callFromThread(reload))
    codes: list[int] = []
    gc.collect()
    gc.freeze()  # a collection that scans code and configuration would pause the node for 50 ms
    gc.set_threshold(5_000, 10, 10)  # one that scans thousands of connections takes as long: it should be rare

    async def start() -> None:
        try:
            await node.start()
        except ConfigError as error:
            LOG.error("node.refused", error=str(error))
            codes.append(2)
            reactor.stop()

    async def stop() -> None:
        LOG.info("node.stopping")
        await node.stop()
        LOG.info("node.stopped")

    def broke(failure: Any) -> None:
        LOG.error("node.broken", error=failure.getErrorMessage(), trace=failure.getTraceback())
        codes.append(1)
        if reactor.running:
            reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(start()).addErrback(broke))
    reactor.addSystemEventTrigger("before", "shutdown", lambda: Deferred.fromCoroutine(stop()).addErrback(broke))
    reactor.run()
    return codes[0] if codes else 0
