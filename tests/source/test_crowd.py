"""How long a tap waits for followers whose queues are full: pure."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.source.server.crowd import STALLED_S, Crowd
from canal_ha.source.server.patience import GRACE_S, ROOM_S


@dataclass(eq=False, slots=True)
class Follower:
    """A follower whose figures the test sets."""

    taken_bytes: int = 0
    full: bool = True


class Watch:
    """A crowd and its clock, which the test moves on."""

    def __init__(self, *followers: Follower) -> None:
        self.now = 0.0
        self.crowd: Crowd[Follower] = Crowd(lambda: self.now)
        for each in followers:
            self.crowd.add(each)

    def leave(self, seconds: float, *, busy: int, followers: int, takes: bool = True) -> float | None:
        """Look for some time; return when the first ones have to leave, None if they need not."""
        until = self.now + seconds
        began = self.now
        while self.now < until:
            if self.crowd.look(busy, followers):
                return self.now - began
            self.now += 0.01
            for each in self.crowd._seen:
                each.taken_bytes += takes
        return None


def test_a_tap_waits_for_a_herd_that_decodes() -> None:
    """A bulk load takes all of them minutes."""
    assert Watch(*(Follower() for _ in range(10))).leave(300.0, busy=40, followers=40) is None


def test_one_slow_stream_delays_many_for_no_longer_than_a_moment() -> None:
    """Its client takes rows more slowly than they come."""
    left = Watch(Follower()).leave(5.0, busy=1, followers=40)
    assert left is not None
    assert left <= GRACE_S + 0.02


def test_few_fast_streams_wait_for_a_slow_herd_a_second_at_most() -> None:
    """Then the herd leaves, and the fast ones go on."""
    left = Watch(*(Follower() for _ in range(30))).leave(60.0, busy=30, followers=40)
    assert left is not None
    assert ROOM_S - 0.02 <= left <= ROOM_S + 0.02


def test_a_stream_that_decodes_nothing_is_waited_for_for_seconds_only() -> None:
    """Its client has stopped. All others are busy, too."""
    left = Watch(Follower()).leave(60.0, busy=40, followers=40, takes=False)
    assert left is not None
    assert STALLED_S - 0.02 <= left <= STALLED_S + 0.02


def test_a_quiet_hour_uses_no_patience_up() -> None:
    """The last follower of a crowd has left the tap, or has decoded enough."""
    for leaves in (True, False):
        follower = Follower()
        watch = Watch(follower)
        assert watch.leave(ROOM_S / 2, busy=30, followers=40) is None
        if leaves:
            watch.crowd.discard(follower)
        else:
            follower.full = False
            assert watch.crowd.look(0, 40) == ()
        assert not watch.crowd
        watch.now += 3600.0
        watch.crowd.add(Follower())
        left = watch.leave(5.0, busy=30, followers=40)
        assert left is not None
        assert left >= ROOM_S - 0.02
