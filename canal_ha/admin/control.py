"""Carries out actions on destinations over HTTP: POST with a JSON body. Runs in the reactor's thread.

The body must be declared as JSON, which a web page of another site cannot do in a local browser.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any

from twisted.web.server import Request

from canal_ha import logs
from canal_ha.admin.actions import Action
from canal_ha.admin.answer import answer, later
from canal_ha.admin.guest import Guest
from canal_ha.errors import CanalError, NotRunningHere
from canal_ha.model.excerpt import excerpt
from canal_ha.model.surrogates import check_json
from canal_ha.server.audit import FAILED, OK, Audit

SUCCESS = 200

log = logs.get(__name__)


class Control:
    """Answers the requests for actions. audit: writes down who did what."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def render(
        self, request: Request, action: Action, destination: str, guest: Guest, check: Callable[[int | None], None]
    ) -> bytes | int:
        """Answer one request; NOT_DONE_YET while the action runs. If the caller hangs up, the action continues.

        request: of HTTP.
        action: what to do.
        destination: to which destination.
        guest: who asks.
        check: raises HttpRefusal if the guest may not act on a client id.
        """
        try:
            wanted, problem = action.read(_body(request)), action.usage
        except ValueError as error:
            wanted, problem = None, str(error)
        if wanted is None:
            self._audit.refused(action.name, guest.actor, problem, destination=destination)
            return answer(request, 400, {"error": problem})
        check(action.client_id(wanted))

        async def work() -> bytes:
            return answer(request, *await self.carry_out(action, destination, wanted, guest))

        return later(request, work())

    async def carry_out(
        self, action: Action, destination: str, wanted: Any, guest: Guest
    ) -> tuple[int, dict[str, Any]]:
        """Act, write it down, and return the HTTP status and the answer. The caller has asked the gate.

        wanted: as `action.wanted` returned it.
        """
        code, body = await _carried_out(action, destination, action.limited(wanted, guest.account.within))
        result = OK if code == SUCCESS else FAILED
        facts: dict[str, object] = {key: body[key] for key in ("source", "error") if key in body}
        details = {**action.facts(wanted), **facts}
        client_id = action.client_id(wanted)
        self._audit.ordered(
            action.name, guest.actor, result, destination=destination, client_id=client_id, details=details
        )
        return code, body


async def _carried_out(action: Action, destination: str, limited: Any) -> tuple[int, dict[str, Any]]:
    try:
        return SUCCESS, await action.carry_out(destination, limited)
    except NotRunningHere:
        return 404, {"error": not_here(destination)}
    except CanalError as error:
        return 409, {"error": str(error)}
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__))
        text = excerpt(f"{type(error).__name__}: {error}")  # the repr can have the texts of other clients in full
        log.error("admin.action_broken", action=action.name, destination=destination, error=text, trace=where)
        return 500, {"error": "the action failed; the log of the node has admin.action_broken"}


def not_here(destination: str) -> str:
    """Return the error for a destination that another node runs, or nobody."""
    return f"{destination} does not run on this node; `canal-ha status --zk` shows its node"


def _body(request: Request) -> Any:
    """Return the JSON value of the body; None for any other body. Raises ValueError for texts that cannot be stored."""
    if not (request.getHeader("content-type") or "").lower().startswith("application/json"):
        return None
    try:
        value = json.loads(request.content.read() if request.content else b"")
    except (ValueError, RecursionError):
        return None
    check_json(value)
    return value
