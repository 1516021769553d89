"""The alarms before a certificate of the node expires. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from canal_ha.model.alarm import NodeAlarm

EXPIRING = "expiring"
EXPIRING_SOON = "expiring_soon"

_DAY_S = 24 * 3600.0
BEFORE_S: Mapping[str, float] = {EXPIRING: 30 * _DAY_S, EXPIRING_SOON: 7 * _DAY_S}
"""How long before the end each alarm begins; both last until a new certificate is in use."""


@dataclass(frozen=True, slots=True)
class KnownCertificate:
    """A certificate of the node.

    file: where it comes from, and a new one belongs.
    expires: its end, s since 1970.
    what: it is, for people.
    judge: who refuses it when it has expired.
    then: what makes the node use a new file; "": the next connection does.
    """

    file: str
    expires: float
    what: str
    judge: str
    then: str = ""

    def advice(self, now: float) -> str:
        """Return what happens, and what to do."""
        at = datetime.fromtimestamp(self.expires, UTC).isoformat(sep=" ", timespec="minutes").removesuffix("+00:00")
        ends = f"expires at {at} UTC" if now < self.expires else f"expired at {at} UTC, and {self.judge} it"
        return f"{self.file}: {self.what} {ends}; put a new one in its place{self.then}"


def of_ports(file: str, expires: float) -> KnownCertificate:
    """Return the certificate of the node's ports. file: its path. expires: the end of the one in use, s since 1970."""
    return KnownCertificate(
        file, expires, "the certificate of this node", "clients refuse", ", then send the node SIGHUP"
    )


def expiry_alarms(certificates: Sequence[KnownCertificate], now: float) -> Sequence[NodeAlarm]:
    """Return the alarms of this moment, the more urgent one last; each is about all certificates that it concerns.

    now: s since 1970.
    """
    alarms = []
    for name, before_s in BEFORE_S.items():
        ending = [each for each in certificates if now >= each.expires - before_s]
        if ending:
            text = "; ".join(each.advice(now) for each in ending)
            alarms.append(NodeAlarm(name, "", text, min(each.expires for each in ending) - before_s))
    return alarms
