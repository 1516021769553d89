"""A session with the in-memory ensemble, and everything that can go wrong between the two.

It behaves as zookeeper/port.py does with kazoo. The client library reconnects by itself, and may hold a new session
before the node has heard that the old one is gone. Answers can get lost, after the request was executed or without
it, and watches can be late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from random import Random
from typing import Any

from twisted.internet.defer import Deferred

from canal_ha.cluster.session import Listener
from canal_ha.errors import CanalError, TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper.operations import Create, Operation, Watch, Znode
from canal_ha.zookeeper.race_events import SessionEvent, SessionLost, SessionSuspended, SessionUp
from lab.simulation.time import Process, Timer
from lab.simulation.tree import Tree
from lab.simulation.zookeeper import Ensemble

RECONNECT_S = 0.2

Request = tuple[Operation, ...] | Callable[[Tree], Any]
"""A transaction, or what to read of the tree."""


class Link(Enum):
    """The state of the connection to the ensemble."""

    UP = auto()
    DOWN = auto()
    STALE = auto()  # to a follower that has lost its leader: it answers only reads, from the past


class Left:
    """A watch that one connection of one session has left at the ensemble."""

    __slots__ = ("connection", "session", "watch")

    def __init__(self, session: SimulatedSession, watch: Watch) -> None:
        self.session, self.watch, self.connection = session, watch, session.connection

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Left) and (self.watch, self.connection) == (other.watch, other.connection)

    def __hash__(self) -> int:
        return hash((self.watch, self.connection))

    def fire(self, deleted: bool) -> None:
        """Deliver the watch some time later. Watches can overtake answers and each other."""
        self.session.deliver(self, deleted)


class SimulatedSession:
    """A ClusterSession in virtual time. process: its process; latency_s: the longest time that a message takes."""

    def __init__(
        self, ensemble: Ensemble, process: Process, random: Random, *, timeout_s: float, latency_s: float = 0.005
    ) -> None:
        self.id = 0  # as the node knows it
        self.timeout_s = timeout_s
        self.connected = False
        self.connection = 0  # of the client library: counts up with every connect and disconnect
        self.watch_delay_s = 0.010
        self.held: set[int] = set()  # every session that the library has held
        self._library_id = 0  # session the library holds; the node hears of it a little later
        self._library_up = False
        self._ensemble = ensemble
        self._process = process
        self._random = random
        self._latency_s = latency_s
        self._link = Link.UP
        self._past = Tree()
        self._lag_s = 0.0  # how far the follower is behind the leader
        self._next_lag_s = 0.0
        self._seen_zxid = 0  # the newest state that an answer has shown
        self._applied_zxid = 0  # what the follower knows because a write went through it
        self._pending: dict[Deferred[Any], None] = {}
        self._answers: deque[tuple[int, Deferred[Any], Any, int]] = deque()
        self._last_arrival = 0.0  # of a request at the ensemble, time of the world
        self._queued = 0  # writes of this connection in the leader's queue
        self._listeners: list[Listener] = []
        self._timer: Timer | None = None
        self._closed = False

    def listen(self, listener: Listener) -> None:
        """See ClusterSession."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """See ClusterSession."""
        self._process.callLater(self._delay(), self._try_to_connect)

    async def stop(self) -> None:
        """See ClusterSession."""
        self._closed = True
        self.connected = False
        if self._library_up and self._link is Link.UP:
            self._ensemble.expire(self._library_id)
        self._disconnect()

    # ---- what goes wrong

    def cut(self, link: Link, notice_s: float) -> None:
        """Make the connection DOWN or STALE. The library notices after `notice_s`, and tries to reconnect."""
        self._link = link
        self._past = self._ensemble.tree
        self._process.callLater(notice_s, self._drop, self.connection)

    def heal(self) -> None:
        """Restore the connection. Requests under way are lost with the old one."""
        if self._link is not Link.UP:
            self._link = Link.UP
            self._process.callLater(self._delay(), self._drop, self.connection)

    def move(self, lag_s: float) -> None:
        """Lose the connection and reconnect to a follower that is `lag_s` behind. Writes under way are still done."""
        self._next_lag_s = lag_s
        self._process.callLater(0.0, self._drop, self.connection)

    # ---- the client library

    def _try_to_connect(self) -> None:
        if self._closed or self._library_up:
            return
        if self._link is not Link.UP:
            self._process.callLater(RECONNECT_S, self._try_to_connect)
            return
        self.connection += 1
        self._library_up = True
        self._lag_s, self._next_lag_s = self._next_lag_s, 0.0
        if not self._ensemble.hear(self._library_id):
            self._library_id = self._ensemble.grant(self.timeout_s)
            self.held.add(self._library_id)
        self._process.callLater(self._delay(), self._heard_connected, self.connection, self._library_id)
        self._ping(self.connection)

    def _heard_connected(self, connection: int, session_id: int) -> None:
        if connection != self.connection:
            return
        if self.id and session_id != self.id:
            self._announce_lost()
        self.id, self.connected = session_id, True
        self._announce(SessionUp(session_id, self.timeout_s))

    def _announce_lost(self) -> None:
        self.id, self.connected = 0, False
        self._announce(SessionLost())

    def _announce(self, event: SessionEvent) -> None:
        for listener in self._listeners:
            listener(event)

    def _ping(self, connection: int) -> None:
        if connection != self.connection or not self._library_up:
            return
        if self._link is Link.UP and not self._ensemble.hear(self._library_id):
            self._drop(connection)  # expired: the ensemble closes the connection
            return
        self._process.callLater(self.timeout_s / 3, self._ping, connection)

    def _drop(self, connection: int) -> None:
        if connection == self.connection and self._library_up:
            self._disconnect()
            self._process.callLater(self._delay(), self._heard_suspended, self.connection)
            self._process.callLater(self._delay() * 4, self._try_to_connect)

    def _disconnect(self) -> None:
        self.connection += 1
        self._library_up = False
        self._queued = self._applied_zxid = 0
        pending, self._pending = self._pending, {}
        for answer in pending:
            self._process.callLater(self._delay(), _fail, answer, ZooKeeperUnavailable("connection lost"))

    def _heard_suspended(self, connection: int) -> None:
        if connection == self.connection and self.connected:
            self.connected = False
            self._announce(SessionSuspended())

    # ---- requests

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """See ClusterSession."""

        def read(tree: Tree) -> Znode | None:
            if watch is not None:
                self._leave(self._ensemble.watch_data, path, watch, tree)
            return tree.get(path)

        return await self._ask(read)  # type: ignore[no-any-return]  # _ask returns what read does

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        """See ClusterSession."""
        return await self.get(path, watch) is not None

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        """See ClusterSession."""

        def read(tree: Tree) -> tuple[str, ...]:
            if watch is not None:
                children = self._ensemble.watch_children if path in tree else self._ensemble.watch_data
                self._leave(children, path, watch, tree)
            return tree.children(path)

        return await self._ask(read)  # type: ignore[no-any-return]  # _ask returns what read does

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See ClusterSession."""
        return await self._ask(tuple(operations))  # type: ignore[no-any-return]  # versions

    def _leave(self, leave: Callable[[str, Left], None], path: str, watch: Watch, tree: Tree) -> None:
        """Leave a watch. If the follower lags and the path has changed already, the watch fires when it catches up."""
        if self._link is not Link.UP:
            return
        left, now = Left(self, watch), self._ensemble.tree
        if tree is now or (tree.get(path) == now.get(path) and tree.children(path) == now.children(path)):
            leave(path, left)
        else:
            left.fire(path in tree and path not in now)

    async def ensure(self, path: str) -> None:
        """See ClusterSession."""
        names = path.strip("/").split("/")
        for depth in range(1, len(names) + 1):
            part = "/" + "/".join(names[:depth])
            if await self.get(part) is None:
                try:
                    await self.transaction([Create(part)])
                except TransactionRefused as refused:
                    if refused.reason != "exists":
                        raise

    def _ask(self, request: Request) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        if not self.connected:
            answer.errback(ZooKeeperUnavailable("not connected"))
            return answer
        # The library's thread sends it, over whatever session it holds by then.
        self._process.callLater(0.0, self._send, request, answer)
        return answer

    def _send(self, request: Request, answer: Deferred[Any]) -> None:
        if not self._library_up:
            _fail(answer, ZooKeeperUnavailable("connection lost"))
            return
        self._pending[answer] = None
        now = self._process.world.seconds()
        self._last_arrival = max(self._last_arrival, now + self._delay())
        # it arrives even while the process is paused
        self._process.world.callLater(self._last_arrival - now, self._arrive, self.connection, request, answer)

    def _arrive(self, connection: int, request: Request, answer: Deferred[Any]) -> None:
        reads = not isinstance(request, tuple)
        if connection != self.connection or self._link is Link.DOWN or (self._link is Link.STALE and not reads):
            return  # lost without effect; the answer fails with the connection
        if self._link is Link.UP and not self._ensemble.hear(self._library_id):
            return
        if isinstance(request, tuple):
            self._queued += 1
            self._ensemble.submit(self._library_id, request, lambda result: self._committed(connection, answer, result))
        elif self._queued:  # it waits for the writes that this connection has sent before
            wait_s = self._ensemble.committed_at - self._process.world.seconds()
            if wait_s < 0.0:
                return  # the leader refused one because the session had ended: the connection gets no answer any more
            self._process.world.callLater(wait_s, self._read, connection, request, answer)
        else:
            self._read(connection, request, answer)

    def _committed(self, connection: int, answer: Deferred[Any], result: object) -> None:
        if connection == self.connection:
            self._queued -= 1
            self._applied_zxid = self._ensemble.zxid
            if self._link is Link.UP:  # else its server does not hear of the commit, and the answer is lost
                self._reply(connection, answer, result, self._ensemble.zxid)

    def _read(self, connection: int, request: Callable[[Tree], Any], answer: Deferred[Any]) -> None:
        if connection != self.connection or self._link is Link.DOWN:
            return
        if self._link is Link.STALE:
            self._reply(connection, answer, request(self._past), 0)
            return
        zxid = self._ensemble.zxid
        if self._lag_s:
            seen = max(self._seen_zxid, self._applied_zxid)
            zxid = max(seen, self._ensemble.zxid_at(self._process.world.seconds() - self._lag_s))
        self._reply(connection, answer, request(self._ensemble.past(zxid)), zxid)

    def _reply(self, connection: int, answer: Deferred[Any], result: object, zxid: int) -> None:
        self._answers.append((connection, answer, result, zxid))
        self._process.callLater(self._latency_s, self._answered)

    def _answered(self) -> None:
        """Pass on the oldest answer. Answers keep their order, whatever else a resumed process does first."""
        connection, answer, result, zxid = self._answers.popleft()
        if connection != self.connection or self._link is Link.DOWN:
            return  # lost with effect
        self._seen_zxid = max(self._seen_zxid, zxid)
        self._pending.pop(answer, None)
        if isinstance(result, CanalError):
            _fail(answer, result)
        elif not answer.called:
            answer.callback(result)

    def deliver(self, left: Left, deleted: bool) -> None:
        """Deliver a watch of this session that has fired."""
        delay_s = self._random.uniform(0.0, self.watch_delay_s) + self._lag_s
        self._process.callLater(delay_s, self._deliver, left, deleted)

    def _deliver(self, left: Left, deleted: bool) -> None:
        if left.connection == self.connection and self._link is Link.UP:
            left.watch(deleted)

    def _delay(self) -> float:
        return self._random.uniform(0.0, self._latency_s)


def _fail(answer: Deferred[Any], error: CanalError) -> None:
    if not answer.called:
        answer.errback(error)
