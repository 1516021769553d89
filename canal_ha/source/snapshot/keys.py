"""The keys of rows in segments: of the rows of a chunk, and of those that the stream changes meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from canal_ha.decode.kernel.changes import entry_keys
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.layouts import Images
from canal_ha.decode.plans import table_names
from canal_ha.errors import SnapshotRefused
from canal_ha.model.segment import EntryKind, Segment

Key = tuple[str, ...]
RowKeys = tuple[Key | None, Key | None]
"""Texts of the key's columns, in its order, before and after a change; None for a side that the change lacks."""


class TableKeys:
    """Reads the keys of one table's rows. A thread at a time uses it."""

    def __init__(self, schema: str, table: str, key: tuple[str, ...]) -> None:
        """Create.

        schema, table: names as events have them.
        key: names of the key's columns, as SnapshotTable.key.
        """
        self._table = f"{schema}.{table}"
        self._names = table_names(schema, table)
        self._key = key
        self._images: dict[int, Images] = {}  # by kind of change

    def of(self, segment: Segment) -> Iterator[RowKeys]:
        """Yield the keys of each row of the table, in order: the n-th one of a chunk's segment is its row n.

        Nothing is parsed in a segment without the table.
        Raises SnapshotRefused if an entry lacks a column of the key.
        """
        frames = segment.frames
        if not isinstance(frames, bytes | bytearray):
            frames = bytes(frames)
        if self._names not in frames:
            return
        for index, kind in enumerate(segment.kinds):
            start = segment.frame_start(index)
            if kind == EntryKind.ROWS and frames.find(self._names, start, segment.ends[index]) >= 0:
                yield from self._of_entry(segment.entry(index))

    def _of_entry(self, raw: bytes) -> Iterator[RowKeys]:
        entry = Entries(b"", 0, 0)
        entry.only(raw)
        names = table_names(
            entry.text(entry.schema_start, entry.schema_stop), entry.text(entry.table_start, entry.table_stop)
        )
        if names != self._names or not entry.change():
            return
        images = self._images.setdefault(entry.event_type, Images({}))
        for before, after in entry_keys(entry, images, self._key):
            if None in after and before:  # columns that an image lacks did not change
                after = tuple(new if new is not None else old for old, new in zip(before, after, strict=True))
            if None in before or None in after:
                raise SnapshotRefused(
                    f"{self._table}: the binlog lacks a column of the key of a changed row (binlog_row_image), so its"
                    " snapshot cannot be joined to the stream. Run: SET GLOBAL binlog_row_image = FULL"
                )
            yield cast(Key, before) or None, cast(Key, after) or None
