"""Middle: a key inside a part of a table, up to which one connection reads it. Blocks; its thread.

One key halves what is left of the part, so that two connections can read it. Another one bounds a SELECT that may find
no row, because it has a condition.

The halves need not be equal: a connection without work splits what is left again. Every question is cheap. The server
estimates how many rows a part has (EXPLAIN). Where the first column of the key is a number, the middle of its values
comes near, and the estimate corrects it where values are skewed. For other keys, the server passes over a bounded
number of keys in the index.
"""

from __future__ import annotations

from decimal import Decimal

from canal_ha.decode.ddl.create_table import quoted
from canal_ha.model.snapshot import SnapshotRange
from canal_ha.source.connection.session import SourceSession
from canal_ha.source.snapshot.key import TableKey
from canal_ha.source.snapshot.result_set import read_rows, values_of
from canal_ha.source.snapshot.table import SnapshotTable

SAMPLE_ROWS = 200_000  # keys that the server passes over at most
_STEPS = 40  # of the search among skewed numbers
_SKEWED = 8  # times more rows on one side of a number than on the other, as the server estimates them, roughly
_KEY_BYTES = 1 << 20  # more than any row of key columns

Key = tuple[str, ...]


class Middle:
    """See the module. Raises PyMySQL's errors and SourceUnavailable."""

    def __init__(self, session: SourceSession, table: SnapshotTable, key: TableKey) -> None:
        """Create.

        session: prepared as for the rows of the table.
        """
        self._session = session
        self._key = key
        self._columns = ", ".join(table.expressions[column.place] for column in key.columns)
        self._from = f"FROM {quoted(table.schema.schema)}.{quoted(table.schema.name)}"
        self._index = quoted(key.index)

    def of(self, part: SnapshotRange, least: int) -> Key | None:
        """Return the key of a row inside a part; None if the part has few rows, or no index serves the key.

        least: rows of a half.
        """
        if not self._key.index:
            return None
        conditions = self._key.between(part.after, part.until)
        rows = self._estimate(conditions)
        if rows < 2 * least:
            return None
        found = self._by_number(conditions) if self._key.columns[0].is_number else None
        return found or self._by_sample(conditions, rows // 2, least)

    def ahead(self, part: SnapshotRange, rows: int) -> Key | None:
        """Return the key of the row with this number in a part, from 1; None without it, or if no index serves."""
        if not self._key.index:
            return None
        found = self._row(self._key.between(part.after, part.until), self._key.order, offset=rows - 1)
        return self._texts(found) if found else None

    def _by_number(self, conditions: list[str]) -> Key | None:
        """Return the last key whose number is at most the middle one; None if all keys have the same number."""
        first = self._key.columns[0].expression
        ends = [self._row(conditions, order) for order in (self._key.order, self._key.reverse)]
        low, high = (Decimal(end[0].decode()) if end else Decimal(0) for end in ends)
        highest = high
        middle = None
        for _ in range(_STEPS):
            tried = (low + high) / 2
            tried = tried.to_integral_value("ROUND_FLOOR") if abs(tried) >= 1 else tried
            if not low <= tried < high:
                break
            middle = tried
            before, behind = (self._estimate([*conditions, f"{first} {sign} {middle}"]) for sign in ("<=", ">"))
            if before < behind // _SKEWED:
                low = middle
            elif behind < before // _SKEWED:
                high = middle
            else:
                break
            if low == middle and high - low <= 1:
                break
        if middle is None or middle >= highest:
            return None
        found = self._row([*conditions, f"{first} <= {middle}"], self._key.reverse)
        return self._texts(found) if found else None

    def _by_sample(self, conditions: list[str], rows: int, least: int) -> Key | None:
        """Return the key behind this number of rows, or behind fewer of them, if the estimate was too high."""
        rows = min(rows, SAMPLE_ROWS)
        while rows >= least:
            if found := self._row(conditions, self._key.order, offset=rows - 1):
                return self._texts(found)
            rows //= 4
        return None

    def _row(self, conditions: list[str], order: str, offset: int = 0) -> list[bytes] | None:
        """Return the values of one key in this order; None if there are fewer keys."""
        sql = f"SELECT {self._columns} {self._from} FORCE INDEX ({self._index}){_where(conditions)}"
        rows = read_rows(self._session, f"{sql} ORDER BY {order} LIMIT 1 OFFSET {offset}", _KEY_BYTES)
        return [value or b"" for value in values_of(rows.whole())] if rows.count else None

    def _texts(self, values: list[bytes]) -> Key:
        return tuple(column.text(value) for column, value in zip(self._key.columns, values, strict=True))

    def _estimate(self, conditions: list[str]) -> int:
        """Return how many rows the server believes to be there."""
        select = f"SELECT 1 {self._from} USE INDEX ({self._index}){_where(conditions)}"  # with FORCE, MySQL says 1
        found = self._session.ask(f"EXPLAIN FORMAT=TRADITIONAL {select}")
        return int(found[0]["rows"] or 0)


def _where(conditions: list[str]) -> str:
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""
