"""The HTTP resource of the status document and of actions on destinations. Runs in the reactor's thread."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from typing import Any
from urllib.parse import unquote

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.web.resource import Resource
from twisted.web.server import Request

from canal_ha import logs
from canal_ha.accounts import gate
from canal_ha.accounts.account import Account
from canal_ha.admin.actions import Action
from canal_ha.admin.control import Control
from canal_ha.admin.document import NodeFacts, status_document
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.listeners import is_loopback
from canal_ha.instance.status import InstanceStatus
from canal_ha.model.alarm import NodeAlarm
from canal_ha.server.certificates import Certificates
from canal_ha.server.entrance import Entrance
from canal_ha.server.http_login import HttpRefusal, check_host, check_right, login_of, refuse
from canal_ha.server.site import Listener, site_of

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """A request that the endpoint answers.

    kind: of request, for the gate.
    path: pattern of the path; its group is the destination.
    methods: of HTTP.
    """

    kind: str
    path: str
    methods: tuple[bytes, ...]


ROUTES = (
    Route(gate.STATUS, "/api/v1/status", (b"GET", b"HEAD")),
    Route(gate.SWITCH, "/api/v1/destinations/(.+)/source", (b"POST",)),
    Route(gate.SNAPSHOT, "/api/v1/destinations/(.+)/snapshot", (b"POST",)),
)


class StatusApi(Resource):
    """Serves GET /api/v1/status and the actions of `Control`; errors are JSON too.

    facts, status, alarms: the content of the document.
    entrance: knows the accounts.
    answers: whether a request's Host header names this machine; see check_host.
    actions: what can be done to destinations, by kind of request.
    """

    isLeaf = True

    def __init__(
        self,
        facts: NodeFacts,
        status: Callable[[], Sequence[InstanceStatus]],
        *,
        entrance: Entrance,
        answers: Callable[[str], bool],
        actions: Mapping[str, Action] | None = None,
        alarms: Callable[[], Sequence[ConfigAlarm | NodeAlarm]] = tuple,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._facts = facts
        self._status = status
        self._entrance = entrance
        self._answers = answers
        self._alarms = alarms
        self._actions = actions or {}
        self._control = Control(_answer, entrance.audit)

    def render(self, request: Request) -> bytes | int:
        """Answer one request; return the body, or NOT_DONE_YET."""
        try:
            return self._render(request)
        except HttpRefusal as refusal:
            return _answer(request, refusal.code, {"error": str(refusal)})

    def _render(self, request: Request) -> bytes | int:
        check_host(self._entrance, request, self._answers)
        account, actor = login_of(self._entrance, request)
        route, destination = _route(request)
        if route is None:
            refuse(self._entrance, request, actor, 404, f"not found; there is {ROUTES[0].path}")
        if request.method not in route.methods:
            request.setHeader(b"allow", b", ".join(route.methods))
            refuse(self._entrance, request, actor, 405, f"only {route.methods[0].decode()}")
        check = partial(check_right, self._entrance, account, actor, route.kind, destination)
        check()
        if action := self._actions.get(route.kind):
            return self._control.render(request, action, destination, actor, check)
        return _answer(request, 200, self._document(account))

    def _document(self, account: Account) -> dict[str, Any]:
        """Return the status of the destinations on which the account has a right."""

        def shown(destination: str) -> bool:
            return not gate.refusal(account, gate.DESTINATION_STATUS if destination else gate.METRICS, destination)

        return status_document(
            self._facts,
            [each for each in self._status() if shown(each.destination)],
            time.time(),
            [each for each in self._alarms() if shown(each.destination)],
        )


def _route(request: Request) -> tuple[Route | None, str]:
    """Return the route of a request and its destination; None if there is none."""
    path = request.path.decode("latin-1")
    for route in ROUTES:
        match = re.fullmatch(route.path, path)
        if match:
            return route, unquote(match[1]) if match.re.groups else ""
    return None, ""


def listen(
    reactor: Listener,
    bind: str,
    port: int,
    facts: NodeFacts,
    status: Callable[[], Sequence[InstanceStatus]],
    entrance: Entrance,
    actions: Mapping[str, Action] | None = None,
    alarms: Callable[[], Sequence[ConfigAlarm | NodeAlarm]] = tuple,
    names: Collection[str] = (),
    certificates: Certificates | None = None,
) -> IListeningPort | None:
    """Serve the status on bind:port, or on a free port if that one is in use.

    reactor: Twisted's.
    bind: address to listen on.
    port: TCP port; if negative, do not listen and return None.
    facts, status, alarms: the content of the document.
    entrance: knows the accounts.
    actions: what can be done to destinations, by kind of request.
    names: further names of this machine.
    certificates: for TLS; None: plain HTTP.
    Raises CannotListenError if `bind` is not an address of this machine.
    """
    if port < 0:
        return None
    interface = "127.0.0.1" if bind == "localhost" else bind
    answers = is_loopback if is_loopback(interface) else own_names(bind, *names)
    page = StatusApi(facts, status, entrance=entrance, answers=answers, actions=actions, alarms=alarms)
    site = site_of(page, certificates, entrance)
    try:
        listening = reactor.listenTCP(port, site, interface=interface)
    except CannotListenError as error:
        listening = reactor.listenTCP(0, site, interface=interface)
        log.warning("admin.port_taken", wanted=port, error=str(error.socketError))
    log.info("admin.listening", bind=interface, port=port_of(listening))
    return listening


def own_names(*names: str) -> Callable[[str], bool]:
    """Return whether a host is an address, which no page can rebind, or one of this machine's names."""
    own = {"localhost", socket.gethostname().lower(), *(name.lower() for name in names)}

    def answers(host: str) -> bool:
        try:
            ip_address(host)
        except ValueError:
            return host in own
        return True

    return answers


def port_of(listening: IListeningPort) -> int:
    """Return the bound TCP port."""
    host: Any = listening.getHost()  # type: ignore[misc] # zope interface: methods without self
    return int(host.port)


def _answer(request: Request, code: int, body: dict[str, Any]) -> bytes:
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    request.setHeader(b"x-content-type-options", b"nosniff")
    request.setHeader(b"server", b"canal-ha")
    return (json.dumps(body, ensure_ascii=False) + "\n").encode(errors="backslashreplace")
