"""The kernel writes rows for queues as Python's JSON writer and Java's String.hashCode() would."""

from __future__ import annotations

import json
from random import Random

import pytest

from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import Images
from canal_ha.decode.kernel.queue_rows import row_hashes
from canal_ha.errors import RemoteProtocolError
from canal_ha.pipeline.messages.canal_json import CanalJson
from canal_ha.pipeline.messages.queue_message import MessageOrigin
from canal_ha.pipeline.messages.routing import EVERY_KEY, PartitionRules, Placement, java_hash, partition_of
from tests.pipeline.messages.recorded import row_entry
from tests.spark.entries import ID, NAME, ColumnSpec, frames, rows

ORIGIN = MessageOrigin("d", 1, 1)
CHARACTERS = [chr(code) for code in (*range(0x250), 0x7FF, 0x800, 0x2028, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF)]
EXTRA: ColumnSpec = ("extra", "varchar(20)", 12, False)


def value(raw: bytes, placement: Placement | None = None) -> bytes:
    """Return the value of the only message of an entry."""
    [message] = CanalJson().records(row_entry(raw), "topic", placement or Placement(None, 1), ORIGIN)
    assert message.value is not None
    return message.value


@pytest.mark.parametrize("around", ["{}", "a{}", "{}a", "eight of{} them and more", '"{}\\'])
def test_each_character_is_written_as_by_pythons_json_writer(around: str) -> None:
    texts = [around.format(each) for each in CHARACTERS]
    images = [(None, {"id": str(number), "name": text}) for number, text in enumerate(texts)]
    expected = [{"id": str(number), "name": text} for number, text in enumerate(texts)]
    written = json.dumps(expected, ensure_ascii=False, separators=(",", ":"))
    assert value(rows(1, "INSERT", images)).startswith(f'{{"data":{written},"database"'.encode())


def test_long_and_empty_texts_and_nulls_are_whole() -> None:
    texts = [None, "", "x" * 70_000, 'x"' * 30_000, "\x00" * 300, "é" * 300]
    images = [(None, {"id": str(number), "name": text}) for number, text in enumerate(texts)]
    found = json.loads(value(rows(1, "INSERT", images)))["data"]
    assert [each["name"] for each in found] == texts


def test_old_has_what_rows_up_to_there_changed() -> None:
    """As in canal: once a row of the entry has changed a column, the rows behind it show that column's old value."""
    images: list[tuple[dict[str, str | None], dict[str, str | None]]] = [
        ({"id": "1", "name": "a", "extra": None}, {"id": "1", "name": "a", "extra": None}),
        ({"id": "2", "name": "a", "extra": None}, {"id": "2", "name": "b", "extra": None}),
        ({"id": "3", "name": None, "extra": "x"}, {"id": "3", "name": None, "extra": None}),
        ({"id": "4", "name": "", "extra": ""}, {"id": "5", "name": "", "extra": ""}),
    ]
    assert json.loads(value(rows(1, "UPDATE", images, (ID, NAME, EXTRA))))["old"] == [
        {},
        {"name": "a"},
        {"name": None, "extra": "x"},
        {"id": "4", "name": "", "extra": ""},
    ]


def test_a_hash_counts_texts_as_java_does() -> None:
    random = Random(7)
    texts = [*CHARACTERS, *("".join(random.choices(CHARACTERS, k=random.randrange(40))) for _ in range(300))]
    images = [(None, {"id": text, "name": None if number % 2 else text[::-1]}) for number, text in enumerate(texts)]
    raw = frames([rows(1, "INSERT", images)])
    entry = Entries(raw, 0, len(raw))
    assert entry.next()
    assert entry.change() == len(texts)
    found = row_hashes(raw, entry.rows, Images({}), False, [0, 1])
    expected = [
        java_hash(text) if number % 2 else java_hash(text) ^ java_hash(text[::-1]) for number, text in enumerate(texts)
    ]
    assert found == expected


def test_rows_go_to_the_partition_of_their_key() -> None:
    """Deleted rows have their old key. A column that the rules name and the table lacks does not count."""
    texts = ["a", "b", "ü", "long" * 20, ""]
    images = [({"id": text, "name": "n"}, None) for text in texts]
    for rule in (EVERY_KEY, r"s\.t:id^none"):
        placement = Placement(PartitionRules(rule).key_of("s", "t"), 5)
        messages = CanalJson().records(row_entry(rows(1, "DELETE", images)), "topic", placement, ORIGIN)
        found = {row["id"]: each.partition for each in messages for row in json.loads(each.value or b"")["data"]}
        assert found == {text: partition_of(java_hash("s") ^ java_hash(text), 5) for text in texts}


@pytest.mark.parametrize("kind", ["INSERT", "UPDATE"])
def test_a_value_that_is_no_utf8_is_refused(kind: str) -> None:
    image = {"id": "1", "name": "@@@@"}
    raw = rows(1, kind, [(None if kind == "INSERT" else {"id": "2", "name": "@@@@"}, image)])
    entry = row_entry(raw.replace(b"@@@@", b"\xff\xfe\xfd\xfc"))
    with pytest.raises(RemoteProtocolError, match="no UTF-8"):
        list(CanalJson().records(entry, "topic", Placement(None, 1), ORIGIN))
