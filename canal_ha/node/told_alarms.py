"""ToldAlarms: looks at the alarms of a node every few seconds, and sends them to its handlers. Reactor thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from twisted.internet.task import LoopingCall, deferLater

from canal_ha import logs
from canal_ha.alarms.delivery import AlarmDelivery
from canal_ha.alarms.notice import Subject
from canal_ha.alarms.watch import AlarmWatch
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.alarms import LOST, MEANINGS
from canal_ha.instance.status import InstanceStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.unready import Unready

LOOK_S = 5.0
CLOSE_WITHIN_S = 2.0  # for all handlers together
CLOSE_LOOK_S = 0.02
LOG = logs.get(__name__)
Look = Callable[[], Iterable[tuple[Subject, str]]]


class ToldAlarms:
    """The handlers of one node."""

    def __init__(self, node: str, reactor: Any, look: Look, deliveries: Iterable[AlarmDelivery]) -> None:
        """Do nothing before `start`.

        node: registerIp:port.
        reactor: Twisted's.
        look: returns the alarms of this moment.
        deliveries: send the notices.
        """
        self._watch = AlarmWatch(node)
        self._reactor = reactor
        self._look = look
        self._deliveries = tuple(deliveries)
        self._broken = ""
        self._loop = LoopingCall(self._step)
        self._loop.clock = reactor

    @property
    def lost(self) -> int:
        """How many notices no handler has taken."""
        return sum(each.lost for each in self._deliveries)

    def start(self) -> None:
        """Begin to look, if there is a handler."""
        for each in self._deliveries:
            each.start()
        if self._deliveries:
            self._loop.start(LOOK_S, now=False)

    def stop(self) -> None:
        """Stop looking. What waits is still sent."""
        if self._loop.running:
            self._loop.stop()

    async def close(self) -> None:
        """Send what waits, for at most CLOSE_WITHIN_S, with one attempt each."""
        for each in self._deliveries:
            each.end()
        until = self._reactor.seconds() + CLOSE_WITHIN_S
        while any(each.running for each in self._deliveries) and self._reactor.seconds() < until:
            await deferLater(self._reactor, CLOSE_LOOK_S)  # no thread of the pool: servers that hang may hold them all

    def _step(self) -> None:
        """Look once. After an error the next step looks again; the same error is logged once."""
        broken = ""
        try:
            self._tell()
        except Exception as error:
            broken = repr(error)
            if broken != self._broken:
                LOG.exception("alarm.watch_broken", error=broken)
        self._broken = broken

    def _tell(self) -> None:
        for notice in self._watch.step(dict(self._look()), self._reactor.seconds(), time.time()):
            for each in self._deliveries:
                each.put(notice)


def subjects(
    alarms: Iterable[ConfigAlarm | NodeAlarm], instances: Iterable[InstanceStatus], unready: Iterable[Unready]
) -> Iterator[tuple[Subject, str]]:
    """Yield what each alarm is about, with its text.

    alarms: of the node.
    instances: that run here.
    unready: what the node lacks.
    """
    for lack in unready:
        yield Subject("node.unready", lack.destination), lack.text
    for alarm in alarms:
        kind = "configuration" if isinstance(alarm, ConfigAlarm) else "node"
        yield Subject(f"{kind}.{alarm.alarm}", alarm.destination), alarm.text
    for status in instances:
        for stream in status.streams:
            if stream.state == "failed" and LOST not in stream.alarms:
                yield Subject("stream.failed", status.destination, stream.client_id), stream.error
            for name in stream.alarms:
                text = f"client {stream.client_id} of {status.destination}: {MEANINGS[name]}"
                if name == LOST:
                    text = stream.error or text
                yield Subject(f"stream.{name}", status.destination, stream.client_id), text
