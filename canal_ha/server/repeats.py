"""Repeats: things that happen again within a minute, counted, so that a loop of them fills no log. Reactor thread."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from canal_ha.model.clock import Clock, Timer

WITHIN_S = 60.0
KEPT = 1024  # things told apart; one more ends the counting of the oldest

T = TypeVar("T")


@dataclass(slots=True)
class _Again:
    began_at: float
    again: int = 0


class Repeats(Generic[T]):
    """Counts things that come again within WITHIN_S of the first one.

    clock: seconds and callLater.
    tell: hears of a thing that came again and of how often, when its time is over. T is hashable.
    """

    def __init__(self, clock: Clock, tell: Callable[[T, int], None]) -> None:
        self._clock = clock
        self._tell = tell
        self._counts: OrderedDict[T, _Again] = OrderedDict()  # the oldest first
        self._timer: Timer | None = None

    def again(self, thing: T) -> bool:
        """Return whether a thing came again that is counted, and count it."""
        self._end_old()
        if counted := self._counts.get(thing):
            counted.again += 1
        return counted is not None

    def began(self, thing: T) -> None:
        """Count a thing, which is not counted yet, from now on."""
        if len(self._counts) >= KEPT:
            self._end_oldest()
        self._counts[thing] = _Again(self._clock.seconds())
        if self._timer is None:
            self._timer = self._clock.callLater(WITHIN_S, self._rang)

    def stop(self) -> None:
        """Tell all counts so far; no timer is left."""
        if self._timer and self._timer.active():
            self._timer.cancel()
        self._timer = None
        while self._counts:
            self._end_oldest()

    def _rang(self) -> None:
        self._timer = None
        self._end_old()
        if self._counts:
            oldest = next(iter(self._counts.values()))
            left_s = oldest.began_at + WITHIN_S - self._clock.seconds()
            self._timer = self._clock.callLater(left_s, self._rang)

    def _end_old(self) -> None:
        while self._counts and next(iter(self._counts.values())).began_at <= self._clock.seconds() - WITHIN_S:
            self._end_oldest()

    def _end_oldest(self) -> None:
        thing, counted = self._counts.popitem(last=False)
        if counted.again:
            self._tell(thing, counted.again)
