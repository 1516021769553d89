"""The web page: the whole cluster, one destination, its tables and its log. Reactor thread.

Forms for actions: see acting.py.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlencode

from twisted.web.server import Request

from canal_ha.accounts import gate
from canal_ha.admin.acting import Acting
from canal_ha.admin.actions import Action
from canal_ha.admin.answer import answer, later
from canal_ha.admin.api import Query, Report, query_of
from canal_ha.admin.cluster_document import NOT_CONFIGURED, states
from canal_ha.admin.cluster_view import ClusterView, destination_in
from canal_ha.admin.events import PageEvents
from canal_ha.admin.forms import FORMS, Form
from canal_ha.admin.front import Front, to_log_in
from canal_ha.admin.guest import Guest, guest_of, session_of
from canal_ha.admin.html import file, html
from canal_ha.admin.routes import Route
from canal_ha.admin.sessions import Sessions
from canal_ha.admin.templates import render, static
from canal_ha.client.node_http import path_of
from canal_ha.errors import CanalError, NotRunningHere
from canal_ha.server.certificates import names_of
from canal_ha.server.entrance import Entrance
from canal_ha.server.http_login import HttpRefusal, check_right

SHOWN = 100  # destinations on one page

LAG_SHAPE: Mapping[str, Any] = {
    "destination": str,
    "streams": [{"client_id": int, "at": [float], "seconds_behind": [float], "bytes_behind": [int]}],
}
LOG_SHAPE: Mapping[str, Any] = {"lines": [str]}
TABLES_SHAPE: Mapping[str, Any] = {"tables?": [str], "definition?": str}


class WholePage:
    """See the module.

    node: address of this one, as in ZooKeeper.
    entrance: knows the accounts.
    sessions: of browsers.
    view: looks at the cluster.
    actions, reports: by kind of request, as StatusApi has them.
    reactor: Twisted's.
    """

    def __init__(
        self,
        node: str,
        entrance: Entrance,
        sessions: Sessions,
        view: ClusterView,
        actions: Mapping[str, Action],
        reports: Mapping[str, Report],
        reactor: Any,
    ) -> None:
        self._node = node
        self._entrance = entrance
        self._sessions = sessions
        self._view = view
        self._reports = reports
        self._front = Front(entrance, sessions)
        self._acting = Acting(node, entrance, view, actions)
        self._events = PageEvents(reactor, view.look)

    def render(self, request: Request, route: Route, name: str) -> bytes | int:
        """Answer one request; return the body, or NOT_DONE_YET. See WebPage in canal_ha.admin.api."""
        try:
            return self._render(request, route, name)
        except HttpRefusal as refusal:
            return _problem(request, refusal.code, str(refusal), None)

    def _render(self, request: Request, route: Route, name: str) -> bytes | int:
        if request.method not in route.methods:
            request.setHeader(b"allow", b", ".join(route.methods))
            raise HttpRefusal(405, f"only {b', '.join(route.methods).decode()}")
        if route.kind == gate.FRONT:
            return self._at_the_front(request, name)
        if self._nobody(request):
            return to_log_in(request)
        by_itself = request.getHeader(b"hx-request") is not None or route.kind in (gate.LAG, gate.EVENTS)
        guest = guest_of(self._entrance, self._sessions, request, used=not by_itself)
        check = partial(check_right, self._entrance, guest.account, guest.actor, route.kind, name)
        try:
            check()
        except HttpRefusal as refusal:
            return _problem(request, refusal.code, str(refusal), guest)
        if route.kind == gate.EVENTS:
            return self._events.listen(request, lambda: self._still(request, route.kind))
        work: Coroutine[Any, Any, bytes]
        if route.kind in FORMS:
            work = self._acting.page(request, guest, FORMS[route.kind], name, check)
        elif route.kind == gate.PAGE:
            work = self._overview(request, guest)
        elif route.kind == gate.DESTINATION_PAGE:
            work = self._destination(request, guest, name)
        elif route.kind == gate.LAG:
            work = self._lag(request, guest, name)
        elif route.kind == gate.TABLES:
            work = self._tables(request, guest, name)
        else:
            work = self._log(request, guest, name)
        return later(request, _caught(request, guest, work))

    def _still(self, request: Request, kind: str) -> Guest:
        """Return who has sent a request, as of now. Raises HttpRefusal if a login or a right is gone."""
        guest = guest_of(self._entrance, self._sessions, request, used=False)
        check_right(self._entrance, guest.account, guest.actor, kind, "")
        return guest

    def stop(self) -> None:
        """End what is still being sent."""
        self._events.stop()

    def _at_the_front(self, request: Request, name: str) -> bytes:
        if name:
            found = static(name)
            if found is None:
                raise HttpRefusal(404, f"the page has no file {name}")
            return file(request, *found)
        return self._front.log_in(request) if request.path == b"/login" else self._front.log_out(request)

    def _nobody(self, request: Request) -> bool:
        """Return whether a request lacks a login that it needs. That is no attempt to log in: the audit omits it."""
        return not (
            self._entrance.accounts().is_open
            or request.getHeader(b"authorization")
            or names_of(request.transport)
            or session_of(self._sessions, request, used=False)
        )

    # ---- to read

    async def _overview(self, request: Request, guest: Guest) -> bytes:
        document = await self._view.look(guest)
        query = query_of(request)
        q, chosen = query.get("q", "").strip()[:100], query.get("state", "")
        every = document["destinations"]
        counts = states(every)
        found = [each for each in every if (not chosen or each["state"] == chosen) and _matches(each, q)]
        pages = max(1, -(-len(found) // SHOWN))
        number = query.get("page", "1")
        page = min(max(1, int(number) if number.isdecimal() and len(number) < 6 else 1), pages)
        first = (page - 1) * SHOWN

        def at(number: int) -> str:
            given = {"q": q, "state": chosen, "page": str(number) if number > 1 else ""}
            return "/?" + urlencode({key: value for key, value in given.items() if value})

        return html(
            request,
            200,
            render(
                "overview.html",
                guest=guest,
                here="overview",
                document=document,
                q=q,
                chosen=chosen,
                states=sorted(counts.items()),
                self_url=at(page),
                up=sum(node["state"] == "up" for node in document["nodes"]),
                running=counts["running"],
                worst=max((each["seconds_behind"] for each in every), default=-1.0),
                found=len(found),
                first=first,
                shown=found[first : first + SHOWN],
                page=page,
                pages=pages,
                earlier=at(page - 1) if page > 1 else "",
                further=at(page + 1) if page < pages else "",
                forms=_forms(guest),
            ),
        )

    async def _destination(self, request: Request, guest: Guest, name: str) -> bytes:
        document = await self._view.look(guest)
        it = destination_in(document, name)
        return html(
            request,
            200,
            render(
                "destination.html",
                guest=guest,
                here="",
                it=it,
                at=document["at"],
                problem=document["problem"],
                alarms=[each for each in document["alarms"] if each["destination"] == name],
                changes=[each for each in document["changes"] if each["destination"] == name][:20],
                snapshots=[client for client in it["clients"] if client["snapshot"]],
                forms=_forms(guest, name),
                configured=it["state"] != NOT_CONFIGURED,
            ),
        )

    async def _lag(self, request: Request, guest: Guest, name: str) -> bytes:
        try:
            return answer(request, 200, await self._report(gate.LAG, "lag", LAG_SHAPE, guest, name))
        except CanalError as error:
            return answer(request, 409, {"error": str(error)})

    async def _log(self, request: Request, guest: Guest, name: str) -> bytes:
        problem, text = "", ""
        try:
            if name:
                found = await self._report(gate.LOG, "log", LOG_SHAPE, guest, name)
            else:
                found = await self._reports[gate.NODE_LOG]("", guest, {})
            text = "\n".join(found["lines"])
        except CanalError as error:
            problem = str(error)
        title = f"Log: {name}" if name else f"Log of {self._node}"
        note = "The end of the log file, as it is on the node that runs the destination, or for a node on that node."
        given = {"title": title, "what": "Log", "text": text, "note": note, "problem": problem}
        here = "" if name else "log"
        return html(request, 200, render("text.html", guest=guest, here=here, destination=name, **given))

    async def _tables(self, request: Request, guest: Guest, name: str) -> bytes:
        table = query_of(request).get("table", "")
        given: dict[str, Any] = {"title": f"Tables: {name}", "what": "Tables", "problem": "", "note": ""}
        query = {"table": table} if table else {}
        try:
            found = await self._report(gate.TABLES, "tables", TABLES_SHAPE, guest, name, query)
            if table:
                given |= {"title": f"{table}: {name}", "what": table, "text": found.get("definition", "")}
                given["note"] = "As the source shows it now. The history of tables may have other versions."
            else:
                given["tables"] = found.get("tables", [])
        except CanalError as error:
            given["problem"] = str(error)
        return html(request, 200, render("text.html", guest=guest, here="", destination=name, **given))

    async def _report(
        self, kind: str, part: str, shape: Mapping[str, Any], guest: Guest, name: str, query: Query | None = None
    ) -> dict[str, Any]:
        """Return a report of the node that runs a destination. Raises CanalError."""
        owner = await self._owner(guest, name)
        if owner == self._node:
            return await self._reports[kind](name, guest, query or {})
        path = f"/api/v1/{path_of(name, part)}" + (f"?{urlencode(query)}" if query else "")
        return await self._view.ask(guest, owner, path, shape)

    async def _owner(self, guest: Guest, name: str) -> str:
        """Return the node that runs a destination. Raises NotRunningHere if no node does."""
        owner = str(destination_in(await self._view.look(guest), name)["owner"])
        if not owner:
            raise NotRunningHere(name)
        return owner


def _matches(destination: Mapping[str, Any], q: str) -> bool:
    fields = (destination["destination"], destination["owner"], destination["source_address"])
    return any(q.lower() in text.lower() for text in fields)


def _forms(guest: Guest, destination: str = "") -> list[Form]:
    """Return the forms that a guest may use for a destination, or with "" for the whole cluster."""
    return [
        form
        for kind, form in FORMS.items()
        if form.of_cluster == (not destination) and not gate.refusal(guest.account, kind, destination)
    ]


async def _caught(request: Request, guest: Guest, work: Coroutine[Any, Any, bytes]) -> bytes:
    try:
        return await work
    except HttpRefusal as refusal:
        return _problem(request, refusal.code, str(refusal), guest)


def _problem(request: Request, code: int, text: str, guest: Guest | None) -> bytes:
    title = {404: "Not found", 403: "Refused", 401: "Log in", 429: "Wait"}.get(code, "This did not work")
    return html(request, code, render("problem.html", guest=guest, here="", code=code, title=title, problem=text))
