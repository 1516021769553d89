"""The queue of claims: how long a turn takes, and who gets it."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.cluster.spread import MOST_S, ORDERLY_STEP_S, VANISHED_STEP_S, Turns


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.integers(0, 30), st.integers(0, 10))
def test_a_turn_takes_longer_the_more_runs_here(names: list[str], running: int, seed: int) -> None:
    """The delay is between step x running and one step more, at most MOST_S; each queued destination gets one turn."""
    turns = Turns(Random(seed).uniform)
    assert turns.delay(running) is None
    for name in names:
        turns.want(name, VANISHED_STEP_S)
        turns.want(name, VANISHED_STEP_S)
    if names:
        delay_s = turns.delay(running)
        assert delay_s is not None
        assert min(MOST_S, VANISHED_STEP_S * running) <= delay_s <= min(MOST_S, VANISHED_STEP_S * (running + 1))
    assert sorted(filter(None, (turns.take() for _ in range(len(names) + 1)))) == sorted(names)


def test_a_dropped_turn_is_not_taken() -> None:
    """A destination that was dropped from the queue gets no turn."""
    turns = Turns(Random(1).uniform)
    turns.want("a", ORDERLY_STEP_S)
    turns.drop("a")
    turns.drop("b")
    assert turns.take() is None
