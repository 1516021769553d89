"""Copy: what a client keeps in a file of SQLite: the rows, and for the verdict every change that it has applied.

A batch is applied in one transaction before it is acknowledged. So the file has all that was acknowledged, whenever
the client's process is killed. The places in the binlog are for people; the verdict needs none.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from canal_ha.client.rows import Row
from lab.exactness.table import COLUMNS
from lab.exactness.verdict import Applied

_TABLES = """\
CREATE TABLE IF NOT EXISTS copy (id INTEGER PRIMARY KEY, version INTEGER, pad TEXT);
CREATE TABLE IF NOT EXISTS applied (
    number INTEGER PRIMARY KEY, connection TEXT, snapshot TEXT, journal TEXT, offset INTEGER,
    old_id INTEGER, old_version INTEGER, new_id INTEGER, new_version INTEGER
);
CREATE INDEX IF NOT EXISTS snapshot_keys ON applied (new_id) WHERE snapshot <> '';
CREATE TABLE IF NOT EXISTS front (one INTEGER PRIMARY KEY, id INTEGER);
"""


class Copy:
    """See the module. Two processes may have it open: the client, and who looks at it."""

    def __init__(self, file: Path) -> None:
        self._database = sqlite3.connect(file, timeout=30.0, isolation_level=None, check_same_thread=False)
        # what a killed process has written stays, with the operating system
        self._database.executescript(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;\n{_TABLES}")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def take(self, connection: str, rows: Iterable[Row]) -> None:
        """Apply the rows of a batch. connection: on which it came; unique among all processes."""
        database = self._database
        database.execute("BEGIN")
        for row in rows:
            if row.before is None and row.after is None:
                continue  # a statement
            old, new = row.before or {}, row.after or {}
            if old and old["id"] != new.get("id"):
                database.execute("DELETE FROM copy WHERE id = ?", (old["id"],))
            if new:
                database.execute("INSERT OR REPLACE INTO copy VALUES (?, ?, ?)", [new[name] for name in COLUMNS])
            if row.snapshot:
                database.execute("INSERT OR REPLACE INTO front VALUES (1, ?)", (new["id"],))
            versions = [side.get(name) for side in (old, new) for name in ("id", "version")]
            database.execute(
                "INSERT INTO applied VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)",
                (connection, row.snapshot, row.journal, row.offset, *versions),
            )
        database.execute("COMMIT")

    # ---- looking

    def front(self) -> int:
        """Return the key of the snapshot's newest row; -1 before the first one."""
        found = self._database.execute("SELECT id FROM front").fetchone()
        return -1 if found is None else int(found[0])

    def read(self) -> int:
        """Return how many rows of the table the snapshot has brought; a row that came again counts once."""
        found = self._database.execute("SELECT COUNT(DISTINCT new_id) FROM applied WHERE snapshot <> ''").fetchone()
        return int(found[0])

    def has(self, key: int) -> bool:
        """Return whether there is a row with this key."""
        return self._database.execute("SELECT 1 FROM copy WHERE id = ?", (key,)).fetchone() is not None

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """Return all rows by key."""
        return {row[0]: row for row in self._database.execute(f"SELECT {', '.join(COLUMNS)} FROM copy")}

    def applied(self) -> Iterator[Applied]:
        """Yield all changes in the order in which they were applied."""
        for connection, snapshot, *versions in self._database.execute(
            "SELECT connection, snapshot, old_id, old_version, new_id, new_version FROM applied ORDER BY number"
        ):
            old, new = ((versions[at], versions[at + 1]) if versions[at] is not None else None for at in (0, 2))
            yield Applied(connection, bool(snapshot), old, new)
