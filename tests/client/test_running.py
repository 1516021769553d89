"""The race for the active client: the machine alone, and several machines on one ensemble in virtual time."""

from __future__ import annotations

import pytest

from canal_ha.client import running_inputs as i
from canal_ha.client.running import HOLD_BACK_S, TAKEOVER_DELAY_S, Seat, SeatState
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.lease import PART
from canal_ha.zookeeper.race_events import (
    Join,
    Look,
    NodeEvent,
    Released,
    RunningNode,
    SessionSuspended,
    SessionUp,
    StandingBy,
)
from canal_ha.zookeeper.tree import RunningData
from lab.simulation.session import Link
from tests.client.contenders import CLIENT, PATH, TIMEOUT_S, Contest

OURS, THEIRS = 7, 8
SEEDS = 80


def seat(past: set[int] | None = None) -> Seat:
    """Return a seat that has joined and is connected. Its look has ticket 1."""
    made = Seat(CLIENT, "10.0.0.1", past_sessions=past if past is not None else set())
    assert made.step(Join(), 0.0) == []
    assert made.step(SessionUp(OURS, 6.0), 0.0) == [Look(1)]
    return made


def active_seat() -> Seat:
    """Return a seat that is active since 0.0. Its newest look has ticket 3."""
    made = seat()
    data = RunningData("10.0.0.1", True, CLIENT)
    assert made.step(i.ConsumerSeen(1, None), 0.0) == [i.ClaimConsumer(2, data)]
    assert made.step(i.Held(2, 0, 0.0), 0.0) == [i.Activate(), Look(3)]
    return made


def test_the_node_says_first_the_host_then_the_connection() -> None:
    """As in canal, the address is the host's at first, and the connection's with its port later."""
    machine = active_seat()
    assert machine.step(i.NodeConnected("10.0.0.1:5555"), 0.1) == [Look(4)]
    rewrite = machine.step(i.ConsumerSeen(4, RunningNode(OURS, 0, "10.0.0.1")), 0.1)
    assert rewrite == [i.Rewrite(5, RunningData("10.0.0.1:5555", True, CLIENT), 0)]
    assert isinstance(rewrite[0], i.Rewrite)
    assert rewrite[0].data.to_bytes() == b'{"active":true,"address":"10.0.0.1:5555","clientId":1001}'
    assert machine.step(i.Held(5, 1, 0.1), 0.1) == []


def test_a_lost_answer_to_the_claim_is_looked_after() -> None:
    """The create may have succeeded. The session shows that the node is ours, and a write claims it."""
    machine = seat()
    machine.step(i.ConsumerSeen(1, None), 0.0)
    assert machine.step(i.Unanswered(2), 0.0) == []
    assert machine.wakes_at == 0.5
    assert machine.step(i.RaceTick(), 0.5) == [Look(4)]
    claim = machine.step(i.ConsumerSeen(4, RunningNode(OURS, 0, "10.0.0.1")), 0.5)
    assert claim == [i.ClaimConsumer(5, RunningData("10.0.0.1", True, CLIENT), held=0)]


def test_the_lease_counts_from_the_time_of_sending() -> None:
    """The lease ends two thirds of the session timeout after the last answered write was sent, despite later reads."""
    machine = active_seat()
    assert machine.active(6.0 * PART - 0.01)
    assert not machine.active(6.0 * PART)
    machine.step(i.ConsumerSeen(3, RunningNode(OURS, 0, "10.0.0.1")), 3.9)
    machine.step(SessionSuspended(), 3.9)
    assert machine.active(3.95)
    assert machine.wakes_at == 4.0
    assert machine.step(i.RaceTick(), 4.0) == [i.Deactivate(i.Reason.LEASE_OVER)]
    assert machine.state is SeatState.OFFLINE


def test_probes_keep_the_lease() -> None:
    """A probe is sent a sixth of the session timeout after the last write; its reply extends the lease."""
    machine = active_seat()
    assert machine.wakes_at == 1.0
    assert machine.step(i.RaceTick(), 1.0) == [i.Probe(4, 0)]
    assert machine.step(i.Held(4, 0, 1.0), 1.2) == []
    assert machine.lease_until == 5.0


def test_a_look_is_not_lost_behind_a_probe() -> None:
    """The reply to a pending look still counts after a probe is sent."""
    machine = active_seat()
    assert machine.step(i.RaceTick(), 1.0) == [i.Probe(4, 0)]
    commands = machine.step(i.ConsumerSeen(3, RunningNode(OURS, 1, "10.0.0.1", active=False)), 1.1)
    assert commands[0] == i.Deactivate(i.Reason.OPERATOR)


def test_only_a_leftover_of_this_process_is_deleted() -> None:
    """A node of an earlier session of ours is replaced; one with our address and an unknown session is not."""
    stale = RunningNode(THEIRS, 3, "10.0.0.1")
    replaced = seat({THEIRS}).step(i.ConsumerSeen(1, stale), 0.0)
    assert replaced == [i.ClaimConsumer(2, RunningData("10.0.0.1", True, CLIENT), leftover=3)]
    assert seat().step(i.ConsumerSeen(1, stale), 0.0) == [StandingBy("10.0.0.1")]


@pytest.mark.parametrize("changed_first", [True, False])
def test_an_orderly_end_is_followed_at_once_any_other_after_the_delay(changed_first: bool) -> None:
    """A node that changed before its deletion was released. Otherwise its client may come back within the delay."""
    machine = seat()
    machine.step(i.ConsumerSeen(1, RunningNode(THEIRS, 1, "10.0.0.2:1")), 0.0)
    assert machine.step(NodeEvent(deleted=not changed_first), 1.0) == [Look(2)]
    commands = machine.step(i.ConsumerSeen(2, None), 1.0)
    if changed_first:
        assert isinstance(commands[0], i.ClaimConsumer)
    else:
        assert commands == []
        assert machine.wakes_at == 1.0 + TAKEOVER_DELAY_S
        assert isinstance(machine.step(i.RaceTick(), 1.0 + TAKEOVER_DELAY_S)[0], i.ClaimConsumer)


def test_an_operator_sends_the_active_client_back() -> None:
    """If `active` is set to false, it disconnects, releases the node, and stands back for 5 s."""
    machine = active_seat()
    assert machine.step(NodeEvent(deleted=False), 1.0) == [Look(4)]
    commands = machine.step(i.ConsumerSeen(4, RunningNode(OURS, 1, "10.0.0.1", active=False)), 1.0)
    assert commands == [
        i.Deactivate(i.Reason.OPERATOR),
        i.ReleaseConsumer(5, RunningData("10.0.0.1", False, CLIENT), 1),
    ]
    assert machine.step(Released(5), 1.0) == [Look(6)]
    assert machine.step(i.ConsumerSeen(6, None), 1.0) == []
    assert machine.wakes_at == 1.0 + HOLD_BACK_S


def test_answers_out_of_date_are_not_heard() -> None:
    """A reply to an older ticket changes nothing."""
    machine = seat()
    machine.step(NodeEvent(deleted=False), 0.0)
    for late in (i.ConsumerSeen(1, None), i.Unanswered(1), i.Held(1, 0, 0.0), Released(1)):
        assert machine.step(late, 0.0) == []
    assert machine.state is SeatState.LOOKING


def test_the_node_stands_where_canal_has_it() -> None:
    """Path and JSON equal those captured from the Java client, byte by byte."""
    assert PATH == "/otter/canal/destinations/example/1001/running"
    data = RunningData("127.0.0.1:47178", True, 1001).to_bytes()
    assert data == b'{"active":true,"address":"127.0.0.1:47178","clientId":1001}'


# ---- several, in virtual time


def test_one_of_many_is_active() -> None:
    """Five start together: one is active, and the others know its address."""
    contest = Contest(1, count=5)
    contest.run(2.0)
    winner = contest.winner()
    assert len(contest.standing_by) == 4
    assert {each.seat.standing_by_for for each in contest.standing_by} == {f"{winner.name}:40000"}


def test_an_orderly_release_hands_over_at_once() -> None:
    """Only the messages take time; there is no takeover delay."""
    contest = Contest(2)
    contest.run(2.0)
    winner = contest.winner()
    (standby,) = contest.standing_by
    winner.leave()
    assert contest.wait_for(standby) < 0.2


def test_a_killed_client_is_followed_after_session_and_delay() -> None:
    """The takeover needs more than the delay, and hardly more than session timeout and delay together."""
    contest = Contest(3)
    contest.run(2.0)
    winner = contest.winner()
    (standby,) = contest.standing_by
    winner.process.kill()
    took_s = contest.wait_for(standby)
    assert TAKEOVER_DELAY_S < took_s < TIMEOUT_S + TAKEOVER_DELAY_S + 0.5


def test_a_client_that_loses_its_session_comes_back_first() -> None:
    """The client does not wait for the delay of other clients, because the node was its own."""
    contest = Contest(4)
    contest.run(2.0)
    winner = contest.winner()
    contest.ensemble.expire(winner.session.id)
    contest.run(TAKEOVER_DELAY_S + TIMEOUT_S / 3)
    assert contest.winner() is winner
    assert i.Deactivate(i.Reason.SESSION_LOST) in [command for _, command in winner.told]


def test_a_client_behind_a_stale_server_stops_before_another_starts() -> None:
    """The client's server has lost the leader, but still answers reads."""
    contest = Contest(5)
    contest.run(2.0)
    winner = contest.winner()
    (standby,) = contest.standing_by
    winner.session.cut(Link.STALE, 20.0)
    contest.wait_for(standby)
    assert i.Deactivate(i.Reason.LEASE_OVER) in [command for _, command in winner.told]


def test_a_node_that_somebody_deleted_is_made_again() -> None:
    """A server's UNSUBSCRIBE, for example, deletes the client's nodes and their parent."""
    contest = Contest(6, count=1)
    contest.run(2.0)
    del contest.ensemble.tree[PATH]
    del contest.ensemble.tree[tree.client("example", CLIENT)]
    contest.contenders[0].feed(NodeEvent(deleted=True))
    contest.run(2.0)
    assert contest.winner() is contest.contenders[0]


@pytest.mark.parametrize("meddling", [False, True])
@pytest.mark.parametrize("chunk", range(4))
def test_whatever_breaks_one_is_active_at_most_and_one_in_the_end(chunk: int, meddling: bool) -> None:
    """Crashes, pauses, bad links and operators never make two clients active. After the repair one is active.

    The latter also holds if nodes were deleted and sessions ended from outside.
    """
    for seed in range(chunk, SEEDS, 4):
        contest = Contest(seed, count=3)
        contest.run(1.0)
        for _ in range(25):
            contest.break_something()
            if meddling and contest.random.random() < 0.3:
                contest.meddle()
            contest.run(contest.random.uniform(0.05, 2.0))
        contest.mend()
        contest.run(2 * TIMEOUT_S + HOLD_BACK_S + TAKEOVER_DELAY_S)
        assert contest.winner().active(), f"seed {seed}"
