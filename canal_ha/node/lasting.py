"""LastingAlarms: alarms that last from one event of an instance to another. Reactor thread.

The log has the events; the status and the metrics have the alarms.
"""

from __future__ import annotations

import math

from canal_ha.model.alarm import SOURCE, NodeAlarm

UNWRITTEN = "unwritten"  # cursors cannot be written; they advance in memory
HISTORY = "history"  # the table history cannot be written or read
STANDBY = "standby"  # the source fails, and its standby lacks what was read
UNLOADABLE = "unloadable"  # this node cannot load the cursors
UNREADABLE = "unreadable"  # the cursor of one client or more cannot be read
QUEUE = "queue"  # Kafka does not get the changes
LOGS = "logs"  # a log file cannot be written
NO_RIGHTS = "no_rights"  # ZooKeeper denies this node what it needs to take part

WAIT_MOST_S = 30.0  # of a queue; a longer wait is an alarm
SETTLE_S = {SOURCE: 30.0}  # how long it has to last: a restart of the source is no alarm
AGAIN_S = {UNLOADABLE: 300.0}
"""For how many seconds an alarm lasts after its last event. A node that still has to load a destination tries again
within a minute; otherwise another node runs it, or ZooKeeper is away."""

_BEGINS = {
    "cursor.write_failed": UNWRITTEN,
    "start.write_failed": UNWRITTEN,
    "history.unavailable": HISTORY,
    "source.unhealthy": SOURCE,
    "source.standby_behind": STANDBY,
    "instance.unloadable": UNLOADABLE,
    "cursor.unreadable": UNREADABLE,
    "queue.failed": QUEUE,
    "queue.waiting": QUEUE,
}
_ENDS = {
    "cursor.written_again": (UNWRITTEN,),
    "start.written_again": (UNWRITTEN,),
    "history.available": (HISTORY,),
    "source.healthy": (SOURCE,),
    "source.detected_again": (STANDBY,),
    "source.switched": (STANDBY,),
    "instance.started": (UNLOADABLE,),
    "cursor.readable": (UNREADABLE,),
    "queue.active": (QUEUE,),
    "queue.ended": (QUEUE,),
    "instance.stopped": (UNWRITTEN, HISTORY, SOURCE, STANDBY, UNREADABLE),
}


class LastingAlarms:
    """The alarms of the destinations of this node."""

    def __init__(self) -> None:
        self._active: dict[tuple[str, str, str], NodeAlarm] = {}  # by destination, source of a group and alarm
        self._told: dict[tuple[str, str, str], float] = {}  # when the event of each came last

    def event(self, destination: str, name: str, text: str, source: str, now: float) -> None:
        """Begin or end alarms.

        destination: name of the destination.
        name: of the event.
        text: what happened and what to do, if the event begins an alarm.
        source: name of the source of a group that the event is about; "" for the whole destination.
        now: s since 1970.
        """
        if name in _BEGINS:
            alarm = _BEGINS[name]
            key = (destination, source, alarm)
            since = self._active[key].since if self._lasts(key, now) else now
            self._told[key] = now
            self._active[key] = NodeAlarm(alarm, destination, f"{source or destination}: {text}", since)
        for alarm in _ENDS.get(name, ()):
            for key in [key for key in self._active if key[0] == destination and key[2] == alarm]:
                if source in ("", key[1]):
                    del self._active[key], self._told[key]

    def at(self, now: float) -> tuple[NodeAlarm, ...]:
        """Return the alarms of this moment, by destination. now: s since 1970."""
        found = (self._active[key] for key in sorted(self._active) if self._lasts(key, now))
        return tuple(each for each in found if now - each.since >= SETTLE_S.get(each.alarm, 0.0))

    def _lasts(self, key: tuple[str, str, str], now: float) -> bool:
        return key in self._active and now - self._told[key] < AGAIN_S.get(key[2], math.inf)


class LastingWait:
    """When a wait becomes an alarm. Pure.

    told: what the alarm says that it waits for; "" without an alarm.
    """

    def __init__(self) -> None:
        self.told = ""
        self._since: float | None = None

    def tells(self, waits_for: str, now: float) -> bool:
        """Return whether an alarm begins, or its text changes.

        waits_for: what is waited for; "" for nothing.
        now: steady seconds.
        """
        if not waits_for:
            self._since = None
            return False
        self._since = now if self._since is None else self._since
        if now - self._since < WAIT_MOST_S or waits_for == self.told:
            return False
        self.told = waits_for
        return True
