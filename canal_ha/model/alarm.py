"""NodeAlarm: something on a node needs a person."""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = "source"  # the source of a destination does not answer, or refuses the node


@dataclass(frozen=True, slots=True)
class NodeAlarm:
    """A condition that lasts.

    alarm: unwritten, history, source, standby, unloadable, unreadable, queue, logs or no_rights, see
        canal_ha.node.lasting; expiring or expiring_soon, see canal_ha.server.expiry; tap, see
        canal_ha.source.server.tap_records.
    destination: name of the destination; "" for an alarm of the node itself.
    text: what happened, where, and what to do.
    since: when it began, s since 1970.
    """

    alarm: str
    destination: str
    text: str
    since: float
