"""The columns that the log of a table has beside the table's own. Pure.

In a target that is a database these; in files and lakes those of canal_ha.client.arrow:

_run, _commit, _entry, _row     with _op the key, and the order of the binlog within a run
_op                             insert, update, delete, ddl or read; a new key is a delete and an insert
_ts                             time of the event
_server, _journal, _offset      where the event is in the binlog
_sub, _gtid, _ddl
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.client.arrow import META, TableBatch
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.progress import Progress

CHANGE_KEY = ("_run", "_commit", "_entry", "_row", "_op")

_OWN = frozenset({*CHANGE_KEY, "_ts", "_server", "_journal", "_offset", "_sub", "_gtid", "_ddl"})

_OF_FILES = frozenset(field.name for field in META)


def check_names(names: Iterable[str], target: str, source: str, own: frozenset[str] = _OWN) -> None:
    """Raise SinkRefused for a column with a name of ours, in any case.

    names: of the table's columns.
    target: its name.
    source: schema.table.
    own: our names, in lower case.
    """
    wrong = [name for name in names if name.lower() in own]
    if wrong:
        raise SinkRefused(
            f"{target}: {source} has a column {wrong[0]}, which a changelog needs for itself: give it another name with"
            " the transform rename, or drop it"
        )


def check_batch(batch: TableBatch, target: str) -> None:
    """Raise SinkRefused for rows with a column whose name is one of META, which follow it. target: its name."""
    check_names(batch.rows.schema.names[: -len(META)], target, f"{batch.schema}.{batch.table}", _OF_FILES)


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
