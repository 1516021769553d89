"""Metrics, from the collector of canal_ha.server.metrics, which is shown one of everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from prometheus_client.metrics_core import Metric
from twisted.internet.task import Clock

from canal_ha.config.alarms import RESTART, ConfigAlarm
from canal_ha.instance.status import InstanceStatus, PartStatus, QueueStatus, StreamStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.snapshot import SnapshotState
from canal_ha.model.standing import Standing
from canal_ha.model.tap_figures import TapFigures
from canal_ha.server.audit_file import AuditFile
from canal_ha.server.counters import Latency, RequestCounters
from canal_ha.server.heartbeat import Heartbeat
from canal_ha.server.metrics import CanalCollector
from docs.generate.markdown import code, prose, table


def families() -> Sequence[Metric]:
    """Return every family that a node can serve, each with a sample."""
    stream = StreamStatus(
        1001,
        "",
        "open",
        put_time_ms=1,
        get_time_ms=1,
        ack_time_ms=1,
        oldest_unacked_s=0.0,
        seconds_behind=0.0,
        bytes_behind=0,
        purge_in_s=0.0,
        alarms=("lag",),
        parts=(PartStatus(1, "db:3306"),),
        snapshot={**SnapshotState("1", ("a.b",)).facts(), "rows_per_s": 1.0, "left_s": 1.0, "failing": ""},
    )
    counters = RequestCounters(
        known=lambda name: True,
        packets=Counter({("example", "GET"): 1}),
        bytes=Counter({"example": 1}),
        empty_batches=Counter({"example": 1}),
        errors=Counter({("example", 400): 1}),
        latency={"example": Latency()},
        refusals=Counter({"login_failed": 1}),
    )
    collector = CanalCollector(
        lambda: [
            InstanceStatus(
                "example", "db:3306", streams=(stream,), queue=QueueStatus("kafka:9092", lag_s=0.0), flush_age_s=0.0
            )
        ],
        counters,
        alarms=lambda: [ConfigAlarm(RESTART, "", "", True, 0.0), NodeAlarm("logs", "", "", 0.0)],
        heartbeat=Heartbeat(Clock()),
        audit=AuditFile(Path("audit.log")),
        certificate_expires=lambda: 0.0,
        taps=lambda: TapFigures({"db:3306": 16}, {"lost": 1}),
        standing=lambda: Standing(True, True, 1, {"example": "running"}, {"example": 1}),
    )
    return tuple(collector.collect())


def row(family: Metric) -> tuple[str, ...]:
    """Return one line of the table."""
    labels = dict.fromkeys(label for sample in family.samples for label in sample.labels)
    return (
        code(family.name, anchor=family.name.replace("_", "-")),
        family.type,
        ", ".join(map(code, labels)),
        prose(family.documentation),
    )


def page() -> str:
    """Return all families as a table."""
    return table(("metric", "type", "labels", "meaning"), map(row, families()))
