"""The actions on destinations: what their JSON bodies say, and what carries them out."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import Any

from canal_ha.accounts import gate
from canal_ha.config import keys
from canal_ha.errors import NotSubscribed, SnapshotRefused
from canal_ha.model.excerpt import json_text, some
from canal_ha.model.privacy import Within
from canal_ha.model.snapshot import SnapshotAction, SnapshotRequest, SnapshotState
from canal_ha.server.shown_snapshot import shown_within

PLACES = ("master", "standby", "other")
_PLACE = re.compile(rf"(?:[1-9][0-9]*/)?(?:{'|'.join(PLACES)})")  # 2/standby: the standby of source 2

Switch = Callable[[str, str], Awaitable[str]]
TakeSnapshot = Callable[[str, int, SnapshotRequest, Within], Awaitable[SnapshotState]]


@dataclass(frozen=True, slots=True)
class Action:
    """One kind of action.

    name: for the audit log.
    usage: what the body must be, for the answer to any other one.
    keys: that the body may have.
    wanted: reads the body, a JSON value; None if it is none of this action.
    carry_out: called with the destination and what `limited` returned; returns the answer. Raises CanalError.
    facts: for the audit log, which cuts long texts and has the client id itself.
    client_id: whose stream the action is about; None if it is about the whole destination.
    limited: returns what `wanted` returned, with the most that the account that asks may read, if that matters.
    """

    name: str
    usage: str
    keys: frozenset[str]
    wanted: Callable[[Any], Any]
    carry_out: Callable[[str, Any], Awaitable[dict[str, Any]]]
    facts: Callable[[Any], dict[str, object]]
    client_id: Callable[[Any], int | None] = lambda wanted: None
    limited: Callable[[Any, Within], Any] = lambda wanted, within: wanted

    def read(self, body: Any) -> Any:
        """Return what `wanted` does. Raises ValueError for a key that is none of `keys`: it may be misspelled."""
        if isinstance(body, dict) and (unknown := body.keys() - self.keys):
            raise ValueError(f"unknown: {some(sorted(unknown))}; the keys are {', '.join(sorted(self.keys))}")
        return self.wanted(body)


def actions_of(switch: Switch, snapshot: TakeSnapshot) -> Mapping[str, Action]:
    """Return the actions by kind of request, as the gate names it.

    switch: called with the destination and the target; returns the address of the server that is read then.
    snapshot: called with the destination, the client id, the request and the most that the account that asks
        may read; returns the state.
    """

    async def switched(destination: str, to: str) -> dict[str, Any]:
        return {"destination": destination, "source": await switch(destination, to)}

    async def snapshotted(destination: str, limited: tuple[int, SnapshotRequest, Within]) -> dict[str, Any]:
        client_id, request, within = limited
        try:
            state = await snapshot(destination, client_id, request, within)
        except NotSubscribed as error:
            raise SnapshotRefused(
                f"client id {client_id} has not subscribed to {destination}: start the client once, or let its first"
                f" subscription begin with the tables, as `canal-ha client --client-id {client_id} --snapshot` does"
            ) from error
        return {"destination": destination, "client_id": client_id, "snapshot": shown_within(within, state.facts())}

    return {
        gate.SWITCH: Action(
            "switch",
            f'send a JSON object {{"to": ...}} with one of {", ".join(PLACES)}, as application/json',
            frozenset({"to"}),
            _place,
            switched,
            lambda to: {"to": to},
        ),
        gate.SNAPSHOT: Action(
            "snapshot",
            'send a JSON object {"client_id": 1001, "action": "start", "tables": ["shop.orders"], "where": {},'
            ' "without_key": false, "connections": 0, "rows_per_s_most": 0}, or with "action": "resume" and'
            ' "leave_out": [...], as'
            f" application/json; actions: {', '.join(each.value for each in SnapshotAction)}",
            frozenset({"client_id", *(each.name for each in fields(SnapshotRequest))}),
            _snapshot,
            snapshotted,
            _facts,
            lambda wanted: int(wanted[0]),
            lambda wanted, within: (*wanted, within),
        ),
    }


def whole(value: object, low: int, high: int) -> int | None:
    """Return a JSON value as a whole number from low to high; None for any other one. 7.0 is 7, as in JSON Schema."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or value % 1:
        return None
    return int(value)


def client_id_in(body: Mapping[str, Any]) -> int | None:
    """Return the client id of a body; None if it has none."""
    return whole(body.get("client_id"), -(1 << 15), (1 << 15) - 1)


def _facts(wanted: tuple[int, SnapshotRequest]) -> dict[str, object]:
    _, request = wanted
    lists = {name: json_text(getattr(request, name)) for name in ("tables", "where", "leave_out")}
    digests = {f"{name}_sha256": sha256(text.encode()).hexdigest() for name, text in lists.items() if len(text) > 2}
    return {**asdict(request), "action": request.action.value, **lists, **digests}


def _place(body: Any) -> str | None:
    to = body.get("to") if isinstance(body, dict) else None
    return to if isinstance(to, str) and _PLACE.fullmatch(to) else None


def _snapshot(body: Any) -> tuple[int, SnapshotRequest] | None:
    if not isinstance(body, dict):
        return None
    client_id, tables, where = client_id_in(body), body.get("tables", []), body.get("where", {})
    without_key, leave_out = body.get("without_key", False), body.get("leave_out", [])
    connections = whole(body.get("connections", 0), 0, keys.SNAPSHOT_CONNECTIONS_MOST)
    rows_per_s_most = whole(body.get("rows_per_s_most", 0), 0, keys.INT32)
    texts = [*where.items()] if isinstance(where, dict) else [(None, None)]
    if (
        client_id is None
        or not isinstance(tables, list)
        or not isinstance(leave_out, list)
        or type(without_key) is not bool
        or connections is None
        or rows_per_s_most is None
        or not all(isinstance(each, str) for each in (*tables, *leave_out, *(text for pair in texts for text in pair)))
        or body.get("action") not in [each.value for each in SnapshotAction]
    ):
        return None
    action = SnapshotAction(body["action"])
    return client_id, SnapshotRequest(
        action, tuple(tables), where, without_key, connections, rows_per_s_most, tuple(leave_out)
    )
