"""What arrived, compared with what was written: nothing lost, nothing twice but what a crash may bring again."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from deploy.demo.audit import Arrival
from deploy.demo.workload import Change


@dataclass(slots=True)
class Redelivery:
    """Rows that came again after a take-over, in one piece. whole: they began where a transaction begins."""

    rows: int = 0
    whole: bool = True


@dataclass(slots=True)
class Findings:
    """Counts of rows. redeliveries: one per take-over, in their order; duplicated: every other row that came again.

    unknown: rows that nobody committed.
    """

    written: int
    received: int
    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    unknown: int = 0
    redeliveries: list[Redelivery] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Return what is wrong: nothing if all arrived in order, and again only as a take-over may bring it."""
        found = []
        if self.lost:
            found.append("rows are lost")
        if self.duplicated:
            found.append("rows came twice")
        if self.unknown:
            found.append("rows came that nobody committed")
        if self.out_of_order:
            found.append("rows came out of order")
        if not all(redelivery.whole for redelivery in self.redeliveries):
            found.append("a redelivery began within a transaction")
        return found


def compare(
    written: Sequence[Change],
    starts: Collection[int],
    arrivals: Sequence[Arrival],
    take_overs: Sequence[float] = (),
) -> Findings:
    """Follow what arrived through what was written.

    written: in binlog order; starts: its indexes at which transactions begin; take_overs: when a node was killed or
    told to end, ascending. After each of them the client may be taken back once, and must then go on from there.
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
        elif index > expected:  # what is missing is lost, or comes later and is out of order then
            expected = index + 1
        else:
            findings.out_of_order += 1
        seen.add(arrival.change)
    findings.lost = len(written) - len(seen)
    return findings
