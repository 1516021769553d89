"""Logins over HTTP: who sends a request to the metrics or to the status endpoint. Reactor thread."""

from __future__ import annotations

from twisted.web.server import Request

from canal_ha.accounts.account import Account
from canal_ha.errors import Busy, LoginRefused, NotAllowed
from canal_ha.server.certificates import names_of
from canal_ha.server.entrance import Entrance

CHALLENGE = 'Basic realm="canal-ha", charset="UTF-8"'


class HttpRefusal(Exception):
    """A request is answered with an error. code: the HTTP status."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def login_of(entrance: Entrance, request: Request) -> Account:
    """Return the account of a request. Raises HttpRefusal: 401 without a valid login, 429 after too many failures."""
    peer = getattr(request.getClientAddress(), "host", "unknown")
    header = request.getHeader(b"authorization")
    authorization = None if header is None else header.decode("latin-1")
    try:
        account = entrance.over_http(authorization, f"/{peer}", names_of(request.transport))
    except LoginRefused as error:
        account, text = None, str(error)
    except Busy as error:
        raise HttpRefusal(Busy.code, str(error)) from error
    else:
        text = "log in with the name and the password of an account, or with its bearer token"
    if account is None:
        request.setHeader(b"www-authenticate", CHALLENGE)
        raise HttpRefusal(401, text)
    return account


def check_right(entrance: Entrance, account: Account, kind: str, destination: str = "") -> None:
    """Raise HttpRefusal if the gate refuses the request; see Entrance.check."""
    try:
        entrance.check(account, kind, destination)
    except NotAllowed as error:
        raise HttpRefusal(NotAllowed.code, str(error)) from error
