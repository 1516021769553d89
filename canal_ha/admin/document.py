"""The status of a node as one JSON document."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.status import InstanceStatus
from canal_ha.version import VERSION


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Who answers. address: as in ZooKeeper, host:port; kernel: compiled or interpreted; started_at: s since 1970."""

    address: str
    kernel: str
    started_at: float


def status_document(
    facts: NodeFacts, instances: Sequence[InstanceStatus], now: float, alarms: Sequence[ConfigAlarm] = ()
) -> dict[str, Any]:
    """`{"node": {...}, "alarms": [...], "destinations": [...]}`: fields of ConfigAlarm, InstanceStatus, StreamStatus.

    Units are those of `canal_ha.instance.status`.

    facts: who answers.
    instances: what runs here.
    now: s since 1970.
    alarms: where the configuration that runs is not the one in the files.
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
