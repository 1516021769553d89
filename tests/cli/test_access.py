"""How commands log in at a node."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from canal_ha.client import node_http
from canal_ha.client.http_access import HttpAccess
from canal_ha.errors import NodeUnreachable

BOSS = HttpAccess("boss", "a password")


@contextmanager
def answering(code: int, body: bytes) -> Iterator[str]:
    """Serve one answer to every request; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(("code", "reason"), [
    (401, "auth failed for user:boss"),
    (403, "the Host header names another machine"),
    (429, "too many failed logins of user:boss from this address: try again in 1 s"),
])  # fmt: skip
def test_a_refused_login_shows_the_nodes_reason(code: int, reason: str) -> None:
    """It is not taken for another program's answer, and nobody is asked for a login that he has given."""
    body = f'{{"error": "{reason}"}}'.encode()
    with answering(code, body) as url, pytest.raises(NodeUnreachable, match=f"refused the request: {reason}"):
        node_http.fetch(url, BOSS)
