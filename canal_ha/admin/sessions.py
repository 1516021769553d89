"""Sessions: who is logged in on the page, by the cookie of a browser. Only in memory: a restart logs everybody out."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256

from canal_ha.model.clock import Clock

IDLE_S = 30 * 60.0  # without a page that a person opened; the page's own refreshes do not count
WHOLE_S = 12 * 3600.0
MOST = 256
ACCOUNT_MOST = 16  # so that nobody logs others out by logging in often


@dataclass(slots=True)
class Session:
    """One browser that is logged in.

    account: name of the account; "" for the operator of a node without accounts.
    authorization: the header that the login stands for. The accounts may change, so each request checks it again, and
        the node shows it to the other nodes that it asks for this browser.
    csrf: proves that a form came from a page of this session.
    opened_at, used_at: seconds of the clock.
    """

    account: str
    authorization: str = field(repr=False)
    csrf: str = field(repr=False)
    opened_at: float
    used_at: float


class Sessions:
    """See the module. clock: for the time-outs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()  # by hash of the cookie; the last used is last

    def open(self, account: str, authorization: str) -> tuple[str, Session]:
        """Return the value of a new cookie, and its session. Beyond the limits the session unused longest ends."""
        now = self._clock.seconds()
        self._end_old(now)
        own = [key for key, session in self._sessions.items() if session.account == account]
        for key in own[: max(0, len(own) + 1 - ACCOUNT_MOST)]:
            del self._sessions[key]
        if len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        cookie = secrets.token_urlsafe(32)
        session = Session(account, authorization, secrets.token_urlsafe(32), now, now)
        self._sessions[_key(cookie)] = session
        return cookie, session

    def find(self, cookie: str, *, used: bool) -> Session | None:
        """Return the session of a cookie; None if there is none any more.

        used: whether a person did something, so that the idle time begins anew.
        """
        now = self._clock.seconds()
        self._end_old(now)
        session = self._sessions.get(_key(cookie))
        if session is not None and used:
            session.used_at = now
            self._sessions.move_to_end(_key(cookie))
        return session

    def close(self, cookie: str) -> None:
        """End the session of a cookie, if there is one."""
        self._sessions.pop(_key(cookie), None)

    def _end_old(self, now: float) -> None:
        for key, session in tuple(self._sessions.items()):
            if now - session.used_at >= IDLE_S or now - session.opened_at >= WHOLE_S:
                del self._sessions[key]

    def __len__(self) -> int:
        return len(self._sessions)


def _key(cookie: str) -> bytes:
    return sha256(cookie.encode(errors="replace")).digest()
