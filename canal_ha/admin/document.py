"""The status of a node as one JSON document."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from canal_ha.instance.status import InstanceStatus
from canal_ha.version import VERSION


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Who answers. address: as in ZooKeeper, host:port; kernel: compiled or interpreted; started_at: s since 1970."""

    address: str
    kernel: str
    started_at: float


def status_document(facts: NodeFacts, instances: Sequence[InstanceStatus], now: float) -> dict[str, Any]:
    """`{"node": {...}, "destinations": [...]}`: the fields of InstanceStatus and StreamStatus under their names.

    Units are those of `canal_ha.instance.status`; now: s since 1970.
    """
    return {
        "node": {
            "address": facts.address,
            "version": VERSION,
            "kernel": facts.kernel,
            "python": platform.python_version(),
            "started": datetime.fromtimestamp(facts.started_at, UTC).isoformat(timespec="seconds"),
            "uptime_s": round(max(0.0, now - facts.started_at), 3),
        },
        "destinations": [asdict(instance) for instance in instances],
    }
