"""Exchange alone: the test controls links and coordination, and callers run in their own threads."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canal_ha.client import exchange as module
from canal_ha.client import running_inputs as i
from canal_ha.client.coordination import (
    BecameActive,
    Broke,
    LostActivity,
    MembersAre,
    News,
    NobodyRuns,
    RunningIs,
    StandsBy,
)
from canal_ha.client.exchange import Access, Exchange
from canal_ha.client.failover import ConnectorState
from canal_ha.client.thread_runtime import THREAD, now
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import (
    ConnectionLost,
    ConnectorStopped,
    LocalProtocolError,
    PositionLost,
    ServerRefused,
    WaitedTooLong,
)
from canal_ha.model.position import LogPosition
from tests.sampling import examples
from tests.zookeeper.stage import wait_until

PATIENCE_S = 3.0  # longest wait for a thread; nothing takes that long
NODES = ("10.0.0.1:11111", "10.0.0.2:11111", "10.0.0.3:11111")


class Script:
    """The behaviour of links, and their record.

    made: every link, oldest first.
    fails: errors for the next connects.
    connecting, subscribing: called in every connect and subscribe.
    """

    def __init__(self) -> None:
        self.made: list[FakeLink] = []
        self.fails: list[BaseException | None] = []
        self.connecting: Callable[[FakeLink], None] = lambda link: None
        self.subscribing: Callable[[FakeLink], None] = lambda link: None

    @property
    def last(self) -> FakeLink:
        """The newest link."""
        return self.made[-1]

    @property
    def open(self) -> list[FakeLink]:
        """The links that have a socket."""
        return [link for link in self.made if link.connected]


class FakeLink:
    """An AsyncConnector on a thread, without a socket. sent: its requests, in order.

    Like the real one, it has nothing to abort or interrupt before it is connected.
    """

    def __init__(self, script: Script, host: str, port: int, **options: Any) -> None:
        self.host, self.port, self.options = host, port, options
        self.sent: list[str] = []
        self.connected = False
        self.aborted = False
        self.ended = threading.Event()  # by abort or interrupt
        self._script = script

    @property
    def local_address(self) -> tuple[str, int]:
        """See AsyncConnector."""
        self._check()
        return "10.9.9.9", 40000

    async def connect(self) -> None:
        """See AsyncConnector."""
        self._script.connecting(self)
        error = self._script.fails.pop(0) if self._script.fails else None
        if error is not None:
            raise error
        self.connected = True

    async def subscribe(self, filter: str | None = None, *, tell_cursor: bool = False) -> LogPosition | None:
        """See AsyncConnector."""
        self._check()
        self._script.subscribing(self)
        self.sent.append(f"subscribe {filter}{' and tell' if tell_cursor else ''}")
        return LogPosition("mysql-bin.000001", 4) if tell_cursor else None

    async def rollback(self, batch_id: int = 0) -> None:
        """See AsyncConnector."""
        self._check()
        self.sent.append("rollback")

    def ask(self, text: str) -> str:
        """Send a request and return its reply."""
        self._check()
        self.sent.append(text)
        return f"{text} at {self.host}"

    def wait(self) -> str:
        """Send a request that has no reply and ends only from another thread."""
        self._check()
        self.sent.append("wait")
        assert self.ended.wait(PATIENCE_S)
        raise ConnectionLost("interrupted")

    async def disconnect(self) -> None:
        """See AsyncConnector."""
        self.connected = False

    def discard(self) -> None:
        """See AsyncConnector."""
        self.abort()
        self.connected = False

    def interrupt(self) -> None:
        """See AsyncConnector."""
        if self.connected:
            self.ended.set()

    def abort(self) -> None:
        """See AsyncConnector."""
        if self.connected:
            self.aborted = True
            self.ended.set()

    def _check(self) -> None:
        if not self.connected or self.aborted:
            raise ConnectionLost(f"connection to {self.host} lost")


class FakeCoordination:
    """A Coordination whose news the test sends. holds: whether the lease is valid."""

    def __init__(
        self, servers: str, destination: str, client_id: int, tell: Callable[[News], None], **options: object
    ) -> None:
        self.tell = tell
        self.holds = False
        self.looks = 0  # number of active() calls
        self.started = self.stopped = False
        self.addresses: list[str] = []

    def start(self) -> None:
        """See Coordination."""
        self.started = True

    def stop(self) -> None:
        """See Coordination."""
        self.stopped = True
        self.holds = False

    def active(self) -> bool:
        """See Coordination."""
        self.looks += 1
        return self.holds

    def connected_to_node(self, local_address: str) -> None:
        """See Coordination."""
        self.addresses.append(local_address)

    # ---- what happens

    def win(self) -> None:
        """Give the turn to this process."""
        self.holds = True
        self.tell(BecameActive())

    def lose(self) -> None:
        """Take the turn from this process."""
        self.holds = False
        self.tell(LostActivity(i.Reason.SESSION_LOST))


class Caller:
    """Work in its own thread. The test reads its result or its error."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._future: Future[Any] = Future()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        try:
            self._future.set_result(work())
        except BaseException as error:
            self._future.set_exception(error)

    def result(self) -> Any:
        """Return the result. Raises the error of the work."""
        return self._future.result(PATIENCE_S)

    @property
    def done(self) -> bool:
        """Whether the work has ended."""
        return self._future.done()

    @property
    def waits_for_a_lock(self) -> bool:
        """Whether the thread waits for the lock of a call."""
        assert self._thread.ident is not None
        frame = sys._current_frames().get(self._thread.ident)
        return frame is not None and frame.f_code.co_name == "__aenter__"


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds. Fails after PATIENCE_S."""
    wait_until(condition, PATIENCE_S)


class Gate:
    """A place in a request where a caller waits until the test opens it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()

    def pass_through(self) -> None:
        """Wait until the gate is open. The caller calls this."""
        self._reached.set()
        assert self._opened.wait(PATIENCE_S)

    def reached(self) -> None:
        """Wait until the caller has reached the gate."""
        assert self._reached.wait(PATIENCE_S)

    def open(self) -> None:
        """Let the caller continue."""
        self._opened.set()


class OnThread(Exchange):
    """An exchange whose calls block, with requests that are plain functions."""

    def ask(self, what: str, request: Callable[[Any], Any]) -> Any:
        """Make a call."""

        async def calling() -> Any:
            async with self.calling() as stay:
                return await self.call(what, _awaited(request), stay)

        return now(calling())

    def tell(self, request: Callable[[Any], Any]) -> bool:
        """Make a call without a reply."""

        async def calling() -> bool:
            async with self.calling():
                return await self.call_if_connected(_awaited(request))

        return now(calling())


def _awaited(request: Callable[[Any], Any]) -> Callable[[Any], Awaitable[Any]]:
    async def awaited(link: Any) -> Any:
        return request(link)

    return awaited


class Stage:
    """An exchange and the parts around it. new: how often it reported that batches in flight are gone."""

    def __init__(self, patch: pytest.MonkeyPatch, **access: Any) -> None:
        self.script = Script()
        self.coordinations: list[FakeCoordination] = []
        self.new = 0
        self._judge: Callable[[LogPosition | None], None] | None = access.pop("judge", None)
        self._filter = access.pop("filter", "shop\\..*")
        patch.setattr(module, "AsyncConnector", self._link)
        patch.setattr(module, "Coordination", self._coordination)
        patch.setattr(module, "host_address", lambda: "10.9.9.9")
        self._access: dict[str, Any] = {
            "servers": None,
            "nodes": NODES[:2],
            "destination": "example",
            "client_id": 1001,
            "username": "",
            "password": "",
            "so_timeout_ms": 1000,
            "idle_timeout_ms": 1000,
            "retry_times": None,
            "retry_interval_ms": 0,
            "call_timeout_s": None,
            "rollback_on_connect": True,
            "rollback_on_disconnect": False,
            "zk_session_timeout_ms": 6000,
            "zk_access": ZooKeeperAccess(),
            "takeover_delay_s": 0.0,
            **access,
        }
        self.exchange = OnThread(Access(**self._access), self._filter, self._connected_anew, THREAD, self._judge)

    def _link(self, host: str, port: int, *_: object, **options: Any) -> FakeLink:
        self.script.made.append(FakeLink(self.script, host, port, **options))
        return self.script.last

    def _coordination(self, *args: Any, **options: Any) -> FakeCoordination:
        self.coordinations.append(FakeCoordination(*args, **options))
        return self.coordinations[-1]

    def _connected_anew(self) -> None:
        self.new += 1

    @property
    def turn(self) -> FakeCoordination:
        """The newest coordination."""
        return self.coordinations[-1]

    def ask(self, text: str = "get") -> str:
        """Make a call in this thread."""

        def request(link: Any) -> str:
            answer: str = link.ask(text)
            return answer

        answer: str = self.exchange.ask(text, request)
        return answer

    def wait(self) -> Caller:
        """Return a caller that has sent a request without a reply."""
        reached = threading.Event()

        def request(link: Any) -> str:
            reached.set()
            answer: str = link.wait()
            return answer

        caller = Caller(lambda: self.exchange.ask("get", request))
        assert reached.wait(PATIENCE_S)
        return caller

    def gated(self, gate: Gate, *, then: Callable[[Any], Any] = lambda link: link.ask("late")) -> Caller:
        """Return a caller whose first request waits at the gate before its reply; later requests do not wait."""
        first = [True]

        def request(link: Any) -> Any:
            if first.pop() if first else False:
                link.sent.append("gated")
                gate.pass_through()
            return then(link)

        return Caller(lambda: self.exchange.ask("get", request))


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Make an exchange check the lease without pauses."""
    monkeypatch.setattr(module, "LEASE_LOOK_S", 0.001)
    return monkeypatch


@pytest.fixture
def alone(patch: pytest.MonkeyPatch) -> Stage:
    """Return an open Stage with a fixed list of two nodes."""
    stage = Stage(patch)
    now(stage.exchange.open())
    return stage


@pytest.fixture
def elected(patch: pytest.MonkeyPatch) -> Stage:
    """Return a Stage with ZooKeeper, active and connected to the node that runs the destination."""
    stage = Stage(patch, servers="zk:2181", nodes=())
    opening = Caller(lambda: now(stage.exchange.open()))
    until(lambda: stage.exchange.is_open)
    stage.turn.tell(RunningIs(NODES[0], 1))
    stage.turn.win()
    opening.result()
    return stage


# ---- connecting


def test_a_connection_begins_with_the_greeting_the_judge_the_filter_and_a_rollback(patch: pytest.MonkeyPatch) -> None:
    """All four come in this order, before any request. Batches in flight are forgotten once."""
    heard: list[object] = []
    stage = Stage(patch, judge=heard.append)
    stage.exchange.greet = _awaited(lambda link: link.sent.append("greet"))
    now(stage.exchange.open())
    assert stage.script.last.sent == ["greet", "subscribe  and tell", "subscribe shop\\..*", "rollback"]
    assert heard == [LogPosition("mysql-bin.000001", 4)]
    assert (stage.new, stage.exchange.node, stage.exchange.connection) == (1, NODES[0], 1)
    assert stage.ask() == "get at 10.0.0.1"
    now(stage.exchange.open())
    assert len(stage.script.made) == 1


def test_without_a_filter_or_a_rollback_a_connection_begins_with_nothing(patch: pytest.MonkeyPatch) -> None:
    """The judge gets no cursor."""
    heard: list[object] = []
    stage = Stage(patch, filter=None, rollback_on_connect=False, judge=heard.append)
    now(stage.exchange.open())
    assert stage.script.last.sent == []
    assert heard == [None]


def test_what_the_judge_raises_ends_the_call_and_the_connection(patch: pytest.MonkeyPatch) -> None:
    """open() raises the same error at once and closes the exchange, before the filter is subscribed."""

    def judge(cursor: LogPosition | None) -> None:
        raise PositionLost("the spool is ahead")

    stage = Stage(patch, judge=judge)
    with pytest.raises(PositionLost, match="the spool is ahead"):
        now(stage.exchange.open())
    assert not stage.exchange.is_open
    assert stage.script.open == []
    assert len(stage.script.made) == 1
    assert stage.script.last.sent == ["subscribe  and tell"]


def test_a_node_that_refuses_the_login_is_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    """A refusal during connecting can only concern the login."""
    stage = Stage(patch)
    stage.script.fails = [ServerRefused("auth failed", 400)]
    with pytest.raises(ServerRefused, match="auth failed"):
        now(stage.exchange.open())
    assert len(stage.script.made) == 1
    assert not stage.exchange.is_open


def test_an_interrupt_of_the_caller_while_it_connects_leaves_nothing_open(patch: pytest.MonkeyPatch) -> None:
    """KeyboardInterrupt reaches the caller, and the next open() starts again."""
    stage = Stage(patch)
    stage.script.fails = [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        now(stage.exchange.open())
    assert not stage.exchange.is_open
    assert stage.script.open == []
    now(stage.exchange.open())
    assert stage.ask()


def test_a_start_that_fails_stops_its_coordination(patch: pytest.MonkeyPatch) -> None:
    """A coordination that ran on would hold the turn of a closed exchange."""
    stage = Stage(patch, servers="zk:2181", nodes=(), call_timeout_s=0.0)
    with pytest.raises(WaitedTooLong, match="client 1001 is not active yet: check ZooKeeper at zk:2181"):
        now(stage.exchange.open())
    assert stage.turn.stopped
    assert not stage.exchange.is_open


def test_a_call_before_open_says_so(patch: pytest.MonkeyPatch) -> None:
    """A call after close() says that the exchange was stopped."""
    stage = Stage(patch)
    with pytest.raises(LocalProtocolError, match="should connect first"):
        stage.ask()
    now(stage.exchange.open())
    now(stage.exchange.close())
    with pytest.raises(ConnectorStopped):
        stage.ask()


# ---- a link that breaks


def test_a_link_that_breaks_in_the_middle_of_a_request_is_replaced_and_asked_again(alone: Stage) -> None:
    """The next node gets the request. The broken link sends no rollback: another client may have the batches."""
    broken = alone.script.last
    answers = iter([ConnectionLost("reset"), None])

    def request(link: Any) -> str:
        error = next(answers)
        if error is not None:
            raise error
        answer: str = link.ask("get")
        return answer

    assert alone.exchange.ask("get", request) == "get at 10.0.0.2"
    assert broken.aborted
    assert not broken.connected
    assert alone.script.last.sent == ["subscribe shop\\..*", "rollback", "get"]
    assert alone.new == 2


def test_an_interrupt_of_the_caller_in_the_middle_of_a_request_ends_the_connection(alone: Stage) -> None:
    """Half of the request may be sent, and the next request must not read its reply."""
    broken = alone.script.last

    def request(link: Any) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alone.exchange.ask("get", request)
    assert not broken.connected
    assert alone.ask() == "get at 10.0.0.2"


def test_an_interrupt_of_the_caller_in_the_middle_of_an_acknowledgement_ends_the_connection(alone: Stage) -> None:
    """A part of it may be sent, and the server would read the next bytes as its rest."""
    broken = alone.script.last

    def acknowledge(link: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        alone.exchange.tell(acknowledge)
    assert not broken.connected
    assert alone.ask() == "get at 10.0.0.2"


def test_an_acknowledgement_that_cannot_be_sent_is_told_to_be_dropped(alone: Stage) -> None:
    """The result is False, and the next call connects again. Without a connection nothing is tried."""
    tried: list[Any] = []

    def acknowledge(link: Any) -> None:
        tried.append(link)
        raise ConnectionLost("reset")

    assert not alone.exchange.tell(acknowledge)
    assert not alone.exchange.tell(acknowledge)
    assert len(tried) == 1
    alone.ask()
    assert alone.exchange.tell(lambda link: tried.append(link))
    assert tried[1] is alone.script.last


def test_the_last_error_is_raised_when_retries_are_used_up_and_the_next_call_tries_again(
    patch: pytest.MonkeyPatch,
) -> None:
    """The exchange stays open."""
    stage = Stage(patch, retry_times=2)
    now(stage.exchange.open())
    stage.script.fails = [ConnectionLost("refused")]

    def request(link: Any) -> str:
        raise ConnectionLost("reset")

    with pytest.raises(ConnectionLost, match="failed to get after 2 times retry: refused"):
        stage.exchange.ask("get", request)
    assert stage.exchange.is_open
    assert stage.ask()


# ---- stopping


def test_stop_ends_the_call_that_waits_and_leaves_an_idle_link_alone(alone: Stage) -> None:
    """Later calls are stopped too, but not acknowledgements. Only close() and open() start again."""
    caller = alone.wait()
    alone.exchange.stop()
    with pytest.raises(ConnectorStopped, match="example: stopped"):
        caller.result()
    with pytest.raises(ConnectorStopped):
        alone.ask()
    now(alone.exchange.close())
    now(alone.exchange.open())
    alone.exchange.stop()
    assert alone.script.last.connected
    assert not alone.script.last.ended.is_set()
    assert alone.exchange.tell(lambda link: None)
    with pytest.raises(ConnectorStopped):
        alone.ask()


def test_an_answer_that_comes_after_a_stop_is_still_handed_out(alone: Stage) -> None:
    """The reply came in time: the batch is in flight and can be acknowledged."""
    gate = Gate()
    caller = alone.gated(gate)
    gate.reached()
    alone.exchange.stop()
    gate.open()
    assert caller.result() == "late at 10.0.0.1"


def test_close_ends_the_call_that_waits(alone: Stage) -> None:
    """close() aborts the link, and the caller's thread closes it. A second close() does nothing."""
    link = alone.script.last
    caller = alone.wait()
    now(alone.exchange.close())
    with pytest.raises(ConnectorStopped):
        caller.result()
    assert link.aborted
    assert not link.connected
    now(alone.exchange.close())
    assert not alone.exchange.is_open


def test_an_idle_link_is_closed_in_good_order(alone: Stage) -> None:
    """The link is not aborted, so the server reads the last acknowledgement."""
    link = alone.script.last
    now(alone.exchange.close())
    assert not link.aborted
    assert not link.connected


def test_an_answer_that_comes_after_close_is_not_handed_out(alone: Stage) -> None:
    """The connection of the reply is gone, and so is the batch."""
    gate = Gate()
    caller = alone.gated(gate, then=lambda link: "late")
    gate.reached()
    now(alone.exchange.close())
    gate.open()
    with pytest.raises(ConnectorStopped):
        caller.result()
    assert alone.script.open == []


@pytest.mark.parametrize("waits", ["for its answer", "for another call"])
def test_a_call_that_waited_at_close_does_not_go_on_after_the_next_open(alone: Stage, waits: str) -> None:
    """The call raises ConnectorStopped, however late it notices. open() does not wait for its reply."""
    gate, outcome = Gate(), SimpleQueue[Any]()

    def slow(link: Any) -> str:
        if not outcome.empty():
            return "it went on"
        outcome.put("asked")
        gate.pass_through()
        raise ConnectionLost("aborted")

    first = Caller(lambda: alone.exchange.ask("get", slow))
    gate.reached()
    second = Caller(lambda: alone.ask("second")) if waits == "for another call" else None
    now(alone.exchange.close())
    opening = Caller(lambda: now(alone.exchange.open()))
    until(lambda: alone.exchange.is_open)
    gate.open()
    with pytest.raises(ConnectorStopped):
        first.result()
    if second is not None:
        with pytest.raises(ConnectorStopped):
            second.result()
    opening.result()
    assert alone.ask() == "get at 10.0.0.2"


def test_a_request_that_queued_at_close_is_not_sent_after_the_next_open(alone: Stage) -> None:
    """A connector takes the lock of a call before it sends. A late ROLLBACK would take back newer batches."""
    gate = Gate()
    first = alone.gated(gate, then=lambda link: "late")
    gate.reached()
    sent: list[object] = []

    second = Caller(lambda: alone.exchange.ask("rollback", sent.append))
    until(lambda: second.waits_for_a_lock)
    now(alone.exchange.close())
    opening = Caller(lambda: now(alone.exchange.open()))
    until(lambda: alone.exchange.is_open)
    gate.open()
    with pytest.raises(ConnectorStopped):
        first.result()
    with pytest.raises(ConnectorStopped):
        second.result()
    opening.result()
    assert sent == []


def test_a_request_within_a_call_is_not_sent_after_the_next_open(alone: Stage) -> None:
    """The connector is closed and opened after the call took the lock, so the request belongs to the first open()."""
    sent: list[object] = []
    openings: list[Caller] = []

    async def calling() -> None:
        async with alone.exchange.calling() as stay:
            await alone.exchange.close()
            openings.append(Caller(lambda: now(alone.exchange.open())))
            until(lambda: alone.exchange.is_open)
            await alone.exchange.call("rollback", _awaited(sent.append), stay)

    with pytest.raises(ConnectorStopped):
        now(calling())
    openings[0].result()
    assert sent == []
    assert alone.ask() == "get at 10.0.0.2"


def test_an_open_that_is_closed_while_it_waits_leaves_the_next_one_open(patch: pytest.MonkeyPatch) -> None:
    """The first open() cleans up only its own parts, however late it notices."""
    stage = Stage(patch, servers="zk:2181", nodes=())
    gate = Gate()
    stage.script.connecting = lambda link: gate.pass_through()
    first = Caller(lambda: now(stage.exchange.open()))
    until(lambda: stage.exchange.is_open)
    stage.turn.tell(RunningIs(NODES[0], 1))
    stage.turn.win()
    gate.reached()
    now(stage.exchange.close())
    second = Caller(lambda: now(stage.exchange.open()))
    until(lambda: stage.exchange.is_open)
    gate.open()
    with pytest.raises(ConnectorStopped):
        first.result()
    stage.turn.win()
    second.result()
    assert not stage.turn.stopped
    assert stage.ask() == "get at 10.0.0.1"


# ---- turns


def test_another_process_is_active(patch: pytest.MonkeyPatch) -> None:
    """open() returns. A call waits for the turn; its timeout error names the active client."""
    stage = Stage(patch, servers="zk:2181", nodes=(), call_timeout_s=0.2)
    opening = Caller(lambda: now(stage.exchange.open()))
    until(lambda: stage.exchange.is_open)
    stage.turn.tell(RunningIs(NODES[0], 1))
    stage.turn.tell(StandsBy("10.7.7.7:5"))
    opening.result()
    assert (stage.exchange.standing_by, stage.exchange.active, stage.exchange.node) == ("10.7.7.7:5", False, None)
    assert stage.script.made == []
    assert not stage.exchange.tell(lambda link: None)
    with pytest.raises(WaitedTooLong, match=r"client 1001 is active at 10\.7\.7\.7:5"):
        stage.ask()
    stage.turn.win()
    assert stage.ask() == "get at 10.0.0.1"
    assert stage.exchange.standing_by is None
    assert stage.turn.addresses == ["10.9.9.9:40000"]


def test_a_turn_that_is_over_closes_the_connection_before_the_news_is_taken(elected: Stage) -> None:
    """A caller that waits on it continues on another connection when the turn is back."""
    first = elected.script.last
    gate = Gate()
    caller = elected.gated(gate)
    gate.reached()
    elected.turn.lose()
    assert first.aborted
    gate.open()
    assert not caller.done
    elected.turn.win()
    assert caller.result() == "late at 10.0.0.1"
    assert elected.script.last is not first
    assert elected.script.last.sent == ["subscribe shop\\..*", "rollback", "late"]


def test_an_answer_that_comes_when_the_turn_is_over_does_not_count(elected: Stage) -> None:
    """The batch belongs to another client by then, even if the link has not noticed."""
    first = elected.script.last
    gate = Gate()
    caller = elected.gated(gate, then=lambda link: f"answer of {id(link)}")
    gate.reached()
    elected.turn.lose()
    gate.open()
    elected.turn.win()
    assert caller.result() == f"answer of {id(elected.script.last)}"
    assert elected.script.last is not first
    assert not first.connected


def test_an_answer_that_is_dropped_takes_its_connection_along(elected: Stage) -> None:
    """The lease ended for a moment, and a late reply extended it before the end of the turn was reported.

    The dropped batch is in flight on that connection; only another connection takes it back.
    """
    first = elected.script.last
    gate = Gate()
    caller = elected.gated(gate)
    gate.reached()
    elected.turn.holds = False
    gate.open()
    until(lambda: first.sent[-1] == "late")
    until(lambda: not elected.exchange._busy)
    elected.turn.holds = True
    assert caller.result() == "late at 10.0.0.1"
    assert not first.connected
    assert elected.script.last.sent == ["subscribe shop\\..*", "rollback", "late"]


def test_a_link_that_is_hung_up_while_it_connects_sends_nothing(elected: Stage) -> None:
    """The link has no socket to abort yet. Its rollback would take the batches of the client that is active now."""
    gate = Gate()
    elected.script.connecting = lambda link: gate.pass_through()
    elected.script.last.abort()
    caller = Caller(elected.ask)
    gate.reached()
    late = elected.script.last
    elected.turn.lose()
    gate.open()
    elected.turn.win()
    assert caller.result() == "get at 10.0.0.1"
    assert late is not elected.script.last
    assert late.sent == []
    assert elected.script.open == [elected.script.last]


def test_nobody_is_dialled_while_the_lease_is_over(elected: Stage) -> None:
    """The other thread has not reported the end of the lease yet, but another client may be active."""
    made, breaks = len(elected.script.made), [True]

    def request(link: Any) -> str:
        if breaks:
            elected.turn.holds = not breaks.pop()
            raise ConnectionLost("reset")
        answer: str = link.ask("get")
        return answer

    caller = Caller(lambda: elected.exchange.ask("get", request))
    until(lambda: elected.exchange._failover.state is ConnectorState.DIALLING or len(elected.script.made) > made)
    elected.turn.lose()
    assert len(elected.script.made) == made
    elected.turn.win()
    assert caller.result() == "get at 10.0.0.1"


def test_nothing_is_asked_or_acknowledged_while_the_lease_is_over(elected: Stage) -> None:
    """The connection waits until the lease is extended, or the other thread reports that the turn is over."""
    sent = list(elected.script.last.sent)
    elected.turn.holds = False
    assert not elected.exchange.tell(lambda link: None)
    looks = elected.turn.looks
    caller = Caller(elected.ask)
    until(lambda: elected.turn.looks > looks + 1)
    assert elected.script.last.sent == sent
    elected.turn.holds = True
    assert caller.result() == "get at 10.0.0.1"
    assert len(elected.script.made) == 1


def test_a_lease_that_ends_while_a_link_connects_lets_it_send_nothing(elected: Stage) -> None:
    """The link sends nothing even if nobody has hung it up yet."""

    def connecting(link: FakeLink) -> None:
        elected.turn.holds = link is not late()

    def late() -> FakeLink:
        return elected.script.made[1]

    elected.script.connecting = connecting
    elected.script.last.abort()
    caller = Caller(elected.ask)
    until(lambda: len(elected.script.made) > 1 and not elected.exchange._busy)
    elected.turn.lose()
    elected.turn.win()
    assert caller.result() == "get at 10.0.0.1"
    assert late().sent == []


def test_a_destination_that_moves_in_the_middle_of_a_request_is_followed(elected: Stage) -> None:
    """A frozen node blocks no caller. News about the same node change nothing."""
    first = elected.script.last
    caller = elected.wait()
    elected.turn.tell(RunningIs(NODES[0], 1))
    elected.turn.tell(MembersAre(NODES))
    elected.turn.tell(NobodyRuns())
    assert not first.ended.is_set()
    elected.turn.tell(RunningIs(NODES[1], 2))
    until(lambda: len(elected.script.made) > 1 and "wait" in elected.script.last.sent)
    assert first.aborted
    assert elected.script.last.host == "10.0.0.2"
    now(elected.exchange.close())
    with pytest.raises(ConnectorStopped):
        caller.result()
    assert elected.turn.stopped


def test_a_coordination_that_broke_ends_every_call(elected: Stage) -> None:
    """The next open() starts another coordination."""
    caller = elected.wait()
    elected.turn.holds = False
    elected.turn.tell(Broke(ValueError("unforeseen")))
    with pytest.raises(ConnectorStopped, match="unforeseen"):
        caller.result()
    with pytest.raises(ConnectorStopped, match="unforeseen"):
        elected.ask()
    assert not elected.exchange.active
    now(elected.exchange.close())
    opening = Caller(lambda: now(elected.exchange.open()))
    until(lambda: len(elected.coordinations) == 2 and elected.exchange.is_open)
    elected.turn.win()
    opening.result()
    assert elected.ask()


# ---- any order

EVENTS = st.sampled_from(
    ["win", "lose", "lease over", "lease back", "first", "second", "nobody", "members", "break", "refuse", "stand by"]
)


@settings(max_examples=examples(150))
@given(steps=st.lists(st.tuples(st.sampled_from(["before", "connecting", "answering"]), EVENTS), max_size=12))
def test_whatever_happens_nothing_is_sent_out_of_turn(steps: list[tuple[str, str]]) -> None:
    """Events come in any order: between calls, while a link connects, and before a reply.

    There is at most one link, and a link used in turn starts with a rollback. At the end a call gets its reply.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeCoordination, "start", lambda self: self.tell(StandsBy("10.7.7.7:5")))
        stage = Stage(patch, servers="zk:2181", nodes=(), call_timeout_s=0.0)
        now(stage.exchange.open())
        told: list[bool] = []  # not empty if the last news was BecameActive

        def happen(event: str) -> None:
            turn = stage.turn
            match event:
                case "win" if not told:
                    told.append(True)
                    turn.win()
                case "lose" if told:
                    told.clear()
                    turn.lose()
                case "lease over" | "lease back":
                    turn.holds = bool(told) and event == "lease back"
                case "first" | "second":
                    turn.tell(RunningIs(NODES[event == "second"], 1 + len(stage.script.made)))
                case "nobody":
                    turn.tell(NobodyRuns())
                case "members":
                    turn.tell(MembersAre(NODES))
                case "stand by" if not told:
                    turn.tell(StandsBy("10.7.7.7:5"))
                case "break":
                    for link in stage.script.open:
                        link.abort()
                case "refuse":
                    stage.script.fails.append(ConnectionLost("refused"))

        coming: dict[str, list[str]] = {"connecting": [], "answering": []}

        def come(moment: str) -> None:
            events, coming[moment] = coming[moment], []
            for event in events:
                happen(event)

        def request(link: Any) -> str:
            assert stage.exchange.active
            assert stage.script.open == [link]
            assert link.sent[:2] == ["subscribe shop\\..*", "rollback"]
            link.ask("get")
            come("answering")
            return "answer"

        def subscribing(link: FakeLink) -> None:
            assert stage.turn.holds

        stage.script.connecting = lambda link: come("connecting")
        stage.script.subscribing = subscribing
        for moment, event in steps:
            if moment == "before":
                happen(event)
            else:
                coming[moment].append(event)
            with contextlib.suppress(WaitedTooLong):
                assert stage.exchange.ask("get", request) == "answer"
                assert stage.exchange.active
        come("connecting")
        come("answering")
        stage.script.fails.clear()
        for event in ("lose", "first", "win"):
            happen(event)
        assert stage.exchange.ask("get", request) == "answer"
        now(stage.exchange.close())
        assert stage.script.open == []
