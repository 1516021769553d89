"""canal-protobuf: canal's Message in a packet, in the partitions where canal-json has the same rows."""

from __future__ import annotations

import json

import pytest

from canal_ha.pipeline.messages.canal_json import CanalJson
from canal_ha.pipeline.messages.canal_protobuf import CanalProtobuf
from canal_ha.pipeline.messages.queue_message import MessageOrigin
from canal_ha.pipeline.messages.routing import PartitionRules, Placement
from canal_ha.wire.proto.canal_protocol_pb2 import MESSAGES, Messages, Packet
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry, RowChange
from tests.pipeline.messages.recorded import TAGS, recorded, row_entry
from tests.pipeline.messages.test_canal_json import HASHES

ORIGIN = MessageOrigin("golden", 7, 1_700_000_000_000)


def unpacked(value: bytes | None) -> list[Entry]:
    """Return the entries of a message, as canal's deserializer reads it."""
    packet = Packet.FromString(value or b"")
    assert packet.type == MESSAGES
    body = Messages.FromString(packet.body)
    assert body.batch_id == ORIGIN.number
    return [Entry.FromString(raw) for raw in body.messages]


@pytest.mark.parametrize("tag", TAGS)
def test_the_rows_are_those_of_the_entry_in_canals_partitions(tag: str) -> None:
    """An entry that is not distributed by values stays whole; else each row has an entry, as canal makes them."""
    rules = [(PartitionRules(text), count, database) for text, count, database in HASHES]
    seen = 0
    for entry, _ in recorded(tag):
        if entry.entryType != ROWDATA:
            continue
        whole = RowChange.FromString(entry.storeValue)
        read = row_entry(entry.SerializeToString())
        for rule, count, database in rules:
            placement = Placement(rule.key_of(entry.header.schemaName, entry.header.tableName), count, database)
            found = list(CanalProtobuf().records(read, "topic", placement, ORIGIN))
            flat = list(CanalJson().records(read, "topic", placement, ORIGIN))
            assert [each.partition for each in found] == [each.partition for each in flat]
            rows = []
            for each, json_message in zip(found, flat, strict=True):
                entries = unpacked(each.value)
                assert all(one.header == entry.header for one in entries)
                own = [row for one in entries for row in RowChange.FromString(one.storeValue).rowDatas]
                assert len(own) == len(json.loads(json_message.value or b"")["data"] or [])
                if len(entries) == 1 and len(own) != 1:
                    assert entries == [entry]
                rows += own
            wanted = sorted(row.SerializeToString() for row in whole.rowDatas)
            assert sorted(row.SerializeToString() for row in rows) == wanted
            seen += len(found)
    assert seen > 300
