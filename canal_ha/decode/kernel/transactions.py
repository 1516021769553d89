"""Steps over whole transactions of rows at once, and counts their rows."""

from __future__ import annotations

import canal_ha.decode.kernel.codes as k
import canal_ha.decode.kernel.entries as e
import canal_ha.decode.kernel.primitives as p


class WholeTransactions:
    """The whole transactions that follow at the place of a walk, up to the first entry that is something else.

    A transaction is rows of the binlog, begins and statements of row changes, up to an end. Servers may omit begins.

    count: number of entries.
    start, stop: of their frames.
    sub: index of the last entry among its neighbours with the same journal and offset.
    newest_ms: newest time of an entry.
    rows: `schema` NUL `table` -> number of rows; a statement counts as one.
    The header of the last entry: as in Entries.
    """

    __slots__ = (
        "_ahead", "_done", "_open", "_schema", "_table", "count", "gtid_start", "gtid_stop", "journal_start",
        "journal_stop", "newest_ms", "offset", "rows", "server_id", "start", "stop", "sub", "time_ms",
    )  # fmt: skip

    def __init__(self, entries: e.Entries) -> None:
        """Step over them: `entries` then stands behind the last one. Raises Broken."""
        self.rows: dict[bytes, int] = {}
        self.count = 0
        self.start = self.stop = entries.pos
        self.sub = 0
        self.newest_ms = 0
        self.offset = self.server_id = self.time_ms = 0
        self.journal_start = self.journal_stop = self.gtid_start = self.gtid_stop = 0
        self._schema = b""
        self._table = b""
        self._done = 0  # rows of this table, in whole transactions
        self._open = 0  # and in the open one
        self._ahead: list[tuple[bytes, int]] = []  # rows of other tables in the open one
        self._read(e.Entries(entries.src, entries.pos, entries.stop))
        entries.pos = self.stop
        entries.number += self.count

    def _read(self, entry: e.Entries) -> None:
        newest_ms = 0
        while entry.next():
            newest_ms = max(newest_ms, entry.time_ms)
            if entry.kind == k.ROWDATA:
                if entry.snapshot_stop > entry.snapshot_start:
                    break
                rows = entry.change()
                if entry.is_ddl or (rows == 0 and entry.event_type != k.EVENT_QUERY):
                    break
                if not self._is_table_of(entry):
                    self._turn(entry)
                self._open += max(rows, 1)
            elif entry.kind == k.TRANSACTIONEND:
                self._end(entry, newest_ms)
            elif entry.kind != k.TRANSACTIONBEGIN:
                break
        self._flush()

    def _is_table_of(self, entry: e.Entries) -> bool:
        src = entry.src
        return p.same_bytes(src, entry.table_start, entry.table_stop, self._table) and p.same_bytes(
            src, entry.schema_start, entry.schema_stop, self._schema
        )

    def _turn(self, entry: e.Entries) -> None:
        """Turn to the table of an entry."""
        if self._open:
            self._ahead.append((self._schema + b"\0" + self._table, self._open))
            self._open = 0
        self._flush()
        self._schema = entry.src[entry.schema_start : entry.schema_stop]
        self._table = entry.src[entry.table_start : entry.table_stop]

    def _end(self, entry: e.Entries, newest_ms: int) -> None:
        """Take the open transaction over; `entry` is its last one."""
        for name, rows in self._ahead:
            self.rows[name] = self.rows.get(name, 0) + rows
        self._ahead.clear()
        self._done += self._open
        self._open = 0
        self.count = entry.number + 1
        self.stop = entry.pos
        self.sub = entry.sub
        self.newest_ms = newest_ms
        self.offset = entry.offset
        self.server_id = entry.server_id
        self.time_ms = entry.time_ms
        self.journal_start = entry.journal_start
        self.journal_stop = entry.journal_stop
        self.gtid_start = entry.gtid_start
        self.gtid_stop = entry.gtid_stop

    def _flush(self) -> None:
        """Add the rows of this table in whole transactions."""
        if self._done:
            name = self._schema + b"\0" + self._table
            self.rows[name] = self.rows.get(name, 0) + self._done
            self._done = 0
