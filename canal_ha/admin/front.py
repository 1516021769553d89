"""Front: the log-in and the log-out of the page. Reactor thread."""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from urllib.parse import parse_qsl, quote

from twisted.web.server import Request

from canal_ha.accounts.account import AccountRole
from canal_ha.admin.guest import cookie_of, session_of, set_cookie
from canal_ha.admin.html import html, see_other
from canal_ha.admin.routes import GET, PAGES
from canal_ha.admin.sessions import Sessions
from canal_ha.admin.templates import render
from canal_ha.errors import Busy, LoginRefused
from canal_ha.server.entrance import Entrance
from canal_ha.server.http_login import HttpRefusal, actor_of, refuse

_NONCE = "_form"  # suffix of the cookie that a log-in form belongs to


class Front:
    """See the module. entrance: knows the accounts. sessions: of browsers."""

    def __init__(self, entrance: Entrance, sessions: Sessions) -> None:
        self._entrance = entrance
        self._sessions = sessions
        self._key = secrets.token_bytes(32)  # of the log-in forms

    def log_in(self, request: Request) -> bytes:
        """Show the form, or take it. Raises HttpRefusal."""
        if request.method in GET:
            return self._form(request, 200, _target(dict(parse_qsl(request.uri.partition(b"?")[2].decode("latin-1")))))
        given = fields_of(request)
        actor = actor_of(request)
        nonce = cookie_of(request, _NONCE)
        if not nonce:
            refuse(self._entrance, request, actor, 403, "the log-in needs the cookie of its form: open it again")
        check_form(self._entrance, request, self._proof(nonce), given)
        token, user = given.get("token", "").strip(), given.get("user", "")
        login = b64encode(f"{user}:{given.get('password', '')}".encode()).decode()
        authorization = f"Bearer {token}" if token else f"Basic {login}"
        try:
            account = self._entrance.over_http(authorization, f"/{actor.address}")
        except (LoginRefused, Busy) as error:
            self._entrance.audit.refused("login", actor, str(error))
            code = 429 if isinstance(error, Busy) else 401
            return self._form(request, code, _target(given), user, str(error))
        if account is None or (self._entrance.accounts().is_open and AccountRole.ADMIN not in account.roles):
            text = "this is not the operator's token of this node"
            self._entrance.audit.refused("login", actor, text)
            return self._form(request, 401, _target(given), user, text)
        self._sessions.close(cookie_of(request))
        cookie, _ = self._sessions.open(account.name, authorization)
        self._entrance.audit.client_did("login", replace(actor, account=account.name), details={"over": "page"})
        set_cookie(request, cookie)
        set_cookie(request, "", _NONCE)
        return see_other(request, _target(given))

    def log_out(self, request: Request) -> bytes:
        """End the session of the browser. Raises HttpRefusal."""
        session = session_of(self._sessions, request, used=True)
        if session:
            check_form(self._entrance, request, session.csrf, fields_of(request))
            self._sessions.close(cookie_of(request))
            set_cookie(request, "")
        return see_other(request, "/")

    def _form(self, request: Request, code: int, target: str, user: str = "", problem: str = "") -> bytes:
        nonce = cookie_of(request, _NONCE) or secrets.token_urlsafe(16)
        set_cookie(request, nonce, _NONCE)
        return html(
            request,
            code,
            render(
                "login.html",
                guest=None,
                here="",
                csrf=self._proof(nonce),
                next=target,
                user=user,
                problem=problem,
                open=self._entrance.accounts().is_open,
            ),
        )

    def _proof(self, nonce: str) -> str:
        return hmac.new(self._key, nonce.encode(), sha256).hexdigest()


def to_log_in(request: Request) -> bytes:
    """Send the browser to the log-in, and back here afterwards."""
    return see_other(request, f"/login?next={quote(request.uri, safe='')}")


def fields_of(request: Request) -> Mapping[str, str]:
    """Return the fields of a form; of each the first value. Raises HttpRefusal for another body."""
    if not (request.getHeader("content-type") or "").lower().startswith("application/x-www-form-urlencoded"):
        raise HttpRefusal(400, "send a form")
    text = request.content.read().decode("ascii", "replace") if request.content else ""
    found: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True, errors="replace"):
        found.setdefault(name, value)
    return found


def check_form(entrance: Entrance, request: Request, csrf: str, given: Mapping[str, str]) -> None:
    """Raise HttpRefusal if a form came from no page of the session. csrf: what the form must have."""
    if not hmac.compare_digest(given.get("csrf", "").encode(), csrf.encode()):
        refuse(
            entrance,
            request,
            actor_of(request),
            403,
            "the form is not from a page of this session: open the page again",
        )


def _target(given: Mapping[str, str]) -> str:
    """Return the path to go to after the log-in: a page of this node, never another site."""
    target = given.get("next", "/")
    path = target.partition("?")[0]
    found = any(re.fullmatch(route.path, path) and b"GET" in route.methods for route in PAGES)
    return target if found and target.isascii() and target.isprintable() else "/"
