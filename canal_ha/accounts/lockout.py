"""Lockout: how long an address must wait after failed logins with a name. Pure; the caller says what time it is.

The wait counts for one name and one origin together, so that nobody locks an account out for other addresses. A name
counts in the same way whether an account has it or not, so that no wait tells which accounts exist.

Whoever shares an origin with others can fill its table with made-up names. The count that all further names share then
has a short wait, and a name that has logged in from there is spared. Its logins are looked at during that wait, and a
wrong one gets the answer of a name that does not exist. A count of its own, which nobody sees, limits them.

A login that succeeds ends the wait, and leaves one failure until the next one. If it forgot the count, a neighbour at
the same address could guess FREE_FAILURES times after each login of the owner.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FREE_FAILURES = 10  # a client with an old password repeats it a few times
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
LONGEST_SHARED_WAIT_S = 2.0  # less than 50,000 guesses a day
FORGOTTEN_AFTER_S = 600.0
NAMES_KEPT = 64  # of an origin; its other names share one count
ORIGINS_KEPT = 1024  # beyond that the one that failed longest ago is forgotten
KNOWN_FOR_S = 86_400.0  # since the last login of a name from an origin, or the end of a connection that logged in
KNOWN_KEPT = 4096  # names with origins; beyond that the one that was seen longest ago is forgotten


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float

    def end_wait(self) -> None:
        """Leave one failure until the next wait."""
        self.count = min(self.count, FREE_FAILURES - 1)

    def wait_s(self, now: float, longest: float = LONGEST_WAIT_S) -> float:
        if self.count < FREE_FAILURES:
            return 0.0
        return max(0.0, self.last_at + min(FIRST_WAIT_S * 2.0 ** min(self.count - FREE_FAILURES, 16), longest) - now)


@dataclass(slots=True)
class _Known:
    """A name that has logged in from an origin, and its failures since."""

    seen_at: float
    failures: _Failures


_Names = OrderedDict[int | None, _Failures]
"""The failures of an origin by the hash of the name, which may be long; None: those of its other names."""


class Lockout:
    """See the module. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._origins: OrderedDict[str, _Names] = OrderedDict()  # those who failed last are last, in both
        self._known: OrderedDict[tuple[int, str], _Known] = OrderedDict()  # who was seen last is last

    def wait_s(self, name: str, origin: str, now: float) -> float:
        """Return how long the origin must wait before its next login with the name; 0.0 if it need not.

        name: of an account or not.
        origin: of the peer; see origin_of.
        """
        names = self._names(origin, now)
        key = _key(name, names)
        failures = names.get(key)
        return failures.wait_s(now, LONGEST_SHARED_WAIT_S if key is None else LONGEST_WAIT_S) if failures else 0.0

    def spares(self, name: str, origin: str, now: float) -> bool:
        """Return whether a login is looked at during the wait that the origin's further names share.

        name, origin: see wait_s.
        """
        self._forget_known(now)
        known = self._known.get((hash(name), origin))
        return known is not None and _key(name, self._names(origin, now)) is None and not known.failures.wait_s(now)

    def failed(self, name: str, origin: str, now: float) -> None:
        """Count a failed login. During a wait it counts only against a name that is spared."""
        known = self._known.get((hash(name), origin))
        if known is not None:
            recent = now - known.failures.last_at <= FORGOTTEN_AFTER_S
            known.failures = _Failures(known.failures.count + 1 if recent else 1, now)
        if self.wait_s(name, origin, now):
            return
        names = self._names(origin, now)
        key = _key(name, names)
        failures = names.pop(key, None)
        names[key] = _Failures(failures.count + 1 if failures else 1, now)
        self._origins[origin] = names
        self._origins.move_to_end(origin)
        if len(self._origins) > ORIGINS_KEPT:
            self._origins.popitem(last=False)

    def succeeded(self, name: str, origin: str, now: float) -> None:
        """End the wait of this name, not the one that it shares with others. Remember the login for a day."""
        known = self.seen(name, origin, now)
        for failures in filter(None, (self._names(origin, now).get(hash(name)), known.failures)):
            failures.end_wait()

    def seen(self, name: str, origin: str, now: float) -> _Known:
        """Remember for a day from now on that the name has logged in: its connection was still open."""
        key = hash(name), origin
        known = self._known.setdefault(key, _Known(now, _Failures(0, now)))
        known.seen_at = now
        self._known.move_to_end(key)
        if len(self._known) > KNOWN_KEPT:
            self._known.popitem(last=False)
        self._forget_known(now)
        return known

    def _forget_known(self, now: float) -> None:
        while self._known and now - next(iter(self._known.values())).seen_at > KNOWN_FOR_S:
            self._known.popitem(last=False)

    def _names(self, origin: str, now: float) -> _Names:
        names = self._origins.get(origin, _Names())
        while names and now - next(iter(names.values())).last_at > FORGOTTEN_AFTER_S:
            names.popitem(last=False)
        return names

    def __len__(self) -> int:
        return sum(map(len, self._origins.values())) + len(self._known)


def _key(name: str, names: _Names) -> int | None:
    own = hash(name)
    return own if own in names or len(names) < NAMES_KEPT else None
