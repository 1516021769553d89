"""Switches a destination's source over HTTP: POST /api/v1/destinations/<name>/source. Runs in the reactor's thread.

The body must be declared as JSON, which a web page of another site cannot do in a local browser.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.server import NOT_DONE_YET, Request

from canal_ha import logs
from canal_ha.errors import CanalError, NotRunningHere
from canal_ha.server.audit import FAILED, OK, Actor, Audit

SUCCESS = 200
PLACES = ("master", "standby", "other")
_PLACE = re.compile(rf"(?:[1-9][0-9]*/)?(?:{'|'.join(PLACES)})")  # 2/standby: the standby of source 2

log = logs.get(__name__)

Switch = Callable[[str, str], Awaitable[str]]
Answer = Callable[[Request, int, dict[str, Any]], bytes]


class Control:
    """The actions on destinations.

    switch: called with the destination and the target; returns the address of the server that is now read.
    answer: writes a JSON response.
    audit: writes down who switched what.
    """

    def __init__(self, switch: Switch, answer: Answer, audit: Audit) -> None:
        self._audit = audit
        self._switch = switch
        self._answer = answer

    def render(self, request: Request, destination: str, actor: Actor) -> bytes | int:
        """Answer one request; NOT_DONE_YET while the switch runs.

        request: of HTTP.
        destination: the one to switch.
        actor: who asks.
        """
        to = _wanted(request)
        if to is None:
            text = f'send a JSON object {{"to": ...}} with one of {", ".join(PLACES)}, as application/json'
            return self._answer(request, 400, {"error": text})
        gone: list[Failure] = []
        request.notifyFinish().addErrback(gone.append)  # the caller hung up; the switch continues

        def done(code: int, body: dict[str, Any]) -> None:
            result = OK if code == SUCCESS else FAILED
            facts: dict[str, object] = {key: body[key] for key in ("source", "error") if key in body}
            self._audit.note("switch", result, actor, destination=destination, details={"to": to, **facts})
            if not gone:
                answer = self._answer(request, code, body)
                request.setHeader(b"content-length", str(len(answer)).encode())
                request.write(answer)
                request.finish()

        Deferred.fromCoroutine(self._switched(destination, to, done))
        return NOT_DONE_YET

    def _switched(
        self, destination: str, to: str, done: Callable[[int, dict[str, Any]], None]
    ) -> Coroutine[Deferred[Any], Any, None]:
        async def work() -> None:
            try:
                address = await self._switch(destination, to)
            except NotRunningHere:
                text = f"{destination} does not run on this node; `canal-ha status --zk` shows its node"
                done(404, {"error": text})
            except CanalError as error:
                done(409, {"error": str(error)})
            except Exception as error:
                log.error("admin.switch_broken", destination=destination, error=repr(error))
                done(500, {"error": repr(error)})
            else:
                done(SUCCESS, {"destination": destination, "source": address})

        return work()


def _wanted(request: Request) -> str | None:
    if not (request.getHeader("content-type") or "").lower().startswith("application/json"):
        return None
    try:
        body = json.loads(request.content.read() if request.content else b"")
    except ValueError:
        return None
    to = body.get("to") if isinstance(body, dict) else None
    return to if isinstance(to, str) and _PLACE.fullmatch(to) else None
