"""The columns that the log of a table has beside the table's own, in a target that is a database. Pure.

_run, _commit, _entry, _row     with _op the key, and the order of the binlog within a run
_op                             insert, update, delete, ddl or read; a new key is a delete and an insert
_ts                             time of the event
_server, _journal, _offset      where the event is in the binlog
_sub, _gtid, _ddl
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.client.arrow import META
from canal_ha.pipeline.progress import Progress

CHANGE_KEY = ("_run", "_commit", "_entry", "_row", "_op")


def change_columns(rows: pa.RecordBatch, progress: Progress) -> Iterator[tuple[str, pa.Array]]:
    """Yield name and values of each column. rows: of Portion.batches; progress: of the portion."""
    ops, times, position, statements = rows.columns[-len(META) :]
    yield "_run", pa.repeat(progress.run, rows.num_rows)
    yield "_commit", pa.repeat(pa.scalar(progress.seq, pa.int64()), rows.num_rows)
    for name in ("entry", "row"):
        yield f"_{name}", pc.struct_field(position, name)
    yield "_op", ops
    yield "_ts", times
    for name in ("server", "journal", "offset", "sub", "gtid"):
        yield f"_{name}", pc.struct_field(position, name)
    yield "_ddl", statements
