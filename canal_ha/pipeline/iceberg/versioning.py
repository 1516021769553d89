"""The history of a table in Iceberg (SCD2): which rows of a data file a portion ends, and which take values over. Pure.

Iceberg rewrites the data files that have such rows, as a mirror does (rewriting.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from canal_ha.pipeline.history import CURRENT, TO, VERSION_KEY
from canal_ha.pipeline.latest import row_numbers

_AT, _FROM = "__row", "__given"


class VersionUpdate:
    """What one stretch of changes does to the versions that a table has.

    fresh: the versions that no row of the table takes over, once all its files were given to `applied`.
    """

    def __init__(self, ended_at: datetime | None, keys: Sequence[str], ends: pa.Table, read: pa.Table) -> None:
        """Take a stretch.

        ended_at: of RowVersions.
        keys: names of the key's columns in the table.
        ends, read: of RowVersions, with the names and types that the table has, and only columns that it has.
        """
        self._ended_at = ended_at
        self._keys = list(keys)
        self._ends = ends
        self._read = read
        self._found = [pa.array([], pa.int64())]  # rows of `read` that a version took over

    @property
    def keys(self) -> pa.Table | None:
        """The keys whose current versions change; None for those of all keys."""
        if self._ended_at is not None:
            return None
        return pa.concat_tables([self._ends.select(self._keys), self._read.select(self._keys)])

    @property
    def columns(self) -> list[str]:
        """Columns of the table that `changes` needs."""
        return [*(() if self._ended_at is not None else self._keys), CURRENT]

    @property
    def fresh(self) -> pa.Table:
        """See the class."""
        found = pa.concat_arrays(self._found)
        return self._read.filter(pc.invert(pc.is_in(row_numbers(len(self._read)), found)))

    def changes(self, rows: pa.Table) -> bool:
        """Return whether any of these rows changes. rows: `columns` of a file."""
        if self._ended_at is not None:
            return bool(pc.any(rows.column(CURRENT)).as_py())
        return any(len(self._matches(rows, given)) for given in (self._ends, self._read))

    def applied(self, rows: pa.Table) -> pa.Table:
        """Return the rows of a file behind the changes, in any order."""
        if self._ended_at is not None:
            current = rows.column(CURRENT)
            ended = _replaced(rows.filter(current), {TO: self._ended_at, CURRENT: False})
            return pa.concat_tables([rows.filter(pc.invert(current)), ended])
        ends, read = self._matches(rows, self._ends), self._matches(rows, self._read)
        self._found.append(read.column(_FROM).combine_chunks())
        moments = self._ends.column(TO).take(ends.column(_FROM))
        ended = _replaced(rows.take(ends.column(_AT)), {TO: moments, CURRENT: False})
        values = self._read.take(read.column(_FROM))
        again = _replaced(
            rows.take(read.column(_AT)),
            {name: values.column(name) for name in values.column_names if name not in VERSION_KEY},
        )
        changed = pa.concat_tables([ends, read]).column(_AT).combine_chunks()
        kept = rows.filter(pc.invert(pc.is_in(row_numbers(len(rows)), changed)))
        return pa.concat_tables([kept, ended, again])

    def _matches(self, rows: pa.Table, given: pa.Table) -> pa.Table:
        """Return pairs of row numbers: _AT of current versions in `rows`, and _FROM of the same key in `given`."""
        places = row_numbers(len(rows)).filter(rows.column(CURRENT).combine_chunks())
        numbers = row_numbers(len(given))
        left, right = {_AT: places}, {_FROM: numbers}
        for at, name in enumerate(self._keys if len(given) else ()):
            both = pa.chunked_array([*rows.column(name).take(places).chunks, *given.column(name).chunks])
            codes = both.combine_chunks().dictionary_encode().indices
            left[str(at)], right[str(at)] = codes[: len(places)], codes[len(places) :]
        if len(left) == 1:
            return pa.table({_AT: places[:0], _FROM: numbers[:0]})
        found = pa.table(left).join(pa.table(right), [name for name in left if name != _AT], join_type="inner")
        return found.select([_AT, _FROM]).combine_chunks()


def _replaced(rows: pa.Table, values: dict[str, object]) -> pa.Table:
    """Return rows with other values in some columns: one for each row, or the same one for all."""
    for name, value in values.items():
        at = rows.schema.get_field_index(name)
        field = rows.schema.field(at)
        if not isinstance(value, pa.Array | pa.ChunkedArray):
            value = pa.repeat(pa.scalar(value, field.type), len(rows))
        rows = rows.set_column(at, field, value.cast(field.type))
    return rows
