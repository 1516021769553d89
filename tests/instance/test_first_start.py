"""Where the first client of a destination begins: where the source stood when the destination first ran."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred

from canal_ha.errors import CanalError
from canal_ha.instance.instance import FIRST_LOOK_S, HEALTH_PERIOD_S
from canal_ha.meta.repository import Snapshot
from canal_ha.model.position import LogPosition
from tests.instance.origin import PlainOrigin
from tests.instance.test_embedded import NoRows
from tests.instance.test_stop import IDENTITY, Begins, Bench, Store, begun
from tests.instance.test_stream import now

T = TypeVar("T")
FIRST = NoRows().newest()
LATER = replace(FIRST, offset=500)


class Broken(Begins):
    """A source whose answer nobody has foreseen."""

    def newest(self) -> LogPosition:
        """See SourceView."""
        raise RuntimeError("unforeseen")


class FirstStart(Bench):
    """The first start of a destination, whose questions to its source wait.

    start: the start that is under way.
    started: gets its result.
    """

    def __init__(self, view: Begins | None = None) -> None:
        self._waiting: deque[Callable[[], object]] | None = None
        super().__init__()
        now(self.embedded.stop("example"))
        self.store, self.view, self._waiting = Store(), view or Begins(), deque()
        self.instance = self.another()
        self.start: Deferred[None] = Deferred.fromCoroutine(self.embedded.start(self.instance))
        self.started: list[BaseException | None] = []
        self.start.addCallbacks(self.started.append, lambda failure: self.started.append(failure.value))

    def blocking(self, call: Callable[[], T], /) -> Deferred[T]:
        """Keep the question until it is answered."""
        if self._waiting is None:
            return super().blocking(call)
        answer: Deferred[T] = Deferred()
        self._waiting.append(lambda: maybeDeferred(call).chainDeferred(answer))
        return answer

    def next_question(self) -> Callable[[], object]:
        """Return what answers the oldest question."""
        assert self._waiting
        return self._waiting.popleft()

    def answer_all(self) -> None:
        """Answer all questions, and later ones at once."""
        waiting, self._waiting = self._waiting, None
        for answer in waiting or ():
            answer()


def test_rows_written_while_a_destination_first_starts_reach_its_first_client() -> None:
    """The destination is not shown as running before the place is durable where its first client begins."""
    bench = FirstStart()
    assert bench.started == []
    assert bench.embedded.status() == []
    bench.answer_all()
    assert bench.started == [None]
    assert bench.store.snapshot.start == FIRST
    bench.view.end = LATER
    assert now(bench.embedded.subscribe(IDENTITY)) == FIRST


@pytest.mark.parametrize("kept", [Snapshot(start=FIRST), Snapshot({1001: IDENTITY}, {1001: FIRST})])
def test_a_destination_that_has_run_starts_without_its_source(kept: Snapshot) -> None:
    """Its next owner serves at once, also while the source does not answer."""
    bench = Bench(snapshot=kept)
    now(bench.embedded.stop("example"))
    bench.held = []
    assert begun(bench.embedded.start(bench.another())) == [None]


def test_a_source_that_does_not_answer_delays_the_first_start_a_few_seconds() -> None:
    """Then the destination runs, so that its status says what is wrong. The first answer counts when it comes."""
    bench = FirstStart()
    bench.pass_time(FIRST_LOOK_S - 0.5)
    assert bench.started == []
    bench.pass_time(1.0)
    assert bench.started == [None]
    bench.answer_all()
    assert bench.store.snapshot.start == FIRST


def test_a_first_start_that_waits_for_its_source_can_be_given_up() -> None:
    """The node has lost the destination. The answer comes too late."""
    bench = FirstStart()
    answer = bench.next_question()
    bench.answer_all()
    bench.start.cancel()
    assert [type(error) for error in bench.started] == [CancelledError]
    assert bench.embedded.running("example") is None
    answer()
    assert bench.store.snapshot.start is None


def test_a_stop_does_not_wait_for_a_source_that_does_not_answer() -> None:
    """The start under way ends at once."""
    bench = FirstStart()
    stopped = begun(bench.embedded.stop("example"))
    assert bench.started == [None]
    bench.answer_all()
    assert stopped == [None]
    assert bench.embedded.running("example") is None


def test_an_unforeseen_error_of_the_first_look_ends_the_start() -> None:
    """Else the destination would run and never look at its source again."""
    bench = FirstStart(Broken())
    bench.answer_all()
    assert [type(error) for error in bench.started] == [CanalError]
    assert bench.embedded.running("example") is None


def test_rows_written_before_the_start_is_durable_reach_the_first_client() -> None:
    """A client subscribes while ZooKeeper or the disk takes long to write the start."""
    bench = FirstStart()
    bench.store.gate = gate = Deferred[None]()
    bench.answer_all()
    bench.pass_time(FIRST_LOOK_S + 0.5)
    assert bench.started == [None]
    bench.view.end = LATER
    subscribed = begun(bench.embedded.subscribe(IDENTITY))
    bench.store.gate = None
    gate.callback(None)
    assert subscribed == [FIRST]
    assert bench.store.snapshot.cursors == {1001: FIRST}
    assert bench.store.snapshot.start is None


def test_rows_written_after_a_look_reach_a_client_that_had_asked_before() -> None:
    """Its question is behind the look's on the pool, which answers while the client's one waits."""
    bench = FirstStart()
    bench.pass_time(FIRST_LOOK_S + 0.5)
    look = bench.next_question()
    subscribed = begun(bench.embedded.subscribe(IDENTITY))
    bench.next_question()()  # about the table history; the next one is where the client begins
    look()
    bench.view.end = LATER
    bench.answer_all()
    assert subscribed == [FIRST]


def test_a_start_that_could_not_be_written_stays_where_the_source_stood() -> None:
    """The write is repeated after the next look, when the source stands elsewhere."""
    bench = FirstStart()
    bench.store.away = True
    bench.answer_all()
    assert bench.started == [None]
    bench.view.end, bench.store.away = LATER, False
    bench.pass_time(HEALTH_PERIOD_S + 0.5)
    assert bench.store.snapshot.start == FIRST


def test_a_client_that_comes_when_the_others_have_left_begins_at_the_end() -> None:
    """The start of the first client is void as soon as one has begun."""
    bench = FirstStart()
    bench.store.away = True
    bench.answer_all()
    bench.store.away = False
    assert now(bench.embedded.subscribe(IDENTITY)) == FIRST
    now(bench.embedded.unsubscribe(IDENTITY))
    bench.view.end = LATER
    assert now(bench.embedded.subscribe(IDENTITY)) == LATER


def test_a_first_client_needs_no_thread_while_the_answers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The look at the source has just brought them. A thousand clients subscribe at once."""
    monkeypatch.setattr(PlainOrigin, "at_once", lambda self, call: call())
    bench = Bench()
    bench.held = []
    assert now(bench.embedded.subscribe(IDENTITY)) == FIRST
    assert not bench.held


def test_a_first_client_waits_for_answers_that_are_not_known() -> None:
    """The table history has to begin before the client does."""
    bench = Bench()
    bench.held = []
    subscribed = Deferred.fromCoroutine(bench.embedded.subscribe(IDENTITY))
    assert len(bench.held) == 1
    assert not subscribed.called
