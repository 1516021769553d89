"""avro: what a reader with the registered schemas gets, for all column types; and what the registry refuses."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_reader

from canal_ha.client.message import parse
from canal_ha.client.rows import Row, row_change, rows_of
from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.pipeline.messages.avro import Avro
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import PartitionKey, Placement
from canal_ha.pipeline.targets.schema_registry import SchemaRegistry
from canal_ha.wire.proto.entry_protocol_pb2 import ROWDATA, Entry
from lab.ports import free_port
from lab.registry import Registry
from tests.pipeline.messages.recorded import recorded, row_entry
from tests.spark.entries import ID, NAME, ColumnSpec, insert, rows

PLACEMENT = Placement(PartitionKey(), 4)
ORIGIN = MessageOrigin("example", 3, 1_700_000_000_000)
TEMPORAL = ("date", "datetime", "timestamp", "time")


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    """Yield a registry."""
    with Registry() as served:
        yield served


def avro(registry: Registry, zone: str = "UTC", **keys: tuple[str, ...]) -> Avro:
    """Return the format. keys: given ones, for the table s.NAME."""
    return Avro(
        {f"s.{table}": names for table, names in keys.items()},
        zone,
        SchemaRegistry(registry.url).register,
        tombstones=True,
    )


def messages(made: Avro, entry: Entry) -> list[QueueMessage]:
    """Return the messages of an entry."""
    topic = f"{entry.header.schemaName}.{entry.header.tableName}"
    return list(made.records(row_entry(entry.SerializeToString()), topic, PLACEMENT, ORIGIN))


def read(registry: Registry, raw: bytes | None) -> Any:
    """Return what a reader sees."""
    assert raw is not None
    assert raw[0] == 0
    schema = parse_schema(registry.schema(int.from_bytes(raw[1:5], "big")))
    return schemaless_reader(BytesIO(raw[5:]), schema, None)


@pytest.mark.parametrize("tag", ["mysql9", "mariadb10.11"])
def test_a_reader_gets_each_value_of_the_row(registry: Registry, tag: str) -> None:
    made, seen, left_out = avro(registry), 0, 0
    for entry, _ in recorded(tag):
        if entry.entryType != ROWDATA or not row_change(entry).rowDatas:
            continue
        try:
            written = messages(made, entry)
        except SinkRefused as refused:
            if "binlog_row_image=FULL" not in str(refused):
                raise
            left_out += 1  # written with other settings of the source
            continue
        values = [read(registry, message.value) for message in written if message.value is not None]
        images = [value["after"] or value["before"] for value in values if value["op"] != "d" or not value["after"]]
        found = iter(images)
        for row, change in zip(rows_of([entry]), row_change(entry).rowDatas, strict=True):
            image = next(found)
            if row.type == "UPDATE" and _key(row, entry, "before") != _key(row, entry, "after"):
                image = next(found)  # behind the delete of the old key
            for column, value in zip(change.afterColumns or change.beforeColumns, image.values(), strict=True):
                expected = (row.after or row.before or {})[column.name]
                if column.mysqlType.lower().startswith((*TEMPORAL, "year", "bit")):
                    assert (value is None) <= (expected is None or "-00" in str(expected))
                elif isinstance(expected, float):
                    assert value == pytest.approx(expected, rel=1e-6)
                else:
                    assert value == expected, column.mysqlType
                seen += 1
        assert next(found, None) is None
    assert seen > 1000
    assert left_out < 20


def _key(row: Row, entry: Entry, side: str) -> list[object]:
    columns = row_change(entry).rowDatas[0].beforeColumns
    values = getattr(row, side) or {}
    return [values.get(column.name) for column in columns if column.isKey]


def test_bits_and_times_have_debeziums_form(registry: Registry) -> None:
    columns: tuple[ColumnSpec, ...] = (
        ID,
        ("bits", "bit(9)", -7, False),
        ("one", "bit(1)", -7, False),
        ("day", "date", 91, False),
        ("clock", "time(3)", 92, False),
        ("local", "timestamp", 93, False),
        ("exact", "timestamp", 2014, False),
        ("year", "year", 12, False),
    )
    values = {
        "id": "1",
        "bits": "257",
        "one": "1",
        "day": "1970-01-03",
        "clock": "-00:00:01.500",
        "local": "2024-07-01 12:00:00",
        "exact": "2024-07-01 12:00:00",
        "year": "2024",
    }
    entry = parse(rows(1, "INSERT", [(None, values)], columns, table="forms"))
    (made,) = messages(avro(registry, "Asia/Shanghai"), entry)

    assert read(registry, made.value)["after"] == {
        "id": 1,
        "bits": b"\x01\x01",
        "one": True,
        "day": 2,
        "clock": -1_500_000,
        "local": "2024-07-01T04:00:00Z",
        "exact": "2024-07-01T12:00:00Z",
        "year": 2024,
    }


def test_keys_have_a_schema_of_their_own_and_a_tombstone_follows_a_delete(registry: Registry) -> None:
    entry = parse(rows(1, "DELETE", [({"id": "1", "name": "a"}, None)], table="keyed"))
    deleted, tombstone = messages(avro(registry), entry)

    assert read(registry, deleted.key) == {"id": 1}
    assert tombstone == QueueMessage(deleted.partition, deleted.key, None)
    assert set(registry.subjects) >= {"s.keyed-key", "s.keyed-value"}


def test_given_keys_count_in_any_case(registry: Registry) -> None:
    entry = parse(insert(1, 1, "a", table="given"))
    (made,) = messages(avro(registry, given=("NAME", "Id")), entry)

    assert read(registry, made.key) == {"id": 1, "name": "a"}
    with pytest.raises(SinkRefused, match=r"s\.given has no column nope, which the pipeline's file names as its key"):
        messages(avro(registry, given=("nope",)), entry)


def test_a_new_column_gets_a_new_schema(registry: Registry) -> None:
    made = avro(registry)
    messages(made, parse(insert(1, 1, table="grows")))
    more = (ID, NAME, ("price", "decimal(10,2)", 3, False))
    entry = parse(rows(2, "INSERT", [(None, {"id": "1", "name": "a", "price": "1.50"})], more, table="grows"))
    (last,) = messages(made, entry)

    assert len(registry.subjects["s.grows-value"]) == 2
    assert len(registry.subjects["s.grows-key"]) == 1
    assert str(read(registry, last.value)["after"]["price"]) == "1.50"


def test_names_that_avro_does_not_allow_get_underscores(registry: Registry) -> None:
    odd = (ID, ("2nd name", "varchar(20)", 12, False))
    (made,) = messages(avro(registry), parse(rows(1, "INSERT", [(None, {"id": "1", "2nd name": "b"})], odd, table="ä")))

    assert read(registry, made.value)["after"] == {"id": 1, "_2nd_name": "b"}


def test_two_columns_with_the_same_name_in_avro_are_refused(registry: Registry) -> None:
    same = (("a b", "int", 4, True), ("a-b", "int", 4, False))
    entry = parse(rows(1, "INSERT", [(None, {"a b": "1", "a-b": "2"})], same, table="same"))

    with pytest.raises(SinkRefused, match="two columns have the name a_b in Avro"):
        messages(avro(registry), entry)


def test_a_row_without_all_columns_is_refused(registry: Registry) -> None:
    columns = (ID, NAME, ("c", "int", 4, False))
    entry = parse(rows(1, "UPDATE", [({"id": "1"}, {"c": "2"})], columns, table="partial"))

    with pytest.raises(SinkRefused, match="binlog_row_image=FULL"):
        messages(avro(registry), entry)


@pytest.mark.parametrize("before", [None, {"id": "1", "name": "a"}])
def test_a_row_without_its_last_columns_became_one_without_their_fields(
    registry: Registry, before: dict[str, str] | None
) -> None:
    """Only the mark of the node shows that columns are missing at the end, with binlog_row_image MINIMAL or NOBLOB."""
    columns = (ID, NAME, ("c", "blob", 2004, False))
    kind = "INSERT" if before is None else "UPDATE"
    entry = parse(rows(1, kind, [(before, {"id": "1", "name": "b"})], columns, table="short", partial=True))

    with pytest.raises(SinkRefused, match="binlog_row_image=FULL"):
        messages(avro(registry), entry)


def test_a_schema_that_the_registry_refuses_is_named_with_its_reason(registry: Registry) -> None:
    registry.answers["s.refused-value"] = (409, "Schema being registered is incompatible")

    with pytest.raises(SinkRefused, match=r"s\.refused-value: 409 .*incompatible.*compatibility level forbids"):
        messages(avro(registry), parse(insert(1, 1, table="refused")))


def test_a_registry_that_does_not_answer_can_be_asked_again(registry: Registry) -> None:
    registry.answers["s.busy-key"] = (503, "starting")

    with pytest.raises(TargetUnavailable, match="503"):
        messages(avro(registry), parse(insert(1, 1, table="busy")))
    with pytest.raises(TargetUnavailable, match="does not answer"):
        SchemaRegistry(f"http://127.0.0.1:{free_port()}").register("s", "{}")


def test_a_registry_gets_name_and_password(registry: Registry) -> None:
    SchemaRegistry(registry.url, "canal", "secret").register("own", '"int"')

    assert registry.authorization[-1] == "Basic Y2FuYWw6c2VjcmV0"


def test_an_address_without_http_is_refused() -> None:
    with pytest.raises(OptionInvalid, match="expected http://HOST:PORT or https://HOST:PORT"):
        SchemaRegistry("localhost:8081")
