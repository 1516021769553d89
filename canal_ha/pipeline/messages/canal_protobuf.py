"""Writes canal's protobuf Message, as canal's own producers do with canal.mq.flatMessage = false. Pure.

A value is a packet MESSAGES of canal's protocol. It has one entry; if the rows of an entry are distributed by their
values, each partition gets an entry for each of its rows. canal puts the entries of a batch into one packet instead;
consumers read both alike. The id is the number of the pipeline's commit, where canal has that of its batch.

Source: canal 1.1.7, CanalMessageSerializerUtil.serializer and MQMessageUtils.messagePartition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from canal_ha.errors import RemoteProtocolError
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.row_entry import RowEntry
from canal_ha.wire.proto.canal_protocol_pb2 import MESSAGES, Messages, Packet
from canal_ha.wire.proto.entry_protocol_pb2 import Entry, RowChange


class CanalProtobuf:
    """The format `canal-protobuf`. Statements are messages, too; a message has no key."""

    statements_apart = False
    exact = False

    def records(
        self, entry: RowEntry, topic: str, placement: Placement, origin: MessageOrigin
    ) -> Iterator[QueueMessage]:
        """See MessageFormat."""
        whole = Messages(batch_id=origin.number).SerializeToString() + bytes(entry.frame)
        if not entry.rows:
            yield QueueMessage(placement.fixed, None, _packet(whole))
            return
        place = placement.placing(entry.schema, entry.table, entry.image.key_names)
        if not place.needs_values:
            yield QueueMessage(place({}), None, _packet(whole))
            return
        parts: dict[int, list[bytes]] = {}
        for partition, single in zip(place.of_rows(entry), _rows(whole), strict=True):
            parts.setdefault(partition, []).append(single)
        for partition, entries in parts.items():
            messages = Messages(batch_id=origin.number, messages=entries)
            yield QueueMessage(partition, None, _packet(messages.SerializeToString()))


def _packet(body: bytes) -> bytes:
    return Packet(type=MESSAGES, body=body).SerializeToString()


def _rows(whole: bytes) -> Iterable[bytes]:
    """Return an entry for each row of the only entry. Raises RemoteProtocolError."""
    try:
        entry = Entry.FromString(Messages.FromString(whole).messages[0])
        change = RowChange.FromString(entry.storeValue)
    except DecodeError as error:
        raise RemoteProtocolError(f"invalid entry: {error}") from error
    rows = list(change.rowDatas)
    for row in rows:
        del change.rowDatas[:]
        change.rowDatas.append(row)
        entry.storeValue = change.SerializeToString()
        yield entry.SerializeToString()
