"""One client's connection: moves bytes between a transport and a wire session. Reactor thread.

`_converse` is the connection's whole life, one request after the other; Twisted's callbacks only feed and wake it.
`_go_on` drives it, and not a Deferred of its own: most steps wait for nothing, and one that does costs one callback.
When the client goes, a waiting GET is cancelled; acknowledgements and rollbacks it sent before are still carried out.
"""

from __future__ import annotations

import socket
import traceback
import types
import typing
from collections.abc import Coroutine, Generator
from dataclasses import dataclass

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure

from canal_ha import logs
from canal_ha.errors import CanalError, CursorReplaced, LocalProtocolError, RemoteProtocolError
from canal_ha.model.excerpt import excerpt
from canal_ha.model.identity import ClientIdentity
from canal_ha.server.complaints import Complaints
from canal_ha.server.counters import RequestCounters
from canal_ha.server.destinations import Destinations, PrivateRead
from canal_ha.server.idle import Clock, IdleLimits
from canal_ha.server.outbox import Consumer, Outbox
from canal_ha.wire.packets import Acknowledge, Get, ReadFrom, Request, Rollback, Subscribe, Unsubscribe
from canal_ha.wire.server_session import Reply, ServerSession

LOG = logs.get(__name__)
LAST_WORDS_S = 0.5  # for acknowledgements under way when the node closes a connection
IN_A_ROW = 100  # requests without a reply that are carried out before others get their turn
QUICKACK: int | None = getattr(socket, "TCP_QUICKACK", None)  # Linux has it


class Transport(Consumer, typing.Protocol):
    """What a connection uses of a Twisted TCP transport."""

    def setTcpNoDelay(self, enabled: bool) -> None: ...

    def setTcpKeepAlive(self, enabled: bool) -> None: ...

    def getHandle(self) -> socket.socket: ...

    def loseConnection(self) -> None: ...

    def loseWriteConnection(self) -> None: ...

    def abortConnection(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a service have in common."""

    destinations: Destinations
    counters: RequestCounters
    clock: Clock
    open: set[CanalConnection]
    complaints: Complaints


class CanalConnection(Protocol):
    """See the module. peer: `/ip`, for the counters."""

    def __init__(self, session: ServerSession, shared: Shared, peer: str) -> None:
        self._session = session
        self._shared = shared
        self._peer = peer
        self._lost = False
        self._ending = False
        self._unacked: set[int] = set()  # batches that left on this connection
        self._conversation: Coroutine[Deferred[typing.Any] | None, None, None]
        self._listening = False  # the conversation waits for something to happen,
        self._awaited: Deferred[typing.Any] | None = None  # or for this, which is
        self._fetching = False  # what a GET waits for
        self._told: tuple[ClientIdentity, object] | None = None  # who was told a cursor, and of which era it was
        self._read: PrivateRead | None = None  # kept when it is over, so that no late ACK goes to the client's stream

    def connectionMade(self) -> None:
        """Greet the client and begin."""
        self._transport = typing.cast(Transport, self.transport)
        self._transport.setTcpNoDelay(True)
        self._transport.setTcpKeepAlive(True)
        self._idle = IdleLimits(self._shared.clock, self._drop, self._session.idle_ms)
        self._outbox = Outbox(self._transport, self._idle.wrote)
        self._shared.open.add(self)
        self._shared.counters.connections += 1
        self._conversation = self._converse()
        self._go_on()

    def dataReceived(self, data: bytes) -> None:
        """Take bytes and acknowledge them at once.

        The Java client sends a request's header and body apart, without TCP_NODELAY: the body waits for the ACK of the
        header, which Linux delays by 40 ms unless told otherwise after each read (docs/protocol.md#tcp).
        """
        if QUICKACK is not None:
            self._transport.getHandle().setsockopt(socket.IPPROTO_TCP, QUICKACK, 1)
        self._idle.heard()
        try:
            self._session.receive(data)
        except RemoteProtocolError as error:
            self._drop(str(error))
        self._awaken()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Let a waiting GET go; `_converse` finishes what was sent before."""
        self._lost = True
        self._end_read()
        self._idle.stop()
        self._shared.open.discard(self)
        self._shared.counters.connections -= 1
        self._let_go()

    def end(self) -> None:
        """Close the connection once the reply being written is out, and batches on their way are acknowledged."""
        self._ending = True
        self._let_go()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abortConnection()

    @property
    def _gone(self) -> bool:
        """Whether the client is."""
        return self._lost or self._outbox.gone

    # ---- the conversation

    async def _converse(self) -> None:
        silent = 0
        sent = self._outbox.send(self._session.handshake().pieces)
        if sent:
            await sent
        while not self._ending:
            try:
                step = self._session.next()
                if step is None:
                    if self._gone:
                        return
                    await _more()
                    continue
                began = self._shared.clock.seconds()
                reply = step if isinstance(step, Reply) else await self._carry_out(step)
            except RemoteProtocolError as error:
                if self._may_log():
                    LOG.warning("connection.dropped", channel=self._session.channel, reason=str(error))
                break
            if self._gone or reply is None:
                continue
            if reply.error and self._may_log():
                LOG.warning("request.refused", channel=self._session.channel, error=reply.error)
            sent = self._outbox.send(reply.pieces)
            if sent:
                await sent
            self._shared.counters.note(reply, self._peer, (self._shared.clock.seconds() - began) * 1000)
            if not reply.packet_type and not self._gone:
                self._idle.limit(self._session.idle_ms)
            silent = 0 if reply.pieces else silent + 1
            if silent == IN_A_ROW:
                silent = 0
                await self._turn()
        if self._unacked:
            await self._last_words()
        self._transport.loseConnection()

    async def _last_words(self) -> None:
        """The client sees our end of the conversation now; an ACK it sends for a batch it got still counts."""
        if not self._lost:
            self._transport.loseWriteConnection()
        over: list[bool] = []

        def enough() -> None:
            over.append(True)
            self._awaken()

        timer = self._shared.clock.callLater(LAST_WORDS_S, enough)
        try:
            while self._unacked and not over:
                step = self._session.next()
                if isinstance(step, Acknowledge | Rollback):
                    await self._carry_out(step)
                elif step is not None:
                    self._session.done()  # whatever it asks for, another node will answer
                elif self._gone:
                    return
                else:
                    await _more()
        except RemoteProtocolError:
            return
        finally:
            if timer.active():
                timer.cancel()

    async def _carry_out(self, request: Request) -> Reply | None:
        """Have it done. None: there is nobody left to tell. Raises RemoteProtocolError."""
        if self._gone and not isinstance(request, Acknowledge | Rollback):
            self._session.done()
            return None
        destinations, identity = self._shared.destinations, request.identity
        try:
            match request:
                case Get():
                    return await self._fetch(request)
                case ReadFrom():
                    self._end_read()
                    self._read = await destinations.read_from(identity, request.place, request.until)
                    if self._lost:
                        self._end_read()
                case Acknowledge() if self._read:
                    self._unacked.discard(request.batch_id)
                    self._read.ack(request.batch_id)
                case Rollback() if self._read:
                    self._unacked.clear()
                    self._read.rollback(request.batch_id)
                case Subscribe() | Unsubscribe() if self._read:
                    raise LocalProtocolError("this connection reads from a position: use another one to subscribe")
                case Acknowledge():
                    self._unacked.discard(request.batch_id)
                    self._check_told(identity)
                    await destinations.ack(identity, request.batch_id, request.mark)
                case Rollback():
                    self._unacked.clear()
                    await destinations.rollback(identity, request.batch_id)
                case Subscribe():
                    cursor = await destinations.subscribe(identity)
                    if request.tell_cursor:
                        self._told = (identity, destinations.era(identity))
                    return self._session.subscribed(cursor)
                case Unsubscribe():
                    await destinations.unsubscribe(identity)
        except CanalError as error:
            return self._session.failed(error)
        except Exception as error:
            if self._may_log():
                where = "".join(traceback.format_tb(error.__traceback__))
                text = excerpt(repr(error))
                LOG.error(
                    "request.broke", channel=self._session.channel, request=request.packet_type, error=text, trace=where
                )
            return self._session.failed(error)
        return self._session.done()

    async def _fetch(self, request: Get) -> Reply | None:
        self._fetching = True
        try:
            if self._read:
                message = await self._read.get(request.wanted)
            else:
                self._check_told(request.identity)
                message = await self._shared.destinations.get(request.identity, request.wanted)
                self._check_told(request.identity)
        except CancelledError:
            self._session.done()
            return None
        finally:
            self._fetching = False
        if message.batch is not None:
            self._unacked.add(message.batch_id)
        return self._session.fetched(message)

    def _check_told(self, identity: ClientIdentity) -> None:
        """Raises CursorReplaced when this client was told a cursor that something else than ACKs has moved since."""
        if self._told is None:
            return
        client, era = self._told
        same = (client.destination, client.client_id) == (identity.destination, identity.client_id)
        if same and self._shared.destinations.era(identity) not in (era, None):
            raise CursorReplaced(identity.destination, identity.client_id)

    def _end_read(self) -> None:
        if self._read:
            self._read.close()

    async def _turn(self) -> None:
        """Let the reactor look after everyone else."""
        turn = Deferred[None]()
        self._shared.clock.callLater(0, lambda: turn.callback(None))
        await turn

    # ---- driving it

    def _go_on(self, result: object = None) -> None:
        """Let the conversation run until it waits again. result: of the Deferred that it waited for."""
        self._awaited = None
        self._listening = False
        try:
            if isinstance(result, Failure):
                awaited = result.throwExceptionIntoGenerator(self._conversation)
            else:
                awaited = self._conversation.send(None)
        except StopIteration:
            return
        except Exception as error:
            self._broke(error)
            return
        self._awaited = awaited
        self._listening = awaited is None
        if awaited is not None:
            awaited.addBoth(self._go_on)

    def _awaken(self) -> None:
        if self._listening:
            self._go_on()

    def _let_go(self) -> None:
        if self._fetching and self._awaited:
            self._awaited.cancel()
        self._awaken()

    def _may_log(self) -> bool:
        """Whether one more line about this peer may be written; it decides how many there could be."""
        return self._shared.complaints.may(self._peer)

    def _drop(self, reason: str) -> None:
        if self._may_log():
            LOG.info("connection.dropped", channel=self._session.channel, reason=reason)
        self.abort()

    def _broke(self, error: Exception) -> None:
        """Something nobody foresaw: this connection ends, the others go on."""
        if self._may_log():
            LOG.error("connection.broke", channel=self._session.channel, error=Failure(error).getTraceback())
        self.abort()


@types.coroutine
def _more() -> Generator[None, None, None]:
    """Wait for something to happen: `CanalConnection._awaken`."""
    yield
