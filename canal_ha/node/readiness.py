"""Decide whether a node serves what it should. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from canal_ha.config.alarms import REFUSED, ConfigAlarm
from canal_ha.model.unready import Unready
from canal_ha.zookeeper import tree

STARTING = Unready("", "the node is starting")
STOPPING = Unready("", "the node is stopping")
HALTED = Unready("", "the node was stopped over canal's admin port: start it there, or restart the process")
NO_ZOOKEEPER = Unready("", "ZooKeeper is not connected")


def unready_alone(destinations: Iterable[str], running: Iterable[str]) -> Iterator[Unready]:
    """Yield what is missing on a node without ZooKeeper, which runs all its destinations.

    destinations: that should run.
    running: that do.
    """
    for name in sorted({*destinations} - {*running}):
        yield Unready(name, f"{name} does not run; its log says why")


def unready_in_cluster(
    destinations: Iterable[str],
    running: Collection[str],
    states: Mapping[str, tuple[str, str]],
    denied: Collection[str] = (),
) -> Iterator[Unready]:
    """Yield which destinations no node runs, as far as this node knows. One that an operator paused is not missing.

    destinations: that should run here or elsewhere.
    running: that run here.
    states: of the races for them; see Cluster.states.
    denied: znodes that this node may not read.
    """
    for name in sorted(destinations):
        state, owner = states.get(name, ("IDLE", ""))
        if name in running or owner or state == "PAUSED":
            continue
        if tree.destination(name) in denied:
            yield Unready(name, f"this node may not read at ZooKeeper who runs {name}; the alarm no_rights says why")
        else:
            yield Unready(name, f"{name} has no owner yet; this node's part in the race for it: {state.lower()}")


def unready_files(alarms: Iterable[ConfigAlarm]) -> Iterator[Unready]:
    """Yield the destinations that this node cannot run because of their files."""
    for alarm in alarms:
        if alarm.alarm == REFUSED and alarm.destination and not alarm.running:
            yield Unready(alarm.destination, f"{alarm.destination} does not run here, because its file is refused")


def takes_traffic(unready: Collection[Unready], able: Collection[str]) -> bool:
    """Return whether clients may be sent to a node. A node that lacks one destination still serves the others.

    unready: what the node lacks.
    able: the destinations that it serves, or starts when a client wants them.
    """
    return not unready or (bool(able) and all(each.destination for each in unready))
