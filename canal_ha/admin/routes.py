"""Routes: every request that the status endpoint answers, with its kind for the gate."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote

from twisted.web.server import Request

from canal_ha.accounts import gate
from canal_ha.admin.additions import TEXT_MOST
from canal_ha.model.snapshot import MOST_CHARACTERS
from canal_ha.server.site import BODY_MOST_BYTES

SNAPSHOT_BODY_MOST = 6 * MOST_CHARACTERS
"""Bytes of a request for a snapshot as large as one can be: JSON has up to six for a character, as in `\\u00fc`."""
ADD_FORM_MOST = 8 * TEXT_MOST + 8192
"""Bytes of the page's form for a destination: a confirmation has the text as JSON; `\\u00fc` is sent as %5Cu00fc."""


@dataclass(frozen=True, slots=True)
class Route:
    """A request that the endpoint answers.

    kind: of request, for the gate.
    path: pattern of the path; its group is the destination, or the name of a file.
    methods: of HTTP.
    """

    kind: str
    path: str
    methods: tuple[bytes, ...]


GET = (b"GET", b"HEAD")
POST = (b"POST",)
FORM = (*GET, *POST)  # the page shows it and takes it
ROUTES = (
    Route(gate.STATUS, "/api/v1/status", GET),
    Route(gate.CLUSTER, "/api/v1/cluster", GET),
    Route(gate.SEEN, "/api/v1/seen", GET),
    Route(gate.NODE_LOG, "/api/v1/log", GET),
    Route(gate.OPENAPI, "/api/v1/openapi.json", GET),
    Route(gate.LAG, "/api/v1/destinations/(.+)/lag", GET),
    Route(gate.LOG, "/api/v1/destinations/(.+)/log", GET),
    Route(gate.TABLES, "/api/v1/destinations/(.+)/tables", GET),
    Route(gate.CONFIGURATION, "/api/v1/config", GET),
    Route(gate.DESTINATION_CONFIGURATION, "/api/v1/destinations/(.+)/config", GET),
    Route(gate.DESTINATIONS, "/api/v1/destinations", GET),
    Route(gate.SWITCH, "/api/v1/destinations/(.+)/source", POST),
    Route(gate.SNAPSHOT, "/api/v1/destinations/(.+)/snapshot", POST),
    Route(gate.CURSOR, "/api/v1/destinations/(.+)/cursor", POST),
    Route(gate.MOVE, "/api/v1/destinations/(.+)/move", POST),
    Route(gate.PAUSE, "/api/v1/destinations/(.+)/pause", POST),
    Route(gate.RESUME, "/api/v1/destinations/(.+)/resume", POST),
    Route(gate.ADD, "/api/v1/destinations/(.+)/add", POST),
    Route(gate.REMOVE, "/api/v1/destinations/(.+)/remove", POST),
    Route(gate.REBALANCE, "/api/v1/rebalance", POST),
)
# Pages are another table: their answers are HTML, and their login is a form.
PAGES = (
    Route(gate.PAGE, "/", GET),
    Route(gate.FRONT, "/login", FORM),
    Route(gate.FRONT, "/logout", POST),
    Route(gate.FRONT, "/static/([a-z.]+)", GET),
    Route(gate.EVENTS, "/events", (b"GET",)),
    Route(gate.NODE_LOG, "/log", GET),
    Route(gate.DESTINATION_PAGE, "/destinations/([^/]+)", GET),
    Route(gate.LAG, "/destinations/([^/]+)/lag", GET),
    Route(gate.LOG, "/destinations/([^/]+)/log", GET),
    Route(gate.TABLES, "/destinations/([^/]+)/tables", GET),
    Route(gate.SWITCH, "/destinations/([^/]+)/source", FORM),
    Route(gate.SNAPSHOT, "/destinations/([^/]+)/snapshot", FORM),
    Route(gate.CURSOR, "/destinations/([^/]+)/cursor", FORM),
    Route(gate.MOVE, "/destinations/([^/]+)/move", FORM),
    Route(gate.PAUSE, "/destinations/([^/]+)/pause", FORM),
    Route(gate.RESUME, "/destinations/([^/]+)/resume", FORM),
    Route(gate.REMOVE, "/destinations/([^/]+)/remove", FORM),
    Route(gate.REBALANCE, "/rebalance", FORM),
    Route(gate.ADD, "/add", FORM),
)


def route_of(request: Request, routes: Sequence[Route]) -> tuple[Route | None, str]:
    """Return the route of a request, and the destination or file in its path; None if there is none."""
    path = request.path.decode("latin-1")
    for route in routes:
        match = re.fullmatch(route.path, path)
        if match:
            return route, unquote(match[1]) if match.re.groups else ""
    return None, ""


def body_most(method: bytes, path: bytes) -> int:
    """See canal_ha.server.site.BodyMost."""
    if method == b"POST" and path == b"/add":
        return ADD_FORM_MOST
    (snapshot,) = (route for route in ROUTES if route.kind == gate.SNAPSHOT)
    large = method in snapshot.methods and re.fullmatch(snapshot.path, path.decode("latin-1"))
    return SNAPSHOT_BODY_MOST if large else BODY_MOST_BYTES
