"""Audit: one JSON line for each thing that somebody did on this node, or was refused. Reactor thread.

docs/security.md has the fields. `audit_file` writes the lines.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from canal_ha.accounts.origin import origin_of
from canal_ha.model.clock import Clock
from canal_ha.model.excerpt import excerpt, json_text
from canal_ha.server.complaints import Complaints, LineRates
from canal_ha.server.repeats import Repeats

OK, REFUSED, FAILED = "ok", "refused", "failed"
LEFT_OUT = "actions left out"
ZNODE_EDIT = "znode edit"
LOGIN_AGAIN_S = 3600.0  # each request over HTTP logs in: one line an hour for an account at an address
LOGINS_KEPT = 1024
TEXT_BYTES = 512  # of a text in a line; some characters take six
ORDERS = LineRates(1000, 10, 100_000, 1000)  # an account cannot use up the lines of the others
DEEDS = LineRates(1000, 10, 10_000, 100)  # a fleet may connect at once; an address needs hours to fill ten files


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
    result: str
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
        self._deeds = Complaints(clock, partial(self._left_out, LEFT_OUT, OK), DEEDS)
        self._orders = Complaints(clock, self._orders_left_out, ORDERS)  # by account
        self._events = Complaints(clock, self._events_left_out, DEEDS)  # by destination
        self._http_logins: dict[Actor, float] = {}  # each with the origin of its address; the oldest first

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
        """Write a line, however many there are. details: facts of this action."""
        if self._write is None:
            return
        moment = datetime.fromtimestamp(self._now(), UTC).isoformat(timespec="milliseconds")
        line = {
            "time": moment.replace("+00:00", "Z"),
            "action": action,
            "result": result,
            "account": _cut(who.account),
            "address": _cut(who.address),
            "certificate": _cut(who.certificate),
            "destination": _cut(destination),
            "client_id": client_id,
            "details": _shown(details or {}),
        }
        self._write(json_text(line).encode() + b"\n")

    def client_did(
        self,
        action: str,
        who: Actor,
        result: str = OK,
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
        deed = _Deed(action, result, who, destination, client_id, tuple(shown.items()))
        if self._repeats.again(deed):
            return
        if self._deeds.may(who.address):
            self._repeats.began(deed)
            self.note(action, result, who, destination=destination, client_id=client_id, details=shown)

    def ordered(
        self,
        action: str,
        who: Actor,
        result: str,
        *,
        destination: str = "",
        client_id: int | None = None,
        details: Mapping[str, object],
    ) -> None:
        """Write a line about an action that an account asked for, if there are not too many of them.

        What was carried out is never counted in another line, and dry runs and failures take nothing of its allowance.

        result: OK or FAILED.
        details: facts of this action; `dry_run` if it was only tried.
        """
        if result != OK or details.get("dry_run"):
            self.client_did(action, who, result, destination=destination, client_id=client_id, details=details)
        elif self._write and self._orders.may(who.account):
            self.note(action, OK, who, destination=destination, client_id=client_id, details=details)

    def happened(self, action: str, destination: str, client_id: int | None, details: Mapping[str, object]) -> None:
        """Write a line about what an instance did because somebody wanted it, if there are not too many of them."""
        if self._write and self._events.may(destination):
            self.note(action, destination=destination, client_id=client_id, details=details)

    def refused(
        self, action: str, who: Actor, reason: str, *, destination: str = "", client_id: int | None = None
    ) -> None:
        """Write a line about a refusal, if its address has not caused too many of them."""
        if self._write and self._refusals.may(who.address):
            self.note(action, REFUSED, who, destination=destination, client_id=client_id, details={"reason": reason})

    def http_login(self, who: Actor) -> None:
        """Write a line for the first request of an account from an address, and again every LOGIN_AGAIN_S.

        In IPv6 from a network: whoever has one of its addresses has all. There is none if the address has too many.
        """
        now, key = self._clock.seconds(), replace(who, address=origin_of(who.address))
        if now - self._http_logins.get(key, -LOGIN_AGAIN_S) < LOGIN_AGAIN_S:
            return
        if self._write is None or not self._deeds.may(who.address):
            return
        self._http_logins.pop(key, None)
        self._http_logins[key] = now
        if len(self._http_logins) > LOGINS_KEPT:
            del self._http_logins[next(iter(self._http_logins))]
        self.note("login", OK, who, details={"over": "http"})

    def stop(self) -> None:
        """Write how many refusals, repetitions and actions were left out so far."""
        self._repeats.stop()
        for each in (self._refusals, self._deeds, self._orders, self._events):
            each.stop()

    def _left_out(self, action: str, result: str, address: str, count: int) -> None:
        self.note(action, result, Actor(address=address.removeprefix("/")), details={"count": count})

    def _orders_left_out(self, account: str, count: int) -> None:
        self.note(LEFT_OUT, OK, Actor(account), details={"count": count})

    def _events_left_out(self, destination: str, count: int) -> None:
        self.note(LEFT_OUT, destination=destination, details={"count": count})

    def _came_again(self, done: _Deed, count: int) -> None:
        details = {**dict(done.details), "repeated": count}
        self.note(
            done.action, done.result, done.who, destination=done.destination, client_id=done.client_id, details=details
        )


def _shown(details: Mapping[str, object]) -> dict[str, object]:
    """Return facts as a line has them: numbers, and texts that are cut."""
    return {key: value if isinstance(value, int | float) else _cut(str(value)) for key, value in details.items()}


def _cut(text: str) -> str:
    """Return the text, or as much of its beginning as has 500 characters and TEXT_BYTES in a line, and an ellipsis."""
    text = excerpt(text)
    while (size := len(json_text(text).encode())) > TEXT_BYTES:
        text = text[: (len(text) - 1) * TEXT_BYTES // size] + "…"
    return text
