"""Guest: who sends a request to the status endpoint, by a header or by the cookie of a session."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass, field, replace

from twisted.web.server import Request

from canal_ha.accounts.account import Account
from canal_ha.admin.sessions import Session, Sessions
from canal_ha.client.http_access import HttpAccess
from canal_ha.server.audit import Actor
from canal_ha.server.entrance import Entrance
from canal_ha.server.http_login import actor_of, login_of

_PORTS_COOKIE = "canal_ha_{port}"


@dataclass(frozen=True, slots=True)
class Guest:
    """Who asks.

    account: whose rights count.
    actor: for the audit.
    authorization: the header to show to other nodes; "" if there is none.
    session: of the browser; None for a request that logs in by itself.
    """

    account: Account
    actor: Actor
    authorization: str = field(default="", repr=False)
    session: Session | None = None

    def access(self, tls_ca: str) -> HttpAccess:
        """Return the login at other nodes. The operator's token is for its own node alone. tls_ca: see HttpAccess."""
        scheme, _, text = self.authorization.partition(" ")
        if not self.account.name:
            return HttpAccess(tls_ca=tls_ca)
        if scheme.lower() == "bearer":
            return HttpAccess(token=text.strip(), tls_ca=tls_ca)
        user, _, password = b64decode(text).decode().partition(":") if scheme.lower() == "basic" else ("", "", "")
        return HttpAccess(user, password, tls_ca)


def guest_of(entrance: Entrance, sessions: Sessions, request: Request, *, used: bool) -> Guest:
    """Return who sends a request. Raises HttpRefusal: 401 without a valid login, 429 after too many failures.

    used: whether a person sent it, and not the page by itself; see Sessions.find.
    """
    header = request.getHeader(b"authorization")
    if header is None and (session := session_of(sessions, request, used=used)):
        account = entrance.over_http_again(session.authorization)
        if account is not None:
            actor = replace(actor_of(request), account=account.name)
            return Guest(account, actor, session.authorization, session)
        sessions.close(cookie_of(request))
    account, actor = login_of(entrance, request)
    return Guest(account, actor, "" if header is None else header.decode("latin-1"))


def session_of(sessions: Sessions, request: Request, *, used: bool) -> Session | None:
    """Return the session of a request's cookie; None without one."""
    return sessions.find(cookie_of(request), used=used) if cookie_of(request) else None


def cookie_name(request: Request) -> str:
    """Return the name of the cookie. Browsers send a host's cookies to all its ports, so the name has the port."""
    return ("__Host-" if request.isSecure() else "") + _PORTS_COOKIE.format(port=request.getHost().port)


def cookie_of(request: Request, suffix: str = "") -> str:
    """Return the value of a cookie; "" without one. suffix: of its name."""
    name = re.escape(cookie_name(request) + suffix)
    header = (request.getHeader(b"cookie") or b"").decode("latin-1")
    found = re.search(rf"(?:^|;\s*){name}=([\w-]+)", header, re.ASCII)
    return found[1] if found else ""


def set_cookie(request: Request, value: str, suffix: str = "") -> None:
    """Give the browser a cookie, or take it away with the value "". suffix: of its name."""
    parts = [f"{cookie_name(request)}{suffix}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    if request.isSecure():
        parts.append("Secure")
    if not value:
        parts.append("Max-Age=0")
    request.responseHeaders.addRawHeader(b"set-cookie", "; ".join(parts).encode())
