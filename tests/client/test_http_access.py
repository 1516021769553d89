"""The login over HTTP, at a server with TLS."""

from __future__ import annotations

import os
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import URLError

from canal_ha.client import http_access
from canal_ha.client.http_access import HttpAccess
from lab.certificates import Authority


@contextmanager
def serving(certificate: Path) -> Iterator[str]:
    """Answer HEAD over TLS, and yield the URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"https://127.0.0.1:{server.server_port}/"
        server.shutdown()


def answers(url: str, access: HttpAccess) -> bool:
    """Return whether the certificate of a server is accepted."""
    try:
        access.opener().open(url, timeout=10).close()
    except URLError as error:
        if not isinstance(error.reason, ssl.SSLCertVerificationError):
            raise
        return False
    return True


def test_a_renewed_authority_is_used_without_a_restart(tmp_path: Path) -> None:
    """The page of a node went on with the old one, so every other node with a new certificate was unreachable."""
    old, new = Authority(tmp_path, "old"), Authority(tmp_path, "new")
    used = tmp_path / "used.pem"
    access = HttpAccess(tls_ca=str(used))
    used.write_bytes(old.file.read_bytes())
    with serving(new.sign("node")) as url:
        assert not answers(url, access)
        used.write_bytes(new.file.read_bytes())
        assert answers(url, access)


def test_a_pinned_certificate_that_is_renewed_is_used_without_a_restart(tmp_path: Path) -> None:
    """A file that another one replaces counts too, with the time of its last change."""
    authority = Authority(tmp_path)
    pinned = authority.sign("node", "pinned")
    with serving(authority.sign("node", "other")) as url:
        assert not answers(url, HttpAccess(certificate=str(pinned)))
        os.replace(tmp_path / "other.pem", pinned)
        assert answers(url, HttpAccess(certificate=str(pinned)))


def test_many_files_of_authorities_do_not_stay_in_memory(tmp_path: Path) -> None:
    """Some are enough."""
    authority = Authority(tmp_path)
    for number in range(30):
        file = tmp_path / f"{number}.pem"
        file.write_bytes(authority.file.read_bytes())
        HttpAccess(tls_ca=str(file)).opener()
    assert http_access._authorities.cache_info().currsize <= http_access.KEPT_MOST
