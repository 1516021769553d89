"""The alarms before the node's certificate expires. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from canal_ha.model.alarm import NodeAlarm

EXPIRING = "expiring"
EXPIRING_SOON = "expiring_soon"

_DAY_S = 24 * 3600.0
BEFORE_S: Mapping[str, float] = {EXPIRING: 30 * _DAY_S, EXPIRING_SOON: 7 * _DAY_S}
"""How long before the end each alarm begins; both last until a new certificate is in use."""


def expiry_alarms(file: str, expires: float, now: float) -> Sequence[NodeAlarm]:
    """Return the alarms of this moment, the more urgent one last.

    file: of the certificate.
    expires: the end of the certificate in use, s since 1970.
    now: s since 1970.
    """
    at = datetime.fromtimestamp(expires, UTC).isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
    what = f"expires at {at} UTC" if now < expires else f"expired at {at} UTC, and clients refuse it"
    text = f"{file}: the certificate of this node {what}; put a new one in its place, then send the node SIGHUP"
    begins = {name: expires - before_s for name, before_s in BEFORE_S.items()}
    return tuple(NodeAlarm(name, "", text, begin) for name, begin in begins.items() if now >= begin)
