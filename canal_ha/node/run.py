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
from twisted.python import log

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
        reactor.doIteration = ReadyConnections(reactor, poller).wait
    reactor.threadCallQueue = FewCallsAtOnce(reactor.threadCallQueue)
    return reactor


class ReadyConnections:
    """What a round of an epoll reactor does with connections: it serves a few that are ready.

    The system takes turns among them. Twisted's own loop builds a log context around each, which nothing here reads.
    """

    def __init__(self, reactor: Any, poller: Any) -> None:
        """reactor: Twisted's. poller: its epoll object."""
        self._reactor = reactor
        self._poll = poller.poll
        self._selectables: dict[int, Any] = reactor._selectables

    def wait(self, timeout_s: float | None) -> None:
        """Wait for connections that are ready, and read from them, or write. timeout_s: at most; None: no limit."""
        for descriptor, event in self._poll(-1 if timeout_s is None else timeout_s, READY_AT_ONCE):
            selectable = self._selectables.get(descriptor)
            if selectable is None:
                continue  # one before it has closed it
            try:
                if event == select.EPOLLIN:
                    self._read(selectable)
                else:
                    self._reactor._doReadOrWrite(selectable, descriptor, event)
            except Exception:
                log.err()

    def _read(self, selectable: Any) -> None:
        """Do what Twisted does."""
        try:
            why = selectable.doRead()
        except Exception as error:
            why = error
            log.err()
        if why:
            self._reactor._disconnectSelectable(selectable, why, True)


class FewCallsAtOnce(list[Any]):
    """The reactor's queue of calls from other threads. It shows those of CALLS_S at a time, the first one always.

    The reactor removes the calls that it has made. If any are left, it goes on with them after its timers.
    """

    def __iter__(self) -> Iterator[Any]:
        if len(self) == 1:  # the usual case needs no time
            yield self[0]
            return
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
