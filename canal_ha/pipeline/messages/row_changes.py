"""The rows of an entry as changes in Debezium's sense. Pure.

A change of the key is a delete of the old key and a create of the new one. Columns that the after image of an UPDATE
omits have the values of the before image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from canal_ha.model.entry import EventType
from canal_ha.pipeline.given_key import given_key
from canal_ha.pipeline.row_entry import RowEntry, Texts

Operation = Literal["c", "u", "d", "r"]


@dataclass(frozen=True, slots=True)
class RowOperation:
    """A change of one row.

    op: c create, u update, d delete, r read by a snapshot.
    row: number within the entry.
    before, after: texts; None for a side that it has not.
    """

    op: Operation
    row: int
    before: Texts | None
    after: Texts | None


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

    def __iter__(self) -> Iterator[RowOperation]:
        """Yield the changes; none for a statement."""
        entry = self._entry
        if entry.event == EventType.INSERT:
            created: Operation = "r" if entry.snapshot else "c"
            for number, (_, after) in enumerate(entry.rows):
                yield RowOperation(created, number, None, after)
        elif entry.event == EventType.DELETE:
            for number, (before, _) in enumerate(entry.rows):
                yield RowOperation("d", number, before, None)
        else:
            yield from self._updates()

    def _updates(self) -> Iterator[RowOperation]:
        entry, columns = self._entry, self.columns
        whole = columns is entry.after
        now_at = columns.places_of(entry.after)
        then_at = columns.places_of(entry.before)
        key_at = [place for place, name in enumerate(columns.names) if name in self.keys]
        for number, (before, after) in enumerate(entry.rows):
            new = after
            if not whole:
                new = [
                    after[now] if now is not None else before[then] if then is not None else None
                    for now, then in zip(now_at, then_at, strict=True)
                ]
            if any((then := then_at[place]) is not None and before[then] != new[place] for place in key_at):
                yield RowOperation("d", number, before, None)
                yield RowOperation("c", number, None, new)
            else:
                yield RowOperation("u", number, before, new)
