"""PageEvents: tells open pages at once when the picture of the cluster changes (server-sent events). Reactor thread.

A stream says `change`, so that the page reads itself again, or `same` now and then, with the moment of the picture. It
carries nothing else. It looks at the cluster with the rights that its guest has at each look, and ends when that guest
has none any more, or after WHOLE_S: browsers then connect again.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.python.failure import Failure
from twisted.web.server import NOT_DONE_YET, Request

from canal_ha import logs
from canal_ha.admin.guest import Guest
from canal_ha.admin.html import event_stream
from canal_ha.admin.templates import moment_text
from canal_ha.server.http_login import HttpRefusal

LISTENERS_MOST = 32  # on one node; further pages ask every few seconds
LOOK_S = 2.0
BEAT_S = 10.0
WHOLE_S = 600.0
AGAIN_MS = 5000  # until a browser connects again
_DIGESTS_KEPT = 8

LOG = logs.get(__name__)


class PageEvents:
    """See the module.

    reactor: Twisted's.
    look: returns the document of the cluster for a guest.
    """

    def __init__(self, reactor: Any, look: Callable[[Guest], Awaitable[dict[str, Any]]]) -> None:
        self._reactor = reactor
        self._look = look
        self._open: set[Request] = set()
        self._digests: OrderedDict[int, tuple[dict[str, Any], bytes]] = OrderedDict()  # by id of the document

    def listen(self, request: Request, guest: Callable[[], Guest]) -> int:
        """Begin a stream. Return NOT_DONE_YET.

        guest: returns who listens; raises HttpRefusal when that has no right any more.
        Raises HttpRefusal if there are LISTENERS_MOST streams.
        """
        if len(self._open) >= LISTENERS_MOST:
            raise HttpRefusal(503, f"{LISTENERS_MOST} pages listen to this node already; this one asks every 5 s")
        self._open.add(request)
        request.notifyFinish().addBoth(lambda _: self._open.discard(request))
        event_stream(request)
        request.write(f"retry: {AGAIN_MS}\n\n".encode())
        Deferred.fromCoroutine(self._tell(request, guest)).addErrback(self._broke).addCallback(
            lambda _: self._end(request)
        )
        return NOT_DONE_YET

    def stop(self) -> None:
        """End every stream."""
        for request in tuple(self._open):
            self._end(request)

    async def _tell(self, request: Request, guest: Callable[[], Guest]) -> None:
        until = self._reactor.seconds() + WHOLE_S
        told, told_at = b"", 0.0
        while self._reactor.seconds() < until:
            try:
                document = await self._look(guest())
            except HttpRefusal:
                return
            if request not in self._open:
                return
            digest, now = self._digest(document), self._reactor.seconds()
            if digest != told or now - told_at >= BEAT_S:
                name = "same" if digest == told else "change"
                request.write(f"event: {name}\ndata: {moment_text(document['at'])}\n\n".encode())
                told, told_at = digest, now
            await deferLater(self._reactor, LOOK_S)
            if request not in self._open:
                return

    def _digest(self, document: dict[str, Any]) -> bytes:
        """Return what two documents share that show the same, but for the time. Guests share documents."""
        known = self._digests.get(id(document))
        if known is None:
            nodes = [{**each, "uptime_s": 0} for each in document["nodes"]]
            text = json.dumps({**document, "at": "", "nodes": nodes})
            known = self._digests[id(document)] = document, sha256(text.encode(errors="backslashreplace")).digest()
            if len(self._digests) > _DIGESTS_KEPT:
                self._digests.popitem(last=False)
        return known[1]

    def _end(self, request: Request) -> None:
        if request in self._open:
            self._open.discard(request)
            request.finish()

    def _broke(self, failure: Failure) -> None:
        LOG.error("page.events_broken", error=repr(failure.value))
