"""Answers that serve several askers, on threads and with a clock of the test."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from canal_ha.errors import SourceUnavailable
from canal_ha.source.connection.known_only import KNOWN_S
from canal_ha.source.connection.recent_answers import PATIENCE_S as WAIT_S
from canal_ha.source.connection.recent_answers import RECENT_S, RecentAnswers
from lab.waiting import until

PATIENCE_S = 20


class Clock:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Server:
    """Counts questions; each answer is the number of its question."""

    asked = 0

    def ask(self) -> int:
        """Answer at once."""
        self.asked += 1
        return self.asked


@pytest.fixture
def clock() -> Clock:
    """The clock of the answers."""
    return Clock()


@pytest.fixture
def answers(clock: Clock) -> RecentAnswers:
    """Answers that only this test uses."""
    return RecentAnswers(clock)


def test_a_recent_answer_serves_again_and_an_older_one_does_not(answers: RecentAnswers, clock: Clock) -> None:
    """Its age counts from when the question was asked."""
    server = Server()

    def slowly() -> int:
        clock.now += RECENT_S / 2
        return server.ask()

    assert answers.of("q", slowly) == 1
    clock.now += RECENT_S / 2
    assert answers.of("q", slowly) == 1
    clock.now += 0.01
    assert answers.of("q", slowly) == 2


def test_each_question_has_its_own_answer(answers: RecentAnswers) -> None:
    """Two servers, or two questions, are apart."""
    assert answers.of(("here", "q"), lambda: "here") == "here"
    assert answers.of(("there", "q"), lambda: "there") == "there"


def test_a_fresh_answer_is_never_one_to_an_earlier_question(answers: RecentAnswers, clock: Clock) -> None:
    """Who wants a fresh answer, while the question is under way, gets the answer to the next one."""
    server, inside, go_on = Server(), threading.Event(), threading.Event()

    def hanging() -> int:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return server.ask()

    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(answers.of, "q", hanging)
        assert inside.wait(PATIENCE_S)
        clock.now += 0.01
        recent = pool.submit(answers.of, "q", server.ask)
        fresh = pool.submit(answers.of, "q", server.ask, 0.0)
        go_on.set()
        assert first.result(PATIENCE_S) == 1
        assert recent.result(PATIENCE_S) in (1, 2)
        assert fresh.result(PATIENCE_S) == 2


def test_those_who_ask_at_once_ask_once(answers: RecentAnswers) -> None:
    """A thousand looks that begin together are one question."""
    server, inside, go_on = Server(), threading.Event(), threading.Event()

    def hanging() -> int:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return server.ask()

    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(answers.of, "q", hanging)
        assert inside.wait(PATIENCE_S)
        others = [pool.submit(answers.of, "q", server.ask) for _ in range(19)]
        go_on.set()
        assert first.result(PATIENCE_S) == 1
        assert {each.result(PATIENCE_S) for each in others} == {1}
    assert server.asked == 1


def test_an_error_is_only_for_the_one_who_asked(answers: RecentAnswers) -> None:
    """His destination may stop; the others ask for themselves, and the next answer serves again."""
    server, inside, go_on = Server(), threading.Event(), threading.Event()

    def stopping() -> int:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        raise SourceUnavailable("the destination is stopping")

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(answers.of, "q", stopping)
        assert inside.wait(PATIENCE_S)
        other = pool.submit(answers.of, "q", server.ask)
        go_on.set()
        with pytest.raises(SourceUnavailable):
            first.result(PATIENCE_S)
        assert other.result(PATIENCE_S) >= 1
    until(lambda: not answers._asking)
    asked = server.asked
    assert answers.of("q", server.ask) in (asked, asked + 1)


def test_a_wait_that_is_not_wanted_any_more_ends(answers: RecentAnswers) -> None:
    """A dump that is stopped does not wait for a source that hangs."""
    inside, go_on = threading.Event(), threading.Event()

    def hanging() -> int:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return 1

    def stopped() -> None:
        raise SourceUnavailable("stopped")

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(answers.of, "q", hanging)
        assert inside.wait(PATIENCE_S)
        with pytest.raises(SourceUnavailable, match="stopped"):
            answers.of("q", lambda: 2, go_on=stopped)
        go_on.set()
        assert first.result(PATIENCE_S) == 1


def test_who_waits_too_long_asks_and_his_answer_serves_the_others(answers: RecentAnswers, clock: Clock) -> None:
    """One destination's session hangs. One of the others asks for itself, and not all of them at once."""
    server, inside, go_on = Server(), threading.Event(), threading.Event()

    def hanging() -> int:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return -1

    with ThreadPoolExecutor(20) as pool:
        first = pool.submit(answers.of, "q", hanging)
        assert inside.wait(PATIENCE_S)
        others = [pool.submit(answers.of, "q", server.ask) for _ in range(19)]
        clock.now += WAIT_S
        assert {each.result(PATIENCE_S) for each in others} == {1}
        assert server.asked == 1
        go_on.set()
        assert first.result(PATIENCE_S) == -1
        assert answers.of("q", server.ask) == 1  # which is newer


def test_old_answers_take_no_memory(answers: RecentAnswers, clock: Clock) -> None:
    """They go when a new one comes."""
    for number in range(100):
        answers.of(number, lambda: 1)
        clock.now += 1
    assert len(answers._known) <= 1 + KNOWN_S
