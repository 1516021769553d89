"""A node: a process with the real Cluster, Embedded, Instances and Conversations."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from canal_ha.accounts.account import Accounts
from canal_ha.cluster.cluster import Cluster
from canal_ha.cluster.inputs import StopReason
from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import BatchMode, CanalConfig, InstanceConfig, SourceConfig
from canal_ha.errors import CanalError
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.instance import Instance
from canal_ha.instance.round_queue import RoundQueue
from canal_ha.model.batch import GetAnswer
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.node.claims import OwnedClaim
from canal_ha.server.ahead import RequestsAhead
from canal_ha.server.audit import Audit
from canal_ha.server.consumers import Consumers
from canal_ha.server.conversation import Conversation, Shared
from canal_ha.server.entrance import Entrance, Visitor
from canal_ha.server.limits import PortLimits, PortLoad
from canal_ha.server.send_turns import SendTurns
from canal_ha.server.unread import UnreadReplies
from canal_ha.wire.packets import Acknowledge, Request, Rollback, Subscribe
from canal_ha.wire.server_session import ConversationState, Reply
from lab.simulation.session import SimulatedSession
from lab.simulation.source import MemoryOrigin
from lab.simulation.threads import ANSWERS, Asked
from lab.simulation.time import Process

if TYPE_CHECKING:
    from lab.simulation.referee import Referee
    from lab.simulation.storm import Simulation

T = TypeVar("T")

QUESTION_S = 0.010  # the longest time that a question to the source takes
NETWORK_S = 0.002  # the longest time that a packet takes
CLOCK_RATES = (0.9, 1.1)
CLIENT = "/10.0.0.9"


def config_of(destination: str) -> InstanceConfig:
    """Return the configuration of a destination, with rings so small that they fill."""
    return InstanceConfig(
        destination,
        SourceConfig("master"),
        standby=SourceConfig("standby"),
        batch_mode=BatchMode.ITEMSIZE,
        buffer_size=24,
        stream_idle_s=2.0,
    )


class Node:
    """See the module. It is also the Owner of its instances."""

    def __init__(self, number: int, simulation: Simulation) -> None:
        self.name = f"10.0.0.{number}:11111"
        self.random = Random(simulation.random.random())
        self.simulation = simulation
        self.referee = simulation.referee
        self.referee.nodes.append(self)
        self.process = Process(
            simulation.world,
            self.random,
            rate=self.random.uniform(*CLOCK_RATES),
            started_at=self.random.uniform(0.0, 1000.0),
        )
        self.session = SimulatedSession(simulation.ensemble, self.process, self.random, timeout_s=simulation.timeout_s)
        self.talking: list[Connection] = []  # connections whose end the node has not noticed
        self.embedded = _Instances(
            self.referee, lambda destination: destination in simulation.destinations, self.talking
        )
        self.origins: dict[str, MemoryOrigin] = {}
        self.ownerships: dict[str, Ownership] = {}  # the newest of each destination
        self.connections: list[Connection] = []
        self.cut_from_source = False
        self.stopping = False
        self.blip_at = float("-inf")  # when ZooKeeper was out of reach for a moment last
        self.fine_since = simulation.world.seconds()  # when its last fault was over
        config = CanalConfig(
            Path("conf"), (), register_ip=f"10.0.0.{number}", rebalance_delay_s=simulation.rebalance_delay_s
        )
        self.cluster = Cluster(
            config, self.process, self.session, self, lambda: self.name, random=self.random, log=simulation.log
        )
        accounts = Accounts()
        self.entrance = Entrance(lambda: accounts, self.process)
        load = PortLoad(PortLimits())
        self.shared = Shared(
            self.embedded,
            _Uncounted(),  # type: ignore[arg-type]  # a stand-in
            self.process,
            _Quiet(),  # type: ignore[arg-type]  # a stand-in
            load,
            RequestsAhead(load.limits.ahead_bytes),
            UnreadReplies(load.limits.reply_bytes),
            Audit(self.process),
            Consumers(),
            RoundQueue(self.process),
            SendTurns(self.process),
        )
        Deferred.fromCoroutine(self.cluster.start())
        for destination in simulation.destinations:
            self.cluster.add(destination, preferred=number in simulation.preferred)

    # ---- Owner

    async def start(self, destination: str, ownership: Ownership) -> None:
        """See Owner."""
        config = config_of(destination)
        origin = MemoryOrigin(self.simulation.sources[destination], self.process, config)
        origin.cut_off = self.cut_from_source
        self.origins[destination] = origin
        self.ownerships[destination] = ownership
        instance = Instance(
            config,
            origin,
            lambda edits: ownership.meta(
                replaced=edits.cursor_replaced,
                lost=edits.cursor_lost,
                skipped=edits.nodes_skipped,
                mended=edits.client_mended,
            ),
            OwnedClaim(ownership),
            self.process,
            run_blocking=self._run_blocking,
            log=_InstanceLog(self),
            flush_period_ms=self.simulation.flush_period_ms,
            batch_ids=self.embedded.batch_ids,
        )
        await self.embedded.start(instance)
        self.referee.began(destination, origin.server)
        self.referee.started(destination, self, instance)

    async def stop(self, destination: str, reason: StopReason) -> None:
        """See Owner."""
        instance = self.embedded.running(destination)
        self.referee.stopping(destination, self, instance, reason)
        await self.embedded.stop(destination, flush=reason.orderly)
        origin = self.origins.pop(destination, None)
        if origin is not None and origin.leaks:
            self.referee.broke("no-stream-on-stopped-instance", f"{destination}: a feed goes on at {self.name}")

    def _run_blocking(self, call: Callable[[], T]) -> Deferred[T]:
        done: Deferred[T] = Deferred()

        def run() -> None:
            if done.called:
                return
            try:
                result = call()
            except Asked as asked:
                answer: Deferred[object] = Deferred.fromCoroutine(_awaited(asked.request))
                answer.addBoth(again)
            except Exception as error:
                done.errback(error)
            else:
                done.callback(result)

        def again(answer: object) -> None:
            ANSWERS.given.append(answer.value if isinstance(answer, Failure) else answer)
            run()
            ANSWERS.given.clear()

        self.process.callLater(self.random.uniform(0.0, QUESTION_S), run)
        return done

    # ---- what happens to it

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return not (self.process.dead or self.process.paused)

    def fine_for(self, seconds: float) -> bool:
        """Return whether nothing was wrong with the node or its ensemble for so long."""
        since = max(self.fine_since, self.simulation.fine_since)
        return since <= self.simulation.world.seconds() - seconds

    def cut_off_source(self, cut: bool) -> None:
        """Cut the connections to the source, or restore them."""
        self.cut_from_source = cut
        for origin in self.origins.values():
            origin.cut_off = cut
            for feed in origin.opened:
                if cut and not feed.stopped:
                    feed.wake()

    def kill(self) -> None:
        """Kill the process. Its clients lose their connections."""
        self.process.kill()
        for connection in tuple(self.connections):
            connection.close()

    def stop_in_order(self) -> None:
        """Do what the node does on SIGTERM: end the conversations, then stop the cluster."""
        self.stopping = True
        for connection in tuple(self.connections):
            connection.conversation.end()
        self.process.callLater(0.6, lambda: Deferred.fromCoroutine(self.cluster.stop()))


class _Instances(Embedded):
    """Tell the referee of roll-backs, those of clients and those of the node."""

    def __init__(self, referee: Referee, configured: Callable[[str], bool], talking: list[Connection]) -> None:
        super().__init__(configured=configured)
        self._referee = referee
        self._talking = talking

    async def rollback(self, identity: ClientIdentity, batch_id: int, *, unasked: bool = False) -> None:
        """See Destinations."""
        asks = [each for each in self._talking if each.rolls_back(identity)]
        # before: a roll-back answers the GETs that wait
        before = self._referee.rolls_back(identity, asks[0] if asks else None, unasked=unasked)
        try:
            await super().rollback(identity, batch_id, unasked=unasked)
        except CanalError:
            self._referee.did_not_roll_back(identity, before)
            raise


class Connection:
    """A client's TCP connection to a node, with the node's Conversation. It keeps the order of packets.

    received: called with each reply: the request, what it answered, and the error if it was refused.
    closed: called once when the connection is over, as the client sees it.
    """

    def __init__(
        self,
        node: Node,
        received: Callable[[Request, object, Exception | None], None],
        closed: Callable[[], None],
    ) -> None:
        self.node = node
        self.over = False
        self.cut = False  # packets do not arrive any more
        self._unnoticed_s = 0.0
        self.last_id = 0  # of the batches that left
        self._received = received
        self._closed = closed
        self._world = node.simulation.world
        self._to_node: deque[Request] = deque()
        self._to_client: deque[tuple[Request, object, Exception | None]] = deque()
        self._at_node = self._at_client = 0.0
        self._session = _TypedSession(self)
        self.outbox = _Outbox(self)
        session, outbox, idle = self._session, self.outbox, _Unlimited()
        visitor = Visitor(node.entrance, CLIENT)
        visitor.log_in("", b"", b"")
        self.conversation = Conversation(session, visitor, node.shared, CLIENT, self, outbox, idle)  # type: ignore[arg-type]  # stand-ins
        node.connections.append(self)
        node.talking.append(self)
        self.conversation.begin()

    # ---- the client's end

    def send(self, request: Request) -> None:
        """Send a request."""
        if self.over or self.cut:
            return
        self._to_node.append(request)
        now = self._world.seconds()
        self._at_node = max(self._at_node, now + self.node.random.uniform(0.0, NETWORK_S))
        self.node.process.callLater((self._at_node - now) * self.node.process.rate, self._arrived)

    def cut_off(self, unnoticed_s: float) -> None:
        """Let no packet arrive any more. unnoticed_s: when the node notices the end of the connection, after it."""
        self.cut, self._unnoticed_s = True, unnoticed_s

    def send_late(self, request: Request, delay_s: float) -> None:
        """Let the node get a request after a while, although the connection is cut off."""

        def arrive() -> None:
            if not self.outbox.gone:
                self._session.requests.append(request)
                self.conversation.receive(b"")

        self.node.process.callLater(delay_s, arrive)

    def close(self) -> None:
        """End the connection from either end, or because the node died. Requests under way still arrive."""
        if self.over:
            return
        self.over = True
        if self in self.node.connections:
            self.node.connections.remove(self)
        self.node.process.callLater(3 * NETWORK_S + self._unnoticed_s, self._gone)
        self._world.callLater(NETWORK_S, self._closed)

    def _gone(self) -> None:
        self.outbox.gone = True
        if self in self.node.talking:
            self.node.talking.remove(self)
        self.node.referee.lost(self)
        self.conversation.client_gone()

    def _arrived(self) -> None:
        self._session.requests.append(self._to_node.popleft())
        self.conversation.receive(b"")

    # ---- the node's end: what a conversation uses of a transport

    def rolls_back(self, identity: ClientIdentity) -> bool:
        """Return whether the node carries out a ROLLBACK of this client that came here."""
        request = self._session.current
        return isinstance(request, Rollback) and request.identity.key == identity.key

    def reply(self, request: Request, answer: object, error: Exception | None) -> None:
        """Send a reply."""
        if self.over or self.cut:
            return
        self._to_client.append((request, answer, error))
        now = self._world.seconds()
        self._at_client = max(self._at_client, now + self.node.random.uniform(0.0, NETWORK_S))
        self._world.callLater(self._at_client - now, self._came)

    def _came(self) -> None:
        reply = self._to_client.popleft()
        if not self.over:
            self._received(*reply)

    def loseConnection(self) -> None:
        """See Closing."""
        self.node.referee.ended(self)
        self._world.callLater(NETWORK_S, self.close)

    def loseWriteConnection(self) -> None:
        """See Closing."""

    def abortConnection(self) -> None:
        """See Closing."""
        self.close()


async def _awaited(request: Callable[[], Awaitable[object]]) -> object:
    return await request()


class _TypedSession:
    """A ServerSession without bytes. It also reports to the referee what the node answers."""

    channel = "simulated"
    state = ConversationState.SESSION
    waiting_bytes = 0
    idle_ms = (3_600_000, 3_600_000)

    def __init__(self, connection: Connection) -> None:
        self.requests: deque[Request] = deque()
        self._connection = connection
        self._referee = connection.node.referee
        self.current: Request | None = None

    def handshake(self) -> Reply:
        return Reply(())

    def receive(self, data: bytes) -> None:
        pass

    def discard(self) -> None:
        self.requests.clear()

    def next(self) -> Request | None:
        if self.current is not None or not self.requests:
            return None
        self.current = self.requests.popleft()
        return self.current

    def done(self) -> Reply:
        request = self._take()
        if isinstance(request, Acknowledge):
            self._referee.ack_done(self._connection.node, request)
        silent = isinstance(request, Acknowledge | Rollback)
        return Reply(() if silent else ((request, None, None),))  # type: ignore[arg-type]  # typed, not bytes

    def subscribed(self, cursor: LogPosition | None) -> Reply:
        request = self._take()
        assert isinstance(request, Subscribe)
        self._referee.subscribed(self._connection, request, cursor)
        return Reply(((request, cursor, None),))  # type: ignore[arg-type]  # typed, not bytes

    def fetched(self, message: GetAnswer) -> Reply:
        request = self._take()
        answer = self._referee.fetched(self._connection, request.identity, message)
        return Reply(((request, answer, None),))  # type: ignore[arg-type]  # typed, not bytes

    def failed(self, error: Exception) -> Reply:
        request = self._take()
        self._referee.failed(request, error)
        return Reply(((request, None, error),))  # type: ignore[arg-type]  # typed, not bytes

    def _take(self) -> Request:
        request, self.current = self.current, None
        assert request is not None
        return request


class _Outbox:
    def __init__(self, connection: Connection) -> None:
        self.gone = False
        self._connection = connection

    def send(self, pieces: tuple[Any, ...]) -> None:
        for piece in pieces:
            self._connection.reply(*piece)


class _Unlimited:
    def limit(self, limits_ms: tuple[int, int]) -> None:
        pass


class _Uncounted:
    def note(self, reply: Reply, peer: str, latency_ms: float) -> None:
        pass


class _Quiet:
    def may(self, peer: str) -> bool:
        return False


class _InstanceLog:
    """Implements InstanceListener."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        self._node.referee.event(destination, self._node, name, alarm, facts)

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        pass
