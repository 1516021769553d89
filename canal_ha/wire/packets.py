"""Reads the Packet envelope and its requests; writes the packets of both sides.

Codes, texts and the order of checks are canal's (docs/protocol.md#requests).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from google.protobuf import text_format
from google.protobuf.message import DecodeError, Message

from canal_ha.config.kinds import DESTINATION_BYTES
from canal_ha.errors import AckUnmatched, BatchNotFirst, CanalError, RemoteProtocolError
from canal_ha.model.excerpt import EXCERPT_CHARACTERS, excerpt
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import CLIENT_IDS, ClientIdentity
from canal_ha.model.immutable import immutable
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import NO_SNAPSHOT, InitialSnapshot, told
from canal_ha.wire.framing import frame
from canal_ha.wire.proto import canal_protocol_pb2 as pb

DEFAULT_FETCH_SIZE = 1000
GENERIC, MISSING, NO_BATCH = 400, 401, 402  # canal's error codes; canal_ha.errors has 403, 404 and 429
SNAPSHOT_BYTES = 32_768  # of the names of tables in a subscription
MARK_BYTES = 200  # longest mark; it is written with every cursor
GTID_SET_CHARACTERS = 65_536
GTID_SET_PARTS = 2000  # every entry of the read carries them, if GTIDs are on
TIME_MOST_MS = 253_402_300_799_999  # the end of the year 9999, Python's last one

# Get.unit -> milliseconds; any other number means milliseconds
_UNIT_MS: Mapping[int, float] = {0: 1e-6, 1: 1e-3, 2: 1, 3: 1e3, 4: 60e3, 5: 3600e3, 6: 86400e3}
_LONGEST_WAIT_MS = 2.0**31 - 1  # 24 days; a longer wait counts as unlimited
_NUMBER = re.compile(r"[+-]?[0-9]+")
_SHORT_DIGITS = 5
_BATCH_OF_ACK = b"\x18"  # the tag of ClientAck.batch_id


# ---- requests


@dataclass(frozen=True, slots=True)
class Subscribe:
    """SUBSCRIPTION.

    identity: destination, client id and filter.
    during_authentication: sent inside CLIENTAUTHENTICATION; a failure closes the connection.
    tell_cursor: the reply must contain the client's cursor.
    exact: the form of values that the client will ask for; see GetRequest.
    snapshot: what the client begins with, if the subscription creates its cursor.
    """

    identity: ClientIdentity
    during_authentication: bool = False
    tell_cursor: bool = False
    exact: bool = False
    snapshot: InitialSnapshot = NO_SNAPSHOT
    packet_type: ClassVar[str] = "SUBSCRIPTION"


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """UNSUBSCRIPTION."""

    identity: ClientIdentity
    packet_type: ClassVar[str] = "UNSUBSCRIPTION"


@dataclass(frozen=True, slots=True)
class Get:
    """GET. wanted: see GetRequest."""

    identity: ClientIdentity
    wanted: GetRequest
    packet_type: ClassVar[str] = "GET"


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """DUMP with a destination: a private read on this connection.

    identity: destination, client id and filter.
    place: where the read begins.
    until: where it ends: a journal and offset (the entry there is excluded) or a GTID set (other transactions are
        excluded); None: never.
    exact: see Subscribe.
    snapshot: tables whose existing rows are read; the read ends behind them.
    """

    identity: ClientIdentity
    place: Place
    until: Place | None
    exact: bool = False
    snapshot: InitialSnapshot = NO_SNAPSHOT
    packet_type: ClassVar[str] = "DUMP"


@immutable
class Acknowledge:
    """CLIENTACK: answered only if it fails. mark: stored with the moved cursor; "" for none."""

    identity: ClientIdentity
    batch_id: int
    mark: str = ""
    packet_type: ClassVar[str] = "CLIENTACK"


@dataclass(frozen=True, slots=True)
class Rollback:
    """CLIENTROLLBACK: answered only if it fails. batch_id: 0 for all batches in flight."""

    identity: ClientIdentity
    batch_id: int
    packet_type: ClassVar[str] = "CLIENTROLLBACK"


Request = Subscribe | Unsubscribe | Get | Acknowledge | Rollback | ReadFrom


class Refusal(Exception):
    """A request is answered with an error packet instead of being executed. Never leaves the wire room."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class JavaError(Exception):
    """A request fails where canal throws a Java exception; `java_class: text` goes into the generic error."""

    def __init__(self, java_class: str, text: str) -> None:
        super().__init__(text)
        self.java_class = java_class


def read_packet(data: bytes) -> pb.Packet:
    """Parse the envelope. Raises RemoteProtocolError if the bytes are not a Packet."""
    try:
        return pb.Packet.FromString(data)
    except DecodeError as error:
        raise RemoteProtocolError(f"a frame is not a Packet: {error}") from error


def read_authentication(data: bytes) -> pb.ClientAuth:
    """Parse the first frame's body, whatever the packet's type is. Raises RemoteProtocolError."""
    try:
        return pb.ClientAuth.FromString(read_packet(data).body)
    except DecodeError as error:
        raise RemoteProtocolError(f"the first frame is not a CLIENTAUTHENTICATION: {error}") from error


def read_request(packet: pb.Packet) -> Request:
    """Parse a packet's request. Raises Refusal or JavaError; both are answered with a packet."""
    read = _READERS.get(packet.type)
    if read is None:
        raise Refusal(GENERIC, f"packet type: {type_name(packet.type)} is NOT supported!")
    try:
        return read(packet.body)
    except DecodeError as error:
        raise JavaError("com.google.protobuf.InvalidProtocolBufferException", str(error)) from error


def type_name(number: int) -> str:
    """Return the name of a packet type as in canal's error texts and metrics."""
    return pb.PacketType.Name(number) if number in pb.PacketType.values() else "UNRECOGNIZED"  # type: ignore[arg-type]


def client_id_of(text: str) -> int:
    """Parse a client id like Java's Short.valueOf. Raises JavaError."""
    if not _NUMBER.fullmatch(text):
        raise JavaError("java.lang.NumberFormatException", f'For input string: "{excerpt(text)}"')
    digits = text.lstrip("+-").lstrip("0")  # Python parses at most 4,300 digits, including zeros
    number = int(digits[: _SHORT_DIGITS + 1] or 0) * (-1 if text.startswith("-") else 1)
    if number not in CLIENT_IDS:
        raise JavaError("java.lang.NumberFormatException", f'Value out of range. Value:"{excerpt(text)}" Radix:10')
    return number


def check_destination(name: str) -> None:
    """Check the length of a destination's name. Raises Refusal if it is too long."""
    size_bytes = len(name.encode())
    if size_bytes > DESTINATION_BYTES:
        raise Refusal(
            GENERIC,
            f"the destination's name has {size_bytes} bytes; at most {DESTINATION_BYTES} are allowed: {excerpt(name)}",
        )


def _subscribe(body: bytes) -> Subscribe:
    sub = pb.Sub.FromString(body)
    identity = _identity("Sub", sub, sub.destination, sub.client_id, sub.filter)
    snapshot = _snapshot(sub.snapshot, sub.snapshot_filter, again=sub.snapshot_again, gone=sub.snapshot_gone)
    return Subscribe(identity, tell_cursor=sub.tell_cursor, exact=sub.exact, snapshot=snapshot)


def _snapshot(
    tables: Iterable[str], filter_text: str, *, again: bool = False, gone: Iterable[str] = ()
) -> InitialSnapshot:
    wanted = InitialSnapshot(tuple(tables), filter_text, again, tuple(gone))
    size_bytes = sum(len(name.encode()) for name in (*wanted.tables, wanted.filter, *wanted.gone))
    if size_bytes > SNAPSHOT_BYTES:
        raise Refusal(GENERIC, f"tables of a snapshot with {size_bytes} bytes; at most {SNAPSHOT_BYTES} are allowed")
    return wanted


def _unsubscribe(body: bytes) -> Unsubscribe:
    unsub = pb.Unsub.FromString(body)
    return Unsubscribe(_identity("Unsub", unsub, unsub.destination, unsub.client_id))


def _get(body: bytes) -> Get:
    get = pb.Get.FromString(body)
    identity = _identity("Get", get, get.destination, get.client_id)
    size = get.fetch_size if get.fetch_size > 0 else DEFAULT_FETCH_SIZE
    return Get(identity, GetRequest(size, _wait_ms(get.timeout, get.unit), get.eager, get.exact))


def _read_from(body: bytes) -> ReadFrom:
    """Parse DUMP; refuse one without a destination, as canal refuses every DUMP."""
    dump = pb.Dump.FromString(body)
    if not dump.destination:
        raise Refusal(GENERIC, "packet type: DUMP is NOT supported!")
    identity = _identity("Dump", dump, dump.destination, dump.client_id, dump.filter)
    if dump.journal:
        place = Place(journal=excerpt(dump.journal), offset=max(4, dump.position))
    elif dump.gtid:
        place = Place(gtid=_gtid_set(dump.gtid))
    elif dump.timestamp > TIME_MOST_MS:
        raise Refusal(GENERIC, f"the time {dump.timestamp} ms is after the year 9999")
    elif dump.timestamp > 0:
        place = Place(timestamp_ms=dump.timestamp)
    else:
        place = Place(end="latest")
    until = None
    if dump.end_journal:
        until = Place(journal=excerpt(dump.end_journal), offset=dump.end_position)
    elif dump.end_gtid:
        until = Place(gtid=_gtid_set(dump.end_gtid))
    return ReadFrom(identity, place, until, dump.exact, _snapshot(dump.snapshot, ""))


def _gtid_set(text: str) -> str:
    """Return a GTID set of a client. Raises Refusal if reading it would keep the node from other work."""
    parts = text.count(":") + text.count(",")  # one for each interval, and one for each source
    if len(text) > GTID_SET_CHARACTERS or parts > GTID_SET_PARTS:
        raise Refusal(
            GENERIC,
            f"a GTID set with {len(text)} characters and {parts} sources and intervals; at most {GTID_SET_CHARACTERS}"
            f" and {GTID_SET_PARTS} are allowed: give JOURNAL:OFFSET or a time instead",
        )
    return text


def _acknowledge(body: bytes) -> Acknowledge:
    ack = pb.ClientAck.FromString(body)
    identity = _identity("Ack", ack, ack.destination, ack.client_id)
    if ack.batch_id == 0:
        raise Refusal(NO_BATCH, f"batchId should assign value. Ack: {_dump(ack)}")
    size_bytes = len(ack.mark.encode())
    if size_bytes > MARK_BYTES:
        raise Refusal(
            GENERIC, f"the mark of the acknowledgement has {size_bytes} bytes; at most {MARK_BYTES} are allowed"
        )
    return Acknowledge(identity, ack.batch_id, ack.mark)


def ends_with_batch(data: bytes, packet: pb.Packet, number: bytes) -> bool:
    """Return whether a CLIENTACK ends with the number of its batch, and has nothing but its known fields in order.

    data: the packet's bytes. number: that of the batch, as a varint.
    """
    ack = pb.ClientAck.FromString(packet.body)
    ack.DiscardUnknownFields()
    body = ack.SerializeToString()
    whole = pb.Packet(type=packet.type, body=body).SerializeToString()
    return data == whole and body.endswith(_BATCH_OF_ACK + number)


def _rollback(body: bytes) -> Rollback:
    rollback = pb.ClientRollback.FromString(body)
    identity = _identity("Rollback", rollback, rollback.destination, rollback.client_id)
    return Rollback(identity, rollback.batch_id)


_READERS: Mapping[int, Callable[[bytes], Request]] = {
    pb.SUBSCRIPTION: _subscribe,
    pb.UNSUBSCRIPTION: _unsubscribe,
    pb.GET: _get,
    pb.DUMP: _read_from,
    pb.CLIENTACK: _acknowledge,
    pb.CLIENTROLLBACK: _rollback,
}


def _identity(name: str, body: Message, destination: str, client_id: str, filter_text: str = "") -> ClientIdentity:
    if not destination or not client_id:
        raise Refusal(MISSING, f"destination or clientId is null. {name}: {_dump(body)}")
    check_destination(destination)
    to_identity = (
        _cached_identity
        if len(destination) + len(client_id) + len(filter_text) <= _CACHED_CHARACTERS
        else _client_identity
    )
    return to_identity(destination, client_id, filter_text)


def _client_identity(destination: str, client_id: str, filter_text: str) -> ClientIdentity:
    return ClientIdentity(destination, client_id_of(client_id), filter_text)


_cached_identity = lru_cache(256)(_client_identity)  # every request repeats the same few
_CACHED_CHARACTERS = 1024  # longest cached names; the peer chooses them


def _wait_ms(timeout: int, unit: int) -> float | None:
    """Convert a GET's timeout to ms; None is no limit. -1: do not wait; other values up to 0: no limit.

    unit: an ordinal of Java's TimeUnit; an absent one reads as 0, nanoseconds.
    """
    if timeout == -1:
        return 0.0
    wait_ms = timeout * _UNIT_MS.get(unit, 1)
    return wait_ms if 0 < wait_ms <= _LONGEST_WAIT_MS else None


def _dump(body: Message) -> str:
    """Format a message as protobuf text with octal escapes for non-ASCII characters, like Java.

    Escapes are made one character at a time, so no more of a text is formatted than an excerpt shows.
    """
    shown = type(body)()
    for field, value in body.ListFields():
        setattr(shown, field.name, value[:EXCERPT_CHARACTERS] if isinstance(value, str) else value)
    return excerpt(text_format.MessageToString(shown, as_utf8=False))


# ---- what a server writes


def handshake(seed: bytes) -> bytes:
    """Build the server's first frame."""
    return _server_frame(pb.HANDSHAKE, pb.Handshake(seeds=seed))


def accepted(cursor: LogPosition | None = None) -> bytes:
    """Build a successful ACK, whose body is empty without a cursor. cursor: for a client that asked for it."""
    if cursor is None:
        return _server_frame(pb.ACK, pb.Ack())
    sent = replace(cursor.public, mark=cursor.mark, snapshot=told(cursor.snapshot))  # both are the client's own
    return _server_frame(pb.ACK, pb.Ack(cursor=sent.to_json(with_type=False)))


def refused(code: int, text: str) -> bytes:
    """Build an error ACK."""
    return _server_frame(pb.ACK, pb.Ack(error_code=code, error_message=text))


def generic_text(channel: str, error: Exception) -> str:
    """Return canal's text for a failed request, without the Java stack trace that canal appends."""
    text = str(error)
    if not isinstance(error, CanalError | JavaError):  # their texts quote only short pieces of a peer's input
        text = excerpt(text)
    return f"something goes wrong with channel: {channel}, exception: {_java_class(error)}: {text}\n"


def _java_class(error: Exception) -> str:
    canal = "com.alibaba.otter.canal"
    match error:
        case JavaError():
            return error.java_class
        case BatchNotFirst():
            return f"{canal}.meta.exception.CanalMetaManagerException"
        case AckUnmatched():
            return f"{canal}.store.CanalStoreException"
        case CanalError():
            return f"{canal}.server.exception.CanalServerException"
        case _:
            return "java.lang.RuntimeException"


def _server_frame(packet_type: pb.PacketType.ValueType, body: Message) -> bytes:
    return frame(pb.Packet(version=1, type=packet_type, body=body.SerializeToString()).SerializeToString())


# ---- what a client writes: type and body, never a version


def client_frame(packet_type: pb.PacketType.ValueType, body: Message) -> bytes:
    """Build the frame of one request."""
    return frame(pb.Packet(type=packet_type, body=body.SerializeToString()).SerializeToString())
