"""The list of destinations, and the actions that change where they run: what is asked, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from canal_ha.accounts import gate
from canal_ha.admin.actions import Action
from canal_ha.cluster.mover import HandedOver
from canal_ha.cluster.placement import Placed


class Placements(Protocol):
    """The destinations of a cluster, or of a node without one. Every method raises CanalError with the reason."""

    async def placed(self) -> Sequence[Placed]:
        """See Mover."""
        ...

    async def move(self, destination: str, to: str, *, dry_run: bool) -> HandedOver:
        """See Mover."""
        ...

    async def pause(self, destination: str, *, dry_run: bool) -> str:
        """See Mover."""
        ...

    async def resume(self, destination: str, *, dry_run: bool) -> str:
        """See Mover."""
        ...

    async def rebalance(self, *, dry_run: bool) -> Sequence[HandedOver]:
        """See Mover."""
        ...


def placement_actions(placements: Placements) -> Mapping[str, Action]:
    """Return the actions by kind of request, as the gate names it."""

    async def paused(destination: str, dry_run: bool) -> dict[str, Any]:
        ran_on = await placements.pause(destination, dry_run=dry_run)
        return {"destination": destination, "ran_on": ran_on, "dry_run": dry_run}

    async def resumed(destination: str, dry_run: bool) -> dict[str, Any]:
        runs_on = await placements.resume(destination, dry_run=dry_run)
        return {"destination": destination, "runs_on": runs_on, "dry_run": dry_run}

    async def moved(destination: str, wanted: tuple[str, bool]) -> dict[str, Any]:
        to, dry_run = wanted
        return {**_moved(await placements.move(destination, to, dry_run=dry_run)), "dry_run": dry_run}

    async def rebalanced(_: str, dry_run: bool) -> dict[str, Any]:
        return {"moves": [_moved(each) for each in await placements.rebalance(dry_run=dry_run)], "dry_run": dry_run}

    keys = frozenset({"dry_run"})
    usage = 'send a JSON object {"dry_run": false} as application/json'
    return {
        gate.PAUSE: Action("pause", usage, keys, _dry_run, paused, _facts),
        gate.RESUME: Action("resume", usage, keys, _dry_run, resumed, _facts),
        gate.REBALANCE: Action("rebalance", usage, keys, _dry_run, rebalanced, _facts),
        gate.MOVE: Action(
            "move",
            'send a JSON object {"to": "10.0.0.2:11111", "dry_run": false} as application/json',
            keys | {"to"},
            _move,
            moved,
            lambda wanted: {"to": wanted[0], **_facts(wanted[1])},
        ),
    }


def placed_document(placed: Sequence[Placed]) -> dict[str, Any]:
    """Return the list of destinations.

    runs_on: "" if no node does.
    stand_by: the other nodes that could run it.
    preferred: the nodes that it prefers; every node of canal-ha, if it prefers none.
    """
    return {
        "destinations": [
            {
                "destination": each.destination,
                "runs_on": each.owner,
                "paused": each.paused,
                "stand_by": sorted({*each.members, *each.others} - {each.owner}),
                "preferred": sorted(node for node, preferred in each.members.items() if preferred),
            }
            for each in placed
        ]
    }


def _dry_run(body: Any) -> bool | None:
    dry_run = body.get("dry_run", False) if isinstance(body, dict) else None
    return dry_run if isinstance(dry_run, bool) else None


def _facts(dry_run: bool) -> dict[str, object]:
    return {"dry_run": dry_run}


def _move(body: Any) -> tuple[str, bool] | None:
    dry_run = _dry_run(body)
    to = None if dry_run is None else body.get("to")
    return (to, dry_run) if isinstance(to, str) and to.isprintable() and dry_run is not None else None


def _moved(moved: HandedOver) -> dict[str, Any]:
    return {**asdict(moved.move), "seconds": round(moved.seconds, 3)}
