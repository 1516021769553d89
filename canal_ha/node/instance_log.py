"""InstanceLog: writes what happens to instances into canal's log files."""

from __future__ import annotations

import time

from canal_ha import logs
from canal_ha.model.position import LogPosition
from canal_ha.node.lasting import LastingAlarms


class InstanceLog:
    """Implements instance.InstanceListener. An alarm is a warning; every other event is information."""

    def __init__(self) -> None:
        self.alarms = LastingAlarms()

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        """Write one line into the destination's own file."""
        log = logs.bound(destination)
        (log.warning if alarm else log.info)(name, **facts)
        self.alarms.event(destination, name, str(facts.get("error", "")), str(facts.get("of", "")), time.time())

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        """Write one line into meta.log."""
        logs.cursor_persisted(destination, client_id, cursor)
