"""Message: one batch on the client's side. Entries stay bytes until they are needed as objects."""

from __future__ import annotations

from functools import cached_property

from google.protobuf.message import DecodeError

from canal_ha.decode.kernel.entries import Entries
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.batch import EMPTY_BATCH_ID, GetAnswer
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto.entry_protocol_pb2 import Entry


class Message:
    """The reply to a GET. id: EMPTY_BATCH_ID without entries."""

    def __init__(self, fetched: Fetched) -> None:
        self.id = fetched.batch_id
        self._fetched = fetched

    def __bool__(self) -> bool:
        """Return whether there is a batch to acknowledge."""
        return self.id != EMPTY_BATCH_ID

    @property
    def frames(self) -> memoryview:
        """The entries as fields 2 of Messages."""
        return self._fetched.frames

    def walk(self) -> Entries:
        """Return the kernel's reader at the first entry, without a copy."""
        data = self._fetched.data
        return Entries(data, self._fetched.start, len(data))

    @cached_property
    def raw_entries(self) -> tuple[bytes, ...]:
        """The serialized entries, in binlog order."""
        return self._fetched.entries()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The parsed entries, in binlog order. Raises RemoteProtocolError."""
        return tuple(map(parse, self.raw_entries))


def message_of(answer: GetAnswer) -> Message:
    """Copy the entries of a node's answer out of its memory."""
    views = answer.batch.views if answer.batch else ()
    return Message(Fetched(answer.batch_id, b"".join(views)))


def parse(raw: bytes) -> Entry:
    """Parse one entry. Raises RemoteProtocolError."""
    try:
        return Entry.FromString(raw)
    except DecodeError as error:
        raise RemoteProtocolError(f"invalid entry: {error}") from error
