"""Audit: one JSON line for each thing that somebody did on this node, or was refused. Reactor thread.

docs/security.md has the fields. `audit_file` writes the lines.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from canal_ha.model.clock import Clock
from canal_ha.model.excerpt import excerpt
from canal_ha.server.complaints import Complaints, LineRates
from canal_ha.server.repeats import Repeats

OK, REFUSED, FAILED = "ok", "refused", "failed"
ZNODE_EDIT = "znode edit"
LOGIN_AGAIN_S = 3600.0  # each request over HTTP logs in: one line an hour for an account at an address
LOGINS_KEPT = 1024
DEEDS = LineRates(
    1000, 10, 10_000, 100
)  # a fleet behind one address may connect at once; nobody fills ten files in a day


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did something.

    account: its name; "" without one.
    address: of the peer; "" for the node itself.
    certificate: subject of the peer's verified certificate; "" without one.
    """

    account: str = ""
    address: str = ""
    certificate: str = ""


NODE = Actor()


@dataclass(frozen=True, slots=True)
class _Deed:
    """What a client did. details: its facts, as pairs."""

    action: str
    who: Actor
    destination: str
    client_id: int | None
    details: tuple[tuple[str, object], ...]


class Audit:
    """See the module. Refusals are limited for each address as log lines are, and counted beyond that."""

    def __init__(
        self, clock: Clock, write: Callable[[bytes], None] | None = None, now: Callable[[], float] = time.time
    ) -> None:
        """Begin.

        clock: for the limits.
        write: takes a line, and never blocks; None: no audit.
        now: seconds since 1970.
        """
        self._clock = clock
        self._write = write
        self._now = now
        self._refusals = Complaints(clock, partial(self._left_out, "refusals left out", REFUSED))
        self._repeats: Repeats[_Deed] = Repeats(clock, self._came_again)
        self._deeds = Complaints(clock, partial(self._left_out, "actions left out", OK), DEEDS)
        self._http_logins: dict[Actor, float] = {}  # the oldest first

    def note(
        self,
        action: str,
        result: str = OK,
        who: Actor = NODE,
        *,
        destination: str = "",
        client_id: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write a line. details: facts of this action."""
        if self._write is None:
            return
        moment = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "action": action,
            "result": result,
            "account": excerpt(who.account),
            "address": excerpt(who.address),
            "certificate": excerpt(who.certificate),
            "destination": excerpt(destination),
            "client_id": client_id,
            "details": _shown(details or {}),
        }
        self._write(json.dumps(line).encode() + b"\n")

    def client_did(
        self,
        action: str,
        who: Actor,
        *,
        destination: str = "",
        client_id: int | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        """Write a line about what a client can do in a loop, if its address has not caused too many of them.

        What has a line and comes again within a minute is counted, in one more line.

        details: facts of this action.
        """
        if self._write is None:
            return
        shown = _shown(details or {})  # before it is kept: a client can send long texts
        deed = _Deed(action, who, destination, client_id, tuple(shown.items()))
        if self._repeats.again(deed):
            return
        if self._deeds.may(who.address):
            self._repeats.began(deed)
            self.note(action, OK, who, destination=destination, client_id=client_id, details=shown)

    def refused(
        self, action: str, who: Actor, reason: str, *, destination: str = "", client_id: int | None = None
    ) -> None:
        """Write a line about a refusal, if its address has not caused too many of them."""
        if self._write and self._refusals.may(who.address):
            self.note(action, REFUSED, who, destination=destination, client_id=client_id, details={"reason": reason})

    def http_login(self, who: Actor) -> None:
        """Write a line for the first request of an account from an address, and again every LOGIN_AGAIN_S."""
        now = self._clock.seconds()
        if now - self._http_logins.get(who, -LOGIN_AGAIN_S) < LOGIN_AGAIN_S:
            return
        self._http_logins.pop(who, None)
        self._http_logins[who] = now
        if len(self._http_logins) > LOGINS_KEPT:
            del self._http_logins[next(iter(self._http_logins))]
        self.note("login", OK, who, details={"over": "http"})

    def stop(self) -> None:
        """Write how many refusals and repetitions were left out so far."""
        self._refusals.stop()
        self._repeats.stop()
        self._deeds.stop()

    def _left_out(self, action: str, result: str, address: str, count: int) -> None:
        self.note(action, result, Actor(address=address.removeprefix("/")), details={"count": count})

    def _came_again(self, done: _Deed, count: int) -> None:
        details = {**dict(done.details), "repeated": count}
        self.note(done.action, OK, done.who, destination=done.destination, client_id=done.client_id, details=details)


def _shown(details: Mapping[str, object]) -> dict[str, object]:
    """Return facts as a line has them: numbers, and texts that are cut."""
    return {key: value if isinstance(value, int | float) else excerpt(str(value)) for key, value in details.items()}
