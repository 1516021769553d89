"""Coordination alone: its real thread and seat, on an in-memory ensemble whose replies the test can hold back."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

import pytest

from canal_ha.client import coordination as module
from canal_ha.client import running_inputs as i
from canal_ha.client.coordination import (
    BecameActive,
    Broke,
    Coordination,
    LostActivity,
    MembersAre,
    News,
    NobodyRuns,
    RunningIs,
    StandsBy,
)
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, Operation, SetData, Watch
from canal_ha.zookeeper.race_events import SessionLost, SessionSuspended, SessionUp
from lab.simulation.time import World
from lab.simulation.zookeeper import Ensemble

PATIENCE_S = 5.0
TIMEOUT_S = 6.0
D, CLIENT = "example", 1001
PATH = tree.client_running(D, CLIENT)
N = TypeVar("N")


class Clock:
    """The clock of a coordination's thread. It stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def seconds(self) -> float:
        """Return the time, like steady_time.seconds."""
        return self.now


class FakePort:
    """A KazooPort on the in-memory ensemble.

    down: it replies ZooKeeperUnavailable.
    held: replies that wait until the test delivers them, oldest first.
    """

    def __init__(self, stage: Stage, post: Callable[[Callable[[], None]], None], changed: Callable[..., None]) -> None:
        self.timeout_s = TIMEOUT_S
        self.id = 0
        self.connected = False
        self.down = False
        self.held: list[Callable[[], None]] | None = None
        self.asked: list[str] = []
        self.writes: list[Sequence[Operation]] = []
        self.before_write: Callable[[], None] | None = None  # called once, before the next write arrives
        self.stopped = Event()
        self._stage = stage
        self._post = post
        self._changed = changed
        self._watches: set[Watch] = set()

    # ---- what happens, from the test's thread

    def up(self) -> None:
        """Connect, with the current session or, if that is gone, a new one."""
        ensemble = self._stage.ensemble

        def connected() -> None:
            if self.id not in ensemble.sessions:
                if self.id:
                    self._changed(SessionLost())
                self.id = ensemble.grant(TIMEOUT_S)
            self.connected = True
            self._changed(SessionUp(self.id, TIMEOUT_S))

        self._post(connected)

    def cut(self) -> None:
        """Lose the connection; the session stays alive."""

        def suspended() -> None:
            self.connected = False
            self._changed(SessionSuspended())

        self._post(suspended)

    def deliver(self) -> None:
        """Deliver the held replies, and hold no more."""
        held, self.held = self.held or [], None
        for answer in held:
            self._post(answer)

    # ---- KazooPort

    def start(self) -> None:
        """See KazooPort; the test connects it."""

    def stop(self) -> Thread:
        """See KazooPort."""
        self.connected = False
        self._stage.ensemble.expire(self.id)
        self.stopped.set()
        thread = Thread(target=int)
        thread.start()
        return thread

    def get(self, path: str, watch: Watch | None, answer: Callable[[Any], None]) -> None:
        """See KazooPort."""
        self.asked.append(path)
        self._answer(answer, lambda: self._stage.ensemble.tree.get(path))
        if watch is not None:
            self._stage.ensemble.watch_data(path, Left(self, watch))

    def children(self, path: str, watch: Watch | None, answer: Callable[[Any], None]) -> None:
        """See KazooPort."""
        self.asked.append(path)
        self._answer(answer, lambda: self._stage.ensemble.children(path))
        if watch is not None:
            self._stage.ensemble.watch_children(path, Left(self, watch))

    def transaction(self, operations: Sequence[Operation], answer: Callable[[Any], None]) -> None:
        """See KazooPort."""
        self.writes.append(operations)
        meddle, self.before_write = self.before_write, None
        if meddle is not None:
            meddle()
        self._answer(answer, lambda: self._stage.ensemble.transaction(self.id, operations))

    def ensure(self, path: str, answer: Callable[[Any], None]) -> None:
        """See KazooPort."""
        self._stage.make(path)
        self._answer(answer, lambda: None)

    def _answer(self, answer: Callable[[Any], None], do: Callable[[], Any]) -> None:
        try:
            result = do() if self.connected and not self.down else ZooKeeperUnavailable("no answer")
        except TransactionRefused as refused:
            result = refused
        (self.held.append if self.held is not None else self._post)(lambda: answer(result))

    def fire(self, watch: Watch, deleted: bool) -> None:
        """Call a watch of this port."""
        if self.connected:
            self._post(lambda: watch(deleted))


class Left:
    """A watch that the ensemble holds."""

    def __init__(self, port: FakePort, watch: Watch) -> None:
        self._port, self._watch = port, watch

    def fire(self, deleted: bool) -> None:
        """See Watcher."""
        self._port.fire(self._watch, deleted)


class Stage:
    """An ensemble whose time stands still, and coordinations on it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.ensemble = Ensemble(World())
        self.ports: list[FakePort] = []
        self.begun: list[Begun] = []
        self.make(tree.destination_members(D))
        patch.setattr(module, "steady_time", self.clock)
        patch.setattr(module, "KazooPort", self._port)
        patch.setattr(module, "_past_sessions", set())

    def _port(self, servers: str, *, post: Any, changed: Any, **options: Any) -> FakePort:
        self.ports.append(FakePort(self, post, changed))
        return self.ports[-1]

    def make(self, path: str) -> None:
        """Create a node and its parents."""
        parts = path.strip("/").split("/")
        for part in itertools.accumulate(parts, lambda head, name: f"{head}/{name}", initial=""):
            if part and part.startswith("/") and part not in self.ensemble.tree:
                self.ensemble.transaction(0, [Create(part)])

    def begin(self, **options: Any) -> Begun:
        """Start a coordination and connect it."""
        begun = Begun(self, **options)
        self.begun.append(begun)
        begun.it.start()
        begun.port.up()
        return begun

    def holder(self) -> str:
        """Return the address in the client's `running` node; "" if there is none."""
        node = self.ensemble.tree.get(PATH)
        return "" if node is None else tree.RunningData.from_bytes(node.data).address


class Begun:
    """A coordination and its news."""

    def __init__(self, stage: Stage, **options: Any) -> None:
        self.news: SimpleQueue[News] = SimpleQueue()
        self.fails: list[Exception] = []
        self.it = Coordination(
            "zk:2181",
            D,
            CLIENT,
            self._tell,
            **{
                "address": "10.9.9.9",
                "timeout_ms": 6000,
                "access": ZooKeeperAccess(),
                "takeover_delay_s": 0.0,
                **options,
            },
        )
        self.port = stage.ports[-1]
        self._stage = stage

    def _tell(self, news: News) -> None:
        if self.fails and not isinstance(news, Broke):
            raise self.fails.pop()
        self.news.put(news)

    def hears(self, kind: type[N]) -> N:
        """Return the next news of this kind; drop the news before it."""
        while True:
            news = self.news.get(timeout=PATIENCE_S)
            if isinstance(news, kind):
                return news

    def settle(self) -> None:
        """Wait until the thread has done all work posted before, and the work that follows from it at once."""
        for _ in range(4):
            done = Event()
            self.it._queue.put(done.set)
            assert done.wait(PATIENCE_S)

    def rest(self) -> list[News]:
        """Return the news that nobody has heard."""
        self.settle()
        return [self.news.get() for _ in range(self.news.qsize())]

    def pass_time(self, seconds: float) -> None:
        """Move the clock and wait until the thread has looked at it."""
        self._stage.clock.now += seconds
        self.settle()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Yield a Stage; stop its coordinations at the end."""
    made = Stage(monkeypatch)
    yield made
    for begun in made.begun:
        for port in made.ports:
            port.deliver()
        begun.it.stop()


# ---- the race


def test_it_becomes_active_and_lets_go_in_good_order(stage: Stage) -> None:
    """The parent is created, the node shows the connection's address, and stop() deletes the node and its session."""
    begun = stage.begin()
    begun.hears(BecameActive)
    assert begun.it.active()
    assert stage.holder() == "10.9.9.9"
    begun.it.connected_to_node("10.9.9.9:40000")
    begun.settle()
    assert stage.holder() == "10.9.9.9:40000"
    begun.it.stop()
    assert begun.hears(LostActivity).reason is i.Reason.STOPPED
    assert not begun.it.active()
    assert stage.holder() == ""
    assert begun.port.stopped.is_set()
    assert begun.port.id in module._past_sessions
    assert isinstance(begun.port.writes[-1][-1], Delete)


def test_the_second_stands_by_and_follows_an_orderly_release_at_once(stage: Stage) -> None:
    """The second seat names the active client, and is not active before the release."""
    first = stage.begin()
    first.hears(BecameActive)
    second = stage.begin(address="10.8.8.8")
    assert second.hears(StandsBy) == StandsBy("10.9.9.9")
    assert not second.it.active()
    first.it.stop()
    second.hears(BecameActive)
    assert stage.holder() == "10.8.8.8"


def test_a_refused_claim_stands_by_for_the_faster_one(stage: Stage) -> None:
    """The seat never reports that it became active, and does not claim again."""
    begun = Begun(stage)
    stage.begun.append(begun)
    stage.make(tree.client(D, CLIENT))
    data = tree.RunningData("faster", client_id=CLIENT).to_bytes()

    def faster() -> None:
        stage.ensemble.transaction(stage.ensemble.grant(60.0), [Create(PATH, data, ephemeral=True)])

    begun.port.before_write = faster
    begun.it.start()
    begun.port.up()
    assert begun.hears(StandsBy) == StandsBy("faster")
    assert not any(isinstance(news, BecameActive) for news in begun.rest())
    assert len(begun.port.writes) == 1


def test_a_client_out_of_turn_sees_who_runs_the_destination_and_holds_nothing(stage: Stage) -> None:
    """The client is active from its start to its stop, without its own node."""
    first = stage.begin()
    first.hears(BecameActive)
    reader = stage.begin(takes_turns=False)
    reader.hears(BecameActive)
    reader.hears(NobodyRuns)
    reader.it.connected_to_node("10.8.8.8:1")
    reader.settle()
    assert reader.it.active()
    assert reader.port.writes == []
    assert stage.holder() == "10.9.9.9"
    reader.it.stop()
    assert reader.port.stopped.is_set()


def test_a_lost_session_ends_the_turn_and_the_next_one_gets_it_again(stage: Stage) -> None:
    """The leftover node belongs to this process, so there is no takeover delay."""
    begun = stage.begin(takeover_delay_s=60.0)
    begun.hears(BecameActive)
    stage.ensemble.sessions.pop(begun.port.id)  # the server forgets the session, but the node still exists
    begun.port.cut()
    begun.settle()
    assert begun.it.active()
    begun.port.up()
    assert begun.hears(LostActivity).reason is i.Reason.SESSION_LOST
    begun.hears(BecameActive)
    assert begun.it.active()


def test_a_lease_that_is_over_ends_the_turn_without_any_news_from_zookeeper(stage: Stage) -> None:
    """active() is false at once, before the thread has looked. A late reply does not restore the turn."""
    begun = stage.begin()
    begun.hears(BecameActive)
    begun.settle()
    begun.port.held = []
    begun.pass_time(TIMEOUT_S / 6)
    assert begun.port.held
    begun.port.cut()
    begun.settle()
    stage.clock.now += TIMEOUT_S
    assert not begun.it.active()
    begun.settle()
    assert begun.hears(LostActivity).reason is i.Reason.LEASE_OVER
    begun.port.deliver()
    begun.settle()
    assert not begun.it.active()


def test_a_late_answer_extends_the_lease_from_when_its_write_was_sent(stage: Stage) -> None:
    """The time of the reply does not count, because the server may have counted from the sending."""
    begun = stage.begin()
    begun.hears(BecameActive)
    begun.settle()
    begun.port.held = []
    begun.pass_time(TIMEOUT_S / 6)
    begun.port.down = True
    stage.clock.now += TIMEOUT_S / 3
    begun.port.deliver()
    begun.settle()
    assert begun.it.active()
    stage.clock.now += TIMEOUT_S / 3 + 0.1
    assert not begun.it.active()


def test_a_look_without_an_answer_is_made_again(stage: Stage) -> None:
    """The look is repeated after a while on the same connection."""
    begun = Begun(stage)
    stage.begun.append(begun)
    begun.port.down = True
    begun.it.start()
    begun.port.up()
    begun.settle()
    begun.port.down = False
    begun.pass_time(0.5)
    begun.hears(BecameActive)


def test_an_operator_who_deletes_the_node_ends_the_turn(stage: Stage) -> None:
    """The seat claims the node again after a while."""
    begun = stage.begin()
    begun.hears(BecameActive)
    begun.settle()
    stage.ensemble.transaction(0, [Delete(PATH)])
    assert begun.hears(LostActivity).reason is i.Reason.VANISHED
    begun.pass_time(1.0)
    begun.hears(BecameActive)


# ---- who runs the destination


def test_what_is_read_of_the_destination_is_told_at_every_change(stage: Stage) -> None:
    """The news are which node runs it, that no node runs it, and which nodes could."""
    begun = stage.begin()
    begun.hears(NobodyRuns)
    assert begun.hears(MembersAre) == MembersAre(())
    data = tree.RunningData("10.0.0.1:11111").to_bytes()
    stage.ensemble.transaction(0, [Create(tree.running(D), data)])
    assert begun.hears(RunningIs).address == "10.0.0.1:11111"
    stage.ensemble.transaction(0, [SetData(tree.running(D), b"no JSON")])
    assert begun.hears(RunningIs).address == ""
    stage.ensemble.transaction(0, [Delete(tree.running(D))])
    begun.hears(NobodyRuns)
    stage.ensemble.transaction(0, [Create(tree.destination_member(D, "10.0.0.1:11111"))])
    assert begun.hears(MembersAre) == MembersAre(("10.0.0.1:11111",))


def test_a_read_without_an_answer_is_made_again(stage: Stage) -> None:
    """The read is repeated after a while on the same connection, and dropped when the connection is lost."""
    begun = stage.begin(takes_turns=False)
    begun.hears(MembersAre)
    begun.port.down = True
    begun.port.up()
    begun.settle()
    assert begun.rest() == []
    asked = len(begun.port.asked)
    begun.port.down = False
    begun.pass_time(module.READ_AGAIN_S / 2)
    assert len(begun.port.asked) == asked
    begun.pass_time(module.READ_AGAIN_S)
    assert {type(news) for news in begun.rest()} == {NobodyRuns, MembersAre}
    begun.port.down = True
    begun.port.up()
    begun.settle()
    begun.port.cut()
    begun.settle()
    asked = len(begun.port.asked)
    begun.pass_time(2 * module.READ_AGAIN_S)
    assert len(begun.port.asked) == asked


# ---- the end


def test_a_stop_while_it_looks_waits_for_the_answer_and_claims_nothing(stage: Stage) -> None:
    """The node may belong to this process, so stop() must know."""
    begun = Begun(stage)
    begun.port.held = []
    begun.it.start()
    begun.port.up()
    begun.settle()
    ending = Thread(target=begun.it.stop, daemon=True)
    ending.start()
    begun.settle()
    assert not begun.port.stopped.is_set()
    begun.port.deliver()
    ending.join(PATIENCE_S)
    assert begun.port.stopped.is_set()
    assert begun.port.writes == []


def test_a_stop_does_not_wait_for_ever_for_a_release(stage: Stage) -> None:
    """After LEAVE_MOST_S the session is closed, which deletes the node. Late replies and a second stop() do nothing."""
    begun = Begun(stage)
    begun.it.start()
    begun.port.up()
    begun.hears(BecameActive)
    begun.settle()
    begun.port.held = []
    ending = Thread(target=begun.it.stop, daemon=True)
    ending.start()
    assert begun.hears(LostActivity).reason is i.Reason.STOPPED
    begun.settle()
    assert not begun.port.stopped.is_set()
    stage.clock.now += module.LEAVE_MOST_S
    begun.it._queue.put(lambda: None)
    ending.join(PATIENCE_S)
    assert begun.port.stopped.is_set()
    assert stage.holder() == ""
    begun.port.deliver()
    begun.it.stop()
    assert begun.news.qsize() == 0


def test_a_stop_without_a_session_ends_at_once(stage: Stage) -> None:
    """There is nothing to release."""
    begun = Begun(stage)
    begun.it.start()
    begun.it.stop()
    assert begun.port.stopped.is_set()
    assert begun.news.qsize() == 0


def test_an_unforeseen_error_is_told_and_ends_the_turn_and_the_session(stage: Stage) -> None:
    """The next process may start at once, so this one is no longer active."""
    begun = stage.begin()
    begun.hears(BecameActive)
    begun.settle()
    error = ValueError("unforeseen")
    begun.fails.append(error)
    stage.ensemble.transaction(0, [Create(tree.running(D), b"")])
    assert begun.hears(Broke).error is error
    assert begun.port.stopped.wait(PATIENCE_S)
    assert stage.holder() == ""
    assert not begun.it.active()
    begun.it.stop()
    assert begun.news.qsize() == 0
