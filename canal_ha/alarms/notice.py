"""Notice: one alarm has begun, or is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

RUNBOOKS: Mapping[str, str] = {
    "stream.lag": "lag-grows",
    "stream.unmoved": "lag-grows",
    "stream.blocked": "lag-grows",
    "stream.purge": "cursor-lost",
    "stream.lost": "cursor-lost",
    "stream.denied": "cursor-lost",
    "stream.failed": "poison-event",
    "node.unready": "node-lost",
    "node.unwritten": "disk-full",
    "node.history": "disk-full",
    "node.queue": "kafka-behind",
    "node.logs": "disk-full",
    "node.no_rights": "zookeeper-lost",
    "node.source": "mysql-lost",
    "node.standby": "mysql-lost",
    "node.tap": "mysql-lost",
    "node.expiring": "certificate-expired",
    "node.expiring_soon": "certificate-expired",
    "node.unloadable": "cursor-lost",
    "node.unreadable": "cursor-lost",
    "configuration.audit": "disk-full",
    "configuration.certificate": "certificate-expired",
    "configuration.closed": "configuration-differs",
    "configuration.refused": "configuration-differs",
    "configuration.unreadable": "configuration-differs",
    "configuration.gone": "configuration-differs",
    "configuration.restart": "configuration-differs",
}
"""alarm -> its page in docs/runbooks."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alarm is about.

    alarm: a key of RUNBOOKS.
    destination: name of the destination; "" for the node itself.
    client_id: of the client; None if the alarm is not about one.
    """

    alarm: str
    destination: str = ""
    client_id: int | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """What a handler sends.

    subject: what it is about.
    node: registerIp:port.
    begins: False when it is over on this node.
    text: what happened, where, and what to do.
    at: s since 1970.
    """

    subject: Subject
    node: str
    begins: bool
    text: str
    at: float

    @property
    def runbook(self) -> str:
        """The path of the page that says what to do."""
        return f"docs/runbooks/{RUNBOOKS[self.subject.alarm]}.md"

    @property
    def title(self) -> str:
        """One line."""
        about = self.subject.destination or "the node"
        if self.subject.client_id is not None:
            about += f", client {self.subject.client_id}"
        return f"{self.subject.alarm} {'begins' if self.begins else 'is over'}: {about} on {self.node}"

    def to_json(self) -> bytes:
        """Return the notice as a JSON object."""
        moment = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="seconds")
        body = {
            **asdict(self.subject),
            "node": self.node,
            "state": "begins" if self.begins else "over",
            "text": self.text,
            "at": moment,
            "runbook": self.runbook,
        }
        return json.dumps(body, ensure_ascii=False).encode(errors="backslashreplace")
