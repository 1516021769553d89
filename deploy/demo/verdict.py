"""Compares arrived rows with written rows: none lost, none repeated except after a crash."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from deploy.demo.audit import Arrival
from deploy.demo.workload import Change


@dataclass(slots=True)
class Redelivery:
    """Consecutive rows that were delivered again after a take-over. whole: they began at a transaction's begin."""

    rows: int = 0
    whole: bool = True


@dataclass(slots=True)
class Findings:
    """The result in rows.

    redeliveries: one for each take-over, in their order.
    duplicated: other rows that were delivered twice.
    unknown: rows that were never committed.
    """

    written: int
    received: int
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unknown: int = 0
    redeliveries: list[Redelivery] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Return the faults: none if all rows arrived in order and were repeated only after a take-over."""
        found = []
        if self.lost:
            found.append("rows are lost")
        if self.duplicated:
            found.append("rows were delivered twice")
        if self.unknown:
            found.append("rows arrived that were never committed")
        if self.out_of_order:
            found.append("rows arrived out of order")
        if not all(redelivery.whole for redelivery in self.redeliveries):
            found.append("a redelivery began within a transaction")
        return found


def compare(
    written: Sequence[Change],
    starts: Collection[int],
    arrivals: Sequence[Arrival],
    take_overs: Sequence[float] = (),
) -> Findings:
    """Compare the arrived rows with the written ones.

    After each take-over the client may go back once, and must then continue from there.

    written: in binlog order.
    starts: indexes in `written` at which transactions begin.
    take_overs: times at which a node was killed or stopped, ascending.
    """
    index_of = {change: index for index, change in enumerate(written)}
    findings = Findings(len(written), len(arrivals), redeliveries=[Redelivery() for _ in take_overs])
    seen: set[Change] = set()
    taken_back: set[int] = set()
    expected = 0
    for arrival in arrivals:
        index = index_of.get(arrival.change)
        take_over = sum(arrival.at >= moment for moment in take_overs) - 1
        if index is None:
            findings.unknown += 1
            continue
        if index < expected and arrival.change in seen and take_over >= 0 and take_over not in taken_back:
            taken_back.add(take_over)
            findings.redeliveries[take_over] = Redelivery(expected - index, index in starts)
            expected = index + 1
        elif index == expected:
            expected += 1
        elif arrival.change in seen:
            findings.duplicated += 1
        elif index > expected:  # missing rows are lost, or arrive later out of order
            expected = index + 1
        else:
            findings.out_of_order += 1
        seen.add(arrival.change)
    findings.lost = len(written) - len(seen)
    return findings
