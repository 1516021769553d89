"""Conversation: what one client asks on its connection, carried out one request after the other. Reactor thread.

`_converse` is the whole life of the conversation. The connection feeds it with bytes and wakes it. `_go_on` drives it,
and not a Deferred of its own: most steps wait for nothing, and a step that waits costs one callback.

When the client goes, a waiting GET is cancelled. Acknowledgements and rollbacks that the client sent before are still
carried out. What this connection was given and did not acknowledge comes again if the client has another one; see
`consumers.py` for what it is not given.
"""

from __future__ import annotations

import math
import traceback
import types
from collections.abc import Coroutine, Generator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from canal_ha import logs
from canal_ha.accounts.origin import origin_of
from canal_ha.decode.name_lists import check_size_of_client
from canal_ha.errors import (
    Busy,
    CanalError,
    LocalProtocolError,
    NotAllowed,
    NotSubscribed,
    RemoteProtocolError,
)
from canal_ha.instance.round_queue import RoundQueue
from canal_ha.instance.wake import Awaited, Wake
from canal_ha.model.batch import EMPTY_BATCH_ID, GetAnswer
from canal_ha.model.clock import Clock, Timer
from canal_ha.model.excerpt import excerpt, some
from canal_ha.model.identity import ClientIdentity, ClientKey
from canal_ha.model.position import LogPosition
from canal_ha.server.ahead import RequestsAhead
from canal_ha.server.audit import Audit
from canal_ha.server.closing import Closing
from canal_ha.server.complaints import Complaints
from canal_ha.server.consumers import Consumers
from canal_ha.server.counters import RequestCounters
from canal_ha.server.destinations import Destinations, PrivateRead
from canal_ha.server.entrance import Visitor
from canal_ha.server.idle import IdleLimits
from canal_ha.server.limits import PortLoad
from canal_ha.server.outbox import Outbox
from canal_ha.server.send_turns import SendTurns
from canal_ha.server.shown_snapshot import told_within
from canal_ha.server.told_cursor import ToldCursor
from canal_ha.server.unread import UnreadReplies
from canal_ha.wire import packets
from canal_ha.wire.packets import Acknowledge, Get, ReadFrom, Request, Rollback, Subscribe, Unsubscribe
from canal_ha.wire.server_session import ConversationState, Reply, ServerSession

LOG = logs.get(__name__)
UNACKED_MOST = 1024  # batches that a connection remembers; another connection may roll them back
LAST_WORDS_S = 0.5  # how long the last acknowledgements may take when the node closes a connection
LATE_S = 1.0  # how long a client may take to read why its connection ends
KEPT_BACK_S = 10.0  # how long a GET waits at most while another connection has to get rows first
TURN_S = 0.001  # how long requests that are here already are carried out before other connections get their turn
ACTIONS = {Subscribe: "subscribe", Unsubscribe: "unsubscribe", ReadFrom: "read", Get: "get"}  # as the audit names them


@dataclass(frozen=True, slots=True)
class Shared:
    """What all connections of a service have in common."""

    destinations: Destinations
    counters: RequestCounters
    clock: Clock
    complaints: Complaints
    load: PortLoad
    ahead: RequestsAhead
    unread: UnreadReplies
    audit: Audit
    consumers: Consumers
    turns: RoundQueue
    sends: SendTurns


@dataclass(frozen=True, slots=True)
class LastRead:
    """What a connection read last.

    identity: destination and client id.
    private: whether from a position, without a cursor.
    """

    identity: ClientIdentity
    private: bool


class Conversation:
    """See the module."""

    def __init__(
        self,
        session: ServerSession,
        visitor: Visitor,
        shared: Shared,
        peer: str,
        transport: Closing,
        outbox: Outbox,
        idle: IdleLimits,
    ) -> None:
        """Make a conversation that waits for `begin`.

        session: the wire protocol's half of it.
        visitor: who the client is, and its rights.
        shared: what it has in common with others.
        peer: `/ip` of the client, for the counters.
        transport: ends the connection.
        outbox: takes replies.
        idle: the limits of the connection, which the client can set.
        """
        self.reading: LastRead | None = None
        self.subscribed: ClientIdentity | None = None
        self._session = session
        self._visitor = visitor
        self._shared = shared
        self._peer = peer
        self._transport = transport
        self._outbox = outbox
        self._idle = idle
        self._lost = False
        self._over = False  # nothing more is read
        self._ending = False
        # Batches are acknowledged oldest first, so of many the newest one tells whether all are.
        self._unacked: set[int] = set()  # batches that left on this connection
        self._given: dict[ClientKey, int] = {}  # the newest batch of each client that it has not acknowledged
        self._steps: Coroutine[Awaited | None, None, None] = self._converse()
        self._listening = False  # the conversation waits for `_awaken`,
        self._awaited: Awaited | None = None  # or for this,
        self._fetching = False  # which is what a GET waits for
        self._told = ToldCursor(shared.destinations, shared.consumers, self)
        self._audited: ClientKey | None = None  # the client id whose SUBSCRIBE or first GET has a line in the audit
        self._queued = False  # the conversation goes on in a later round of the reactor
        self._passed_over = False  # the GET that waits ends without a batch
        self._login: Timer | None = None  # until the client has logged in
        self._ahead_bytes = 0  # as the budget knows it
        self._turn_began = 0.0
        self._in_turn = False
        self._read: PrivateRead | None = None  # kept when it is over, so that no late ACK goes to the client's stream
        self._read_as: tuple[ClientIdentity, ClientIdentity] | None = None  # as the client asked, and as admitted

    def begin(self) -> None:
        """Greet the client and carry out what it asks."""
        if self._session.state is ConversationState.AUTHENTICATION:
            self._login = self._shared.clock.callLater(self._shared.load.limits.login_s, self._late)
        self._go_on()

    def receive(self, data: bytes) -> None:
        """Take bytes from the client. A client that breaks the protocol loses its connection."""
        if self._over:
            return
        try:
            self._session.receive(data)
        except RemoteProtocolError as error:
            self._cut_short(str(error))
        if self._listening and not self._queued:  # one call, however often bytes come
            self._queued = True
            self._shared.turns.soon(self._received)
        if self._session.waiting_bytes != self._ahead_bytes:  # they were not all carried out at once
            self._weigh()
            self._shared.ahead.keep_within()

    def _received(self) -> None:
        self._queued = False
        if self._listening:
            self._go_on()

    @property
    def answers(self) -> bool:
        """Whether the client waits for the reply to a GET, and has sent nothing behind it."""
        return self._fetching and not self._session.waiting_bytes

    def end(self) -> None:
        """End once the current reply is written and the client has acknowledged the batches that it got."""
        self._ending = True
        self._let_go()

    def client_gone(self) -> None:
        """The connection is lost: cancel a waiting GET, and finish what the client sent before."""
        self._lost = True
        self.reading = self.subscribed = None
        self._shared.consumers.lost(self)
        self._logged_in()
        self._end_read()
        self._let_go()

    def drop(self, reason: str) -> None:
        """Close the connection at once. reason: for the log."""
        if self._may_log():
            LOG.info("connection.dropped", channel=self._session.channel, reason=reason)
        self._transport.abortConnection()

    @property
    def holder(self) -> str:
        """The account, or the address without one, that answers for the memory that the connection takes."""
        return self._visitor.account or origin_of(self._peer)

    def sent_too_much(self) -> None:
        """The node needs the memory of the requests that the client has sent ahead."""
        most = self._shared.ahead.most_bytes
        reason = f"clients have sent {most} bytes of requests ahead (canal.client.ahead.bytes)"
        self._refused("ahead_bytes", reason)
        self._cut_short(reason)

    def cut_off(self) -> None:
        """The client does not read its reply, and the node needs the memory."""
        most = self._shared.load.limits.reply_bytes
        reason = f"clients have not read {most} bytes of replies (canal.client.replies.bytes)"
        self._refused("reply_bytes", reason)
        self.drop(reason)

    def _cut_short(self, reason: str) -> None:
        """Close the connection at once, and carry out nothing that it has sent ahead. reason: for the log."""
        self.drop(reason)
        self._forget()

    def _forget(self) -> None:
        """Free the memory of what the client has sent ahead.

        Nothing else does so when the connection ends: its objects refer to each other, and wait for the garbage
        collection.
        """
        self._over = True
        self._session.discard()
        self._weigh()

    def _late(self) -> None:
        """The client has not logged in in time: say so and close the connection."""
        error = Busy(f"no login within {self._shared.load.limits.login_s:g} s (canal.client.login.timeout)")
        self._refused("login_late", str(error))
        if self._may_log():
            LOG.info("connection.dropped", channel=self._session.channel, reason=str(error))
        # without `_listening` the client does not even read the handshake
        sent = self._outbox.send((packets.refused(error.code, str(error)),)) if self._listening else None
        if sent:
            sent.addCallback(lambda _: self._transport.loseConnection())
        else:
            self._transport.loseConnection()
        self._login = self._shared.clock.callLater(LATE_S, self._transport.abortConnection)

    def _logged_in(self) -> None:
        if self._login and self._login.active():
            self._login.cancel()
        self._login = None

    def _weigh(self) -> None:
        """Tell the budget how much of what the client has sent is not read yet."""
        self._ahead_bytes = waiting = self._session.waiting_bytes
        self._shared.ahead.weigh(self, waiting)

    def _refused(self, reason: str, text: str) -> None:
        """Count a refusal that ends the connection, and write it down."""
        self._shared.counters.refusals[reason] += 1
        self._shared.audit.refused("connection", self._visitor.actor, text)

    def _note(self, action: str, identity: ClientIdentity, **details: object) -> None:
        """Write down what the client has done."""
        who, destination, client_id = self._visitor.actor, identity.destination, identity.client_id
        self._shared.audit.client_did(action, who, destination=destination, client_id=client_id, details=details)

    @property
    def _gone(self) -> bool:
        """Whether the client has gone."""
        return self._lost or self._outbox.gone

    # ---- the steps

    async def _converse(self) -> None:
        await self._answer()
        for client, newest in self._given.items():
            await self._deliver_again(ClientIdentity(*client), newest)
        self._transport.loseConnection()

    async def _answer(self) -> None:
        """Carry out requests until the client has gone or the connection has to end."""
        sent = self._outbox.send(self._session.handshake().pieces)
        if sent:
            await sent
        session, outbox, seconds = self._session, self._outbox, self._shared.clock.seconds
        while not self._ending:
            try:
                step = session.next()
                if step is None:
                    if self._gone:
                        return
                    await _more()
                    continue
                if self._login and self._session.state is not ConversationState.AUTHENTICATION:
                    self._logged_in()
                began = seconds()
                reply = step if isinstance(step, Reply) else await self._carry_out(step)
            except RemoteProtocolError as error:
                if self._may_log():
                    LOG.warning("connection.dropped", channel=self._session.channel, reason=str(error))
                break
            if reply is None or self._lost or outbox.gone:
                if reply and reply.error:
                    return  # the client sent more behind this, but it would have stopped here
                await self._turn()
                continue
            if reply.error and self._may_log():
                LOG.warning("request.refused", channel=self._session.channel, error=reply.error)
            if reply.pieces and (sent := outbox.send(reply.pieces)):
                unread = self._shared.unread
                unread.begin(self, self.holder, reply.size_bytes)
                await sent
                unread.end(self)
            now = seconds()
            self._shared.counters.note(reply, self._peer, (now - began) * 1000)
            if reply.last:
                break
            if not reply.packet_type and not self._gone:
                self._idle.limit(session.idle_ms)
            if now - self._turn_began >= TURN_S:
                await self._shared.turns.turn()
        if self._unacked:
            await self._last_words()

    async def _deliver_again(self, identity: ClientIdentity, newest: int) -> None:
        """Roll back if this batch is still in flight: nobody received it or those before it, or acknowledges them."""
        if not self._shared.consumers.others(identity, self):
            return  # the next connection begins with a roll-back, if the client wants the rows again
        with suppress(CanalError):
            if newest in await self._shared.destinations.in_flight(identity):
                await self._take_back(identity, 0)
                if self._may_log():
                    LOG.info("batches.delivered_again", channel=self._session.channel, **_client(identity))

    async def _take_back(self, identity: ClientIdentity, batch_id: int) -> None:
        """Roll back although this connection gets nothing any more: the rows come on the newest one first.

        The other connections have not asked for it, so those that know their cursor have to begin again.
        """
        destinations, consumers = self._shared.destinations, self._shared.consumers
        if not consumers.others(identity, self):
            await destinations.rollback(identity, batch_id)
            return
        entries = await self._entries_in_flight(identity)
        with consumers.rolling_back(identity, consumers.newest(identity), entries):
            await destinations.rollback(identity, batch_id, unasked=True)

    async def _entries_in_flight(self, identity: ClientIdentity) -> int:
        """Return how many entries a roll-back takes back. An error is 0: the roll-back itself says what is wrong."""
        try:
            return await self._shared.destinations.entries_in_flight(identity)
        except CanalError:
            return 0  # the roll-back may also start the destination

    async def _last_words(self) -> None:
        """Close our direction of the connection. An ACK that the client still sends for a batch it got counts."""
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
                    await self._turn()
                elif step is not None:
                    self._session.done()  # another node will answer any other request
                    await self._turn()
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
        """Return the reply to a request; None if the client has gone. Raises RemoteProtocolError."""
        if (self._lost or self._outbox.gone) and not isinstance(request, Acknowledge | Rollback):
            self._session.done()
            return None
        destinations = self._shared.destinations
        try:
            if request.identity.filter:
                check_size_of_client(request.identity.filter)  # before the connection keeps it, or waits with it
            identity = self._visitor.admitted(request.packet_type, request.identity)
            if self._read and not isinstance(request, ReadFrom):
                self._check_read()
            if type(request) is Get:
                return await self._fetch(request, identity)
            if type(request) is Acknowledge and not self._read:
                self._unacked.discard(request.batch_id)
                if self._told:
                    self._told.check_moved(identity)
                await destinations.ack(identity, request.batch_id, request.mark)
                if self._given.get(identity.key) == request.batch_id:
                    del self._given[identity.key]
                return self._session.done()
            match request:
                case ReadFrom():
                    self._end_read()
                    places = {"start": str(request.place), "until": str(request.until or "")}
                    self._read = read = await destinations.read_from(
                        identity,
                        request.place,
                        request.until,
                        exact=request.exact,
                        snapshot=request.snapshot,
                        holder=self.holder,
                    )
                    self._read_as = request.identity, identity
                    self._note("read", identity, filter=identity.filter, **places, **_tables(request))
                    read.when_over(lambda why: self._note("read ended", identity, reason=why))
                    self.reading = LastRead(identity, private=True)
                    if self._lost:
                        self._end_read()
                    return self._session.reading(read.start)
                case Acknowledge() if self._read:
                    self._unacked.discard(request.batch_id)
                    self._read.ack(request.batch_id)
                case Rollback() if self._read:
                    self._unacked.clear()
                    self._read.rollback(request.batch_id)
                case Subscribe() | Unsubscribe() if self._read:
                    raise LocalProtocolError("this connection reads from a position: use another one to subscribe")
                case Rollback():
                    self._unacked.clear()
                    await self._roll_back(request, identity)
                case Subscribe():
                    self.subscribed = identity  # before it waits: nobody may delete the client id from now on
                    only_looks = request.tell_cursor and not identity.filter  # before a SUBSCRIBE that counts
                    known = destinations.era(identity) is not None
                    if not only_looks and known:
                        self._consumes(identity)
                    cursor = await destinations.subscribe(
                        identity, exact=request.exact, opens=not only_looks, snapshot=request.snapshot
                    )
                    if not only_looks:
                        self._consumes(identity)
                    if not (only_looks and known):
                        self._audited = identity.key
                        self._note("subscribe", identity, filter=identity.filter, **_tables(request))
                    if request.tell_cursor:
                        self._told.tell(identity, cursor, begun=not only_looks)
                    return self._session.subscribed(_shown(cursor, identity))
                case Unsubscribe():
                    await destinations.unsubscribe(identity)
                    self._shared.consumers.removed(identity)
                    self._note("unsubscribe", identity)
        except CanalError as error:
            self._was_refused(request, error)
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

    def _was_refused(self, request: Request, error: CanalError) -> None:
        """Count and write down an error that is a refusal."""
        if error.refusal:
            self._shared.counters.refusals[error.refusal] += 1
        if error.refusal or isinstance(error, NotAllowed):
            action, asked, who = ACTIONS.get(type(request), "request"), request.identity, self._visitor.actor
            self._shared.audit.refused(
                action, who, str(error), destination=asked.destination, client_id=asked.client_id
            )

    async def _roll_back(self, request: Rollback, identity: ClientIdentity) -> None:
        destinations, consumers = self._shared.destinations, self._shared.consumers
        if self._gone:
            await self._take_back(identity, request.batch_id)
            return
        with consumers.rolling_back(identity, self, await self._entries_in_flight(identity)):
            await destinations.rollback(identity, request.batch_id)
            self._given.pop(identity.key, None)
            if destinations.era(identity) is not None:
                self._consumes(identity)
        if self._lost or destinations.era(identity) is None:
            consumers.gave_up(identity, self)

    async def _fetch(self, request: Get, identity: ClientIdentity) -> Reply | None:
        exists = False  # the client, before it waits
        consumers = self._shared.consumers
        self._fetching, self._passed_over = True, False
        try:
            if self._read:
                message = await self._read.get(request.wanted)
            else:
                if self.reading is None or self.reading.identity is not identity:
                    self.reading = LastRead(identity, private=False)
                if self._audited == identity.key and consumers.is_open(identity, self):
                    exists = True  # it did when it asked before
                elif exists := self._shared.destinations.era(identity) is not None:
                    self._asks(identity)  # before it waits
                consumers.waits(identity, self, self._pass_over)
                try:
                    message = await self._next_batch(request, identity)
                except CancelledError:
                    if not self._passed_over or self._gone or self._ending:
                        raise
                    exists = False  # it may have been removed, and be back
                    await self._shared.turns.turn()
                    message = await self._nothing(request, identity)
                finally:
                    consumers.waits_no_more(identity, self)
            if self._read:
                self._check_read()  # the accounts may have changed meanwhile
        except CancelledError:
            self._session.done()
            return None
        finally:
            self._fetching = False
        if message.batch is None:
            self._turn_began = -math.inf  # another connection may have ended the GET: what follows is not part of that
        else:
            if len(self._unacked) == UNACKED_MOST:
                self._unacked.clear()
            self._unacked.add(message.batch_id)
        reply = self._session.fetched(message)
        if not self._read:
            if not exists:
                self._asks(identity)
            consumers.gave(identity, self, message)  # last: it can answer a GET of another connection
        return reply

    def _asks(self, identity: ClientIdentity) -> None:
        """Note that the client asks for batches of a client that exists. It may do so without a SUBSCRIBE here."""
        if not self._lost:
            self._shared.consumers.asks(identity, self)
        if self._audited != identity.key:
            self._audited = identity.key
            self._note("get", identity)

    def _check_batch(self, request: Get, identity: ClientIdentity) -> None:
        """Raise the error that the client gets instead of a batch, because something has changed meanwhile."""
        if self._told:
            self._told.check(identity)
        if self._visitor.unchanged:
            return
        within = self._visitor.admitted(request.packet_type, request.identity).within
        if within is not identity.within and within != identity.within:
            raise NotSubscribed(identity.destination, identity.client_id)

    async def _next_batch(self, request: Get, identity: ClientIdentity) -> GetAnswer:
        """Return the client's next batch; an empty one if another connection has to get rows first.

        Raises CancelledError.
        """
        consumers, wanted = self._shared.consumers, request.wanted
        if self._told:
            self._told.asks(identity)
            wanted = replace(wanted, one_server=True)
        if consumers.keeps_back(identity, self):
            if not consumers.crowded(identity):
                await self._wait(wanted.wait_ms)
                if self._may_log():
                    LOG.info("batches.kept_back", channel=self._session.channel, **_client(identity))
            return await self._nothing(request, identity)
        check = partial(self._check_batch, request, identity)
        message = await self._shared.destinations.get(identity, wanted, check, Wake)
        if message.batch is not None:
            self._given[identity.key] = message.batch_id
        return message

    async def _nothing(self, request: Get, identity: ClientIdentity) -> GetAnswer:
        """Return an answer without a batch. Raises what _check_batch raises, and NotRunningHere."""
        await self._shared.destinations.in_flight(identity)  # the node may have lost the destination meanwhile
        self._check_batch(request, identity)
        return GetAnswer(EMPTY_BATCH_ID)

    async def _wait(self, wait_ms: float | None) -> None:
        """Wait as long as a GET says, at most KEPT_BACK_S, or until it is passed over."""
        if wait_ms == 0.0:
            return
        wait_s = KEPT_BACK_S if wait_ms is None else min(wait_ms / 1000, KEPT_BACK_S)
        over = Deferred[None]()
        timer = self._shared.clock.callLater(wait_s, lambda: over.callback(None))
        try:
            await over
        finally:
            if timer.active():
                timer.cancel()

    def _pass_over(self) -> None:
        """End the GET that waits without a batch, in a later round of the reactor."""
        if self._fetching and self._awaited and not self._passed_over:
            self._passed_over = True
            self._awaited.cancel()

    def _consumes(self, identity: ClientIdentity) -> None:
        """The client expects on this connection every row that it has not acknowledged."""
        if not self._lost:
            self._shared.consumers.began(identity, self)
            self._told.begins(identity)

    def _check_read(self) -> None:
        """End the private read and raise NotAllowed if its account may not begin the same read now.

        The rows are those of the read, whatever destination and client id a GET names.
        """
        if self._read_as is None:
            return
        asked, began = self._read_as
        try:
            if self._visitor.admitted(ReadFrom.packet_type, asked).within != began.within:
                raise NotAllowed("the account may read other tables or columns now: begin another read")
        except NotAllowed:
            self._end_read()
            raise

    def _end_read(self) -> None:
        if self._read:
            self._read.close("its client ended it")

    async def _turn(self) -> None:
        """Give other connections their turn, if this one's has lasted long enough."""
        if self._shared.clock.seconds() - self._turn_began >= TURN_S:
            await self._shared.turns.turn()

    # ---- driving the steps

    def _go_on(self, result: object = None) -> None:
        """Run the steps until one waits. result: of the Deferred that the last step waited for."""
        if self._in_turn:  # the Deferred had its result already
            self._step(result)
            return
        self._in_turn = True
        self._turn_began = self._shared.clock.seconds()
        try:
            self._step(result)
        finally:
            self._in_turn = False
        if self._session.waiting_bytes != self._ahead_bytes:
            self._weigh()

    def _step(self, result: object) -> None:
        self._awaited = None
        self._listening = False
        try:
            if isinstance(result, Failure):
                awaited = result.throwExceptionIntoGenerator(self._steps)
            else:
                awaited = self._steps.send(None)
        except StopIteration:
            self._forget()
            return
        except Exception as error:
            self._forget()
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
        """Whether one more line about this client may be written. The client decides how many there could be."""
        return self._shared.complaints.may(self._peer)

    def _broke(self, error: Exception) -> None:
        """A step failed with an unexpected error: end this connection and leave the others alone."""
        if self._may_log():
            LOG.error("connection.broke", channel=self._session.channel, error=Failure(error).getTraceback())
        self._transport.abortConnection()


def _client(identity: ClientIdentity) -> dict[str, object]:
    """Return what a line of the log says of a client."""
    return {"destination": identity.destination, "client_id": identity.client_id}


@types.coroutine
def _more() -> Generator[None, None, None]:
    """Wait for `Conversation._awaken`."""
    yield


def _tables(request: Subscribe | ReadFrom) -> dict[str, object]:
    """Return the tables whose existing rows a request wants, for the audit."""
    return {"snapshot": some(request.snapshot.tables)} if request.snapshot.tables else {}


def _shown(cursor: LogPosition | None, identity: ClientIdentity) -> LogPosition | None:
    """Return a cursor with as much of its snapshot as the client's account sees."""
    return cursor and replace(cursor, snapshot=told_within(identity.within, cursor.snapshot))
