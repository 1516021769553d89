"""What a run has shown: violations of the promises (ARCHITECTURE.md#guarantees), and the table of faults."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lab.chaos.schedule import SESSION_S, Step
from lab.cluster.fencing import Fencing

FLUSH_S = 2.0
"""A crash may repeat what was acknowledged this long before it: the flush period of 1 s, and 1 s for the write."""
OLD_OWNER_S = 2.0
"""What a client has acknowledged to the owner before may be noted so long after the next owner's claim."""
SWITCH_S = 122.0
"""Without GTIDs a switch goes back by fallbackIntervalInSeconds, 60 s. If the other server began to write within that
time, the last 60 s of the turn before may come again too (docs/positions.md). 2 s: what was not yet flushed."""

_OF_THE_SOURCE = ("hide", "crash", "switch")

# Faults that are not here interrupt no node: what was acknowledged never comes again.
_PROMISE_S = {
    **dict.fromkeys(
        (
            "kill",
            "freeze",
            "expire",
            "cut",
            "deaf",
            "mute",
            "strand",
            "swizzle",
            "clock",
            "rolling",
            "leader",
            "quorum",
        ),
        FLUSH_S,
    ),
    **dict.fromkeys(_OF_THE_SOURCE, SWITCH_S),
}

BARS_S = {"kill": SESSION_S + 2.0, "stop": 1.0}
"""Longest time without a new row, p99, of steps with this fault alone."""
RECOVERY_S = 20.0
"""Longest time from the end of the faults until all rows are there and all cursors are written.

Steps with a huge transaction have no such limit: the source has to write it first. Nor have steps in which one comes
again: that takes as long as reading it the first time."""


@dataclass(frozen=True, slots=True)
class Again:
    """An acknowledged transaction that came again, in seconds from the beginning of the fault.

    acked_s: when the last of its rows was acknowledged; negative: before the fault.
    came_s: when it came again.
    """

    acked_s: float
    came_s: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What happened from the end of the step before until the recovery from this one.

    silence_s: client -> longest time without a new row since the fault. The Java client is not among them: it waits 5 s
        between its attempts.
    java_s: the same of the Java client.
    recovery_s: from the end of the faults until all was well.
    huge_again: how often a huge transaction came again.
    acked_again: the acknowledged transactions that came again.
    claims_s: when nodes claimed the destination, in seconds from the beginning of the fault; negative: before it.
    out_of_order, flaws: what the deliveries say, with the client's name in front.
    """

    step: Step
    silence_s: Mapping[str, float]
    java_s: float = 0.0
    recovery_s: float = 0.0
    lost: int = 0
    repeated: int = 0
    huge_again: int = 0
    acked_again: Sequence[Again] = ()
    claims_s: Sequence[float] = ()
    out_of_order: Sequence[str] = ()
    flaws: Sequence[str] = ()


def together(clients: Sequence[Observed]) -> Observed:
    """Return what all clients have seen of one step. clients: at least one, each with what it alone has seen."""
    return Observed(
        clients[0].step,
        {name: silence for each in clients for name, silence in each.silence_s.items()},
        java_s=max(each.java_s for each in clients),
        lost=sum(each.lost for each in clients),
        repeated=sum(each.repeated for each in clients),
        huge_again=sum(each.huge_again for each in clients),
        acked_again=[again for each in clients for again in each.acked_again],
        out_of_order=[line for each in clients for line in each.out_of_order],
        flaws=[line for each in clients for line in each.flaws],
    )


@dataclass(slots=True)
class Run:
    """A whole run. stuck: why it ended early; "" if it did not. gtid: whether canal-ha reads by GTID."""

    observed: list[Observed] = field(default_factory=list)
    fencing: Fencing = field(default_factory=Fencing)
    stuck: str = ""
    gtid: bool = False


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the smallest value that is not exceeded by this share of the values; 0.0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] if ordered else 0.0


def promise_s(step: Step, *, gtid: bool = False) -> float | None:
    """Return how long before the step the repeated rows may have been acknowledged; None: none may come again.

    gtid: whether canal-ha reads by GTID. Then a switch repeats nothing by itself (docs/positions.md).
    """
    known = [_PROMISE_S[fault] for fault in step.faults if fault in _PROMISE_S]
    allowed = max(known, default=None)
    return FLUSH_S if gtid and allowed is not None else allowed


def outside_promise(seen: Observed, *, gtid: bool = False) -> list[Again]:
    """Return the acknowledged transactions that came again and should not have. gtid: see promise_s."""
    return [again for again in seen.acked_again if not _may_come_again(again, seen, gtid)]


def _may_come_again(again: Again, seen: Observed, gtid: bool) -> bool:
    """Whether the promises allow it.

    What is acknowledged after the fault began may come again from the next owner: the one before may have been unable
    to write its cursor. An owner repeats nothing that it has let a client acknowledge, except after a switch.
    """
    allowed = promise_s(seen.step, gtid=gtid)
    if allowed is None:
        return False
    if again.acked_s <= 0.0:
        return -again.acked_s <= allowed
    if not gtid and any(fault in _OF_THE_SOURCE for fault in seen.step.faults):
        return True
    claimed_s = max((at for at in seen.claims_s if 0.0 < at <= again.came_s), default=0.0)
    late_s = max(OLD_OWNER_S, SESSION_S if "expire" in seen.step.faults else 0.0)  # it serves until its lease ends
    return again.acked_s <= claimed_s + late_s


def violations(run: Run, slow: float = 1.0) -> list[str]:
    """Return every broken promise, a sentence each. slow: factor of the limits of time, for a loaded machine."""
    found = [f"stuck: {run.stuck}"] if run.stuck else []
    if not run.observed:
        found.append("no step ran")
    elif not run.fencing.cursor_writes:
        found.append("the logs of ZooKeeper show no cursor, so nothing is known about cursors")
    for seen in run.observed:
        where = f"step {seen.step.number} ({seen.step.name})"
        unlimited = "huge" in seen.step.faults or seen.huge_again
        if seen.recovery_s > RECOVERY_S * slow and not unlimited:
            found.append(f"{where}: {seen.recovery_s:.1f} s until all was well, the bar is {RECOVERY_S * slow:.0f} s")
        if seen.lost:
            found.append(f"{where}: {seen.lost} rows lost")
        found += [f"{where}: out of order: {line}" for line in seen.out_of_order]
        found += [f"{where}: wrong row: {line}" for line in seen.flaws]
        if outside := outside_promise(seen, gtid=run.gtid):
            oldest = min(again.acked_s for again in outside)
            found.append(
                f"{where}: {len(outside)} acknowledged transactions came again outside the promise, the oldest was"
                f" acknowledged {abs(oldest):.1f} s {'after' if oldest > 0.0 else 'before'} the beginning of the fault"
            )
    for kind, bar in BARS_S.items():
        reached = percentile(_silences(run, kind), 99)
        if reached > bar * slow:
            found.append(f"{kind}: p99 without a new row is {reached:.2f} s, the bar is {bar * slow:.2f} s")
    found += [f"cursor written by an earlier owner: {line}" for line in run.fencing.from_old_epoch]
    found += [f"cursor written without a check of the epoch: {line}" for line in run.fencing.unfenced]
    found += [f"cursor moved back: {line}" for line in run.fencing.backwards]
    return found


def table(run: Run, slow: float = 1.0) -> str:
    """Return a line for each kind of step, and the bars."""
    head = (
        f"{'fault':22} {'count':>5} {'lost':>5} {'order':>5} {'wrong':>5} {'repeated':>8} {'acked again':>11}"
        f" {'outside':>7} {'p50 s':>6} {'p99 s':>6} {'Java p99':>8} {'recovery':>8}"
    )
    lines = [head]
    for name in sorted({seen.step.name for seen in run.observed}):
        group = [seen for seen in run.observed if seen.step.name == name]
        outside = sum(len(outside_promise(seen, gtid=run.gtid)) for seen in group)
        silences = _silences(run, name)
        lines.append(
            f"{name:22} {len(group):5} {sum(seen.lost for seen in group):5}"
            f" {sum(len(seen.out_of_order) for seen in group):5} {sum(len(seen.flaws) for seen in group):5}"
            f" {sum(seen.repeated for seen in group):8} {sum(len(seen.acked_again) for seen in group):11}"
            f" {outside:7} {percentile(silences, 50):6.2f} {percentile(silences, 99):6.2f}"
            f" {percentile([seen.java_s for seen in group], 99):8.2f} {max(seen.recovery_s for seen in group):8.2f}"
        )
    fencing = run.fencing
    lines.append(
        f"cursor writes {fencing.cursor_writes}, claims {fencing.claims}, by an earlier owner"
        f" {len(fencing.from_old_epoch)}, unfenced {len(fencing.unfenced)}, moved back {len(fencing.backwards)}"
    )
    for kind, bar in BARS_S.items():
        if silences := _silences(run, kind):
            lines.append(f"{kind}: p99 {percentile(silences, 99):.2f} s, bar {bar * slow:.2f} s")
    return "\n".join(lines)


def _silences(run: Run, name: str) -> list[float]:
    return [silence for seen in run.observed if seen.step.name == name for silence in seen.silence_s.values()]
