"""Carries out actions on destinations over HTTP: POST with a JSON body. Runs in the reactor's thread.

The body must be declared as JSON, which a web page of another site cannot do in a local browser.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.server import NOT_DONE_YET, Request

from canal_ha import logs
from canal_ha.admin.actions import Action
from canal_ha.errors import CanalError, NotRunningHere
from canal_ha.server.audit import FAILED, OK, Actor, Audit

SUCCESS = 200

log = logs.get(__name__)

Answer = Callable[[Request, int, dict[str, Any]], bytes]


class Control:
    """Answers the requests for actions.

    answer: writes a JSON response.
    audit: writes down who did what.
    """

    def __init__(self, answer: Answer, audit: Audit) -> None:
        self._audit = audit
        self._answer = answer

    def render(
        self, request: Request, action: Action, destination: str, actor: Actor, check: Callable[[int | None], None]
    ) -> bytes | int:
        """Answer one request; NOT_DONE_YET while the action runs.

        request: of HTTP.
        action: what to do.
        destination: to which destination.
        actor: who asks.
        check: raises HttpRefusal if he may not act on a client id.
        """
        wanted = action.wanted(_body(request))
        if wanted is None:
            self._audit.refused(action.name, actor, action.usage, destination=destination)
            return self._answer(request, 400, {"error": action.usage})
        check(action.client_id(wanted))
        gone: list[Failure] = []
        request.notifyFinish().addErrback(gone.append)  # the caller hung up; the action continues

        def done(code: int, body: dict[str, Any]) -> None:
            result = OK if code == SUCCESS else FAILED
            facts: dict[str, object] = {key: body[key] for key in ("source", "error") if key in body}
            self._audit.note(
                action.name, result, actor, destination=destination, details={**action.facts(wanted), **facts}
            )
            if not gone:
                answer = self._answer(request, code, body)
                request.setHeader(b"content-length", str(len(answer)).encode())
                request.write(answer)
                request.finish()

        Deferred.fromCoroutine(_carried_out(action, destination, wanted, done))
        return NOT_DONE_YET


def _carried_out(
    action: Action, destination: str, wanted: Any, done: Callable[[int, dict[str, Any]], None]
) -> Coroutine[Deferred[Any], Any, None]:
    async def work() -> None:
        try:
            answer = await action.carry_out(destination, wanted)
        except NotRunningHere:
            text = f"{destination} does not run on this node; `canal-ha status --zk` shows its node"
            done(404, {"error": text})
        except CanalError as error:
            done(409, {"error": str(error)})
        except Exception as error:
            log.error("admin.action_broken", action=action.name, destination=destination, error=repr(error))
            done(500, {"error": repr(error)})
        else:
            done(SUCCESS, answer)

    return work()


def _body(request: Request) -> Any:
    """Return the JSON value of the body; None for any other body."""
    if not (request.getHeader("content-type") or "").lower().startswith("application/json"):
        return None
    try:
        return json.loads(request.content.read() if request.content else b"")
    except (ValueError, RecursionError):
        return None
