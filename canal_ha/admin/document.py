"""The status of a node as one JSON document."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.status import InstanceStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.version import VERSION


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The node that answers.

    address: host:port, as in ZooKeeper.
    kernel: compiled or interpreted.
    started_at: start of the node, s since 1970.
    """

    address: str
    kernel: str
    started_at: float


def status_document(
    facts: NodeFacts, instances: Sequence[InstanceStatus], now: float, alarms: Sequence[ConfigAlarm | NodeAlarm] = ()
) -> dict[str, Any]:
    """Return `{"node": {...}, "alarms": [...], "destinations": [...]}` with the units of `canal_ha.instance.status`.

    facts: the node that answers.
    instances: state of the destinations on this node.
    now: s since 1970.
    alarms: what needs a person.
    """
    return {
        "node": {
            "address": facts.address,
            "version": VERSION,
            "kernel": facts.kernel,
            "python": platform.python_version(),
            "started": _moment(facts.started_at),
            "uptime_s": round(max(0.0, now - facts.started_at), 3),
        },
        "alarms": [{**asdict(alarm), "since": _moment(alarm.since)} for alarm in alarms],
        "destinations": [asdict(instance) for instance in instances],
    }


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
