"""RecentAnswers: what a server has told one destination just now, for all others of the process. Any thread.

Each destination looks at its server every few seconds. The looks of a thousand destinations would be the same
questions a thousand times. One answer serves all who ask at the same moment, or within a second if that is recent
enough for them. If the answer does not come within a second, the callers that wait ask themselves, one at a time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any, TypeVar

from canal_ha.config.model import InstanceConfig, SourceConfig
from canal_ha.source.connection.idle_sessions import account_of
from canal_ha.source.connection.known_only import KNOWN_S, NotKnown, may_wait

T = TypeVar("T")

RECENT_S = 1.0
PATIENCE_S = 1.0  # with a question that another one asks
MOST_PATIENCE_S = 3.0  # with all of them
_LOOK_S = 0.5  # between two looks at whether the wait is still wanted


@dataclass(slots=True)
class _Asking:
    """A question under way. began_s: since when. answered: it has brought an answer."""

    began_s: float
    over: threading.Event = field(default_factory=threading.Event)
    answered: bool = False


class RecentAnswers:
    """See the module. clock: seconds, monotonic."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # never held while a server is asked
        self._known: dict[Hashable, tuple[float, Any]] = {}  # when it was asked, and the answer
        self._asking: dict[Hashable, _Asking] = {}

    def of(
        self,
        question: Hashable,
        ask: Callable[[], T],
        recent_s: float = RECENT_S,
        go_on: Callable[[], None] = lambda: None,
    ) -> T:
        """Return an answer, and raise what `ask` raises.

        question: with the server, and all else on which the answer depends.
        ask: asks it.
        recent_s: how old the answer may be; 0 wants one to a question that is asked from now on.
        go_on: called while waiting for somebody else's answer; what it raises ends the wait.

        A thread that must not wait gets an answer of the last KNOWN_S, or NotKnown.
        """
        now = self._clock()
        if not may_wait():
            known: T = self._known_since(question, now - KNOWN_S)
            return known
        oldest, waits_until = now - recent_s, now + MOST_PATIENCE_S
        while True:
            with self._lock:
                asked_at, answer = self._known.get(question, (-1.0, None))
                if asked_at >= oldest:
                    found: T = answer
                    return found
                asking, now = self._asking.get(question), self._clock()
                mine = None
                if asking is None or now >= min(asking.began_s + PATIENCE_S, waits_until):
                    mine = self._asking[question] = _Asking(now)
            if mine:
                return self._answer(question, ask, mine)
            assert asking is not None
            if not asking.over.wait(_LOOK_S):
                go_on()
            elif not asking.answered:  # perhaps because the other destination stops
                return ask()

    def _known_since(self, question: Hashable, oldest: float) -> Any:
        """Return a known answer. Raises NotKnown if it is older, or if there is none."""
        asked_at, answer = self._known.get(question, (-inf, None))
        if asked_at < oldest:
            raise NotKnown
        return answer

    def _answer(self, question: Hashable, ask: Callable[[], T], mine: _Asking) -> T:
        asked_at = self._clock()
        try:
            answer = ask()
            with self._lock:
                self._known = {key: each for key, each in self._known.items() if asked_at - each[0] <= KNOWN_S}
                if asked_at >= self._known.get(question, (-1.0, None))[0]:
                    self._known[question] = asked_at, answer
            mine.answered = True
            return answer
        finally:
            with self._lock:
                if self._asking.get(question) is mine:
                    del self._asking[question]
            mine.over.set()


OF_PROCESS = RecentAnswers()


def together(
    config: InstanceConfig,
    source: SourceConfig,
    question: Hashable,
    ask: Callable[[], T],
    recent_s: float = 0.0,
    go_on: Callable[[], None] = lambda: None,
) -> T:
    """Ask a server what other destinations may ask it at this moment. See RecentAnswers.

    config: of the destination.
    source: the server's address.
    question: with which server is meant, because the address can come to lead to another one.
    """
    return OF_PROCESS.of((account_of(config, source), config.decode.gtid_on, question), ask, recent_s, go_on)
