"""Start a node from its configuration, wait for a signal, stop in order, and return an exit code."""

from __future__ import annotations

import gc
import signal
from typing import Any

from twisted.internet.defer import Deferred

from canal_ha import logs, steady_time
from canal_ha.config.model import CanalConfig
from canal_ha.errors import ConfigError
from canal_ha.node.node import Node

LOG = logs.get(__name__)


def steady_reactor() -> Any:
    """Return Twisted's reactor with steady time, for `seconds` and for the timers. Call it before any timer is set.

    By itself the reactor uses time.time(): a step back of the system clock would delay all timers and extend leases.
    """
    from twisted.internet import reactor as installed

    reactor: Any = installed
    reactor.seconds = steady_time.seconds
    return reactor


def serve(config: CanalConfig) -> int:
    """Run a node until SIGTERM or SIGINT. With TLS, SIGHUP makes it read its certificates again.

    Returns 0 after an orderly stop, 1 when it broke, 2 when its configuration cannot be used (a port that is taken).
    """
    reactor = steady_reactor()
    node = Node(config, reactor)
    reload = node.reload_certificates
    if reload is not None:
        signal.signal(signal.SIGHUP, lambda number, frame: reactor.callFromThread(reload))
    codes: list[int] = []
    gc.collect()
    gc.freeze()  # a collection that scans code and configuration would pause the node for 50 ms
    gc.set_threshold(5_000, 10, 100)  # one that scans thousands of connections takes as long: it should be rare

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
