"""Lockout: how long an address must wait after failed logins with a name. Pure; the caller says what time it is.

The wait counts for one name and one origin together, so that nobody locks an account out for other addresses. A name
counts in the same way whether an account has it or not, so that no wait tells which accounts exist.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FREE_FAILURES = 10  # a client with an old password repeats it a few times
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
FORGOTTEN_AFTER_S = 600.0
NAMES_KEPT = 64  # of an origin; its other names share one count
ORIGINS_KEPT = 1024  # beyond that the one that failed longest ago is forgotten


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float

    @property
    def wait_s(self) -> float:
        if self.count < FREE_FAILURES:
            return 0.0
        return min(FIRST_WAIT_S * 2.0 ** min(self.count - FREE_FAILURES, 16), LONGEST_WAIT_S)


_Names = OrderedDict[int | None, _Failures]
"""The failures of an origin by the hash of the name, which may be long; None: those of its other names."""


class Lockout:
    """See the module. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._origins: OrderedDict[str, _Names] = OrderedDict()  # those who failed last are last, in both

    def wait_s(self, name: str, origin: str, now: float) -> float:
        """Return how long the origin must wait before its next login with the name; 0.0 if it need not.

        name: of an account or not.
        origin: of the peer; see origin_of.
        """
        names = self._names(origin, now)
        known = names.get(_key(name, names))
        return max(0.0, known.last_at + known.wait_s - now) if known else 0.0

    def failed(self, name: str, origin: str, now: float) -> None:
        """Count a failed login."""
        names = self._names(origin, now)
        key = _key(name, names)
        known = names.pop(key, None)
        names[key] = _Failures(known.count + 1 if known else 1, now)
        self._origins[origin] = names
        self._origins.move_to_end(origin)
        if len(self._origins) > ORIGINS_KEPT:
            self._origins.popitem(last=False)

    def succeeded(self, name: str, origin: str) -> None:
        """Forget the failures with this name, not those that it shares with others."""
        self._origins.get(origin, _Names()).pop(hash(name), None)

    def _names(self, origin: str, now: float) -> _Names:
        names = self._origins.get(origin, _Names())
        while names and now - next(iter(names.values())).last_at > FORGOTTEN_AFTER_S:
            names.popitem(last=False)
        return names

    def __len__(self) -> int:
        return sum(map(len, self._origins.values()))


def _key(name: str, names: _Names) -> int | None:
    own = hash(name)
    return own if own in names or len(names) < NAMES_KEPT else None
