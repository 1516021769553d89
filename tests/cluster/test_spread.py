"""The queue of claims: how long a turn takes, and who gets it."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.cluster.spread import MOST_S, ORDERLY_STEP_S, VANISHED_STEP_S, Turns

CLAIM_S = 0.005  # a transaction of ZooKeeper, and the start of an instance


@given(st.lists(st.sampled_from("abcdef"), unique=True), st.integers(0, 30), st.integers(1, 30), st.integers(0, 10))
def test_a_turn_takes_longer_beyond_the_share(names: list[str], running: int, share: int, seed: int) -> None:
    """A node waits a step for each destination beyond its share, and up to one more. Each destination gets one turn."""
    turns = Turns(Random(seed).uniform)
    assert turns.delay(running, share) is None
    for name in names:
        turns.want(name, VANISHED_STEP_S)
        turns.want(name, VANISHED_STEP_S)
    if names:
        delay_s = turns.delay(running, share)
        beyond_s = min(MOST_S, VANISHED_STEP_S * max(0, running + 1 - share))
        assert delay_s is not None
        assert beyond_s <= delay_s <= beyond_s + VANISHED_STEP_S
    assert sorted(filter(None, (turns.take() for _ in range(len(names) + 1)))) == sorted(names)


def test_a_dropped_turn_is_not_taken() -> None:
    """A destination that was dropped from the queue gets no turn."""
    turns = Turns(Random(1).uniform)
    turns.want("a", ORDERLY_STEP_S)
    turns.drop("a")
    turns.drop("b")
    assert turns.take() is None


def claimed(
    eligible: dict[str, set[str]], running: dict[str, int], step_s: float, seed: int
) -> tuple[float, list[int]]:
    """Let nodes claim everything; return the seconds that it took, and how many each node runs then.

    eligible: the destinations that each node can run, of those that nobody runs.
    running: how many each node runs at first.
    """
    random = Random(seed)
    free = set().union(*eligible.values())
    nodes = {name: Turns(random.uniform) for name in eligible}
    share = math.ceil((len(free) + sum(running.values())) / len(nodes))
    for name, turns in nodes.items():
        for destination in sorted(eligible[name]):
            turns.want(destination, step_s)
    now = 0.0
    at = {name: (turns.delay(running[name], share) or 0.0) + CLAIM_S for name, turns in nodes.items()}
    while free:
        name = min(at, key=lambda each: at[each])
        now, turns = at[name], nodes[name]
        taken = turns.take()
        if taken and taken in free:
            free.remove(taken)
            running[name] += 1
            for other in nodes.values():
                other.drop(taken)
        at[name] = math.inf
        for each, other in nodes.items():
            if at[each] == math.inf and (delay_s := other.delay(running[each], share)) is not None:
                at[each] = now + delay_s + CLAIM_S
    return now, sorted(running.values())


@pytest.mark.parametrize("seed", range(5))
def test_hundreds_of_destinations_run_within_seconds_and_spread(seed: int) -> None:
    """At a start, and when one node of five has crashed with its 400: a second more than the claims themselves."""
    everything = {f"d{number}" for number in range(500)}
    took_s, spread = claimed(dict.fromkeys("abc", everything), dict.fromkeys("abc", 0), ORDERLY_STEP_S, seed)
    assert took_s < 500 / 3 * CLAIM_S * 1.4 + 1.0
    assert spread[-1] - spread[0] <= 5
    lost = {f"d{number}" for number in range(400)}
    took_s, spread = claimed(dict.fromkeys("abcd", lost), dict.fromkeys("abcd", 400), VANISHED_STEP_S, seed)
    assert took_s < 100 * CLAIM_S * 1.4 + 2.0
    assert spread[-1] - spread[0] <= 5


def test_a_node_takes_what_no_other_node_can_run() -> None:
    """Only this one has the instance files: it goes beyond its share, more slowly."""
    mine = {f"d{number}" for number in range(100)}
    took_s, spread = claimed({"a": mine, "b": set()}, {"a": 0, "b": 0}, ORDERLY_STEP_S, 1)
    assert spread == [0, 100]
    assert took_s < 50 * (MOST_S + 2 * ORDERLY_STEP_S)
