"""Headers of the page's answers: nothing from other sites, no scripts or styles inside the HTML, no frames."""

from __future__ import annotations

from twisted.web.server import Request

_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self';"
    b" base-uri 'none'; frame-ancestors 'none'"
)
FILE_S = 365 * 24 * 3600  # the address of a file changes with its content


def html(request: Request, code: int, body: bytes) -> bytes:
    """Set the headers of an HTML answer and return its body. code: of HTTP."""
    request.setResponseCode(code)
    request.setHeader(b"content-type", b"text/html; charset=utf-8")
    request.setHeader(b"cache-control", b"no-store")
    _guard(request)
    return body


def event_stream(request: Request) -> None:
    """Set the headers of a stream of events."""
    request.setHeader(b"content-type", b"text/event-stream")
    request.setHeader(b"cache-control", b"no-store")
    request.setHeader(b"x-accel-buffering", b"no")  # for nginx in front of it
    _guard(request)


def file(request: Request, content_type: bytes, body: bytes) -> bytes:
    """Set the headers of a file of the page and return its content."""
    request.setHeader(b"content-type", content_type)
    request.setHeader(b"cache-control", b"public, max-age=%d, immutable" % FILE_S)
    _guard(request)
    return body


def see_other(request: Request, path: str) -> bytes:
    """Send the browser to another page of this node."""
    if request.getHeader(b"hx-request"):  # a refresh of a page whose session has ended
        request.setHeader(b"hx-redirect", path.encode())
        return html(request, 200, b"")
    request.setHeader(b"location", path.encode())
    return html(request, 303, b"")


def _guard(request: Request) -> None:
    request.setHeader(b"content-security-policy", _POLICY)
    request.setHeader(b"x-frame-options", b"DENY")
    request.setHeader(b"x-content-type-options", b"nosniff")
    request.setHeader(b"referrer-policy", b"same-origin")
    request.setHeader(b"cross-origin-opener-policy", b"same-origin")
