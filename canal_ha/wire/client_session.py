"""The client side of a connection: requests out, replies in, matched by their order.

CLIENTACK and CLIENTROLLBACK are answered only if they fail, with the same packet that refuses any other request. So an
error after one of them can belong to either request. The session is then out of step, and the client must connect again
(docs/protocol.md#out-of-step).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from google.protobuf.message import DecodeError

from canal_ha.errors import LocalProtocolError, RemoteProtocolError, ServerRefused
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import NO_SNAPSHOT, InitialSnapshot
from canal_ha.wire import messages, scramble
from canal_ha.wire.framing import HEADER_BYTES, FrameReader
from canal_ha.wire.messages import Fetched, OnlyFrames, WholeReply
from canal_ha.wire.packets import client_frame, read_packet, type_name
from canal_ha.wire.proto import canal_protocol_pb2 as pb

LARGEST_FRAME_BYTES = 2**31 - 1
END_OF_RANGE = "end of range"
_MILLISECONDS = 2


class Expected(Enum):
    """The request that the next packet answers."""

    HANDSHAKE = "connecting"
    AUTHENTICATION = "authentication"
    SUBSCRIPTION = "SUBSCRIPTION"
    UNSUBSCRIPTION = "UNSUBSCRIPTION"
    GET = "GET"
    DUMP = "DUMP"


@dataclass(frozen=True, slots=True)
class Greeting:
    """The server's handshake. seed: for the password's scramble."""

    seed: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """A request to a canal-ha server succeeded.

    cursor: the client's, after a SUBSCRIPTION with tell_cursor; where it begins, after DUMP; else None.
    """

    cursor: LogPosition | None = None


Answer = Greeting | Accepted | Fetched


class ClientSession:
    """The client side of a connection. Every request method returns the bytes to send.

    max_frame_bytes: largest frame accepted from the server.
    only_frames: checks a packet for use without a copy; see messages.in_place.
    whole_reply: reads a reply that came in one piece.
    exact: requests ask for values in the exact form. canal ignores this.
    snapshot: what the client begins with, if a SUBSCRIPTION creates its cursor. canal ignores this.
    """

    def __init__(
        self,
        *,
        max_frame_bytes: int = LARGEST_FRAME_BYTES,
        only_frames: OnlyFrames = lambda packet, start: False,
        whole_reply: WholeReply = lambda data: None,
        exact: bool = False,
        snapshot: InitialSnapshot = NO_SNAPSHOT,
    ) -> None:
        self.in_step = True
        self._exact = exact
        self._snapshot = snapshot
        self._only_frames = only_frames
        self._whole_reply = whole_reply
        self._fetched_whole: Fetched | None = None  # the next answer
        self._reader = FrameReader(max_frame_bytes)
        self._seed: bytes | None = None
        self._waiting: deque[tuple[Expected, bool]] = deque([(Expected.HANDSHAKE, False)])
        self._silent = False  # an ACK or ROLLBACK was sent after the last request with a reply
        self._asked: tuple[ClientIdentity, int, int, bool] | None = None  # by the last GET: a client repeats the same
        self._get_frame = b""

    @property
    def unconfirmed(self) -> bool:
        """Whether an ACK or ROLLBACK was sent that no later reply confirms yet."""
        return self._silent or any(silent for _, silent in self._waiting)

    # ---- requests

    def authenticate(self, username: str, password: str | None, idle_timeout_ms: int) -> bytes:
        """Build CLIENTAUTHENTICATION. password: None sends none; "" is scrambled like any other."""
        if self._seed is None:
            raise LocalProtocolError("authentication before the server's HANDSHAKE")
        token = b"" if password is None else scramble.token(password, self._seed)
        body = pb.ClientAuth(
            username=username, password=token, net_read_timeout=idle_timeout_ms, net_write_timeout=idle_timeout_ms
        )
        return self._answered(Expected.AUTHENTICATION, client_frame(pb.CLIENTAUTHENTICATION, body))

    def subscribe(self, identity: ClientIdentity, *, tell_cursor: bool = False) -> bytes:
        """Build SUBSCRIPTION; an empty filter keeps the server's.

        tell_cursor: ask for the cursor. canal ignores this.
        """
        body = pb.Sub(
            destination=identity.destination,
            client_id=str(identity.client_id),
            filter=identity.filter,
            tell_cursor=tell_cursor,
            exact=self._exact,
            snapshot=self._snapshot.tables,
            snapshot_filter=self._snapshot.filter,
            snapshot_again=self._snapshot.again,
            snapshot_gone=self._snapshot.gone,
        )
        return self._answered(Expected.SUBSCRIPTION, client_frame(pb.SUBSCRIPTION, body))

    def unsubscribe(self, identity: ClientIdentity) -> bytes:
        """Build UNSUBSCRIPTION: the server deletes this client and its cursor."""
        body = pb.Unsub(destination=identity.destination, client_id=str(identity.client_id))
        return self._answered(Expected.UNSUBSCRIPTION, client_frame(pb.UNSUBSCRIPTION, body))

    def get(
        self,
        identity: ClientIdentity,
        fetch_size: int,
        timeout_ms: int,
        *,
        eager: bool = False,
    ) -> bytes:
        """Build GET.

        identity: destination and client id.
        fetch_size: batch size, in entries or KiB.
        timeout_ms: longest wait for `fetch_size`; -1: do not wait; 0: no limit.
        eager: return as soon as there is an entry. canal ignores this and waits for `fetch_size`.
        """
        asked = identity, fetch_size, timeout_ms, eager
        if asked != self._asked:
            self._asked, self._get_frame = asked, _get_frame(identity, fetch_size, timeout_ms, eager, self._exact)
        return self._answered(Expected.GET, self._get_frame)

    def read_from(
        self, identity: ClientIdentity, place: Place, until: Place | None, snapshot: Sequence[str] = ()
    ) -> bytes:
        """Build DUMP with our own fields, which turns this connection into a private read. canal refuses it.

        identity: destination, client id and filter.
        place: where the read begins.
        until: where it ends; None for no end.
        snapshot: tables whose existing rows are read; the read ends behind them.
        """
        body = pb.Dump(
            journal=place.journal,
            position=place.offset,
            destination=identity.destination,
            client_id=str(identity.client_id),
            gtid=place.gtid,
            filter=identity.filter,
            exact=self._exact,
            snapshot=snapshot,
        )
        if place.timestamp_ms or place.end == "earliest":
            body.timestamp = place.timestamp_ms or 1
        if until is not None:
            body.end_journal, body.end_position, body.end_gtid = until.journal, until.offset, until.gtid
        return self._answered(Expected.DUMP, client_frame(pb.DUMP, body))

    def ack(self, identity: ClientIdentity, batch_id: int, mark: str = "") -> bytes:
        """Build CLIENTACK; success has no reply. mark: stored with the cursor; canal ignores it."""
        number = messages.varint(batch_id) if batch_id > 0 else b""
        if number and not mark:
            return self._unanswered(_ack_head(identity, len(number)) + number)
        return self._unanswered(_ack_frame(identity, batch_id, mark))

    def rollback(self, identity: ClientIdentity, batch_id: int = 0) -> bytes:
        """Build CLIENTROLLBACK; success has no reply. batch_id: 0 for all batches in flight."""
        body = pb.ClientRollback(destination=identity.destination, client_id=str(identity.client_id), batch_id=batch_id)
        return self._unanswered(client_frame(pb.CLIENTROLLBACK, body))

    # ---- replies

    @property
    def missing(self) -> int:
        """Largest number of bytes to receive next, so that a large reply is copied only once."""
        return self._reader.missing

    def receive(self, data: bytes | memoryview) -> None:
        """Store bytes from the server. A reply to a GET in one piece of bytes takes the shortest way."""
        if (
            isinstance(data, bytes)
            and self._waiting
            and self._waiting[0][0] is Expected.GET
            and not len(self._reader)
            and self._fetched_whole is None
            and len(data) <= self._reader.max_frame_bytes + HEADER_BYTES
            and (found := self._whole_reply(data))
        ):
            self._fetched_whole = Fetched(found[0], data, found[1])
        else:
            self._reader.feed(data)

    def next(self) -> Answer | None:
        """Return the reply to the oldest open request; None without a complete frame.

        Raises ServerRefused for an error packet; `in_step` is False if the error may belong to an ACK or ROLLBACK.
        Raises RemoteProtocolError for packets that no canal server sends.
        """
        if fetched := self._fetched_whole:
            self._fetched_whole = None
            self._waiting.popleft()
            return fetched
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
            # only a GET is refused with the end of a range
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
            raise RemoteProtocolError(f"invalid HANDSHAKE: {error}") from error
        return Greeting(self._seed)

    def _authenticated(self, packet: pb.Packet) -> Accepted:
        return self._accepted("something goes wrong when doing authentication", packet)

    def _subscribed(self, packet: pb.Packet) -> Accepted:
        return self._accepted_at("failed to subscribe with reason", packet)

    def _unsubscribed(self, packet: pb.Packet) -> Accepted:
        return self._accepted("failed to unSubscribe with reason", packet)

    def _reading(self, packet: pb.Packet) -> Accepted:
        return self._accepted_at("failed to read from a position with reason", packet)

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

    def _accepted_at(self, lead: str, packet: pb.Packet) -> Accepted:
        accepted = self._accepted(lead, packet)
        text = pb.Ack.FromString(packet.body).cursor
        if not text:
            return accepted
        try:
            return Accepted(LogPosition.from_json(text))
        except (ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"invalid cursor: {error}") from error

    def _raise_if_refused(self, lead: str, packet: pb.Packet) -> None:
        if packet.type != pb.ACK:
            return
        try:
            ack = pb.Ack.FromString(packet.body)
        except DecodeError as error:
            raise RemoteProtocolError(f"invalid ACK: {error}") from error
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
            raise LocalProtocolError("replies are out of step after an error: connect again")


def _ack_frame(identity: ClientIdentity, batch_id: int, mark: str) -> bytes:
    body = pb.ClientAck(
        destination=identity.destination, client_id=str(identity.client_id), batch_id=batch_id, mark=mark
    )
    return client_frame(pb.CLIENTACK, body)


@lru_cache(16)
def _ack_head(identity: ClientIdentity, number_bytes: int) -> bytes:
    """Return the frame of an ACK without the number of its batch, which comes last. number_bytes: its size."""
    return _ack_frame(identity, 1 << 7 * (number_bytes - 1), "")[:-number_bytes]


def _get_frame(identity: ClientIdentity, fetch_size: int, timeout_ms: int, eager: bool, exact: bool) -> bytes:
    body = pb.Get(
        destination=identity.destination,
        client_id=str(identity.client_id),
        fetch_size=fetch_size,
        timeout=timeout_ms,
        unit=_MILLISECONDS,
        auto_ack=False,
        eager=eager,
        exact=exact,
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
