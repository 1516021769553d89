"""Writes canal's FlatMessage as JSON, byte for byte as canal's own producers do. Pure.

A message has the rows of one entry, in the order of the binlog. If the rows go to several partitions, each of these
gets a message with its rows. Values are canal's texts, binary ones with one character for each byte; NULL is null.
`old` has, for each row of an UPDATE, the old values of the columns that a row of this entry has changed up to there.
`id` is the number of the pipeline's commit, where canal has that of its batch. `ts` is the time of the commit, ms.

Source: canal 1.1.7, MQMessageUtils.messageConverter; tests/golden/flat_messages has its answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from json.encoder import encode_basestring as quoted
from typing import NamedTuple

from canal_ha.model.entry import EventType
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import Placement, RowPlace
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry

_NULL = "null"
_Rows = tuple[list[bytes], list[bytes]]
"""Rows as objects of `data`, and of `old`."""


class CanalJson:
    """The format `canal-json`. Statements are messages, too; a message has no key."""

    statements_apart = False
    exact = False

    def records(
        self, entry: RowEntry, topic: str, placement: Placement, origin: MessageOrigin
    ) -> Iterator[QueueMessage]:
        """See MessageFormat."""
        columns, event = entry.image, entry.event
        parts: dict[int, _Rows] = {placement.fixed: ([], [])}
        types = codes = names = _NULL
        if entry.rows:
            shape, keys = _shape(columns), columns.key_names
            types = shape.types
            codes = _object([f"{name}:{code}" for name, code in zip(shape.names, entry.codes, strict=True)])
            if keys:
                names = f"[{','.join([quoted(name) for name in keys])}]"
            data = entry.rows.objects(shape.labels, deleted=event == EventType.DELETE)
            old: list[bytes] = []
            if event == EventType.UPDATE:
                old = entry.rows.old_objects(_shape(entry.before).labels, entry.before.places_of(columns))
            place = placement.placing(entry.schema, entry.table, keys)
            parts = _parted(entry, place, data, old) if place.needs_values else {place({}): (data, old)}
        head = (
            f',"database":{quoted(entry.schema)},"es":{entry.time_ms},"gtid":{quoted(entry.gtid)}'
            f',"id":{origin.number},"isDdl":{"true" if entry.is_ddl else "false"},"mysqlType":{types},"old":'
        )
        tail = (
            f',"pkNames":{names},"sql":{quoted(entry.sql)},"sqlType":{codes}'
            f',"table":{quoted(entry.table)},"ts":{origin.now_ms},"type":"{event.name}"}}'
        )
        for partition, (data, old) in parts.items():
            value = b"".join([b'{"data":', _list(data), head.encode(), _list(old), tail.encode()])
            yield QueueMessage(partition, None, value)


def _parted(entry: RowEntry, place: RowPlace, data: list[bytes], old: list[bytes]) -> dict[int, _Rows]:
    """Return the rows of each partition. old: of an UPDATE, else empty."""
    parts: dict[int, _Rows] = {}
    for number, partition in enumerate(place.of_rows(entry)):
        now, before = parts.setdefault(partition, ([], []))
        now.append(data[number])
        if old:
            before.append(old[number])
    return parts


class _Shape(NamedTuple):
    """What all rows with the same columns share.

    names: the names as strings of JSON.
    labels: what stands before each value; see kernel.queue_rows.
    types: the object of the columns' types.
    """

    names: list[str]
    labels: list[bytes]
    types: str


def _shape(columns: ImageColumns) -> _Shape:
    if _Shape not in columns.made:
        names = [quoted(name) for name in columns.names]
        types = [f"{name}:{quoted(text)}" for name, text in zip(names, columns.types, strict=True)]
        columns.made[_Shape] = _Shape(names, [f",{name}:".encode() for name in names], _object(types))
    shape: _Shape = columns.made[_Shape]
    return shape


def _object(members: list[str]) -> str:
    return f"{{{','.join(members)}}}"


def _list(items: list[bytes]) -> bytes:
    return b"[%b]" % b",".join(items) if items else b"null"
