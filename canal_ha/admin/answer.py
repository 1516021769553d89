"""Answers of the status endpoint: JSON at once, or anything later. Reactor thread."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure
from twisted.web.server import NOT_DONE_YET, Request

from canal_ha import logs

log = logs.get(__name__)


def answer(request: Request, code: int, body: dict[str, Any]) -> bytes:
    """Set the headers of a JSON answer and return its body. code: of HTTP."""
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"application/json")
    request.setHeader(b"cache-control", b"no-store")
    request.setHeader(b"x-content-type-options", b"nosniff")
    return (json.dumps(body, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def later(request: Request, work: Coroutine[Deferred[Any], Any, bytes]) -> int:
    """Answer when the work ends, unless the caller has hung up; the work goes on then. Return NOT_DONE_YET.

    work: sets code and headers, and returns the body.
    """
    gone: list[Failure] = []
    request.notifyFinish().addErrback(gone.append)

    def done(body: bytes) -> None:
        if not gone:
            request.setHeader(b"content-length", str(len(body)).encode())
            if request.method != b"HEAD":
                request.write(body)
            request.finish()

    def broken(failure: Failure) -> bytes:
        log.error("admin.answer_broken", path=request.path.decode("latin-1"), error=repr(failure.value))
        return answer(request, 500, {"error": "the answer failed; the log of the node has admin.answer_broken"})

    Deferred.fromCoroutine(work).addErrback(broken).addCallback(done)
    return NOT_DONE_YET
