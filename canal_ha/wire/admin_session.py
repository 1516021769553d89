"""The server side of canal's admin protocol: frames in, requests out, replies back (docs/protocol.md#admin-protocol).

    AUTHENTICATION --any frame, accepted--> SESSION
    AUTHENTICATION --any frame, refused--> AUTHENTICATION      (error packet; the seed stays)
    AUTHENTICATION --the third refusal--> the connection is closed behind its error packet
    SESSION --any request--> SESSION
    any state --a frame that is not a packet, or an invalid length--> the connection is closed

Requests are answered one after the other: the caller answers one before it asks for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from canal_ha.config.kinds import DESTINATION_BYTES
from canal_ha.errors import Busy, LoginRefused, RemoteProtocolError
from canal_ha.model.excerpt import excerpt
from canal_ha.wire.framing import HEADER_BYTES, FrameReader, frame
from canal_ha.wire.proto import admin_protocol_pb2 as pb
from canal_ha.wire.server_session import DEFAULT_IDLE_MS, GUESSES, Guard

Body = TypeVar("Body", bound=Message)

FRAME_BYTES = 64 * 1024  # a request is a few names
AUTH, UNKNOWN, GENERIC = 300, 301, 400
"""canal's codes: a refused login or packet type, an unknown action, any other error."""

SERVER_CHECK, SERVER_LIST = "SERVER check", "SERVER list"
SERVER_START, SERVER_STOP, SERVER_RESTART = "SERVER start", "SERVER stop", "SERVER restart"
INSTANCE_CHECK = "INSTANCE check"
INSTANCE_START, INSTANCE_STOP = "INSTANCE start", "INSTANCE stop"
INSTANCE_RESTART, INSTANCE_RELEASE = "INSTANCE restart", "INSTANCE release"
LOG_SERVER, LOG_INSTANCE = "LOG server", "LOG instance"

_SERVER = frozenset({SERVER_CHECK, SERVER_LIST, SERVER_START, SERVER_STOP, SERVER_RESTART})
_INSTANCE = frozenset({INSTANCE_CHECK, INSTANCE_START, INSTANCE_STOP, INSTANCE_RESTART, INSTANCE_RELEASE})
_LOG = frozenset({LOG_SERVER, LOG_INSTANCE})
KINDS = _SERVER | _INSTANCE | _LOG
"""Every request: packet type and action, of LOG packet type and type."""


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """One request.

    kind: one of KINDS.
    destination: "" if it names none.
    lists: of LOG, whether it asks for the names of files, and not for the end of one.
    file: of LOG; "" for the log itself.
    lines: of LOG, how many of the last lines.
    """

    kind: str
    destination: str = ""
    lists: bool = False
    file: str = ""
    lines: int = 0


@dataclass(frozen=True, slots=True)
class AdminReply:
    """A frame to write. error: "" for success; last: the connection ends behind it."""

    frame: bytes
    error: str = ""
    last: bool = False


class AdminSession:
    """The server side of a connection. idle_ms: its read and write limits, set by authentication.

    seed: of the handshake.
    guard: decides who may connect.
    """

    def __init__(self, seed: bytes, guard: Guard) -> None:
        self.idle_ms = (DEFAULT_IDLE_MS, DEFAULT_IDLE_MS)
        self.authenticated = False
        self._seed = seed
        self._guard = guard
        self._refused = 0  # logins
        self._reader = FrameReader(FRAME_BYTES)

    def handshake(self) -> bytes:
        """Build the first frame to write."""
        return handshake(self._seed)

    def receive(self, data: bytes) -> None:
        """Store bytes from the peer. Raises RemoteProtocolError if it sends too much without reading replies."""
        self._reader.feed(data)
        if len(self._reader) > 2 * FRAME_BYTES + HEADER_BYTES:
            raise RemoteProtocolError(f"the peer sent {len(self._reader)} bytes of requests before reading a reply")

    def next(self) -> AdminRequest | AdminReply | None:
        """Return the next request to carry out, or a reply to write; None without a complete frame.

        Raises RemoteProtocolError: close the connection without a reply.
        """
        packet = self._reader.next()
        if packet is None:
            return None
        sent = _parsed(pb.Packet, packet)
        return _request(sent) if self.authenticated else self._authenticate(sent)

    def _authenticate(self, packet: pb.Packet) -> AdminReply:
        """Log in, whatever the packet's type is. Unlike canal, a refused peer stays outside."""
        sent = _parsed(pb.ClientAuth, packet.body)
        try:
            self._guard.log_in(sent.username, sent.password, self._seed)
        except (LoginRefused, Busy) as error:
            self._refused += 1
            return refused(AUTH, str(error), last=self._refused == GUESSES)
        self.idle_ms = (
            sent.net_read_timeout if sent.net_read_timeout > 0 else DEFAULT_IDLE_MS,
            sent.net_write_timeout if sent.net_write_timeout > 0 else DEFAULT_IDLE_MS,
        )
        self.authenticated = True
        return succeeded()


def handshake(seed: bytes) -> bytes:
    """Build a server's first frame."""
    return _frame(pb.HANDSHAKE, pb.Handshake(seeds=seed))


def succeeded(text: str = "") -> AdminReply:
    """Build the reply to a request that succeeded. text: its result."""
    return AdminReply(_frame(pb.ACK, pb.Ack(code=0, message=text)))


def refused(code: int, text: str, *, last: bool = False) -> AdminReply:
    """Build the reply to a request that failed. last: the connection ends behind it."""
    return AdminReply(_frame(pb.ACK, pb.Ack(code=code, message=text)), text, last)


def _request(packet: pb.Packet) -> AdminRequest | AdminReply:
    read = _READERS.get(packet.type)
    if read is None:
        names = pb.PacketType.DESCRIPTOR.values_by_number
        name = names[packet.type].name if packet.type in names else str(packet.type)
        return refused(AUTH, f"packet type: {name} is NOT supported!")
    return read(packet.body)


def _server(body: bytes) -> AdminRequest | AdminReply:
    action = _parsed(pb.ServerAdmin, body).action
    kind = f"SERVER {action}"
    if kind not in _SERVER:
        return refused(UNKNOWN, f"ServerAdmin action: {excerpt(action)}  is unknown")  # canal has two blanks
    return AdminRequest(kind)


def _instance(body: bytes) -> AdminRequest | AdminReply:
    sent = _parsed(pb.InstanceAdmin, body)
    kind = f"INSTANCE {sent.action}"
    if kind not in _INSTANCE:
        return refused(UNKNOWN, f"InstanceAdmin action: {excerpt(sent.action)} is unknown")
    return _too_long(sent.destination) or AdminRequest(kind, sent.destination)


def _log(body: bytes) -> AdminRequest | AdminReply:
    sent = _parsed(pb.LogAdmin, body)
    kind = f"LOG {sent.type}"
    if kind not in _LOG:
        return refused(UNKNOWN, f"LogAdmin type: {excerpt(sent.type)} is unknown")
    destination = sent.destination if kind == LOG_INSTANCE else ""
    return _too_long(destination) or AdminRequest(
        kind, destination, lists=sent.action == "list", file=sent.file, lines=sent.count
    )


def _too_long(destination: str) -> AdminReply | None:
    """Refuse a name that would fill the log: it is quoted there."""
    if len(destination.encode()) <= DESTINATION_BYTES:
        return None
    return refused(GENERIC, f"a destination has at most {DESTINATION_BYTES} bytes: {excerpt(destination)}")


_READERS: Mapping[int, Callable[[bytes], AdminRequest | AdminReply]] = {
    pb.SERVER: _server,
    pb.INSTANCE: _instance,
    pb.LOG: _log,
}


def _parsed(kind: type[Body], data: bytes) -> Body:
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"a frame is not a message of canal's admin protocol: {error}") from error


def _frame(packet_type: pb.PacketType.ValueType, body: Message) -> bytes:
    return frame(pb.Packet(version=1, type=packet_type, body=body.SerializeToString()).SerializeToString())
