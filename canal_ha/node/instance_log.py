"""InstanceLog: writes what happens to instances into canal's log files."""

from __future__ import annotations

import time
from collections.abc import Mapping

from canal_ha import logs
from canal_ha.model.position import LogPosition
from canal_ha.node.lasting import LastingAlarms
from canal_ha.server.audit import ZNODE_EDIT, Audit

BY: Mapping[str, tuple[str, str]] = {
    "cursor.replaced": ("cursor moved", ZNODE_EDIT),
    "cursor.moved": ("cursor moved", "cursor"),
    "cursor.deleted": ("cursor deleted", ZNODE_EDIT),
    "cursor.moved_past_lost": ("cursor moved", "canal.instance.position.lost"),
    "stream.moved": ("cursor moved", "switch"),
    "source.switched": ("switch", "node"),
}
"""Events that the audit has too: its action, and what caused it."""


class InstanceLog:
    """Implements instance.InstanceListener. An alarm is a warning; every other event is information."""

    def __init__(self, audit: Audit) -> None:
        """audit: gets the events of BY."""
        self._audit = audit
        self.alarms = LastingAlarms()

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        """Write one line into the destination's own file."""
        log = logs.bound(destination)
        (log.warning if alarm else log.info)(name, **facts)
        self.alarms.event(destination, name, str(facts.get("error", "")), str(facts.get("of", "")), time.time())
        if name in BY:
            action, by = BY[name]
            client_id, more = facts.get("client_id"), {key: facts[key] for key in facts if key != "client_id"}
            known = client_id if isinstance(client_id, int) else None
            self._audit.happened(action, destination, known, {"by": by, **more})

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        """Write one line into meta.log."""
        logs.cursor_persisted(destination, client_id, cursor)
