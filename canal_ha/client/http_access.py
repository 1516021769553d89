"""The login at a node's status endpoint over HTTP."""

from __future__ import annotations

import ssl
from base64 import b64encode
from dataclasses import dataclass, field
from functools import lru_cache
from math import inf
from pathlib import Path
from urllib.request import HTTPRedirectHandler, OpenerDirector, ProxyHandler, build_opener

from canal_ha.client.http_deadline import HttpsUntil, HttpUntil
from canal_ha.config.pem_files import check_regular
from canal_ha.config.small_files import read_small

KEPT_MOST = 8  # contexts of PEM files
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """How to log in.

    user: name of an account; "" sends no name.
    password: of the account.
    token: bearer token of an account, instead of name and password; "" sends none.
    tls_ca: PEM file of the authorities that an https address is checked with; "": those of the system.
    certificate: PEM file whose first certificate an https address must have, whatever its name is; "": any that an
        authority vouches for.
    """

    user: str = ""
    password: str = field(default="", repr=False)
    tls_ca: str = ""
    token: str = field(default="", repr=False)
    certificate: str = ""

    def safe_for(self, url: str, *, named_by_anybody: bool) -> bool:
        """Return whether the login may go to an address.

        named_by_anybody: whether a stranger could have named it; then only a certificate tells that it is a node.
        """
        sends = self.user or self.token
        return not (sends and named_by_anybody) or bool(self.tls_ca and url.startswith("https://"))

    def opener(self, until: float = inf) -> OpenerDirector:
        """Return an opener that logs in, and asks no proxy: a node on loopback is not behind the environment's.

        until: when answers have to be complete, in s of time.monotonic.
        Raises OSError for a PEM file that cannot be used.
        """
        made = build_opener(ProxyHandler({}), HttpUntil(until), HttpsUntil(until, self._context()), _NoRedirects())
        if self.token:
            made.addheaders.append(("Authorization", f"Bearer {self.token}"))
        elif self.user:
            login = b64encode(f"{self.user}:{self.password}".encode()).decode()
            made.addheaders.append(("Authorization", f"Basic {login}"))
        return made

    def _context(self) -> ssl.SSLContext:
        if self.certificate:
            return _only(self.certificate, _changed(self.certificate))
        return _authorities(self.tls_ca, _changed(self.tls_ca) if self.tls_ca else ())


def _changed(file: str) -> tuple[int, ...]:
    """Return figures that differ after a change of a file. Raises OSError."""
    found = Path(file).stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


@lru_cache(KEPT_MOST)
def _authorities(tls_ca: str, changed: tuple[int, ...]) -> ssl.SSLContext:
    """Return a context with the authorities of a file, or of the system, which take 35 ms to load."""
    check_regular(tls_ca)
    return ssl.create_default_context(cafile=tls_ca or None)


@lru_cache(KEPT_MOST)
def _only(certificate: str, changed: tuple[int, ...]) -> ssl.SSLContext:
    """Return a context that accepts the first certificate of a file alone. The others vouch for more nodes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    head, end, _ = read_small(Path(certificate)).decode(errors="replace").partition(_END)
    _, begin, body = head.rpartition(_BEGIN)
    context.load_verify_locations(cadata=f"{begin}{body}{end}\n")
    return context


class _NoRedirects(HTTPRedirectHandler):
    """The login is for the address that was asked alone, and nodes send nobody elsewhere."""

    def redirect_request(self, *_: object) -> None:
        """Answer a redirection as an error."""
