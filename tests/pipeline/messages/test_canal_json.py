"""canal-json is what canal's own Kafka producer writes, byte for byte."""

from __future__ import annotations

import json

import pytest

from canal_ha.errors import RemoteProtocolError
from canal_ha.pipeline.messages.canal_json import CanalJson
from canal_ha.pipeline.messages.queue_message import MessageOrigin
from canal_ha.pipeline.messages.routing import PartitionRules, Placement, TopicRules
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry, RowChange
from tests.pipeline.messages.recorded import TAGS, recorded, row_entry
from tests.spark.entries import ID, NAME, rows

HASHES = [
    ("", 1, True),
    (r".*\..*:$pk$", 3, True),
    (r".*\..*:$pk$", 5, False),
    (r".*\..*", 4, True),
    (r"golden.t_int:id^ti,golden\.t_s.*:c10^v300;golden\.t_d.*", 7, True),
]
TOPICS = [
    r".*\..*",
    "golden",
    "gol.*",
    "golden.t_int,golden.T_STR",
    r"ints:golden.t_int,rest:golden\.t_.*,golden",
    "a:golden.t_int;golden.t_str,b:gold.*",
    "nothing.here",
]


@pytest.mark.parametrize("tag", TAGS)
def test_each_message_equals_that_of_canals_producer(tag: str) -> None:
    rules = [(PartitionRules(text), count, database) for text, count, database in HASHES]
    seen = 0
    for entry, answer in recorded(tag):
        for (rule, count, database), expected in zip(rules, answer["messages"], strict=True):
            found = {}
            if entry.entryType == ROWDATA:
                key = rule.key_of(entry.header.schemaName, entry.header.tableName)
                placement, origin = Placement(key, count, database), MessageOrigin("golden", 7, 1_700_000_000_000)
                records = CanalJson().records(row_entry(entry.SerializeToString()), "topic", placement, origin)
                found = {str(record.partition): (record.value or b"").decode() for record in records}
            assert found == expected
            seen += len(found)
    assert seen > 300


@pytest.mark.parametrize("tag", TAGS)
def test_each_topic_equals_that_of_canals_producer(tag: str) -> None:
    for number, text in enumerate(TOPICS):
        rules = TopicRules(text, "fallback")
        for entry, answer in recorded(tag):
            if entry.entryType == ROWDATA:
                topic = rules.topic_of(entry.header.schemaName, entry.header.tableName)
                assert answer["topics"][number] == [topic]


def test_names_with_percent_signs() -> None:
    """They are names like others, and a value with a percent sign is its text."""
    raw = rows(1, "INSERT", [(None, {"id": "1", "50%s": "100%d"})], (ID, ("50%s", "varchar(9)", 12, False)))
    [record] = CanalJson().records(row_entry(raw), "topic", Placement(None, 1), MessageOrigin("golden", 7, 1))
    assert json.loads(record.value or b"")["data"] == [{"id": "1", "50%s": "100%d"}]


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE", "DELETE"])
@pytest.mark.parametrize("hashed", ["", r".*\..*:$pk$", r".*\..*:c59"])
@pytest.mark.parametrize("first", ["more", "fewer"])
def test_rows_of_one_entry_with_different_columns_were_an_index_error(kind: str, hashed: str, first: str) -> None:
    """No server sends them. The node then gets the blame, in one line."""
    many = tuple((f"c{number}", "varchar(9)", 12, number == 59) for number in range(60))

    def entry_of(columns: tuple[tuple[str, str, int, bool], ...]) -> Entry:
        image = dict.fromkeys((name for name, *_ in columns), "1")
        before, after = (None if kind == "INSERT" else image), (None if kind == "DELETE" else image)
        return Entry.FromString(rows(1, kind, [(before, after)], columns))

    entry, other = entry_of(many), entry_of((ID, NAME))
    if first == "fewer":
        entry, other = other, entry
    change = RowChange.FromString(entry.storeValue)
    change.rowDatas.append(RowChange.FromString(other.storeValue).rowDatas[0])
    entry.storeValue = change.SerializeToString()
    placement = Placement(PartitionRules(hashed).key_of("s", "t"), 5) if hashed else Placement(None, 1)
    with pytest.raises(RemoteProtocolError, match="rows of one entry with different columns"):
        list(CanalJson().records(row_entry(entry.SerializeToString()), "t", placement, MessageOrigin("d", 1, 1)))
