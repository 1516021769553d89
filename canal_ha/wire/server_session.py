"""The server half of a conversation: frames in, requests out one at a time, replies back in their order.

    AUTHENTICATION --any frame, accepted--> SESSION
    AUTHENTICATION --any frame, refused--> AUTHENTICATION      (error packet; the seed stays)
    AUTHENTICATION --accepted, names a destination and a client--> SUBSCRIBING --done--> SESSION
    SESSION --any request--> SESSION
    any state --something that is no packet, or an impossible length--> the connection is closed

The next request comes out only when the last one is answered, so that pipelined requests are carried out and answered
strictly in order (docs/protocol.md#order).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from canal_ha.errors import CanalError, LocalProtocolError, RemoteProtocolError
from canal_ha.model.batch import GetAnswer
from canal_ha.model.excerpt import excerpt
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.wire import messages, packets
from canal_ha.wire.framing import HEADER_BYTES, FrameReader
from canal_ha.wire.packets import Acknowledge, Get, JavaError, Refusal, Request, Rollback, Subscribe
from canal_ha.wire.scramble import Credentials

UNAUTHENTICATED_FRAME_BYTES = 64 * 1024
DEFAULT_IDLE_MS = 3_600_000
KEPT_GET_BYTES = 1024


class ConversationState(Enum):
    """Where the conversation stands."""

    AUTHENTICATION = 0
    SUBSCRIBING = 1
    SESSION = 2


@dataclass(frozen=True, slots=True)
class Reply:
    """What to write, and what the counters want to know of it (docs/protocol.md#metrics).

    pieces: a whole frame, or nothing after a successful CLIENTACK or CLIENTROLLBACK; packet_type: the request's, ""
    for authentication, which is not counted; destination: "" when it was never known.
    """

    pieces: tuple[bytes | memoryview, ...]
    packet_type: str = ""
    destination: str = ""
    error_code: int = 0
    error: str = ""
    empty: bool = False

    @property
    def size_bytes(self) -> int:
        """Length on the wire; silent successes count the four bytes of a header, as canal has it."""
        return sum(map(len, self.pieces)) or HEADER_BYTES


class ServerSession:
    """See the module. channel: how error texts name the connection; idle_ms: read and write limits, once known."""

    def __init__(self, *, seed: bytes, credentials: Credentials, channel: str, max_frame_bytes: int) -> None:
        self.state = ConversationState.AUTHENTICATION
        self.idle_ms = (DEFAULT_IDLE_MS, DEFAULT_IDLE_MS)
        self.channel = channel
        self._seed = seed
        self._credentials = credentials
        self._max_frame_bytes = max_frame_bytes
        self._reader = FrameReader(min(UNAUTHENTICATED_FRAME_BYTES, max_frame_bytes))
        self._current: Request | None = None
        self._last_get: tuple[bytes, Get] | None = None  # with its packet: a client asks the same again and again

    def handshake(self) -> Reply:
        """The first thing to write."""
        return Reply((packets.handshake(self._seed),))

    def receive(self, data: bytes) -> None:
        """Take what the peer sent. Raises RemoteProtocolError when it sends on and on without reading its replies."""
        self._reader.feed(data)
        if len(self._reader) > 2 * self._reader.max_frame_bytes + HEADER_BYTES:
            raise RemoteProtocolError(f"{len(self._reader)} bytes of requests sent ahead of a reply")

    def next(self) -> Request | Reply | None:
        """The next request to carry out, or a reply that needs no carrying out; None without a whole frame.

        None as well while a request is at work. Raises RemoteProtocolError: close the connection without a word.
        """
        if self._current is not None:
            return None
        packet = self._reader.next()
        if packet is None:
            return None
        return _STEPS[self.state](self, packet)

    # ---- how the request at work ended

    def done(self) -> Reply:
        """It succeeded and has nothing to tell."""
        request = self._take()
        if self.state is ConversationState.SUBSCRIBING:
            self.state = ConversationState.SESSION
            return Reply((packets.accepted(),))
        silent = isinstance(request, Acknowledge | Rollback)
        return self._reply(request, () if silent else (packets.accepted(),))

    def subscribed(self, cursor: LogPosition | None) -> Reply:
        """A SUBSCRIPTION's answer. cursor: the client's, told only if it asked for it."""
        if not (isinstance(self._current, Subscribe) and self._current.tell_cursor and cursor):
            return self.done()
        return self._reply(self._take(), (packets.accepted(cursor),))

    def fetched(self, message: GetAnswer) -> Reply:
        """A GET's answer."""
        request = self._take()
        return self._reply(request, messages.encode(message), empty=message.batch is None)

    def failed(self, error: Exception) -> Reply:
        """It failed. Raises RemoteProtocolError when it was part of authentication, which ends the connection."""
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
        if not self._credentials.accept(sent.username, sent.password, self._seed):
            text = f"auth failed for user:{excerpt(sent.username)}"
            return Reply((packets.refused(packets.GENERIC, text),), error=text)
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
            raise RemoteProtocolError(f"CLIENTAUTHENTICATION with a destination or client id: {error}") from error
        self.state = ConversationState.SUBSCRIBING
        self._current = Subscribe(ClientIdentity(sent.destination, client_id, sent.filter), during_authentication=True)
        return self._current

    def _request(self, data: bytes) -> Request | Reply:
        if self._last_get and self._last_get[0] == data:
            self._current = self._last_get[1]
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
        if isinstance(self._current, Get) and len(data) <= KEPT_GET_BYTES:
            self._last_get = data, self._current
        elif isinstance(self._current, Acknowledge) and self._current.batch_id == -1:
            return self.done()  # the last GET was empty: nothing to acknowledge
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


_STEPS: Mapping[ConversationState, Callable[[ServerSession, bytes], Request | Reply]] = {
    ConversationState.AUTHENTICATION: ServerSession._authenticate,  # any frame, whatever its type
    ConversationState.SESSION: ServerSession._request,
}  # while SUBSCRIBING a request is at work, so no frame is taken
