"""What instances have to say, as lines of canal's log files."""

from __future__ import annotations

from canal_ha import logs
from canal_ha.model.position import LogPosition


class InstanceLog:
    """Implements instance.Told on the node's logs. Events marked `alarm` are warnings, the rest is information."""

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        """One line in the destination's own file."""
        log = logs.bound(destination)
        (log.warning if alarm else log.info)(name, **facts)

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        """One line of meta.log."""
        logs.cursor_persisted(destination, client_id, cursor)
