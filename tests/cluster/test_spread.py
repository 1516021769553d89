"""The queue of claims, by numbers."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.cluster.spread import MOST_S, ORDERLY_STEP_S, VANISHED_STEP_S, Turns


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.integers(0, 30), st.integers(0, 10))
def test_a_turn_takes_longer_the_more_runs_here(names: list[str], running: int, seed: int) -> None:
    """Between step x running and one step more, never above a second; every queued destination is taken once."""
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
    """Somebody else runs it by now."""
    turns = Turns(Random(1).uniform)
    turns.want("a", ORDERLY_STEP_S)
    turns.drop("a")
    turns.drop("b")
    assert turns.take() is None
