"""Places: how many streams, private reads or client ids a destination has room for, in total and for one account.

A request reserves its place before it makes anything durable. Reactor thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from canal_ha.errors import QuotaReached


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit of a destination.

    reason: of a refusal, for the metrics.
    things: what is counted, in words.
    key: of the configuration.
    most: places.
    """

    reason: str
    things: str
    key: str
    most: int


class Places:
    """See the module."""

    def __init__(
        self,
        destination: str,
        taken: Callable[[], Mapping[object, str]],
        in_total: Quota,
        of_account: Quota | None = None,
    ) -> None:
        """Begin without reservations.

        destination: for errors.
        taken: the things that exist, each with the name of its account; "" without one.
        in_total: the limit of all things.
        of_account: the limit of the things of one account; None: none. Things without an account have no such limit.
        """
        self._destination = destination
        self._taken = taken
        self._in_total = in_total
        self._of_account = of_account
        self._reserved: Counter[tuple[object, str]] = Counter()  # for requests that are under way

    def check(self, key: object, account: str = "") -> None:
        """Raise QuotaReached if there is no place.

        key: of a thing. One that exists or is reserved has a place, and needs another one if it changes its account.
        account: of the thing.
        """
        used: dict[object, str] = dict(self._reserved.keys()) | dict(self._taken())
        if key not in used and len(used) >= self._in_total.most:
            raise self._reached(self._in_total)
        if account and self._of_account and used.get(key) != account:
            of_account = sum(each == account for each in used.values())
            if of_account >= self._of_account.most:
                raise self._reached(self._of_account, account)

    @contextmanager
    def reserved(self, key: object, account: str = "") -> Iterator[None]:
        """Keep a place during the block. Several requests can share a key. Raises QuotaReached."""
        self.check(key, account)
        self._reserved[key, account] += 1
        try:
            yield
        finally:
            self._reserved[key, account] -= 1
            if not self._reserved[key, account]:
                del self._reserved[key, account]

    def _reached(self, quota: Quota, account: str = "") -> QuotaReached:
        return QuotaReached(self._destination, quota.most, quota.things, quota.key, quota.reason, account)
