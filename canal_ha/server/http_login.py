"""Logins over HTTP: who sends a request to the metrics or to the status endpoint. Reactor thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from twisted.web.server import Request

from canal_ha.accounts.account import Account
from canal_ha.errors import Busy, LoginRefused, NotAllowed
from canal_ha.server.audit import Actor
from canal_ha.server.certificates import names_of, subject_of
from canal_ha.server.entrance import Entrance

CHALLENGE = 'Basic realm="canal-ha", charset="UTF-8"'


class HttpRefusal(Exception):
    """A request is answered with an error. code: the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def login_of(entrance: Entrance, request: Request) -> tuple[Account, Actor]:
    """Return the account of a request. Raises HttpRefusal: 401 without a valid login, 429 after too many failures."""
    actor = actor_of(request)
    header = request.getHeader(b"authorization")
    authorization = None if header is None else header.decode("latin-1")
    try:
        account = entrance.over_http(authorization, f"/{actor.address}", names_of(request.transport))
    except LoginRefused as error:
        entrance.audit.refused("login", actor, str(error))
        account, text = None, str(error)
    except Busy as error:
        entrance.audit.refused("login", actor, str(error))
        raise HttpRefusal(Busy.code, str(error)) from error
    else:
        text = "log in with the name and the password of an account, or with its bearer token"
        if account is None:
            entrance.audit.refused("login", actor, "the request has no login")
    if account is None:
        request.setHeader(b"www-authenticate", CHALLENGE)
        raise HttpRefusal(401, text)
    actor = replace(actor, account=account.name)
    entrance.audit.http_login(actor)
    return account, actor


def actor_of(request: Request) -> Actor:
    """Return who sends a request, as far as it is known before the login."""
    host = getattr(request.getClientAddress(), "host", "unknown")
    return Actor("", host, subject_of(request.transport))


def check_host(entrance: Entrance, request: Request, answers: Callable[[str], bool]) -> None:
    """Raise HttpRefusal if the Host header names another machine.

    A web page can make a browser send requests here under the page's own host name (DNS rebinding); only the Host
    header shows that.

    answers: whether a name is one of this machine.
    """
    if not answers(request.getRequestHostname().decode("latin-1").strip("[]").lower()):
        text = "the Host header names another machine: use an address of this node, or canal.register.ip"
        refuse(entrance, request, actor_of(request), 403, text)


def refuse(entrance: Entrance, request: Request, actor: Actor, code: int, text: str) -> NoReturn:
    """Write a refused request into the audit and raise HttpRefusal."""
    asked = f"{request.method.decode('latin-1')} {request.path.decode('latin-1')}"
    entrance.audit.refused("request", actor, f"{text}: {asked}")
    raise HttpRefusal(code, text)


def check_right(
    entrance: Entrance,
    account: Account,
    actor: Actor,
    kind: str,
    destination: str = "",
    client_id: int | None = None,
) -> None:
    """Raise HttpRefusal if the gate refuses the request; see Entrance.check. actor: for the audit."""
    try:
        entrance.check(account, kind, destination, client_id)
    except NotAllowed as error:
        entrance.audit.refused(kind, actor, str(error), destination=destination, client_id=client_id)
        raise HttpRefusal(NotAllowed.code, str(error)) from error
