"""Portion: what a target commits at once. It ends with a transaction, or inside one that is larger than a portion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from canal_ha.client.arrow import TableBatch
from canal_ha.client.rows import Row
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.row_entry import RowEntry


@dataclass(frozen=True, slots=True)
class Portion:
    """Changes of one destination, in the order of its binlog.

    destination: its name.
    frames: the entries, field 2 of canal's Messages, once for each entry, before the transforms. A target that writes
        entries takes those of `ChangeReader.transformed`.
    progress: of a target that has this portion and everything before it.
    rows: number of rows and statements.
    closed: whether it ends at the end of a transaction.
    reader: reads the entries.
    """

    destination: str
    frames: bytes = field(repr=False)
    progress: Progress
    rows: int
    closed: bool
    reader: ChangeReader = field(repr=False)

    def batches(self, *, dates_as_text: bool = False) -> Iterator[TableBatch]:
        """Yield the rows as Arrow record batches (canal_ha.client.arrow), a table's in order.

        The metadata of a field has `canal.key` (b"1" or b"0") and `canal.type` (its mysqlType). Raises SinkRefused.

        dates_as_text: dates and times as the source shows them, so that one that no calendar has (0000-00-00) is not
            NULL; those of timestamps are in UTC, and stay instants if the server's time zone is another one.
        """
        return self.reader.batches(self.frames, dates_as_text=dates_as_text)

    def refilled(self, *, columns: bool = True) -> list[str]:
        """Return the tables, as `schema.table`, that have rows or values at the portion's end which no change brought.

        RENAME and partitions bring rows of other tables; the server computes the values of some added columns.

        columns: whether added columns count.
        """
        return self.reader.refilled(self.frames, columns=columns)

    def emptied(self) -> list[str]:
        """Return the tables, as `schema.table`, that a statement emptied, dropped, or gave another name."""
        return self.reader.emptied(self.frames)

    def leaving(self) -> list[str]:
        """Return the statements after which a copy has rows that the source lacks: no change names them."""
        return self.reader.leaving(self.frames)

    def row_entries(self) -> Iterator[RowEntry]:
        """Yield the entries with rows or statements of the pipeline's tables, with canal's texts of all values."""
        return self.reader.row_entries(self.frames)

    def changes(self) -> Iterator[Row]:
        """Yield the rows and statements one by one, with the values before and after."""
        return self.reader.rows(self.frames)
