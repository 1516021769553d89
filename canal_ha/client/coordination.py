"""A connector's thread for ZooKeeper: holds the client's `running` node and watches the destination's.

`start` starts the thread, which owns the session, the seat and the timers. Other threads reach it only through its
queue, and it waits only on the queue. It reports changes to the connector through `tell`.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue

from canal_ha import logs, steady_time
from canal_ha.client import running_inputs as i
from canal_ha.client.running import Seat, SeatState
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Znode
from canal_ha.zookeeper.port import KazooPort
from canal_ha.zookeeper.race_events import (
    Join,
    Leave,
    Left,
    Look,
    NodeEvent,
    Released,
    RunningNode,
    SessionEvent,
    SessionUp,
    StandingBy,
)

READ_AGAIN_S = 0.5  # after a read without a reply
LEAVE_MOST_S = 3.0  # for an orderly end; then the session is closed, which also deletes the node

log = logs.get(__name__)

_past_sessions: set[int] = set()
"""Sessions of this process that have ended. A `running` node of one of them is ours and outdated."""


@dataclass(frozen=True, slots=True)
class BecameActive:
    """This process became the active one of its client id."""


@dataclass(frozen=True, slots=True)
class LostActivity:
    """This process is no longer active. Its connection must be closed before `tell` returns."""

    reason: i.Reason


@dataclass(frozen=True, slots=True)
class StandsBy:
    """Another process is active."""

    address: str


@dataclass(frozen=True, slots=True)
class RunningIs:
    """The node that runs the destination. generation: czxid of its `running` node."""

    address: str
    generation: int


@dataclass(frozen=True, slots=True)
class NobodyRuns:
    """No node runs the destination: there is no `running` node."""


@dataclass(frozen=True, slots=True)
class MembersAre:
    """The nodes that can run the destination."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodesHaveOthers:
    """No node can run the destination, and ZooKeeper has these others."""

    destinations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Broke:
    """An unforeseen error ended the thread. This process is not active, and `tell` is not called again."""

    error: Exception


News = BecameActive | LostActivity | StandsBy | RunningIs | NobodyRuns | MembersAre | NodesHaveOthers | Broke


class Coordination:
    """One participation in the race for the client id; start it once, stop it once.

    servers: as in canal.zkServers.
    destination: the destination to watch.
    client_id: the client id to be active for.
    tell: called with all news, on the thread of this object.
    address: address in `running` before there is a connection.
    timeout_ms: requested session timeout.
    access: how to reach ZooKeeper, and as whom.
    takeover_delay_s: how long to wait after another process disappeared.
    takes_turns: False: only watch the destination; always active, without a race.
    """

    def __init__(
        self,
        servers: str,
        destination: str,
        client_id: int,
        tell: Callable[[News], None],
        *,
        address: str,
        timeout_ms: int,
        access: ZooKeeperAccess,
        takeover_delay_s: float,
        takes_turns: bool = True,
    ) -> None:
        self._destination = destination
        self._client_id = client_id
        self._tell = tell
        self._takes_turns = takes_turns
        self._path = tree.client_running(destination, client_id)
        self._queue: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._session = KazooPort(
            servers,
            timeout_ms=timeout_ms,
            access=access,
            post=self._queue.put,
            later=self._later,
            changed=self._session_changed,
            log=log.bind(destination=destination, client_id=client_id),
        )
        self._seat = Seat(client_id, address, past_sessions=_past_sessions, takeover_delay_s=takeover_delay_s)
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._session_id = 0  # of the last session
        self._ending = False
        self._broken = False
        self._thread = threading.Thread(target=self._run, name=f"canal-client-{destination}-{client_id}", daemon=True)

    # ---- from any thread

    def start(self) -> None:
        """Start to connect and to race; returns at once."""
        self._queue.put(partial(self._feed, Join()) if self._takes_turns else partial(self._tell, BecameActive()))
        self._queue.put(self._session.start)
        self._thread.start()

    def stop(self) -> None:
        """Release the node and close the session; waits for a limited time."""
        self._queue.put(self._leave)
        if threading.current_thread() is not self._thread:
            self._thread.join(LEAVE_MOST_S + self._session.timeout_s)

    def connected_to_node(self, local_address: str) -> None:
        """Publish the address of this process's connection. local_address: ip:port."""
        if self._takes_turns:
            self._queue.put(partial(self._feed, i.NodeConnected(local_address)))

    def active(self) -> bool:
        """Return whether this process may act as the active one now.

        No lock is needed: the seat extends its lease before it enters the state, and both are plain values.
        """
        return not self._broken and (not self._takes_turns or self._seat.active(steady_time.seconds()))

    # ---- the thread

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            log.exception("client.broken", destination=self._destination, client_id=self._client_id)
            self._broken = True  # first: the lease would hold for a while, but the session ends now
            self._tell(Broke(error))
        if self._session_id:
            _past_sessions.add(self._session_id)
        self._session.stop().join()

    def _work(self) -> None:
        while not self._ending:
            with suppress(Empty):
                self._queue.get(timeout=self._pause_s())()
            self._feed(i.RaceTick())
            while self._timers and self._timers[0][0] <= steady_time.seconds():
                heapq.heappop(self._timers)[2]()

    def _pause_s(self) -> float | None:
        moments = [self._timers[0][0]] if self._timers else []
        if self._seat.wakes_at is not None:
            moments.append(self._seat.wakes_at)
        return max(0.0, min(moments) - steady_time.seconds()) if moments else None

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (steady_time.seconds() + delay_s, next(self._numbers), call))

    def _leave(self) -> None:
        if self._seat.state is SeatState.IDLE:
            self._end()
            return
        self._later(LEAVE_MOST_S, self._end)
        self._feed(Leave())

    def _end(self) -> None:
        self._ending = True

    # ---- session

    def _session_changed(self, event: SessionEvent) -> None:
        if isinstance(event, SessionUp):
            self._session_id = event.session_id
        self._feed(event)
        if isinstance(event, SessionUp):
            self._read_running()
            self._read_members()

    # ---- who runs the destination

    def _running_changed(self, deleted: bool) -> None:
        self._read_running()

    def _members_changed(self, deleted: bool) -> None:
        self._read_members()

    def _read_running(self) -> None:
        def read(found: Znode | ZooKeeperUnavailable | None) -> None:
            if isinstance(found, ZooKeeperUnavailable):
                self._read_again(self._read_running)
            elif found is None:
                self._tell(NobodyRuns())
            else:
                self._tell(RunningIs(tree.RunningData.from_bytes(found.data).address, found.created))

        self._session.get(tree.running(self._destination), self._running_changed, read)

    def _read_members(self) -> None:
        def read(names: tuple[str, ...] | ZooKeeperUnavailable) -> None:
            if isinstance(names, ZooKeeperUnavailable):
                self._read_again(self._read_members)
            else:
                self._tell(MembersAre(names))
                if not names:
                    self._session.children(tree.DESTINATIONS, None, read_others)

        def read_others(names: tuple[str, ...] | ZooKeeperUnavailable) -> None:
            """Only errors need them, so a failure is no reason to ask again."""
            if not isinstance(names, ZooKeeperUnavailable) and (others := {*names} - {self._destination}):
                self._tell(NodesHaveOthers(tuple(sorted(others))))

        self._session.children(tree.destination_members(self._destination), self._members_changed, read)

    def _read_again(self, call: Callable[[], None]) -> None:
        if self._session.connected:  # otherwise the next connection reads everything
            self._later(READ_AGAIN_S, lambda: call() if self._session.connected else None)

    # ---- the seat

    def _feed(self, event: i.Input) -> None:
        for command in self._seat.step(event, steady_time.seconds()):
            self._execute(command)

    def _execute(self, command: i.Command) -> None:
        match command:
            case Look(ticket):
                self._session.get(self._path, self._node_changed, partial(self._looked, ticket))
            case i.ClaimConsumer() | i.Rewrite() | i.Probe() | i.ReleaseConsumer():
                self._write(command)
            case i.Activate():
                log.info("client.active", destination=self._destination, client_id=self._client_id)
                self._tell(BecameActive())
            case i.Deactivate(reason):
                self._tell(LostActivity(reason))
                write = log.info if reason is i.Reason.STOPPED else log.warning
                write("client.inactive", destination=self._destination, client_id=self._client_id, reason=reason.value)
            case StandingBy(address):
                log.info("client.standby", destination=self._destination, client_id=self._client_id, active_on=address)
                self._tell(StandsBy(address))
            case Left():
                self._end()

    def _node_changed(self, deleted: bool) -> None:
        self._feed(NodeEvent(deleted))

    def _looked(self, ticket: int, found: Znode | ZooKeeperUnavailable | None) -> None:
        if isinstance(found, ZooKeeperUnavailable):
            self._feed(i.Unanswered(ticket))
            return
        self._feed(i.ConsumerSeen(ticket, RunningNode.read(found)))

    def _write(self, command: i.Writing) -> None:
        operations = i.operations(command, self._path)
        sent_at = steady_time.seconds()

        def answered(result: tuple[int, ...] | TransactionRefused | ZooKeeperUnavailable) -> None:
            if isinstance(command, i.ReleaseConsumer):
                self._feed(Released(command.ticket))
            elif isinstance(result, ZooKeeperUnavailable):
                self._feed(i.Unanswered(command.ticket))
            elif not isinstance(result, TransactionRefused):
                self._feed(i.Held(command.ticket, result[-1], sent_at))
            elif result.reason == "missing" and isinstance(operations[result.index], Create):
                parent = tree.client(self._destination, self._client_id)
                self._session.ensure(parent, lambda error: self._feed(_ensured(command.ticket, error)))
            else:
                self._feed(i.Refused(command.ticket))

        self._session.transaction(operations, answered)


def _ensured(ticket: int, error: ZooKeeperUnavailable | None) -> i.Input:
    """Return the input after the parent was created: the claim was refused, so look and claim again."""
    return i.Refused(ticket) if error is None else i.Unanswered(ticket)
