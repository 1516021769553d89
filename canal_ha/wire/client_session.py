"""The client half of a conversation: requests out, replies in, matched by their order.

CLIENTACK and CLIENTROLLBACK are answered only when they fail, and then with the same packet that could refuse the next
request. So an error that follows one of them may belong to either: the session is then out of step, and only a new
connection puts it right (docs/protocol.md#out-of-step).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from google.protobuf.message import DecodeError

from canal_ha.errors import LocalProtocolError, RemoteProtocolError, ServerRefused
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.wire import messages, scramble
from canal_ha.wire.framing import FrameReader
from canal_ha.wire.messages import Fetched, OnlyFrames
from canal_ha.wire.packets import client_frame, read_packet, type_name
from canal_ha.wire.proto import canal_protocol_pb2 as pb

LARGEST_FRAME_BYTES = 2**31 - 1
END_OF_RANGE = "end of range"
_MILLISECONDS = 2


class Expected(Enum):
    """What the next packet answers."""

    HANDSHAKE = "connecting"
    AUTHENTICATION = "authentication"
    SUBSCRIPTION = "SUBSCRIPTION"
    UNSUBSCRIPTION = "UNSUBSCRIPTION"
    GET = "GET"
    DUMP = "DUMP"


@dataclass(frozen=True, slots=True)
class Greeting:
    """The server is there."""

    seed: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request succeeded. cursor: told by SUBSCRIPTION, if it was asked for and the server knows of that."""

    cursor: LogPosition | None = None


Answer = Greeting | Accepted | Fetched


class ClientSession:
    """See the module. Every method for a request returns the bytes to send. only_frames: lets batches be uncopied."""

    def __init__(
        self, *, max_frame_bytes: int = LARGEST_FRAME_BYTES, only_frames: OnlyFrames = lambda packet, start: False
    ) -> None:
        self.in_step = True
        self._only_frames = only_frames
        self._reader = FrameReader(max_frame_bytes)
        self._seed: bytes | None = None
        self._waiting: deque[tuple[Expected, bool]] = deque([(Expected.HANDSHAKE, False)])
        self._silent = False  # an ACK or ROLLBACK went out after the last request that is always answered

    @property
    def unconfirmed(self) -> bool:
        """Whether an ACK or ROLLBACK went out that no later reply has confirmed yet."""
        return self._silent or any(silent for _, silent in self._waiting)

    # ---- requests

    def authenticate(self, username: str, password: str | None, idle_timeout_ms: int) -> bytes:
        """CLIENTAUTHENTICATION. password: None sends none at all; "" is scrambled like any other."""
        if self._seed is None:
            raise LocalProtocolError("authentication before the server's HANDSHAKE")
        token = b"" if password is None else scramble.token(password, self._seed)
        body = pb.ClientAuth(
            username=username, password=token, net_read_timeout=idle_timeout_ms, net_write_timeout=idle_timeout_ms
        )
        return self._answered(Expected.AUTHENTICATION, client_frame(pb.CLIENTAUTHENTICATION, body))

    def subscribe(self, identity: ClientIdentity, *, tell_cursor: bool = False) -> bytes:
        """SUBSCRIPTION with the identity's filter; "" keeps the server's. tell_cursor: a canal server does not."""
        body = pb.Sub(
            destination=identity.destination,
            client_id=str(identity.client_id),
            filter=identity.filter,
            tell_cursor=tell_cursor,
        )
        return self._answered(Expected.SUBSCRIPTION, client_frame(pb.SUBSCRIPTION, body))

    def unsubscribe(self, identity: ClientIdentity) -> bytes:
        """UNSUBSCRIPTION: the server forgets this client and its cursor."""
        body = pb.Unsub(destination=identity.destination, client_id=str(identity.client_id))
        return self._answered(Expected.UNSUBSCRIPTION, client_frame(pb.UNSUBSCRIPTION, body))

    def get(self, identity: ClientIdentity, fetch_size: int, timeout_ms: int, *, eager: bool = False) -> bytes:
        """GET. timeout_ms: -1 takes what is there, 0 waits without limit for `fetch_size`, or if eager for anything.

        A canal server does not know of `eager` and waits for `fetch_size`.
        """
        return self._answered(Expected.GET, _get_frame(identity, fetch_size, timeout_ms, eager))

    def read_from(self, identity: ClientIdentity, place: Place, until: Place | None) -> bytes:
        """DUMP with our own fields: this connection reads privately from now on. canal refuses it."""
        body = pb.Dump(
            journal=place.journal,
            position=place.offset,
            destination=identity.destination,
            client_id=str(identity.client_id),
            gtid=place.gtid,
            filter=identity.filter,
        )
        if place.timestamp_ms or place.end == "earliest":
            body.timestamp = place.timestamp_ms or 1
        if until is not None:
            body.end_journal, body.end_position, body.end_gtid = until.journal, until.offset, until.gtid
        return self._answered(Expected.DUMP, client_frame(pb.DUMP, body))

    def ack(self, identity: ClientIdentity, batch_id: int, mark: str = "") -> bytes:
        """CLIENTACK: nothing comes back when it succeeds. mark: kept with the cursor, which canal does not do."""
        body = pb.ClientAck(
            destination=identity.destination, client_id=str(identity.client_id), batch_id=batch_id, mark=mark
        )
        return self._unanswered(client_frame(pb.CLIENTACK, body))

    def rollback(self, identity: ClientIdentity, batch_id: int = 0) -> bytes:
        """CLIENTROLLBACK: nothing comes back when it succeeds. batch_id 0: everything in flight."""
        body = pb.ClientRollback(destination=identity.destination, client_id=str(identity.client_id), batch_id=batch_id)
        return self._unanswered(client_frame(pb.CLIENTROLLBACK, body))

    # ---- replies

    @property
    def missing(self) -> int:
        """How many bytes to receive at most, so that a large reply is copied as little as can be."""
        return self._reader.missing

    def receive(self, data: bytes | memoryview) -> None:
        """Take what the server sent."""
        self._reader.feed(data)

    def next(self) -> Answer | None:
        """The answer to the oldest open request; None without a whole frame.

        Raises ServerRefused; afterwards `in_step` is False when the error may belong to an ACK or ROLLBACK.
        Raises RemoteProtocolError for what no canal server sends.
        """
        data = self._reader.next()
        if data is None:
            return None
        if self._waiting and self._waiting[0][0] is Expected.GET:
            fetched = messages.in_place(data, self._only_frames)
            if fetched is not None:
                self._waiting.popleft()
                return fetched
        packet = read_packet(data)
        if packet.compression not in (pb.NONE, pb.COMPRESSIONCOMPATIBLEPROTO2):
            raise RemoteProtocolError("compression is not supported in this connector")
        if not self._waiting:
            self.in_step = False
            self._raise_if_refused("an acknowledgement or rollback", packet)
            raise RemoteProtocolError(f"unexpected packet type: {type_name(packet.type)}")
        expected, after_silent = self._waiting.popleft()
        try:
            return _READERS[expected](self, packet)
        except ServerRefused as error:
            # nothing but a GET is told of the end of a range
            self.in_step = self.in_step and (not after_silent or END_OF_RANGE in str(error))
            raise

    def _handshake(self, packet: pb.Packet) -> Greeting:
        if packet.version != 1:
            raise RemoteProtocolError("unsupported version at this client.")
        if packet.type != pb.HANDSHAKE:
            raise RemoteProtocolError("expect handshake but found other type.")
        try:
            self._seed = pb.Handshake.FromString(packet.body).seeds
        except DecodeError as error:
            raise RemoteProtocolError(f"a HANDSHAKE that cannot be read: {error}") from error
        return Greeting(self._seed)

    def _authenticated(self, packet: pb.Packet) -> Accepted:
        return self._accepted("something goes wrong when doing authentication", packet)

    def _subscribed(self, packet: pb.Packet) -> Accepted:
        accepted = self._accepted("failed to subscribe with reason", packet)
        text = pb.Ack.FromString(packet.body).cursor
        if not text:
            return accepted
        try:
            return Accepted(LogPosition.from_json(text))
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"a cursor that cannot be read: {error}") from error

    def _unsubscribed(self, packet: pb.Packet) -> Accepted:
        return self._accepted("failed to unSubscribe with reason", packet)

    def _reading(self, packet: pb.Packet) -> Accepted:
        return self._accepted("failed to read from a position with reason", packet)

    def _fetched(self, packet: pb.Packet) -> Fetched:
        if packet.type == pb.MESSAGES:
            return messages.decode(packet.body)
        self._raise_if_refused("something goes wrong with reason", packet)
        raise RemoteProtocolError(f"unexpected packet type: {type_name(packet.type)}")

    def _accepted(self, lead: str, packet: pb.Packet) -> Accepted:
        self._raise_if_refused(lead, packet)
        if packet.type != pb.ACK:
            raise RemoteProtocolError(f"unexpected packet type: {type_name(packet.type)}")
        return Accepted()

    def _raise_if_refused(self, lead: str, packet: pb.Packet) -> None:
        if packet.type != pb.ACK:
            return
        try:
            ack = pb.Ack.FromString(packet.body)
        except DecodeError as error:
            raise RemoteProtocolError(f"an ACK that cannot be read: {error}") from error
        if ack.error_code > 0:
            raise ServerRefused(f"{lead}: {ack.error_message.rstrip()}", ack.error_code)

    # ---- inside

    def _answered(self, expected: Expected, data: bytes) -> bytes:
        self._check_in_step()
        self._waiting.append((expected, self._silent))
        self._silent = False
        return data

    def _unanswered(self, data: bytes) -> bytes:
        self._check_in_step()
        self._silent = True
        return data

    def _check_in_step(self) -> None:
        if not self.in_step:
            raise LocalProtocolError("replies are out of step since an error: connect again")


@lru_cache(64)  # the same few again and again
def _get_frame(identity: ClientIdentity, fetch_size: int, timeout_ms: int, eager: bool) -> bytes:
    body = pb.Get(
        destination=identity.destination,
        client_id=str(identity.client_id),
        fetch_size=fetch_size,
        timeout=timeout_ms,
        unit=_MILLISECONDS,
        auto_ack=False,
        eager=eager,
    )
    return client_frame(pb.GET, body)


_READERS: Mapping[Expected, Callable[[ClientSession, pb.Packet], Answer]] = {
    Expected.HANDSHAKE: ClientSession._handshake,
    Expected.AUTHENTICATION: ClientSession._authenticated,
    Expected.SUBSCRIPTION: ClientSession._subscribed,
    Expected.UNSUBSCRIPTION: ClientSession._unsubscribed,
    Expected.GET: ClientSession._fetched,
    Expected.DUMP: ClientSession._reading,
}
