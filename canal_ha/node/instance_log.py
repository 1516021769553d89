"""InstanceLog: writes what happens to instances into canal's log files."""

from __future__ import annotations

from canal_ha import logs
from canal_ha.model.position import LogPosition


class InstanceLog:
    """Implements instance.InstanceListener. An alarm is a warning; every other event is information."""

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        """Write one line into the destination's own file."""
        log = logs.bound(destination)
        (log.warning if alarm else log.info)(name, **facts)

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        """Write one line into meta.log."""
        logs.cursor_persisted(destination, client_id, cursor)
