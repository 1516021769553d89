"""The rows of an entry as changes in Debezium's sense. Pure.

A change of the key is a delete of the old key and a create of the new one. Columns that the after image of an UPDATE
omits have the values of the before image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import repeat

from canal_ha.decode.kernel.envelopes import ColumnForm, Envelopes, MessageShape, Pieces
from canal_ha.model.entry import EventType
from canal_ha.pipeline.given_key import given_key
from canal_ha.pipeline.messages.queue_message import QueueMessage
from canal_ha.pipeline.messages.routing import RowPlace
from canal_ha.pipeline.row_entry import ImageColumns, RowEntry


class RowOperations:
    """The changes of an entry.

    columns: of the new image, or of the old one for a delete, and those that an UPDATE takes from the old one.
    before: columns of the old image.
    keys: names of the key's columns.
    """

    def __init__(self, entry: RowEntry, given: Mapping[str, Sequence[str]]) -> None:
        """Read an entry.

        given: `schema.table` -> key columns of tables without a primary key, or to use instead of it.
        Raises SinkRefused if rows lack such a column.
        """
        self._entry = entry
        self.before = entry.before
        self.columns = entry.image
        if entry.event == EventType.UPDATE and entry.before.indexes != entry.after.indexes:
            self.columns = entry.after.joined(entry.before)
        self.keys: Sequence[str] = self.columns.key_names
        table = f"{entry.schema}.{entry.table}"
        if entry.rows and (named := given.get(table)):
            others = entry.key_names
            self.keys = given_key(self.columns.names, named, table, others)
            if entry.event == EventType.UPDATE:
                given_key(entry.before.names, named, table, others)  # without the old key, no message could delete it

    def shape(self, pieces: Pieces, forms: Callable[[ImageColumns], list[ColumnForm]]) -> MessageShape:
        """Return what the messages of all entries with these columns and keys share.

        pieces: the same object for them.
        forms: called once for the columns of an image.
        """
        event = self._entry.event
        known = (event, self.before, tuple(self.keys), pieces)
        found: MessageShape | None = self.columns.made.get(known)
        if found is None:
            old = [] if event == EventType.INSERT else forms(self.before)
            new = [] if event == EventType.DELETE else forms(self.columns)
            found = self.columns.made[known] = MessageShape(pieces, old, new, *self._places(event))
        return found

    def _places(self, event: EventType) -> tuple[list[int], list[int], list[int], list[int]]:
        """Return sources, old_key, new_key and compared of a MessageShape."""
        columns, before = self.columns, self.before
        old_key = [before.names.index(name) for name in self.keys if name in before.names]
        if event == EventType.DELETE:
            return [], old_key, [], []
        new_key = [columns.names.index(name) for name in self.keys]
        if event == EventType.INSERT:
            return list(range(len(columns.names))), [], new_key, []
        then = columns.places_of(before)
        now = columns.places_of(self._entry.after)
        sources = [-1 - (old or 0) if place is None else place for place, old in zip(now, then, strict=True)]
        compared = [-1 if (place := then[at]) is None else place for at in new_key]
        return sources, old_key, new_key, compared

    def messages(self, made: Envelopes, place: RowPlace) -> Iterator[QueueMessage]:
        """Return the messages of the rows. place: finds their partitions. Raises RemoteProtocolError, SinkRefused."""
        entry = self._entry
        if place.needs_values:
            place.of_messages(made, self.before, self.columns)
        entry.rows.write(made, entry.event, snapshot=bool(entry.snapshot))
        partitions = made.partitions if place.needs_values else repeat(place({}))
        return map(QueueMessage, partitions, made.keys, made.values)
