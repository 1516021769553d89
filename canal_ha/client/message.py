"""Message: one batch as a client has it. Entries stay bytes until somebody wants them as objects."""

from __future__ import annotations

from functools import cached_property

from google.protobuf.message import DecodeError

from canal_ha.decode.kernel.entries import Entries
from canal_ha.errors import RemoteProtocolError
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.wire.messages import Fetched
from canal_ha.wire.proto.entry_protocol_pb2 import Entry


class Message:
    """The answer to a GET. id: EMPTY_BATCH_ID without entries; frames: entries as they came, field 2 of Messages."""

    def __init__(self, fetched: Fetched) -> None:
        self.id = fetched.batch_id
        self.frames = fetched.frames
        self._fetched = fetched

    def __bool__(self) -> bool:
        """Whether there is a batch to acknowledge."""
        return self.id != EMPTY_BATCH_ID

    def walk(self) -> Entries:
        """The kernel's reader at the first entry; nothing is copied."""
        data = self._fetched.data
        return Entries(data, self._fetched.start, len(data))

    @cached_property
    def raw_entries(self) -> tuple[bytes, ...]:
        """Each serialized Entry, in binlog order."""
        return self._fetched.entries()

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """The entries parsed, in binlog order. Raises RemoteProtocolError."""
        return tuple(map(parse, self.raw_entries))


def parse(raw: bytes) -> Entry:
    """One entry. Raises RemoteProtocolError."""
    try:
        return Entry.FromString(raw)
    except DecodeError as error:
        raise RemoteProtocolError(f"an entry that cannot be read: {error}") from error
