"""debezium-json: the envelope, keys, tombstones, and the form of values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.messages.debezium_json import DebeziumJson
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import PartitionKey, Placement, java_hash, partition_of
from tests.pipeline.messages.recorded import row_entry
from tests.spark.entries import ColumnSpec, ddl, insert, rows

ORIGIN = MessageOrigin("example", 3, 1_700_000_000_000)


def messages(
    entry: bytes, *, tombstones: bool = True, zone: str = "UTC", **keys: tuple[str, ...]
) -> list[QueueMessage]:
    """Return the messages of an entry of the table s.t. keys: given ones, for the table s.NAME."""
    given = {f"s.{table}": names for table, names in keys.items()}
    made = DebeziumJson(given, zone, tombstones=tombstones)
    placement = Placement(PartitionKey(), 5)
    return list(made.records(row_entry(entry), "topic", placement, ORIGIN))


def body(raw: bytes | None) -> Any:
    """Return a key or a value; None without one."""
    return None if raw is None else json.loads(raw)


def test_an_insert_is_a_create_with_the_key_and_the_source() -> None:
    (made,) = messages(insert(77, 1, "it's"))

    assert body(made.key) == {"id": 1}
    value = body(made.value)
    source = value.pop("source")
    assert value == {"before": None, "after": {"id": 1, "name": "it's"}, "op": "c", "ts_ms": 1_700_000_000_000}
    assert source | {"version": ""} == {
        "version": "",
        "connector": "mysql",
        "name": "example",
        "ts_ms": 1000,
        "snapshot": "false",
        "db": "s",
        "table": "t",
        "server_id": 1,
        "gtid": None,
        "file": "bin.000001",
        "pos": 77,
        "row": 0,
    }
    assert made.partition == partition_of(java_hash("s") ^ java_hash("1"), 5)


def test_a_row_of_a_snapshot_is_a_read() -> None:
    (made,) = messages(insert(1, 1, snapshot="s1"))

    assert body(made.value)["op"] == "r"
    assert body(made.value)["source"]["snapshot"] == "incremental"


def test_a_delete_is_followed_by_a_tombstone_for_the_same_key_in_the_same_partition() -> None:
    entry = rows(1, "DELETE", [({"id": "1", "name": "a"}, None)])
    deleted, tombstone = messages(entry)

    assert body(deleted.value)["before"] == {"id": 1, "name": "a"}
    assert (body(deleted.value)["after"], body(deleted.value)["op"]) == (None, "d")
    assert tombstone == QueueMessage(deleted.partition, deleted.key, None)
    assert len(messages(entry, tombstones=False)) == 1


def test_a_change_of_the_key_is_a_delete_a_tombstone_and_a_create() -> None:
    change = ({"id": "1", "name": "a"}, {"id": "2", "name": "a"})
    made = messages(rows(1, "UPDATE", [change]))

    assert [body(each.key) for each in made] == [{"id": 1}, {"id": 1}, {"id": 2}]
    values = [body(each.value) for each in made]
    assert [value and value["op"] for value in values] == ["d", None, "c"]
    assert values[2]["before"] is None
    assert values[2]["after"] == {"id": 2, "name": "a"}


def test_an_update_of_a_partial_image_is_completed_from_the_image_before() -> None:
    (made,) = messages(rows(1, "UPDATE", [({"id": "1"}, {"name": "b"})]))

    assert body(made.key) == {"id": 1}
    assert body(made.value)["after"] == {"id": 1, "name": "b"}


def test_given_keys_count_for_a_table_without_a_primary_key() -> None:
    columns: tuple[ColumnSpec, ...] = (("a", "int", 4, False), ("b", "int", 4, False))
    entry = rows(1, "INSERT", [(None, {"a": "1", "b": "2"})], columns)

    assert body(messages(entry, t=("b",))[0].key) == {"b": 2}
    assert messages(entry)[0].key is None


def test_given_keys_count_in_any_case() -> None:
    """The key of a message has the table's own spelling, also if an update changes it."""
    columns: tuple[ColumnSpec, ...] = (("Mail", "varchar(9)", 12, False), ("b", "int", 4, False))
    (made,) = messages(rows(1, "INSERT", [(None, {"Mail": "a", "b": "2"})], columns), t=("mAIL",))
    moved = rows(2, "UPDATE", [({"Mail": "a", "b": "2"}, {"Mail": "c", "b": "2"})], columns)
    gone, tombstone, created = messages(moved, t=("mAIL",))

    assert body(made.key) == body(gone.key) == body(tombstone.key) == {"Mail": "a"}
    assert body(created.key) == {"Mail": "c"}
    assert made.partition == partition_of(java_hash("s") ^ java_hash("a"), 5)


def test_rows_without_a_given_key_are_refused() -> None:
    """Their messages would have no key: an update could overtake another one, and Kafka would compact none away."""
    old, new = {"id": "1", "name": "a"}, {"id": "1", "name": "b"}
    for entry, key in (
        (insert(1, 1), "nope"),
        (rows(1, "DELETE", [({"id": "1"}, None)]), "name"),
        (rows(1, "UPDATE", [({"id": "1"}, new)]), "name"),
        (rows(1, "UPDATE", [({"id": "1"}, {"name": "b"})]), "name"),
    ):
        with pytest.raises(SinkRefused, match=rf"s\.t has no column {key}, which the pipeline's file names as its key"):
            messages(entry, t=(key,))
    assert len(messages(rows(1, "UPDATE", [(old, new)]), t=("name",))) == 3
    assert messages(ddl(5, "ALTER TABLE t ADD c int"), t=("nope",))[0].key is None


def test_a_statement_has_no_key() -> None:
    (made,) = messages(ddl(5, "ALTER TABLE t ADD c int"))

    assert (made.partition, made.key) == (0, None)
    assert body(made.value)["ddl"] == "ALTER TABLE t ADD c int"
    assert body(made.value)["databaseName"] == "s"


def test_times_have_debeziums_form_and_timestamps_are_in_utc() -> None:
    columns: tuple[ColumnSpec, ...] = (
        ("day", "date", 91, False),
        ("at", "datetime(6)", 93, False),
        ("local", "timestamp", 93, False),
        ("exact", "timestamp(3)", 2014, False),
        ("none", "date", 91, False),
    )
    values = {
        "day": "1970-01-03",
        "at": "1970-01-01 00:00:01.000002",
        "local": "2024-07-01 12:00:00",
        "exact": "2024-07-01 12:00:00.125",
        "none": "0000-00-00",
    }
    (made,) = messages(rows(1, "INSERT", [(None, values)], columns), zone="Asia/Shanghai")

    assert body(made.value)["after"] == {
        "day": 2,
        "at": 1_000_002,
        "local": "2024-07-01T04:00:00Z",
        "exact": "2024-07-01T12:00:00.125000Z",
        "none": None,
    }


@pytest.mark.parametrize(("declared", "number"), [("enum('a','b')", "3"), ("set('a','b')", "4")])
def test_a_number_without_a_label_is_refused_and_the_error_names_the_type(declared: str, number: str) -> None:
    """A pipeline ended with a bare ValueError."""
    columns: list[ColumnSpec] = [("id", "int", 4, True), ("state", declared, 4, False)]
    entry = rows(5, "INSERT", [(None, {"id": "1", "state": number})], columns)
    with pytest.raises(SinkRefused, match=rf"values of type {declared[:3]}.* do not fit .*{number} is no value"):
        messages(entry)
