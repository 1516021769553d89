"""Leaves out what a table already has, for targets that commit table by table. Pure.

After a crash between two tables, the portion comes again with the same number, and can end elsewhere than the one that
was interrupted. So a table stores the position up to which it has everything, and only rows behind it count. At any
other time positions must not decide: they go back after a switch to another server, and those of several sources cannot
be compared. Entries that share an offset are never split between portions. The rows of a snapshot have the offset of
the transaction end before them, so those at the stored position are kept: a copy may take them over twice.
"""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.client.arrow import META, TableBatch
from canal_ha.model.position import LogPosition, split_journal

_OFFSET_BITS = 40  # a binlog file is smaller


def number_of(position: LogPosition) -> int:
    """Return journal and offset as one number of 63 bits, which grows along a binlog."""
    return split_journal(position.journal)[1] << _OFFSET_BITS | position.offset


def binlog_of(position: LogPosition) -> str:
    """Return the name of the binlog in which a position's number counts: its server, and its files without numbers."""
    return f"{position.server or position.server_id} {split_journal(position.journal)[0]}"


def statement_ids(rows: pa.RecordBatch) -> list[str]:
    """Return for each statement what recognises it when it comes again, from another server of the source, too.

    A digest of its text, its time, and its GTID set or place. The set alone says too little: sets begin again after a
    reset of the binary logs, and a transaction without a GTID has that of the ones before it.

    rows: a batch of statements.
    """
    statements, positions, times = (rows.column(rows.num_columns - at).to_pylist() for at in (1, 2, 3))
    places = [at["gtid"] or f"{at['server']} {at['journal']} {at['offset']}" for at in positions]
    texts = [f"{place} {moment} {sql}" for place, moment, sql in zip(places, times, statements, strict=True)]
    return [sha256(text.encode()).hexdigest()[:16] for text in texts]


def behind(batch: TableBatch, number: int | None) -> TableBatch:
    """Return the rows behind a position. number: of `number_of`; None for all rows."""
    if number is None:
        return batch
    rows = batch.rows
    operations, position = rows.column(rows.num_columns - len(META)), rows.column(rows.num_columns - 2)
    journals = pc.struct_field(position, "journal").dictionary_encode()
    numbers = pa.array([split_journal(name)[1] << _OFFSET_BITS for name in journals.dictionary.to_pylist()], pa.int64())
    places = pc.add(numbers.take(journals.indices), pc.struct_field(position, "offset"))
    again = pc.and_(pc.equal(places, number), pc.equal(operations, "read"))
    return TableBatch(batch.schema, batch.table, rows.filter(pc.or_(pc.greater(places, number), again)))
