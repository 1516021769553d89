"""The port of the status endpoint, and the names that it answers to."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection
from ipaddress import ip_address
from typing import Any

from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.web.resource import Resource

from canal_ha import logs
from canal_ha.admin.routes import body_most
from canal_ha.config.listeners import is_loopback
from canal_ha.server.certificates import Certificates
from canal_ha.server.entrance import Entrance
from canal_ha.server.probes import Probes
from canal_ha.server.site import Listener, site_of

log = logs.get(__name__)


def listen(
    reactor: Listener,
    bind: str,
    port: int,
    page: Resource,
    entrance: Entrance,
    certificates: Certificates | None = None,
    probes: Probes | None = None,
) -> IListeningPort | None:
    """Serve a page on bind:port, or on a free port if that one is in use.

    reactor: Twisted's.
    bind: address to listen on.
    port: TCP port; if negative, do not listen and return None.
    page: answers the requests.
    entrance: see site_of.
    certificates: for TLS; None: plain HTTP.
    probes: see QuietSite.
    Raises CannotListenError if `bind` is not an address of this machine.
    """
    if port < 0:
        return None
    interface = _interface(bind)
    site = site_of(page, certificates, entrance, probes, body_most)
    try:
        listening = reactor.listenTCP(port, site, interface=interface)
    except CannotListenError as error:
        listening = reactor.listenTCP(0, site, interface=interface)
        log.warning("admin.port_taken", wanted=port, error=str(error.socketError))
    log.info("admin.listening", bind=interface, port=port_of(listening))
    return listening


def hosts(bind: str, names: Collection[str]) -> Callable[[str], bool]:
    """Return a function that tells whether a Host header names this machine.

    bind: address that the endpoint listens on.
    names: further names of this machine, beyond loopback.
    """
    return is_loopback if is_loopback(_interface(bind)) else own_names(bind, *names)


def _interface(bind: str) -> str:
    return "127.0.0.1" if bind == "localhost" else bind


def own_names(*names: str) -> Callable[[str], bool]:
    """Return a function that tells whether a host is an address, which no page can rebind, or this machine's name."""
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
