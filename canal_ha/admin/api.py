"""The HTTP resource of the status endpoint: JSON under /api/v1, and the page. Runs in the reactor's thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol

from twisted.web.resource import Resource
from twisted.web.server import Request

from canal_ha.accounts.account import Account
from canal_ha.admin.actions import Action
from canal_ha.admin.answer import answer, later
from canal_ha.admin.control import Control, not_here
from canal_ha.admin.guest import Guest, guest_of
from canal_ha.admin.routes import GET, PAGES, ROUTES, Route, route_of
from canal_ha.admin.sessions import Sessions
from canal_ha.errors import CanalError, NotAllowed, NotRunningHere
from canal_ha.server.entrance import Entrance
from canal_ha.server.http_login import HttpRefusal, check_host, check_right, login_of, refuse

Query = Mapping[str, str]
Report = Callable[[str, Guest, Query], Awaitable[dict[str, Any]]]
"""Returns a document for a guest. Its arguments are the destination, the guest and the query. Raises CanalError."""


class WebPage(Protocol):
    """The web page; see canal_ha.admin.pages."""

    def render(self, request: Request, route: Route, name: str) -> bytes | int: ...


class StatusApi(Resource):
    """Serves the page, and under /api/v1 the status, the other reports and the actions; errors there are JSON too.

    document: returns the status document for an account.
    entrance: knows the accounts.
    answers: whether a request's Host header names this machine; see check_host.
    actions: what can be done to destinations, by kind of request.
    reports: further documents, by kind of request.
    sessions: of browsers. Their cookie logs in here too, to read.
    pages: the web page; None serves none.
    """

    isLeaf = True

    def __init__(
        self,
        document: Callable[[Account], dict[str, Any]],
        *,
        entrance: Entrance,
        answers: Callable[[str], bool],
        actions: Mapping[str, Action] | None = None,
        reports: Mapping[str, Report] | None = None,
        sessions: Sessions | None = None,
        pages: WebPage | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._document = document
        self._entrance = entrance
        self._answers = answers
        self._actions = actions or {}
        self._reports = reports or {}
        self._sessions = sessions
        self._pages = pages
        self._control = Control(entrance.audit)

    def render(self, request: Request) -> bytes | int:
        """Answer one request; return the body, or NOT_DONE_YET."""
        try:
            return self._render(request)
        except HttpRefusal as refusal:
            return answer(request, refusal.code, {"error": str(refusal)})

    def _render(self, request: Request) -> bytes | int:
        check_host(self._entrance, request, self._answers)
        page, name = route_of(request, PAGES)
        if page and self._pages:
            return self._pages.render(request, page, name)
        guest = self._guest(request)
        route, destination = route_of(request, ROUTES)
        if route is None:
            refuse(self._entrance, request, guest.actor, 404, f"not found; there is {ROUTES[0].path}")
        if request.method not in route.methods:
            request.setHeader(b"allow", b", ".join(route.methods))
            refuse(self._entrance, request, guest.actor, 405, f"only {route.methods[0].decode()}")
        check = partial(check_right, self._entrance, guest.account, guest.actor, route.kind, destination)
        check()
        if action := self._actions.get(route.kind):
            return self._control.render(request, action, destination, guest, check)
        if report := self._reports.get(route.kind):
            return later(request, _reported(request, report(destination, guest, query_of(request)), destination))
        return answer(request, 200, self._document(guest.account))

    def _guest(self, request: Request) -> Guest:
        """Return who asks. A cookie is enough to read; another site could make a browser send it with an action."""
        if self._sessions is not None and request.method in GET:
            return guest_of(self._entrance, self._sessions, request, used=False)
        return Guest(*login_of(self._entrance, request))


def query_of(request: Request) -> Query:
    """Return the parameters of a request's address; of each the first value."""
    args: Mapping[bytes, list[bytes]] = request.args or {}
    return {name.decode(errors="replace"): values[0].decode(errors="replace") for name, values in args.items()}


async def _reported(request: Request, report: Awaitable[dict[str, Any]], destination: str) -> bytes:
    try:
        return answer(request, 200, await report)
    except NotRunningHere:
        return answer(request, 404, {"error": not_here(destination)})
    except HttpRefusal as refusal:
        return answer(request, refusal.code, {"error": str(refusal)})
    except CanalError as error:
        return answer(request, 403 if isinstance(error, NotAllowed) else 409, {"error": str(error)})
