"""The server side of a connection: frames in, requests out one at a time, replies back in their order.

    AUTHENTICATION --any frame, accepted--> SESSION
    AUTHENTICATION --any frame, refused--> AUTHENTICATION      (error packet; the seed stays)
    AUTHENTICATION --the third refusal--> the connection is closed behind its error packet
    AUTHENTICATION --accepted, names a destination and a client--> SUBSCRIBING --done--> SESSION
    SESSION --any request--> SESSION
    any state --a frame that is not a packet, or an invalid length--> the connection is closed

The next request is returned only after the last one is answered, so pipelined requests are executed and answered in
order (docs/protocol.md#order).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

from canal_ha.errors import Busy, CanalError, LocalProtocolError, LoginRefused, RemoteProtocolError
from canal_ha.model.batch import GetAnswer
from canal_ha.model.excerpt import excerpt
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.immutable import immutable
from canal_ha.model.position import LogPosition
from canal_ha.wire import messages, packets
from canal_ha.wire.framing import HEADER_BYTES, FrameReader, frame
from canal_ha.wire.packets import Acknowledge, Get, JavaError, Refusal, Request, Rollback, Subscribe
from canal_ha.wire.proto.canal_protocol_pb2 import Packet

UNAUTHENTICATED_FRAME_BYTES = 64 * 1024
DEFAULT_IDLE_MS = 3_600_000
KEPT_BYTES = 1024  # of a packet that is remembered
GUESSES = 3  # of a password, on one connection


class ConversationState(Enum):
    """The state of the connection."""

    AUTHENTICATION = 0
    SUBSCRIBING = 1
    SESSION = 2


class Guard(Protocol):
    """Decides who may connect."""

    def log_in(self, username: str, password: bytes, seed: bytes) -> None:
        """Return if this peer may connect.

        username: as received.
        password: the hex text as received.
        seed: the seed of the handshake.
        Raises LoginRefused or Busy, which are answered; RemoteProtocolError for a malformed text.
        """


@immutable
class Reply:
    """A frame to write, and its values for the metrics (docs/protocol.md#metrics).

    pieces: a complete frame; empty after a successful CLIENTACK or CLIENTROLLBACK.
    packet_type: the request's; "" for authentication, which is not counted.
    destination: "" if it is unknown.
    error_code: 0 for success.
    error: the error's text; "" for success.
    empty: a GET returned no batch.
    last: the connection ends behind it.
    """

    pieces: tuple[bytes | memoryview, ...]
    packet_type: str = ""
    destination: str = ""
    error_code: int = 0
    error: str = ""
    empty: bool = False
    last: bool = False

    @property
    def size_bytes(self) -> int:
        """Length on the wire; a success without a frame counts four bytes, as in canal."""
        return sum(map(len, self.pieces)) or HEADER_BYTES


@immutable
class KnownAck:
    """The packet of an ACK whose number of the batch comes last. The next ones differ in this number alone.

    frame: the packet with its length, without the number.
    size_bytes: of the frame, with the number.
    """

    identity: ClientIdentity
    frame: bytes
    size_bytes: int

    @classmethod
    def of(cls, data: bytes, packet: Packet, ack: Acknowledge) -> KnownAck | None:
        """Return what is known by a packet; None if it is long, has a mark, or its fields are not in their order."""
        number = messages.varint(ack.batch_id) if ack.batch_id > 0 else b""
        if not number or ack.mark or len(data) > KEPT_BYTES or not packets.ends_with_batch(data, packet, number):
            return None
        whole = frame(data)
        return cls(ack.identity, whole[: -len(number)], len(whole))

    def batch_of(self, data: bytes) -> int:
        """Return the number of the batch in such a packet, without its length; 0 if it is another packet."""
        if HEADER_BYTES + len(data) != self.size_bytes or not data.startswith(self.frame[HEADER_BYTES:]):
            return 0
        return messages.number_at(data, len(self.frame) - HEADER_BYTES)


class ServerSession:
    """The server side of a connection. idle_ms: its read and write limits, set by authentication.

    seed: of the handshake.
    guard: decides who may connect.
    channel: name of the connection in error texts.
    max_frame_bytes: largest frame accepted after authentication.
    """

    def __init__(self, *, seed: bytes, guard: Guard, channel: str, max_frame_bytes: int) -> None:
        self.state = ConversationState.AUTHENTICATION
        self.idle_ms = (DEFAULT_IDLE_MS, DEFAULT_IDLE_MS)
        self.channel = channel
        self._seed = seed
        self._guard = guard
        self._refused = 0  # logins
        self._max_frame_bytes = max_frame_bytes
        self._reader = FrameReader(min(UNAUTHENTICATED_FRAME_BYTES, max_frame_bytes))
        self._current: Request | None = None
        # A client repeats the same packets: the same GET, and ACKs that differ only in the batch.
        self._last_get: tuple[bytes, Get] | None = None  # with its packet
        self._last_ack: KnownAck | None = None
        self._get_frame = b""  # that of `_last_get`
        self._sent = 0, b""  # the last batch: its number, and this as a packet has it
        self._ahead: list[Request] = []  # received, and known from earlier packets; the next one last
        self._ahead_bytes = 0
        self._reads = False  # whether anything may be in the reader
        self._silent: Reply | None = None  # the reply to the last successful ACK

    @property
    def waiting_bytes(self) -> int:
        """Bytes of requests that the peer has sent and that are not read yet."""
        return len(self._reader) + self._ahead_bytes if self._reads else self._ahead_bytes

    def handshake(self) -> Reply:
        """Build the first frame to write."""
        return Reply((packets.handshake(self._seed),))

    def receive(self, data: bytes) -> None:
        """Store bytes from the peer. Raises RemoteProtocolError if it sends too much without reading replies.

        At the end of the binlog nearly all clients send what is known already: the ACK of the last batch together with
        the same GET, or this GET alone.
        """
        get, ack = self._last_get, self._last_ack
        if get and not self._ahead and not self._reads:
            if data == self._get_frame:
                self._ahead_bytes = len(data)
                self._ahead.append(get[1])
                return
            if ack and len(data) == ack.size_bytes + len(self._get_frame):
                number, text = self._sent
                if data == ack.frame + text + self._get_frame:
                    self._ahead_bytes = len(data)
                    self._ahead += (get[1], Acknowledge(ack.identity, number))
                    return
        self._reads = True
        self._reader.feed(data)
        if len(self._reader) > 2 * self._reader.max_frame_bytes + HEADER_BYTES:
            raise RemoteProtocolError(f"the peer sent {len(self._reader)} bytes of requests before reading a reply")

    def discard(self) -> None:
        """Forget what the peer has sent and nobody has read."""
        self._reader.clear()
        self._reads = False
        self._ahead.clear()
        self._ahead_bytes = 0

    def next(self) -> Request | Reply | None:
        """Return the next request to execute, or a reply to write; None without a complete frame.

        Also None while a request is being executed. Raises RemoteProtocolError: close the connection without a reply.
        """
        if self._current is not None:
            return None
        if self._ahead:
            self._current = request = self._ahead.pop()
            if not self._ahead:
                self._ahead_bytes = 0
            return request
        if not self._reads:
            return None
        packet = self._reader.next()
        if packet is None:
            self._reads = len(self._reader) > 0
            return None
        return self._request(packet) if self.state is _SESSION else _STEPS[self.state](self, packet)

    # ---- the result of the current request

    def done(self) -> Reply:
        """Build the reply to a request that succeeded without a result."""
        request = self._take()
        if self.state is _SUBSCRIBING:
            self.state = _SESSION
            return Reply((packets.accepted(),))
        if type(request) is Acknowledge:
            if self._silent is None or self._silent.destination != request.identity.destination:
                self._silent = self._reply(request, ())
            return self._silent
        return self._reply(request, () if isinstance(request, Rollback) else (packets.accepted(),))

    def reading(self, start: LogPosition) -> Reply:
        """Build the reply to a DUMP. start: where the read begins."""
        return self._reply(self._take(), (packets.accepted(start),))

    def subscribed(self, cursor: LogPosition | None) -> Reply:
        """Build the reply to a SUBSCRIPTION. cursor: the client's; sent only if it asked for it."""
        if not (isinstance(self._current, Subscribe) and self._current.tell_cursor and cursor):
            return self.done()
        return self._reply(self._take(), (packets.accepted(cursor),))

    def fetched(self, message: GetAnswer) -> Reply:
        """Build the reply to a GET."""
        request = self._take()
        if message.batch is None:
            return self._reply(request, messages.encode(message), empty=True)
        self._sent = message.batch_id, messages.varint(message.batch_id)
        return Reply(
            messages.encode(message, self._sent[1]),
            packet_type=request.packet_type,
            destination=request.identity.destination,
        )

    def failed(self, error: Exception) -> Reply:
        """Build the reply to a failed request. Raises RemoteProtocolError if that ends the connection."""
        request = self._take()
        if self.state is ConversationState.SUBSCRIBING:
            raise RemoteProtocolError(f"subscribing during authentication failed: {error}") from error
        code = error.code if isinstance(error, CanalError) else packets.GENERIC
        text = packets.generic_text(self.channel, error)
        return Reply(
            (packets.refused(code, text),),
            packet_type=request.packet_type,
            destination=request.identity.destination,
            error_code=code,
            error=str(error) if isinstance(error, CanalError) else excerpt(str(error)),
        )

    # ---- inside

    def _authenticate(self, data: bytes) -> Request | Reply:
        sent = packets.read_authentication(data)
        try:
            self._guard.log_in(sent.username, sent.password, self._seed)
        except (LoginRefused, Busy) as error:
            self._refused += 1
            frame = packets.refused(error.code, str(error))
            return Reply((frame,), error=str(error), last=self._refused == GUESSES)
        self.idle_ms = (
            sent.net_read_timeout if sent.net_read_timeout > 0 else DEFAULT_IDLE_MS,
            sent.net_write_timeout if sent.net_write_timeout > 0 else DEFAULT_IDLE_MS,
        )
        self._reader.max_frame_bytes = self._max_frame_bytes
        if not sent.destination or not sent.client_id:
            self.state = ConversationState.SESSION
            return Reply((packets.accepted(),))
        try:
            packets.check_destination(sent.destination)
            client_id = packets.client_id_of(sent.client_id)
        except (Refusal, JavaError) as error:
            raise RemoteProtocolError(f"invalid destination or client id in CLIENTAUTHENTICATION: {error}") from error
        self.state = ConversationState.SUBSCRIBING
        self._current = Subscribe(ClientIdentity(sent.destination, client_id, sent.filter), during_authentication=True)
        return self._current

    def _request(self, data: bytes) -> Request | Reply:
        if self._last_get and self._last_get[0] == data:
            self._current = self._last_get[1]
            return self._current
        if self._last_ack and (batch_id := self._last_ack.batch_of(data)):
            self._current = Acknowledge(self._last_ack.identity, batch_id)
            return self._current
        packet = packets.read_packet(data)
        try:
            self._current = packets.read_request(packet)
        except (Refusal, JavaError) as error:
            text = packets.generic_text(self.channel, error) if isinstance(error, JavaError) else str(error)
            code = error.code if isinstance(error, Refusal) else packets.GENERIC
            return Reply(
                (packets.refused(code, text),),
                packet_type=packets.type_name(packet.type),
                error_code=code,
                error=str(error),
            )
        if isinstance(self._current, Get) and len(data) <= KEPT_BYTES:
            self._last_get, self._get_frame = (data, self._current), frame(data)
        elif isinstance(self._current, Acknowledge):
            if self._current.batch_id == -1:
                return self.done()  # the last GET was empty: nothing to acknowledge
            self._last_ack = KnownAck.of(data, packet, self._current)
        return self._current

    def _take(self) -> Request:
        request, self._current = self._current, None
        if request is None:
            raise LocalProtocolError("a reply without a request")
        return request

    def _reply(self, request: Request, pieces: tuple[bytes | memoryview, ...], *, empty: bool = False) -> Reply:
        return Reply(
            pieces,
            packet_type=request.packet_type,
            destination=request.identity.destination,
            empty=empty and isinstance(request, Get),
        )


_SESSION, _SUBSCRIBING = ConversationState.SESSION, ConversationState.SUBSCRIBING  # found faster than the members
_STEPS: Mapping[ConversationState, Callable[[ServerSession, bytes], Request | Reply]] = {
    ConversationState.AUTHENTICATION: ServerSession._authenticate,  # a frame of any type
    ConversationState.SESSION: ServerSession._request,
}  # no frame is read in SUBSCRIBING, because a request is being executed
