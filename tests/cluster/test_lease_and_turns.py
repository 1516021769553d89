"""The lease and the queue of claims, by numbers; and how a connect string is read."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canal_ha.cluster.spread import MOST_S, ORDERLY_STEP_S, VANISHED_STEP_S, Turns
from canal_ha.zookeeper.connect_string import connect_string
from canal_ha.zookeeper.lease import Lease
from canal_ha.zookeeper.tree import RunningData


def test_a_lease_runs_from_the_sending_of_the_last_answered_write() -> None:
    """Two thirds of the time-out; a late answer to an early write does not shorten it; a new session starts without."""
    lease = Lease()
    assert not lease.holds(0.0)
    lease.begin(6.0)
    assert lease.probe_interval_s == 1.0
    assert not lease.holds(0.0)
    lease.answered(10.0)
    lease.answered(9.0)
    assert lease.holds(13.99)
    assert not lease.holds(14.0)
    lease.end()
    assert not lease.holds(10.1)
    lease.begin(3.0)
    assert lease.over_at() is None


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


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        ("a:2181", ("a:2181", True)),
        ("a:2181, b:2181/canal/x", ("a:2181,b:2181/canal/x", True)),
        ("a:2181,b:2181;c:2181", ("a:2181,b:2181,c:2181", False)),
        ("a:2181/x;c:2181/x;", ("a:2181,c:2181/x", False)),
    ],
)
def test_connect_strings(servers: str, expected: tuple[str, bool]) -> None:
    """Groups keep their order, a chroot counts for all."""
    assert connect_string(servers) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"active":true,"address":"10.0.0.1:11111"}', RunningData("10.0.0.1:11111")),
        (b'{ "address": "h:1", "cid": 1 }', RunningData("h:1")),
        (b'{"active":false,"address":"h:1","clientId":7}', RunningData("h:1", False, 7)),
        (b"", RunningData("")),
        (b"[1]", RunningData("")),
    ],
)
def test_running_is_read_whoever_wrote_it(data: bytes, expected: RunningData) -> None:
    """Older peers wrote `cid`; a missing `active` means true; nonsense is nobody's address."""
    assert RunningData.from_bytes(data) == expected


def test_running_is_written_as_canal_does() -> None:
    """Byte for byte."""
    assert RunningData("127.0.0.1:11111").to_bytes() == b'{"active":true,"address":"127.0.0.1:11111"}'
    assert RunningData("h:1", client_id=1001).to_bytes() == b'{"active":true,"address":"h:1","clientId":1001}'
