"""Writes canal's FlatMessage as JSON, byte for byte as canal's own producers do. Pure.

A message has the rows of one entry, in the order of the binlog. If the rows go to several partitions, each of these
gets a message with its rows. Values are canal's texts, binary ones with one character for each byte; NULL is null.
`old` has, for each row of an UPDATE, the old values of the columns that a row of this entry has changed up to there.
`id` is the number of the pipeline's commit, where canal has that of its batch. `ts` is the time of the commit, ms.

Source: canal 1.1.7, MQMessageUtils.messageConverter; tests/golden/flat_messages has its answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import compress
from json.encoder import encode_basestring as quoted
from typing import NamedTuple

from canal_ha.model.entry import EventType
from canal_ha.pipeline.messages.queue_message import MessageOrigin, QueueMessage
from canal_ha.pipeline.messages.routing import Placement
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry

_NULL = "null"


class CanalJson:
    """The format `canal-json`. Statements are messages, too; a message has no key."""

    statements_apart = False
    exact = False

    def records(
        self, entry: RowEntry, topic: str, placement: Placement, origin: MessageOrigin
    ) -> Iterator[QueueMessage]:
        """See MessageFormat."""
        columns, event = entry.image, entry.event
        keys = columns.key_names if entry.rows else []
        place = placement.placing(entry.schema, entry.table, keys)
        shape, old_labels = _shape(columns), _shape(entry.before).labels
        old_places = entry.before.places_of(columns) if event == EventType.UPDATE else []
        updated = [False] * len(old_labels)
        parts: dict[int, tuple[list[str], list[str]]] = {} if entry.rows else {placement.fixed: ([], [])}
        for before, after in entry.rows:
            image = before if event == EventType.DELETE else after
            data, old = parts.setdefault(place(columns.texts(image) if place.needs_values else {}), ([], []))
            data.append(shape.row % tuple([_NULL if text is None else quoted(text) for text in image]))
            if event == EventType.UPDATE:
                for at, now in enumerate(old_places):
                    if now is not None and before[at] != after[now]:
                        updated[at] = True
                old.append(_values(compress(old_labels, updated), compress(before, updated)))
        types = codes = _NULL
        if entry.rows:
            types = shape.types
            codes = f"{{{','.join([f'{label}{code}' for label, code in zip(shape.labels, entry.codes, strict=True)])}}}"
        head = (
            f',"database":{quoted(entry.schema)},"es":{entry.time_ms},"gtid":{quoted(entry.gtid)}'
            f',"id":{origin.number},"isDdl":{"true" if entry.is_ddl else "false"},"mysqlType":{types},"old":'
        )
        tail = (
            f',"pkNames":{_list([quoted(name) for name in keys])},"sql":{quoted(entry.sql)},"sqlType":{codes}'
            f',"table":{quoted(entry.table)},"ts":{origin.now_ms},"type":"{event.name}"}}'
        )
        for partition, (data, old) in parts.items():
            yield QueueMessage(partition, None, f'{{"data":{_list(data)}{head}{_list(old)}{tail}'.encode())


class _Shape(NamedTuple):
    """What all rows with the same columns share.

    labels: the names as members of an object begin with them.
    row: an object with `%s` for each value.
    types: the object of the columns' types.
    """

    labels: list[str]
    row: str
    types: str


def _shape(columns: ImageColumns) -> _Shape:
    if _Shape not in columns.made:
        labels = [f"{quoted(name)}:" for name in columns.names]
        members = [label.replace("%", "%%") + "%s" for label in labels]
        columns.made[_Shape] = _Shape(labels, f"{{{','.join(members)}}}", _values(labels, columns.types))
    shape: _Shape = columns.made[_Shape]
    return shape


def _values(labels: Iterable[str], texts: Iterable[str | None]) -> str:
    members = [label + (_NULL if text is None else quoted(text)) for label, text in zip(labels, texts, strict=True)]
    return f"{{{','.join(members)}}}"


def _list(items: list[str]) -> str:
    return f"[{','.join(items)}]" if items else _NULL
