"""Failover: which node is next, and when. Scripts and random steps drive the machine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from canal_ha.client import failover as f
from canal_ha.client.discovery import Discovered, FixedList, ServerNode
from canal_ha.client.failover import ConnectorState, Failover

A, B = "10.0.0.1:11111", "10.0.0.2:11111"


def longest(low: float, high: float) -> float:
    """Return the longest back-off."""
    return high


def with_zookeeper(retry_times: int | None = None) -> tuple[Failover, Discovered]:
    """Return an active machine. It knows that A runs the destination and that B is a member."""
    directory = Discovered(lambda names: names.reverse())
    directory.members_are([A, B])
    directory.running_is(A, 10)
    machine = Failover(directory, retry_times=retry_times, interval_s=5.0, uniform=longest)
    assert machine.step(f.Open(waits=True), 0.0) == []
    assert machine.state is ConnectorState.STANDBY
    assert machine.step(f.Activated(), 0.0) == []
    return machine, directory


def online() -> tuple[Failover, Discovered]:
    """Return a machine that is connected to A."""
    machine, directory = with_zookeeper()
    assert (machine.state, machine.node) == (ConnectorState.DIALLING, ServerNode(A, 10))
    machine.step(f.Dialled(machine.attempt), 0.0)
    machine.step(f.Worked(machine.attempt), 0.0)
    assert machine.state is ConnectorState.ONLINE
    return machine, directory


def test_a_lost_connection_is_dialled_again_at_once_then_with_growing_pauses() -> None:
    """The pauses are 0, 0.1, 0.2 … 5 s. An answered request resets them."""
    machine, _ = online()
    rests, now = [], 0.0
    for _ in range(9):
        assert machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), now) == [f.HangUp(machine.attempt)]
        assert machine.wakes_at is not None
        rests.append(round(machine.wakes_at - now, 3))
        now = machine.wakes_at
        machine.step(f.Tick(), now)
        assert machine.state is ConnectorState.DIALLING
    assert rests == [0.0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    machine.step(f.Dialled(machine.attempt), now)
    machine.step(f.Worked(machine.attempt), now)
    machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), now)
    assert machine.wakes_at == now


def test_an_answer_after_the_end_of_the_turn_uses_up_no_retry() -> None:
    """The connection is replaced at once; the caller that allows one try gets no error."""
    machine, _ = with_zookeeper(retry_times=1)
    for _ in range(3):
        machine.step(f.Dialled(machine.attempt), 0.0)
        old = machine.attempt
        assert machine.step(f.Failed(old, f.FailureKind.TURN_OVER), 0.0) == [f.HangUp(old)]
        assert (machine.state, machine.attempt, machine.failures) == (ConnectorState.DIALLING, old + 1, 0)
        assert machine.step(f.Failed(old, f.FailureKind.TURN_OVER), 0.0) == []
    assert machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), 0.0)[-1] == f.GiveUp(1)


def test_a_connection_that_never_works_keeps_its_back_off() -> None:
    """A server that accepts and then fails every request is not asked in a tight loop."""
    machine, _ = online()
    now = 0.0
    for _ in range(5):
        machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), now)
        assert machine.wakes_at is not None
        now = machine.wakes_at
        machine.step(f.Tick(), now)
        machine.step(f.Dialled(machine.attempt), now)
    assert now == 0.1 + 0.2 + 0.4 + 0.8


def test_a_destination_that_moved_is_followed_at_once() -> None:
    """The old connection is hung up, so that nobody waits on it, and no back-off delays the new one."""
    machine, directory = online()
    old = machine.attempt
    directory.running_is(B, 11)
    assert machine.step(f.Moved(), 1.0) == [f.HangUp(old)]
    assert (machine.state, machine.node) == (ConnectorState.DIALLING, ServerNode(B, 11))
    assert machine.step(f.Failed(old, f.FailureKind.LOST), 1.0) == []
    for _ in range(8):
        machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), 1.0)
        machine.step(f.Tick(), 100.0)
    machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), 100.0)
    assert machine.state is ConnectorState.RESTING
    directory.running_is(A, 12)
    machine.step(f.Moved(), 100.0)
    assert (machine.state, machine.node) == (ConnectorState.DIALLING, ServerNode(A, 12))
    machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), 100.0)
    assert machine.wakes_at == 100.0  # the node may have just claimed and not serve yet


def test_the_same_address_anew_is_another_node() -> None:
    """A node that lost and claimed the destination again does not know the earlier batches."""
    machine, directory = online()
    directory.running_is_gone()
    assert machine.step(f.Moved(), 1.0) == []
    assert machine.state is ConnectorState.ONLINE
    directory.running_is(A, 12)
    assert machine.step(f.Moved(), 1.0) == [f.HangUp(1)]
    assert machine.node == ServerNode(A, 12)


def test_a_guess_that_turns_out_right_is_kept() -> None:
    """Without `running` the first of the shuffled members is tried. If that node then runs, nothing changes."""
    directory = Discovered(lambda names: names.reverse())
    machine = Failover(directory, retry_times=None, interval_s=5.0, uniform=longest)
    machine.step(f.Open(waits=True), 0.0)
    machine.step(f.Activated(), 0.0)
    assert directory.next() is None
    directory.members_are([A, B])
    machine.step(f.Moved(), 0.0)
    assert machine.node == ServerNode(B)
    machine.step(f.Dialled(machine.attempt), 0.0)
    directory.running_is(B, 9)
    assert machine.step(f.Moved(), 0.0) == []
    assert machine.attempt == 2


def test_a_turn_that_is_over_ends_the_connection() -> None:
    """Later events of that connection are ignored, and the next turn starts without back-off."""
    machine, _ = online()
    assert machine.step(f.Deactivated(), 1.0) == [f.HangUp(1)]
    assert machine.step(f.Failed(1, f.FailureKind.LOST), 1.0) == []
    assert machine.state is ConnectorState.STANDBY
    machine.step(f.Activated(), 2.0)
    assert (machine.state, machine.attempt) == (ConnectorState.DIALLING, 2)


def test_callers_are_told_when_they_want_to_be() -> None:
    """Callers get an error after retry_times failures, after a few refusals, or at once if no retry can help."""
    machine, _ = with_zookeeper(retry_times=3)
    commands: list[f.Command] = []
    for _ in range(3):
        commands += machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), 0.0)
        machine.step(f.Tick(), 100.0)
    assert commands[-1] == f.GiveUp(3)
    machine, _ = with_zookeeper()
    for _ in range(f.REFUSALS):
        commands = machine.step(f.Failed(machine.attempt, f.FailureKind.REFUSED), 0.0)
        machine.step(f.Tick(), 100.0)
    assert commands[-1] == f.GiveUp(f.REFUSALS)
    machine, _ = with_zookeeper()
    assert machine.step(f.Failed(machine.attempt, f.FailureKind.FATAL), 0.0)[-1] == f.GiveUp(1)


def test_a_fixed_list_goes_round() -> None:
    """Every attempt takes the next address."""
    machine = Failover(FixedList([A, B]), retry_times=None, interval_s=5.0, uniform=longest)
    machine.step(f.Open(waits=False), 0.0)
    seen = [machine.node]
    for _ in range(3):
        machine.step(f.Failed(machine.attempt, f.FailureKind.LOST), 0.0)
        machine.step(f.Tick(), 100.0)
        seen.append(machine.node)
    assert seen == [ServerNode(A), ServerNode(B), ServerNode(A), ServerNode(B)]


Step = st.one_of(
    st.builds(f.Open, waits=st.just(True)),
    st.sampled_from([f.Close(), f.Activated(), f.Deactivated(), f.Tick()]),
    st.builds(f.Dialled, attempt=st.integers(0, 12)),
    st.builds(f.Worked, attempt=st.integers(0, 12)),
    st.builds(f.Failed, attempt=st.integers(0, 12), kind=st.sampled_from(f.FailureKind)),
    st.tuples(st.sampled_from([A, B, ""]), st.integers(1, 3)),
)


@given(st.lists(st.tuples(Step, st.floats(0.0, 2.0)), max_size=60))
def test_whatever_happens_there_is_one_connection_and_a_way_on(steps: list[tuple[object, float]]) -> None:
    """Only the current attempt has a connection; every older one was hung up. No pause exceeds five seconds.

    If the running node is known, an active machine does not stay on another node.
    """
    directory = Discovered(lambda names: None)
    directory.members_are([A, B])
    machine = Failover(directory, retry_times=None, interval_s=5.0, uniform=longest)
    now, hung_up = 0.0, set()
    for event, pause_s in steps:
        now += pause_s
        before, state = machine.attempt, machine.state
        if isinstance(event, tuple):
            if event[0]:
                directory.running_is(*event)
            else:
                directory.running_is_gone()
            event = f.Moved()
        assert isinstance(event, f.Input)
        commands = machine.step(event, now)
        hung_up |= {command.attempt for command in commands if isinstance(command, f.HangUp)}
        if machine.attempt != before and state in (ConnectorState.DIALLING, ConnectorState.ONLINE):
            assert before in hung_up
        if machine.state in (ConnectorState.DIALLING, ConnectorState.ONLINE):
            assert machine.attempt not in hung_up
            assert machine.node is not None
            assert directory.runs in (None, machine.node) or not isinstance(event, f.Moved)
        if machine.state is ConnectorState.RESTING:
            assert machine.wakes_at is not None
            assert machine.wakes_at <= now + 5.0
