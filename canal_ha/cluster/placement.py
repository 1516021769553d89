"""Plans which destinations move to which nodes, so that every node runs about as many as the others (pure).

A destination moves to a node that it prefers, whatever the numbers are. Else it moves only to a node that runs at least
two fewer and that it prefers as much. Each move of the first kind leaves fewer destinations where they are not
preferred, and each of the second kind makes the numbers more even; so a plan ends, and after it nothing moves back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

UNEVEN = 2  # destinations that one node runs more than another, before one of them moves


@dataclass(frozen=True, slots=True)
class Placed:
    """One destination, as ZooKeeper has it.

    destination: its name.
    owner: the node that runs it; "" if none does.
    since: greater for a destination that was claimed later.
    members: each node that can take it, with whether the destination prefers that node. A Java node cannot.
    others: the other nodes that could run it.
    paused: an operator keeps it stopped.
    """

    destination: str
    owner: str = ""
    since: int = 0
    members: Mapping[str, bool] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    paused: bool = False


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """A destination moves from one node to another."""

    destination: str
    moved_from: str
    moved_to: str


def plan(placed: Sequence[Placed]) -> tuple[PlannedMove, ...]:
    """Return the moves, in the order in which to make them. The destination that was claimed first moves first."""
    movable = [each for each in placed if each.owner in each.members and not each.paused]
    order = sorted(movable, key=lambda each: (each.since, each.destination))
    runs: dict[str, list[Placed]] = {node: [] for each in placed for node in sorted(each.members)}
    for each in order:
        runs[each.owner].append(each)
    moved: dict[str, tuple[Placed, str]] = {}

    def move(each: Placed, giver: str, taker: str) -> None:
        runs[giver].remove(each)
        runs[taker].append(each)
        moved[each.destination] = (each, taker)

    for each in order:
        better = [node for node, preferred in each.members.items() if preferred and not each.members[each.owner]]
        if better:
            move(each, each.owner, min(better, key=lambda node: (len(runs[node]), node)))
    while step := _even_step(runs):
        move(*step)
    return tuple(
        PlannedMove(each.destination, each.owner, taker) for each, taker in moved.values() if taker != each.owner
    )


def _even_step(runs: Mapping[str, list[Placed]]) -> tuple[Placed, str, str] | None:
    """Return a destination, the fullest node that can give it, and the emptiest node that can take it."""
    by_number = sorted(runs, key=lambda node: (len(runs[node]), node))
    for giver in reversed(by_number):
        for taker in by_number:
            if len(runs[giver]) - len(runs[taker]) < UNEVEN:
                break
            for each in runs[giver]:
                if each.members.get(taker) == each.members[giver]:
                    return each, giver, taker
    return None
