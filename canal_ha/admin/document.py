"""The status of a node as one JSON document."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from canal_ha.accounts import gate
from canal_ha.accounts.account import Account
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.status import InstanceStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.position import LogPosition
from canal_ha.model.unready import Unready
from canal_ha.server.shown_snapshot import shown_to
from canal_ha.version import VERSION

_SCALARS = frozenset({str, int, float, bool, type(None)})


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


class OwnStatus:
    """Returns the status document of this node for an account: of the destinations on which it has a right.

    facts: the node.
    status, alarms, unready: of this moment.
    """

    def __init__(
        self,
        facts: NodeFacts,
        status: Callable[[], Sequence[InstanceStatus]],
        alarms: Callable[[], Sequence[ConfigAlarm | NodeAlarm]] = tuple,
        unready: Callable[[], Sequence[Unready]] = tuple,
    ) -> None:
        self._facts = facts
        self._status = status
        self._alarms = alarms
        self._unready = unready

    def __call__(self, account: Account) -> dict[str, Any]:
        return status_document(
            self._facts,
            [_shown_to(account, each) for each in self._status() if shown(account, each.destination)],
            time.time(),
            [each for each in self._alarms() if shown(account, each.destination)],
            [each for each in self._unready() if shown(account, each.destination)],
        )


def shown(account: Account, destination: str) -> bool:
    """Return whether an account may see a destination, or with "" the node itself."""
    return not gate.refusal(account, gate.DESTINATION_STATUS if destination else gate.METRICS, destination)


def _shown_to(account: Account, instance: InstanceStatus) -> InstanceStatus:
    """Return a destination with the snapshots of its clients as an account sees them."""
    streams = tuple(
        replace(each, snapshot=shown_to(account, instance.destination, each.client_id, each.snapshot))
        if each.snapshot
        else each
        for each in instance.streams
    )
    return replace(instance, streams=streams)


def status_document(
    facts: NodeFacts,
    instances: Sequence[InstanceStatus],
    now: float,
    alarms: Sequence[ConfigAlarm | NodeAlarm] = (),
    unready: Sequence[Unready] = (),
) -> dict[str, Any]:
    """Return `{"node": {...}, "alarms": [...], "unready": [...], "destinations": [...]}`.

    The units are those of `canal_ha.instance.status`.

    facts: the node that answers.
    instances: state of the destinations on this node.
    now: s since 1970.
    alarms: what needs a person.
    unready: what the node should do, and does not do now.
    """
    return {
        "node": {
            "address": facts.address,
            "version": VERSION,
            "kernel": facts.kernel,
            "python": platform.python_version(),
            "started": moment(facts.started_at),
            "uptime_s": round(max(0.0, now - facts.started_at), 3),
        },
        "alarms": [{**asdict(alarm), "since": moment(alarm.since)} for alarm in alarms],
        "unready": [asdict(each) for each in unready],
        "destinations": [_plain(instance) for instance in instances],
    }


def _plain(value: Any) -> Any:
    """Return a dataclass and all in it as JSON values, positions without what not everybody may see.

    `asdict` copies every value too, which takes longer.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple:
        return [_plain(each) for each in value]
    if kind is LogPosition:
        value = value.public
    names = _names(kind)  # type: ignore[arg-type] # mypy looks for the hash of an instance
    return {name: _plain(getattr(value, name)) for name in names} if names else value


@cache
def _names(kind: Any) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; none for another type."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def moment(seconds: float) -> str:
    """Format a moment as ISO 8601 in UTC; "" for one that no calendar has. seconds: since 1970."""
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):  # from another node
        return ""
