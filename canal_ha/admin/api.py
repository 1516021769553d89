"""The HTTP resource of the status document and of actions on destinations. Runs in the reactor's thread."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.web.resource import Resource
from twisted.web.server import Request

from canal_ha import logs
from canal_ha.admin.control import PREFIX, Control, Switch
from canal_ha.admin.document import NodeFacts, status_document
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.instance.status import InstanceStatus
from canal_ha.server.site import Listener, QuietSite

STATUS_PATH = b"/api/v1/status"


log = logs.get(__name__)


class StatusApi(Resource):
    """Serves GET /api/v1/status and the actions of `Control`; errors are JSON too.

    facts, status, alarms: the content of the document.
    local: refuse requests whose Host header names another machine. A web page can make a local browser send requests
        here under the page's own host name (DNS rebinding); only the Host header shows that.
    switch: see Control; None if sources cannot be switched.
    """

    isLeaf = True

    def __init__(
        self,
        facts: NodeFacts,
        status: Callable[[], Sequence[InstanceStatus]],
        *,
        local: bool,
        switch: Switch | None = None,
        alarms: Callable[[], Sequence[ConfigAlarm]] = tuple,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._facts = facts
        self._status = status
        self._local = local
        self._alarms = alarms
        self._control = Control(switch, _answer) if switch else None

    def render(self, request: Request) -> bytes | int:
        """Answer one request; return the body, or NOT_DONE_YET."""
        if self._local and not _is_local_name(request.getRequestHostname()):
            return _answer(request, 403, {"error": "this endpoint answers requests for localhost only"})
        if self._control and request.path.startswith(PREFIX):
            return self._control.render(request)
        if request.path != STATUS_PATH:
            return _answer(request, 404, {"error": "not found; there is " + STATUS_PATH.decode()})
        if request.method not in (b"GET", b"HEAD"):
            request.setHeader(b"allow", b"GET, HEAD")
            return _answer(request, 405, {"error": "only GET"})
        return _answer(request, 200, status_document(self._facts, self._status(), time.time(), self._alarms()))


def listen(
    reactor: Listener,
    bind: str,
    port: int,
    facts: NodeFacts,
    status: Callable[[], Sequence[InstanceStatus]],
    switch: Switch | None = None,
    alarms: Callable[[], Sequence[ConfigAlarm]] = tuple,
) -> IListeningPort | None:
    """Serve the status on bind:port, or on a free port if that one is in use.

    reactor: Twisted's.
    bind: address to listen on.
    port: TCP port; if negative, do not listen and return None.
    facts, status, alarms: the content of the document.
    switch: see Control; None if sources cannot be switched.
    Raises CannotListenError if `bind` is not an address of this machine.
    """
    if port < 0:
        return None
    interface = "127.0.0.1" if bind == "localhost" else bind
    page = StatusApi(facts, status, local=_is_loopback(interface), switch=switch, alarms=alarms)
    site = QuietSite(page)  # type: ignore[no-untyped-call] # Twisted's
    try:
        listening = reactor.listenTCP(port, site, interface=interface)
    except CannotListenError as error:
        listening = reactor.listenTCP(0, site, interface=interface)
        log.warning("admin.port_taken", wanted=port, error=str(error.socketError))
    log.info("admin.listening", bind=interface, port=port_of(listening))
    return listening


def port_of(listening: IListeningPort) -> int:
    """Return the bound TCP port."""
    host: Any = listening.getHost()  # type: ignore[misc] # zope interface: methods without self
    return int(host.port)


def _is_loopback(interface: str) -> bool:
    try:
        return ip_address(interface).is_loopback
    except ValueError:  # "" and names: reachable from elsewhere
        return False


def _is_local_name(host: bytes) -> bool:
    name = host.decode("latin-1").strip("[]").lower()
    return name == "localhost" or _is_loopback(name)


def _answer(request: Request, code: int, body: dict[str, Any]) -> bytes:
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    request.setHeader(b"x-content-type-options", b"nosniff")
    request.setHeader(b"server", b"canal-ha")
    return (json.dumps(body, ensure_ascii=False) + "\n").encode()
