"""Lockout: how long an address must wait after failed logins to an account. Pure; the caller says what time it is.

The wait counts for one account and one origin together, so that nobody locks an account out for others.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

FREE_FAILURES = 10  # a client with an old password repeats it a few times
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
FORGOTTEN_AFTER_S = 600.0
KEPT = 4096  # pairs of account and origin; beyond that the one that failed longest ago is forgotten


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float

    @property
    def wait_s(self) -> float:
        if self.count < FREE_FAILURES:
            return 0.0
        return min(FIRST_WAIT_S * 2.0 ** min(self.count - FREE_FAILURES, 16), LONGEST_WAIT_S)


class Lockout:
    """See the module. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._failures: OrderedDict[tuple[str, str], _Failures] = OrderedDict()  # those who failed last are last

    def wait_s(self, account: str, origin: str, now: float) -> float:
        """Return how long the origin must wait before its next login to the account; 0.0 if it need not.

        account: its name, or "" for all names that do not exist.
        origin: of the peer; see origin_of.
        """
        known = self._failures.get((account, origin))
        if known is None or now - known.last_at > FORGOTTEN_AFTER_S:
            return 0.0
        return max(0.0, known.last_at + known.wait_s - now)

    def failed(self, account: str, origin: str, now: float) -> None:
        """Count a failed login."""
        key = (account, origin)
        known = self._failures.pop(key, None)
        count = 0 if known is None or now - known.last_at > FORGOTTEN_AFTER_S else known.count
        self._failures[key] = _Failures(count + 1, now)
        if len(self._failures) > KEPT:
            self._failures.popitem(last=False)

    def succeeded(self, account: str, origin: str) -> None:
        """Forget the failures."""
        self._failures.pop((account, origin), None)

    def __len__(self) -> int:
        return len(self._failures)
