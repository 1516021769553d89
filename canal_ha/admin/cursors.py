"""The action on a client's cursor: move it, or delete it with its client."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from canal_ha.accounts import gate
from canal_ha.admin.actions import Action, client_id_in
from canal_ha.errors import LocalProtocolError, NotSubscribed
from canal_ha.model.place import FORMS, Place
from canal_ha.model.position import LogPosition

SET, DELETE = CURSOR_ACTIONS = ("set", "delete")
PLACE_MOST = 4096  # characters; a GTID set can be long


class MoveCursor(Protocol):
    """Moves a cursor, and returns the old one and the new one; see Instance.move_cursor."""

    def __call__(
        self, destination: str, client_id: int, place: Place, *, dry_run: bool
    ) -> Awaitable[tuple[LogPosition, LogPosition]]: ...


class DeleteCursor(Protocol):
    """Removes a client, and returns its cursor; see Instance.delete_cursor."""

    def __call__(self, destination: str, client_id: int, *, dry_run: bool) -> Awaitable[LogPosition]: ...


@dataclass(frozen=True, slots=True)
class CursorChange:
    """What to do. to: the place where to move it, as it was written; None: delete it."""

    client_id: int
    to: str | None
    dry_run: bool


def cursor_actions(move: MoveCursor, delete: DeleteCursor) -> Mapping[str, Action]:
    """Return the action by kind of request, as the gate names it."""

    async def changed(destination: str, wanted: CursorChange) -> dict[str, Any]:
        try:
            if wanted.to is None:
                before, after = await delete(destination, wanted.client_id, dry_run=wanted.dry_run), ""
            else:
                if not wanted.to.isprintable():
                    raise ValueError(f"invalid position {wanted.to!r}: give {FORMS}")
                place = Place.parse(wanted.to)
                before, position = await move(destination, wanted.client_id, place, dry_run=wanted.dry_run)
                after = str(position)
        except ValueError as error:
            raise LocalProtocolError(str(error)) from error
        except NotSubscribed as error:
            raise LocalProtocolError(
                f"client {wanted.client_id} of {destination} has no cursor: it never subscribed"
            ) from error
        return {
            "destination": destination,
            "client_id": wanted.client_id,
            "before": str(before),
            "after": after,
            "dry_run": wanted.dry_run,
        }

    return {
        gate.CURSOR: Action(
            "cursor",
            'send a JSON object {"client_id": 1001, "action": "set", "to": "latest", "dry_run": false} as'
            f" application/json; actions: {', '.join(CURSOR_ACTIONS)}; to, for {SET}: {FORMS}",
            frozenset({"client_id", "action", "to", "dry_run"}),
            _change,
            changed,
            _facts,
            _client_id,
        )
    }


def _change(body: Any) -> CursorChange | None:
    if not isinstance(body, dict):
        return None
    client_id, action, to, dry_run = client_id_in(body), body.get("action"), body.get("to"), body.get("dry_run", False)
    if client_id is None or action not in CURSOR_ACTIONS or not isinstance(dry_run, bool):
        return None
    if action == DELETE:
        return CursorChange(client_id, None, dry_run)
    if not isinstance(to, str) or len(to) > PLACE_MOST:
        return None
    return CursorChange(client_id, to, dry_run)


def _facts(wanted: CursorChange) -> dict[str, object]:
    action = DELETE if wanted.to is None else SET
    return {"action": action, "to": wanted.to or "", "dry_run": wanted.dry_run}


def _client_id(wanted: CursorChange) -> int:
    return wanted.client_id
