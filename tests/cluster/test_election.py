"""Election alone, in virtual time, with an owner whose starts and stops end when the test says."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.defer import CancelledError, Deferred

from canal_ha.cluster.denials import Denials
from canal_ha.cluster.election import Election
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.members import DENIED_AGAIN_S, Members
from canal_ha.cluster.ownership import Ownership
from canal_ha.cluster.running import HOLD_BACK_S
from canal_ha.errors import Fenced, TransactionRefused, ZnodeDenied, ZooKeeperUnavailable
from canal_ha.meta.repository import CursorMoved
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Watch, Znode
from canal_ha.zookeeper.race_events import SessionEvent, SessionUp
from lab.simulation.session import Link, SimulatedSession
from lab.simulation.time import Process, World
from lab.simulation.zookeeper import Ensemble
from tests.sampling import examples

TIMEOUT_S = 3.0
LEASE_S = TIMEOUT_S * 2 / 3
SOON_S = 1.0  # enough for a look, a turn and a claim
D = "example"


class LateSession(SimulatedSession):
    """A session that can hold back the answers to claims, probes and releases, as a race of kazoo's threads does.

    sent: every transaction, in order of request.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.sent: list[Sequence[Operation]] = []
        self.before_claim: Callable[[], object] | None = None  # called once, before a claim is sent
        self.deaf = False  # reads fail, as if the account had no rights
        self.reads: list[Deferred[None]] | None = None  # what holds back their answers
        self._late: list[Deferred[None]] | None = None

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See ClusterSession."""
        self.sent.append(operations)
        meddle, held = (
            self.before_claim,
            None if isinstance(operations[0], Create) and len(operations) == 1 else self._late,
        )
        if meddle is not None and is_claim(operations):
            self.before_claim = None
            meddle()
        try:
            return await super().transaction(operations)
        finally:
            if held is not None:
                waiting: Deferred[None] = Deferred()
                held.append(waiting)
                await waiting

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """See ClusterSession."""
        if self.deaf:
            if self.reads is not None:
                held = Deferred[None]()
                self.reads.append(held)
                await held
            raise ZnodeDenied("no rights")
        return await super().get(path, watch)

    def hold(self) -> None:
        """Hold back the answers to transactions from now on."""
        self._late = []

    def deliver_late(self) -> None:
        """Deliver the answers held back, and hold back no more."""
        late, self._late = self._late or [], None
        for waiting in late:
            waiting.callback(None)

    @property
    def claims(self) -> list[str]:
        """The destinations of all claims sent, in order."""
        return [
            one.path.rpartition("/")[2] for operations in self.sent if is_claim(operations) for one in operations[1:2]
        ]


def is_claim(operations: Sequence[Operation]) -> bool:
    """Return whether a transaction creates `running` and advances the epoch."""
    return len(operations) > 1 and isinstance(operations[1], SetData) and operations[1].path.count("/") == 4


class Owner:
    """An owner without instances. calls: its calls, in order.

    starting, stopping: what the next call waits for; None if it ends at once.
    broken: calls for a destination that overlapped, or were not a start and a stop in turn. They fail the test.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[str, object]] = []
        self.ownerships: list[Ownership] = []
        self.starting: Deferred[None] | None = None
        self.stopping: Deferred[None] | None = None
        self.under_way: Deferred[None] | None = None  # what the unfinished call waits for
        self.broken: list[str] = []
        self._inside: dict[str, str] = {}
        self._last: dict[str, str] = {}

    async def start(self, destination: str, ownership: Ownership) -> None:
        """See the election's Owner."""
        self.calls.append(("start", ownership.epoch))
        self.ownerships.append(ownership)
        self._enter(destination, "start")
        starting, self.starting = self.starting, None
        try:
            if starting is not None:
                self.under_way = starting
                await starting
        finally:
            self._inside.pop(destination)

    async def stop(self, destination: str, reason: StopReason) -> None:
        """See the election's Owner."""
        self.calls.append(("stop", reason))
        self._enter(destination, "stop")
        stopping, self.stopping = self.stopping, None
        try:
            if stopping is not None:
                self.under_way = stopping
                await stopping
        finally:
            self._inside.pop(destination)

    def end(self, error: Exception | None = None) -> None:
        """End the unfinished call, if there is one, with the error, if there is one."""
        if self.under_way is not None and not self.under_way.called:
            if error is None:
                self.under_way.callback(None)
            else:
                self.under_way.errback(error)

    def _enter(self, destination: str, what: str) -> None:
        if destination in self._inside:
            self.broken.append(f"{what} of {destination} during its {self._inside[destination]}")
        if self._last.get(destination, "stop") == what:
            self.broken.append(f"{what} of {destination} twice")
        self._inside[destination] = self._last[destination] = what

    @property
    def reasons(self) -> list[object]:
        """Why instances were stopped, in order."""
        return [what for call, what in self.calls if call == "stop"]

    @property
    def starts(self) -> int:
        """How many instances were started."""
        return sum(call == "start" for call, _ in self.calls)


class Log:
    """A log that keeps the names of the events."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, event: str, **keys: object) -> None:
        """See structlog."""
        self.events.append(event)

    warning = error = info


class Node:
    """A process with the real Election and Members, on its own session."""

    def __init__(self, world: World, ensemble: Ensemble, number: int, seed: int = 0) -> None:
        random = Random(seed * 100 + number)
        self.name = f"10.0.0.{number}:11111"
        self.world = world
        self.process = Process(world, random)
        self.session = LateSession(ensemble, self.process, random, timeout_s=TIMEOUT_S)
        self.owner = Owner()
        self.log = Log()
        self.denials = Denials(self.log)
        shared: dict[str, Any] = {"clock": self.process, "denials": self.denials, "log": self.log}
        self.members = Members(self.name, self.session, lambda: "", **shared)
        self.election = Election(self.name, self.session, self.members, self.owner, random=random, **shared)
        self.session.listen(self._heard)
        spawn(self.session.start())

    def _heard(self, event: SessionEvent) -> None:
        if isinstance(event, SessionUp):
            self.members.connected()
        self.election.session_changed(event)

    def remove(self, destination: str = D) -> list[bool]:
        """Begin to remove a destination. Return a list that gets an item when the removal is done."""
        done: list[bool] = []

        async def removed() -> None:
            await self.election.remove(destination)
            done.append(True)

        spawn(removed())
        return done

    @property
    def state(self) -> str:
        """The node's state in the race for the destination; "" if it takes no part."""
        return self.election.states().get(D, ("", ""))[0]


class Stage:
    """An ensemble and one node; `join` adds another."""

    def __init__(self, seed: int = 0) -> None:
        self.world = World()
        self.ensemble = Ensemble(self.world)
        self.nodes: list[Node] = []
        self._seed = seed
        self.node = self.join()

    def join(self) -> Node:
        """Add a node."""
        self.nodes.append(Node(self.world, self.ensemble, len(self.nodes) + 1, self._seed))
        return self.nodes[-1]

    def run(self, seconds: float = SOON_S) -> None:
        """Let time pass; check that no owner's calls overlapped, and that no election failed."""
        self.world.run(self.world.seconds() + seconds)
        for node in self.nodes:
            assert node.owner.broken == []
            assert "election.failed" not in node.log.events

    def until(self, condition: Callable[[], bool], step_s: float = 0.001) -> None:
        """Let time pass in small steps until the condition holds, for 30 s at most."""
        end = self.world.seconds() + 30.0
        while not condition():
            assert self.world.seconds() < end, "it did not happen in time"
            self.run(step_s)

    def running(self) -> Node:
        """Add the destination to the first node and wait until it runs there."""
        self.node.election.add(D)
        self.until(lambda: self.node.election.runs(D))
        return self.node

    def denied(self) -> Node:
        """Return the node, connected, to which ZooKeeper denies all reads from now on."""
        self.until(lambda: self.node.session.connected)
        self.run()
        self.node.session.deaf = True
        return self.node

    def held_by(self, destination: str = D) -> int:
        """Return the id of the session that holds `running`; 0 if no session does."""
        node = self.ensemble.tree.get(tree.running(destination))
        return 0 if node is None else node.owner


def spawn(work: Coroutine[Deferred[Any], Any, None]) -> None:
    Deferred.fromCoroutine(work)


# ---- standing by


def test_a_node_that_has_stood_by_names_no_owner_once_the_owner_is_gone() -> None:
    """An owner that is gone would hide that nobody runs the destination, and the alarms of the node that takes over."""
    stage = Stage()
    first, second = stage.running(), stage.join()
    second.election.add(D)
    stage.until(lambda: second.election.states()[D] == ("STANDBY", first.name))
    first.process.kill()
    stage.until(lambda: second.state != "STANDBY")
    assert second.election.states()[D][1] == ""
    stage.until(lambda: second.election.runs(D))
    assert second.election.states()[D] == ("RUNNING", "")


# ---- starting


def test_a_start_that_fails_hands_the_destination_on() -> None:
    """The node stops the instance as failed, and another node gets the destination."""
    stage = Stage()
    first, second = stage.node, stage.join()
    first.owner.starting = starting = Deferred[None]()
    first.election.add(D)
    stage.until(lambda: first.owner.starts == 1)
    second.election.add(D)
    stage.run()
    starting.errback(ValueError("no rights"))
    stage.run(0.5)
    assert first.owner.reasons == [StopReason.FAILED]
    assert second.election.runs(D)
    assert stage.held_by() == second.session.id
    assert "running.instance_failed" in first.log.events


def test_a_start_that_was_cancelled_by_its_own_parts_hands_the_destination_on() -> None:
    """A CancelledError that the election did not cause is a failed start, and the instance is started again."""
    stage = Stage()
    stage.node.owner.starting = starting = Deferred[None]()
    stage.node.election.add(D)
    stage.until(lambda: stage.node.owner.starts == 1)
    starting.errback(CancelledError())
    stage.run(0.2)
    assert stage.node.owner.reasons == [StopReason.FAILED]
    stage.run(5.0)
    assert stage.node.owner.starts == 2


def test_a_session_that_is_lost_while_an_instance_starts_cancels_the_start() -> None:
    """The instance is stopped without a flush, and started again at a newer epoch when there is a session again."""
    stage = Stage()
    node = stage.node
    node.owner.starting = Deferred()
    node.election.add(D)
    stage.until(lambda: node.owner.starts == 1)
    old = node.owner.ownerships[0]
    stage.ensemble.expire(node.session.id)
    stage.until(lambda: node.owner.starts == 2)
    assert node.owner.reasons == [StopReason.SESSION_LOST]
    assert not old.lease_ok()
    stage.run(0.1)
    assert node.owner.ownerships[1].lease_ok()
    assert node.owner.ownerships[1].epoch > old.epoch


def test_a_cancelled_start_that_fails_late_does_not_stop_the_next_instance() -> None:
    """The late error of a cancelled start belongs to an ownership that has ended; the next instance runs on."""
    stage = Stage()
    node, cleaning = stage.node, Deferred[None]()

    class SlowToEnd(Owner):
        """An owner whose first start needs time to clean up."""

        async def start(self, destination: str, ownership: Ownership) -> None:
            """See the election's Owner."""
            self.calls.append(("start", ownership.epoch))
            self._last[destination] = "start"
            if self.starts == 1:
                try:
                    await Deferred()
                except CancelledError:
                    await cleaning

    node.owner = node.election._owner = SlowToEnd()
    node.election.add(D)
    stage.until(lambda: node.owner.starts == 1)
    stage.ensemble.expire(node.session.id)
    stage.until(lambda: node.owner.starts == 2)
    cleaning.errback(ValueError("the source hung up"))
    stage.run()
    assert node.owner.reasons == [StopReason.SESSION_LOST]
    assert node.election.runs(D)


def test_an_ownership_that_has_ended_writes_and_reports_nothing() -> None:
    """Writes through an ownership that has ended raise Fenced, and its reports do not affect the new instance."""
    stage = Stage()
    node = stage.running()
    old = node.owner.ownerships[0]
    stage.ensemble.expire(node.session.id)
    stage.until(lambda: node.owner.starts == 2)
    stage.run(0.1)
    sent = len(node.session.sent)
    answers: list[object] = []
    Deferred.fromCoroutine(old.transaction([SetData(tree.cursor(D, 1), b"")])).addBoth(answers.append)
    old.failed("it broke late")
    stage.run(0.1)
    assert [type(answer.value) for answer in answers if hasattr(answer, "value")] == [Fenced]
    assert len(node.session.sent) == sent
    assert node.owner.reasons == [StopReason.SESSION_LOST]
    assert node.election.runs(D)


def test_what_an_owner_of_long_ago_knew_is_not_written_back() -> None:
    """Another node has owned the destination since: this node begins with what ZooKeeper holds."""
    stage = Stage()
    first, second = stage.running(), stage.join()
    second.election.add(D)
    stage.run()
    Deferred.fromCoroutine(
        first.owner.ownerships[0]
        .meta(replaced=lambda *_: None, lost=lambda *_: None, skipped=print, mended=print)
        .load()
    )
    stage.run()
    first.election.hand_over(D)
    stage.until(lambda: second.election.runs(D))
    stage.run()
    second.election.hand_over(D)
    stage.until(lambda: first.election.runs(D))
    assert first.owner.ownerships[1]._before is None


# ---- stopping


def test_a_stop_that_fails_gives_the_destination_away_all_the_same() -> None:
    """The node releases a destination even if its instance fails to stop, so that another node can run it."""
    stage = Stage()
    node = stage.running()
    node.owner.stopping = stopping = Deferred[None]()
    done = node.remove()
    stage.run()
    assert not done
    assert stage.held_by() == node.session.id
    stopping.errback(ValueError("the disk is full"))
    stage.run()
    assert done
    assert stage.held_by() == 0
    assert "running.stop_failed" in node.log.events


def test_a_session_that_is_lost_while_an_instance_stops_in_good_order_ends_its_rights() -> None:
    """The instance may write until the session is lost. Then nothing is written or released, and the leave ends."""
    stage = Stage()
    node = stage.running()
    node.owner.stopping = stopping = Deferred[None]()
    done = node.remove()
    stage.run(0.1)
    (ownership,) = node.owner.ownerships
    assert ownership.lease_ok()
    assert not node.election.runs(D)
    stage.ensemble.expire(node.session.id)
    stage.run(TIMEOUT_S)
    assert not ownership.lease_ok()
    stopping.callback(None)
    stage.run()
    assert done
    assert node.owner.reasons == [StopReason.SHUTDOWN]
    assert not any(isinstance(one, Delete) for operations in node.session.sent for one in operations)


def test_a_lease_that_ends_while_an_instance_stops_in_good_order_ends_its_rights() -> None:
    """The flush may write no more when the lease ends, and the leave ends when ZooKeeper answers again."""
    stage = Stage()
    node = stage.running()
    node.owner.stopping = stopping = Deferred[None]()
    done = node.remove()
    stage.run(0.1)
    (ownership,) = node.owner.ownerships
    assert ownership.lease_ok()
    node.session.cut(Link.STALE, 2 * TIMEOUT_S)
    stage.run(LEASE_S)
    assert not ownership.lease_ok()
    stopping.callback(None)
    stage.run(0.1)
    node.session.heal()
    stage.run(TIMEOUT_S + SOON_S)
    assert done
    assert node.owner.reasons == [StopReason.SHUTDOWN]
    assert stage.held_by() == 0


def test_an_instance_that_fails_twice_is_stopped_once() -> None:
    """Later failures of an instance, also while it stops, do not stop it again."""
    stage = Stage()
    node = stage.running()
    node.owner.stopping = stopping = Deferred[None]()
    (ownership,) = node.owner.ownerships
    ownership.failed("the source is gone")
    ownership.failed("the source is gone")
    stage.run(0.1)
    ownership.failed("and gone")
    stopping.callback(None)
    stage.run(0.1)
    assert node.owner.reasons == [StopReason.FAILED]
    assert stage.held_by() == 0


# ---- claims


def test_a_refused_claim_starts_nothing() -> None:
    """When another node claims first, this one stands by for it and starts nothing."""
    stage = Stage()
    node = stage.node
    other = stage.ensemble.grant(60.0)
    stage.until(lambda: node.session.connected)

    def faster() -> None:
        stage.ensemble.transaction(
            other,
            [
                Create(tree.running(D), tree.RunningData("faster").to_bytes(), ephemeral=True),
                SetData(tree.destination(D), b""),
            ],
        )

    node.session.before_claim = faster
    node.election.add(D)
    stage.until(lambda: "running.claim_lost" in node.log.events)
    stage.run()
    assert node.owner.calls == []
    assert node.election.states() == {D: ("STANDBY", "faster")}
    stage.ensemble.expire(other)
    stage.run(2.0)
    assert node.election.runs(D)


def test_one_claim_at_a_time() -> None:
    """The next destination is claimed only after the answer to the claim before it."""
    stage = Stage()
    node, names = stage.node, [f"d{number}" for number in range(4)]
    stage.until(lambda: node.session.connected)
    stage.run()
    for name in names:
        node.election.add(name)
    for number in range(len(names)):
        node.session.hold()
        stage.run()
        assert len(node.session.claims) == number + 1
        node.session.deliver_late()
    stage.run()
    assert sorted(node.session.claims) == names == list(node.election.running)


def test_a_claim_whose_answer_is_lost_is_found_by_a_look() -> None:
    """A look shows that the node already holds `running`. It takes another epoch and starts the instance."""
    stage = Stage()
    node = stage.node
    stage.until(lambda: node.session.connected)
    stage.run()
    node.session.hold()
    node.election.add(D)
    stage.until(lambda: stage.held_by() != 0)
    claimed_at = stage.ensemble.tree[tree.destination(D)].version
    node.session.cut(Link.DOWN, 0.0)
    stage.run(0.1)
    assert node.state == "OFFLINE"
    node.session.heal()
    node.session.deliver_late()
    stage.until(lambda: node.election.runs(D))
    assert node.owner.calls == [("start", claimed_at + 1)]


def test_a_claim_without_answer_over_a_connection_that_stays_is_made_again() -> None:
    """A look shows that the claim had no effect, and the node claims again."""
    stage = Stage()
    node = stage.node
    stage.until(lambda: node.session.connected)

    def lost() -> None:
        raise ZooKeeperUnavailable("it took too long")

    node.session.before_claim = lost
    node.election.add(D)
    stage.until(lambda: "running.claim_unanswered" in node.log.events)
    stage.until(lambda: node.election.runs(D))
    assert len(node.session.claims) == 2


def test_an_answer_of_the_session_before_gives_no_lease() -> None:
    """The answer to a probe of a lost session gives the next session no lease."""
    stage = Stage()
    node = stage.running()
    node.session.hold()
    stage.run(LEASE_S / 2)
    probe = node.session.sent[-1]
    assert isinstance(probe[0], Check)
    lost = node.session.id
    stage.ensemble.expire(lost)
    stage.until(lambda: node.session.connected and node.session.id != lost)
    node.session.deliver_late()
    assert node.election.lease.proven_at() is None
    assert not node.election.runs(D)


# ---- leaving


def test_a_candidate_that_leaves_while_it_looks_starts_nothing() -> None:
    """The leave waits for the look, because the node may hold the destination. Nothing is claimed or started."""
    stage = Stage()
    node = stage.node
    stage.until(lambda: node.session.connected)
    stage.run()
    node.election.add(D)
    assert node.state == "LOOKING"
    done = node.remove()
    assert not done
    stage.run()
    assert done
    assert node.owner.calls == []
    assert node.session.claims == []
    assert node.election.states() == {}


def test_a_candidate_that_leaves_while_it_claims_releases_what_it_won() -> None:
    """When the claim succeeds, the node deletes `running` again and does not start the instance."""
    stage = Stage()
    node = stage.node
    stage.until(lambda: node.session.connected)
    stage.run()
    node.session.hold()
    node.election.add(D)
    stage.until(lambda: stage.held_by() == node.session.id)
    done = node.remove()
    stage.run()
    assert not done
    node.session.deliver_late()
    stage.run()
    assert done
    assert node.owner.calls == []
    assert stage.held_by() == 0


def test_a_destination_that_is_left_twice_and_added_between_runs_in_the_end_as_wished_last() -> None:
    """An addition ends the wait for earlier removals. The last call decides whether the node runs the destination."""
    stage = Stage()
    node = stage.running()
    node.owner.stopping = stopping = Deferred[None]()
    first, second = node.remove(), node.remove()
    stage.run(0.1)
    assert not first
    assert not second
    node.election.add(D)
    assert first
    assert second
    stopping.callback(None)
    stage.until(lambda: node.election.runs(D))
    third = node.remove()
    stage.run()
    assert third
    assert node.election.states() == {}
    assert stage.held_by() == 0


def test_leaving_what_was_never_joined_ends_at_once() -> None:
    """Leaving an unknown destination ends at once, even without a session."""
    stage = Stage()
    assert stage.node.remove("nobody knows it")
    stage.node.election.hand_over("nobody knows it")
    assert not stage.node.election.runs("nobody knows it")


@pytest.mark.parametrize("when", ["claiming", "running", "releasing", "offline"])
def test_a_destination_that_is_left_while_zookeeper_is_away_does_not_stay_held(when: str) -> None:
    """The node deletes `running` when ZooKeeper is back, because the session lives on for other destinations.

    Otherwise no other node could run the destination while this process lives.
    """
    stage = Stage()
    node, other = stage.node, stage.join()
    stage.until(lambda: node.session.connected)
    stage.run()
    if when in ("claiming", "offline"):
        node.election.add(D)
        stage.until(lambda: stage.held_by() != 0)
        assert node.state == "CLAIMING"
    else:
        stage.running()
    if when == "releasing":
        node.remove()
        assert node.state == "RELEASING"
    held, session_id = stage.held_by(), node.session.id
    node.session.cut(Link.DOWN, 0.0)
    if when == "offline":
        stage.until(lambda: node.state == "OFFLINE")
    done = node.remove()
    stage.run(0.1)
    assert done, "a node that stops must not wait for ZooKeeper"
    assert stage.held_by() == held == session_id
    other.election.add(D)
    node.session.heal()
    stage.run(2.0)
    assert node.session.id == session_id
    assert other.election.runs(D)
    assert node.election.states() == {}


def test_a_destination_that_was_left_while_zookeeper_was_away_is_forgotten_with_the_session() -> None:
    """`running` goes with the session, so nothing is left to release. The destination can be added again."""
    stage = Stage()
    node = stage.running()
    node.session.cut(Link.DOWN, 0.0)
    stage.run(0.1)
    done = node.remove()
    stage.run(0.1)
    assert done
    assert node.state == "OFFLINE"
    stage.run(TIMEOUT_S)
    assert stage.held_by() == 0
    node.session.heal()
    stage.until(lambda: node.session.connected)
    assert node.election.states() == {}
    node.election.add(D)
    stage.until(lambda: node.election.runs(D))


def test_a_look_that_fails_while_a_candidate_leaves_ends_the_leave() -> None:
    """A failed look ends the leave.

    If the destination is added again over the same connection, the node looks again.
    """
    stage = Stage()
    node = stage.node
    stage.until(lambda: node.session.connected)
    stage.run()
    node.session.deaf = True
    node.election.add(D)
    done = node.remove()
    stage.run()
    assert done
    node.session.deaf = False
    node.election.add(D)
    stage.until(lambda: node.election.runs(D))


def test_a_look_that_is_denied_is_logged_once_and_told_until_it_succeeds() -> None:
    """The node looks again each half second, and claims when somebody has corrected the rights."""
    stage = Stage()
    node = stage.denied()
    node.election.add(D)
    stage.run()
    stage.run()
    assert node.denials.paths == (tree.destination(D),)
    assert "canal.zookeeper.auth" in node.denials.text
    assert node.log.events.count("zookeeper.denied") == 1
    node.session.deaf = False
    stage.until(lambda: node.election.runs(D))
    assert node.denials.text == ""


def test_a_destination_that_leaves_is_denied_no_more() -> None:
    """Nobody looks again, so nothing else would end the alarm."""
    stage = Stage()
    node = stage.denied()
    node.election.add(D)
    stage.run()
    assert node.denials.text
    node.remove()
    stage.run()
    assert node.denials.text == ""


def test_a_denial_that_comes_after_the_destination_left_makes_no_alarm() -> None:
    """Nobody would ask again for a destination that this node does not have, so nothing would end the alarm."""
    stage = Stage()
    node = stage.denied()
    node.session.reads = []
    node.members.register(D, b"")
    stage.run()
    assert node.session.reads
    Deferred.fromCoroutine(node.members.unregister(D))
    for _ in range(3):
        while node.session.reads:
            node.session.reads.pop().callback(None)
        stage.run(DENIED_AGAIN_S + SOON_S)
    assert node.denials.text == ""


# ---- the lease


def test_probes_keep_the_lease_of_an_idle_owner() -> None:
    """Answered probes keep the lease.

    When a connection delivers no answers, the lease ends and the instance is stopped.
    """
    stage = Stage()
    node = stage.running()
    for _ in range(40):
        stage.run(LEASE_S / 4)
        assert node.election.runs(D)
    node.session.cut(Link.STALE, 10 * TIMEOUT_S)
    stage.run(LEASE_S + 0.01)
    assert not node.election.runs(D)
    assert node.owner.reasons == [StopReason.LEASE_OVER]


def test_a_process_that_was_stopped_does_not_serve_before_its_timers_run() -> None:
    """After a pause longer than the lease, the first call already finds the lease over, and the instance is stopped."""
    stage = Stage()
    node = stage.running()
    node.process.pause()
    stage.run(LEASE_S + 0.5)
    node.process.resume()
    assert not node.election.runs(D)
    assert not node.owner.ownerships[0].lease_ok()
    stage.run(0.1)
    assert node.owner.reasons[0] in (StopReason.LEASE_OVER, StopReason.SESSION_LOST)


def test_a_probe_that_is_refused_stops_the_fenced_destination_alone() -> None:
    """One probe serves all destinations. The fenced one is stopped; the others run on and keep their lease."""
    stage = Stage()
    node = stage.node
    for name in ("a", "b", "c"):
        node.election.add(name)
    stage.until(lambda: len(node.election.running) == 3)
    epochs = {ownership.destination: ownership.epoch for ownership in node.owner.ownerships}
    node.session.watch_delay_s = 60.0
    stage.ensemble.transaction(0, [SetData(tree.destination("b"), b"")])
    stage.until(lambda: bool(node.owner.reasons))
    assert node.owner.reasons == [StopReason.FENCED]
    assert node.election.runs("a")
    assert node.election.runs("c")
    stage.until(lambda: node.election.runs("b"))
    stage.run(2 * TIMEOUT_S)
    assert node.owner.reasons == [StopReason.FENCED]
    assert node.owner.ownerships[-1].epoch > epochs["b"]


def test_a_hand_over_gives_another_node_the_destination() -> None:
    """The node stands back for a while. A hand-over on a node that does not run the destination changes nothing."""
    stage = Stage()
    first = stage.running()
    second = stage.join()
    second.election.add(D)
    stage.run()
    second.election.hand_over(D)
    stage.run()
    assert first.election.runs(D)
    first.election.hand_over(D)
    stage.run()
    assert first.owner.reasons == [StopReason.HAND_OVER]
    assert second.election.runs(D)
    second.process.kill()
    stage.run(TIMEOUT_S + HOLD_BACK_S + 1.0)
    assert first.election.runs(D)


@pytest.mark.parametrize("text", [b'{"active":true,"address":"10.0.0.9:11111"}', b"", b"nonsense"])
def test_running_that_names_another_node_than_the_owner_does_not_stay(text: bytes) -> None:
    """Somebody has written it with zkCli. The owner writes its address again, and does not stop for it."""
    stage = Stage()
    node = stage.running()
    stage.ensemble.transaction(0, [SetData(tree.running(D), text)])
    stage.run()
    assert stage.ensemble.tree[tree.running(D)].data == tree.RunningData(node.name).to_bytes()
    assert node.owner.reasons == []


def test_running_is_corrected_although_the_first_correction_gets_no_answer() -> None:
    """The owner looks again."""
    stage = Stage()
    node = stage.running()
    sends, node.session.transaction = node.session.transaction, unanswered  # type: ignore[method-assign]  # for a while
    stage.ensemble.transaction(0, [SetData(tree.running(D), b"")])
    stage.until(lambda: "running.not_corrected" in node.log.events)
    node.session.transaction = sends  # type: ignore[method-assign]  # as it was
    stage.run()
    assert stage.ensemble.tree[tree.running(D)].data == tree.RunningData(node.name).to_bytes()
    assert node.owner.reasons == []


async def unanswered(operations: Sequence[Operation]) -> tuple[int, ...]:
    """Get no answer to a transaction."""
    raise ZooKeeperUnavailable("it took too long")


def test_a_request_at_a_standby_does_not_delay_its_next_take_over() -> None:
    """A lazy destination is added again with each SUBSCRIBE. The node does not look again for it."""
    stage = Stage()
    owner, standby = stage.running(), stage.join()
    standby.election.add(D)
    stage.until(lambda: standby.state == "STANDBY")
    stage.run(60.0)
    standby.election.add(D)
    assert standby.state == "STANDBY"
    stage.run(0.1)
    owner.process.kill()
    stage.ensemble.transaction(0, [Delete(tree.running(D))])
    stage.run(0.9)
    assert standby.election.runs(D)


# ---- epochs


def delete_destination(stage: Stage) -> None:
    """Delete the destination with everything below it, as a person does."""
    below = [path for path in stage.ensemble.tree if f"{path}/".startswith(f"{tree.destination(D)}/")]
    stage.ensemble.transaction(0, [Delete(path) for path in sorted(below, reverse=True)])


@pytest.mark.parametrize("seed", range(5))
def test_a_former_owner_writes_no_cursor_after_the_destination_was_deleted_and_claimed_again(seed: int) -> None:
    """Its process was paused meanwhile and its lease still holds, so only the epoch can tell the two owners apart."""
    stage = Stage(seed)
    former, other = stage.running(), stage.join()
    other.election.add(D)
    stage.until(lambda: former.election.lease.holds(former.process.seconds() + 1.8))
    (ownership,) = former.owner.ownerships
    store = ownership.meta(replaced=lambda *_: None, lost=lambda *_: None, skipped=print, mended=print)
    Deferred.fromCoroutine(store.load())
    stage.run(0.1)
    former.process.pause()
    delete_destination(stage)
    stage.until(lambda: other.election.runs(D))
    assert ownership.lease_ok()
    answers: list[object] = []
    cursor = CursorMoved(1001, LogPosition("mysql-bin.000001", 4))
    Deferred.fromCoroutine(store.write((cursor,))).addBoth(answers.append)
    former.process.resume()
    stage.run()
    assert [type(answer.value) for answer in answers if hasattr(answer, "value")] == [Fenced]
    assert tree.cursor(D, 1001) not in stage.ensemble.tree
    assert other.election.runs(D)
    assert not former.election.runs(D)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("restored", [False, True])
def test_an_epoch_is_not_used_twice_by_an_ensemble_that_lost_its_data(seed: int, restored: bool) -> None:
    """A write that a former owner's process sends late can arrive over its next session. The epoch does not fit it.

    restored: from a backup, and not empty. The former owner has claimed twice since, and another node once.
    """
    stage = Stage(seed)
    former, other = stage.running(), stage.join()
    other.election.add(D)
    stage.run()
    backup = stage.ensemble.tree if restored else {"": Znode(b"", 0)}
    if restored:
        former.election.hand_over(D)
        stage.until(lambda: other.election.runs(D))
        stage.run(HOLD_BACK_S)
        other.election.hand_over(D)
        stage.until(lambda: former.election.runs(D))
        stage.run(HOLD_BACK_S)
    epoch = former.owner.ownerships[-1].epoch
    former.process.kill()
    stage.ensemble.restore(backup)
    stage.until(lambda: other.election.runs(D))
    with pytest.raises(TransactionRefused, match="version"):
        stage.ensemble.transaction(0, [Check(tree.destination(D), epoch)])


# ---- any order

STEPS = st.sampled_from(
    [
        *("add", "remove", "hand_over", "delete", "wait"),
        *("expire", "down", "stale", "heal", "hold", "deliver"),
        *("slow_start", "slow_stop", "end", "break", "fail"),
    ]
)


@settings(max_examples=examples(60))
@given(steps=st.lists(STEPS, max_size=14), pauses=st.randoms(use_true_random=False))
def test_whatever_happens_calls_alternate_and_the_last_wish_is_met(steps: list[str], pauses: Random) -> None:
    """An owner's calls never overlap. In the end the destination runs if it is wanted, and is free otherwise."""
    stage = Stage()
    node, owner = stage.node, stage.node.owner
    wanted = False
    for step in steps:
        match step:
            case "add":
                node.election.add(D)
                wanted = True
            case "remove":
                node.remove()
                wanted = False
            case "expire":
                stage.ensemble.expire(node.session.id)
            case "down" | "stale":
                node.session.cut(Link.DOWN if step == "down" else Link.STALE, pauses.uniform(0.0, LEASE_S))
            case "heal":
                node.session.heal()
            case "hold":
                node.session.hold()
            case "deliver":
                node.session.deliver_late()
            case "slow_start":
                owner.starting = Deferred()
            case "slow_stop":
                owner.stopping = Deferred()
            case "fail":
                for ownership in owner.ownerships:
                    ownership.failed("so it was wished")
            case "hand_over":
                node.election.hand_over(D)
            case "end":
                owner.end()
            case "break":
                owner.end(ValueError("so it was wished"))
            case "delete":
                if stage.held_by():
                    stage.ensemble.transaction(0, [Delete(tree.running(D))])
        stage.run(pauses.choice([0.0, 0.001, 0.004, 0.05, 0.5, 2.0]))
    node.session.deliver_late()
    node.session.heal()
    owner.starting = owner.stopping = None
    owner.end()
    stage.run(130.0)
    assert node.election.runs(D) is wanted
    assert stage.held_by() == (node.session.id if wanted else 0)
    assert owner.starts == len(owner.reasons) + wanted
