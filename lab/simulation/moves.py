"""A move that somebody asks for, with the real Mover, through a node that has no destinations.

The node's ZooKeeper server may lag, so that the move is decided on a cluster of the past.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from canal_ha.cluster.mover import Mover
from canal_ha.zookeeper.race_events import SessionEvent, SessionUp
from lab.simulation.session import SimulatedSession
from lab.simulation.time import Process, World
from lab.simulation.zookeeper import Ensemble

PATIENCE_S = 3.0  # how long the node lives


class MoveRequest:
    """One move. It is asked for as soon as the session is up.

    world: its time.
    ensemble: ZooKeeper.
    random: for the times that messages take.
    timeout_s: of the session.
    lag_s: how far the server is behind.
    destination: what moves.
    to: the node that shall run it.
    done: called with the HandedOver, or with the error.
    log: structlog's.
    """

    def __init__(
        self,
        world: World,
        ensemble: Ensemble,
        random: Random,
        *,
        timeout_s: float,
        lag_s: float,
        destination: str,
        to: str,
        done: Callable[[object], None],
        log: Any,
    ) -> None:
        self._process = Process(world, random)
        self._destination = destination
        self._to = to
        self._done = done
        self._asked = False
        session = SimulatedSession(ensemble, self._process, random, timeout_s=timeout_s)
        self._mover = Mover(
            "10.0.0.99:11111",
            session,
            view=lambda: (None, None),
            settled=lambda: False,
            interval_s=1.0,
            clock=self._process,
            log=log,
        )
        session.listen(self._heard)
        session.move(lag_s)
        Deferred.fromCoroutine(session.start())
        self._process.callLater(PATIENCE_S, self._process.kill)

    def _heard(self, event: SessionEvent) -> None:
        if isinstance(event, SessionUp) and not self._asked:
            self._asked = True
            Deferred.fromCoroutine(self._mover.move(self._destination, self._to)).addBoth(self._answered)

    def _answered(self, result: object) -> None:
        self._done(result.value if isinstance(result, Failure) else result)
        self._process.kill()
