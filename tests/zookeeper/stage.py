"""Sessions for tests: with a real ZooKeeper, on a reactor or on a queue, or with the in-memory one."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from queue import SimpleQueue
from random import Random
from typing import Any, Protocol, TypeVar, cast

import structlog
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread

from canal_ha.cluster.session import ClusterSession, Listener, ZooKeeperSession
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.zookeeper.operations import Operation, Watch, Znode
from canal_ha.zookeeper.port import KazooPort
from canal_ha.zookeeper.race_events import SessionEvent
from lab.simulation.session import SimulatedSession
from lab.simulation.time import Process, World
from lab.simulation.zookeeper import Ensemble
from tests.running_reactor import running_reactor

T = TypeVar("T")
reactor: Any = global_reactor
_chroots = itertools.count(1)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> float:
    """Wait until the condition holds, and return how many seconds that took. Fails after `timeout_s`."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, "it did not happen in time"
        time.sleep(0.002)
    return time.monotonic() - began


def on_reactor(work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float = 30.0) -> T:
    """Run a coroutine on the reactor and return what it returns."""

    def started() -> Deferred[T]:
        return Deferred.fromCoroutine(work()).addTimeout(timeout_s, reactor)

    call: Any = blockingCallFromThread  # its annotations do not allow a generic coroutine
    return cast(T, call(reactor, started))


class Stage(Protocol):
    """Where a conformance test runs."""

    def session(self) -> ClusterSession:
        """Return a session that is connected."""
        ...

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine."""
        ...

    def until(self, condition: Callable[[], bool]) -> None:
        """Let time pass until the condition holds; fail if that takes too long."""
        ...

    def pass_time(self) -> None:
        """Let everything happen that is under way."""
        ...


class RealStage:
    """Sessions on a reactor, in a chroot of their own on a real server. hosts: of the server."""

    def __init__(
        self, hosts: str, *, timeout_ms: int = 3000, auth: str = "", access: ZooKeeperAccess | None = None
    ) -> None:
        running_reactor()
        self.hosts = f"{hosts}/stage{time.time_ns()}_{next(_chroots)}"
        self._timeout_ms = timeout_ms
        self._access = access or ZooKeeperAccess(auth)
        self._sessions: list[ZooKeeperSession] = []

    def open(self) -> ZooKeeperSession:
        """Return a session that is not started yet."""
        session = ZooKeeperSession(
            self.hosts,
            timeout_ms=self._timeout_ms,
            reactor=reactor,
            access=self._access,
            log=structlog.get_logger(),
        )
        self._sessions.append(session)
        return session

    def session(self) -> ClusterSession:
        """See Stage."""
        session = self.open()
        on_reactor(session.start)
        wait_until(lambda: session.connected, 15.0)
        on_reactor(lambda: session.ensure("/"))
        return session

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See Stage."""
        return on_reactor(work)

    def until(self, condition: Callable[[], bool]) -> None:
        """See Stage."""
        wait_until(condition, 10.0)

    def pass_time(self) -> None:
        """See Stage."""
        time.sleep(0.2)

    def close(self) -> None:
        """End all sessions."""
        for session in self._sessions:
            on_reactor(session.stop)


class QueueSession:
    """A ClusterSession on the port as a client drives it: with a thread, a queue, and requests that block."""

    def __init__(self, hosts: str, *, timeout_ms: int = 3000, auth: str = "") -> None:
        self.heard: list[SessionEvent] = []
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.port = KazooPort(
            hosts,
            timeout_ms=timeout_ms,
            access=ZooKeeperAccess(auth),
            post=self._queue.put,
            later=lambda delay_s, call: threading.Timer(delay_s, self._queue.put, [call]).start(),
            changed=self.heard.append,
            log=structlog.get_logger(),
        )
        threading.Thread(target=self._work, daemon=True).start()

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            call()

    def end(self) -> None:
        """End the thread, but not the session."""
        self._queue.put(None)

    @property
    def id(self) -> int:
        """See ClusterSession."""
        return self.port.id

    @property
    def timeout_s(self) -> float:
        """See ClusterSession."""
        return self.port.timeout_s

    @property
    def connected(self) -> bool:
        """See ClusterSession."""
        return self.port.connected

    def listen(self, listener: Listener) -> None:
        """See ClusterSession. No test needs it here."""
        raise NotImplementedError

    async def start(self) -> None:
        """See ClusterSession."""
        self._queue.put(self.port.start)

    async def stop(self) -> None:
        """See ClusterSession."""
        closing: SimpleQueue[threading.Thread] = SimpleQueue()
        self._queue.put(lambda: closing.put(self.port.stop()))
        closing.get(timeout=10.0).join()

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """See ClusterSession."""
        node: Znode | None = self._asked(partial(self.port.get, path, watch))
        return node

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        """See ClusterSession."""
        found: bool = self._asked(partial(self.port.exists, path, watch))
        return found

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        """See ClusterSession."""
        names: tuple[str, ...] = self._asked(partial(self.port.children, path, watch))
        return names

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See ClusterSession."""
        versions: tuple[int, ...] = self._asked(partial(self.port.transaction, operations))
        return versions

    async def ensure(self, path: str) -> None:
        """See ClusterSession."""
        self._asked(partial(self.port.ensure, path))

    def _asked(self, request: Callable[[Callable[[Any], None]], None]) -> Any:
        answers: SimpleQueue[Any] = SimpleQueue()
        self._queue.put(partial(request, answers.put))
        answer = answers.get(timeout=10.0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class QueueStage:
    """Sessions on a thread and a queue each, in a chroot of their own on a real server. hosts: of the server."""

    def __init__(self, hosts: str) -> None:
        self.hosts = f"{hosts}/queue{time.time_ns()}_{next(_chroots)}"
        self._sessions: list[QueueSession] = []

    def open(self, *, timeout_ms: int = 3000, auth: str = "") -> QueueSession:
        """Return a session that is not started yet."""
        session = QueueSession(self.hosts, timeout_ms=timeout_ms, auth=auth)
        self._sessions.append(session)
        return session

    def session(self) -> QueueSession:
        """See Stage."""
        session = self.open()
        self.do(session.start)
        wait_until(lambda: session.connected, 15.0)
        self.do(lambda: session.ensure("/"))
        return session

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See Stage. The coroutine never suspends, because its requests block."""
        try:
            work().send(None)
        except StopIteration as done:
            return cast(T, done.value)
        raise AssertionError("it waits for something else")

    def until(self, condition: Callable[[], bool]) -> None:
        """See Stage."""
        wait_until(condition, 10.0)

    def pass_time(self) -> None:
        """See Stage."""
        time.sleep(0.2)

    def close(self) -> None:
        """End all sessions and their threads."""
        for session in self._sessions:
            self.do(session.stop)
            session.end()


class MemoryStage:
    """Sessions with the in-memory ensemble."""

    def __init__(self) -> None:
        self.world = World()
        self.ensemble = Ensemble(self.world)
        self._random = Random(1)

    def session(self) -> ClusterSession:
        """See Stage."""
        session = SimulatedSession(self.ensemble, Process(self.world, self._random), self._random, timeout_s=3.0)
        Deferred.fromCoroutine(session.start())
        self.until(lambda: session.connected)
        return session

    def do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """See Stage."""
        answers: list[T] = []
        errors: list[BaseException] = []
        Deferred.fromCoroutine(work()).addCallbacks(answers.append, lambda failure: errors.append(failure.value))
        self.until(lambda: bool(answers or errors))
        if errors:
            raise errors[0]
        return answers[0]

    def until(self, condition: Callable[[], bool]) -> None:
        """See Stage."""
        for _ in range(10_000):
            if condition():
                return
            self.world.run(self.world.seconds() + 0.001)
        raise AssertionError("it did not happen in time")

    def pass_time(self) -> None:
        """See Stage."""
        self.world.run(self.world.seconds() + 0.2)

    def close(self) -> None:
        """Do nothing."""
