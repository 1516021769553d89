"""Probes: /healthz and /readyz, for supervisors and load balancers. Reactor thread.

They need no login, so they name no destination and no address. The status document has the whole reasons.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from urllib.parse import parse_qs

from twisted.web.resource import Resource
from twisted.web.server import Request

from canal_ha.model.unready import Unready

HEALTH, READY = b"/healthz", b"/readyz"
STRICT = b"strict"  # parameter of READY
PATHS = (HEALTH, READY)


class Probes(Resource):
    """Answers GET and HEAD of PATHS with JSON: 200, or 503 with reasons.

    /healthz answers 200 while the reactor works. /readyz answers 200 while clients may be sent here, and
    /readyz?strict while nothing is missing; both have the reasons.
    """

    isLeaf = True

    def __init__(
        self, unready: Callable[[], Sequence[Unready]], takes_traffic: Callable[[Sequence[Unready]], bool]
    ) -> None:
        """Make the answers.

        unready: returns what is missing now.
        takes_traffic: returns whether clients may be sent here although that is missing.
        """
        super().__init__()  # type: ignore[no-untyped-call] # Twisted's
        self._unready = unready
        self._takes_traffic = takes_traffic

    def render(self, request: Request) -> bytes:
        """Answer one request."""
        request.setHeader(b"content-type", b"application/json")
        request.setHeader(b"cache-control", b"no-store")
        if request.method not in (b"GET", b"HEAD"):
            request.setHeader(b"allow", b"GET, HEAD")
            request.setResponseCode(405)
            return b'{"error": "only GET"}\n'
        if request.path == HEALTH:
            return b'{"alive": true}\n'
        unready = self._unready()
        reasons = told(unready)
        strict = STRICT in parse_qs(request.uri.partition(b"?")[2], keep_blank_values=True)
        ready = not reasons if strict else self._takes_traffic(unready)
        request.setResponseCode(200 if ready else 503)
        return json.dumps({"ready": ready, "reasons": reasons}).encode() + b"\n"


def told(unready: Sequence[Unready]) -> list[str]:
    """Return the reasons as a stranger may read them: destinations are counted, not named."""
    reasons = [each.text for each in unready if not each.destination]
    if destinations := len({each.destination for each in unready if each.destination}):
        reasons.append(f"destinations that should run and do not: {destinations}")
    return reasons
