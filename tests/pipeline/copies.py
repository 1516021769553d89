"""A target in an SQLite file, for tests of the engine: rows and progress in one transaction."""

from __future__ import annotations

import json
import sqlite3
import threading
from pathlib import Path
from typing import Any

from canal_ha.errors import TargetUnavailable
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.latest import latest
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress


class Copies:
    """Copies of tables: a row is JSON under the JSON of its key."""

    def __init__(self, description: Description) -> None:
        self._description = description
        self._file = Path(description.target.options["path"])
        self._lock = threading.Lock()
        with self._open() as connection:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS copy (name TEXT, key TEXT, row TEXT, PRIMARY KEY (name, key))"
            )
            connection.execute("CREATE TABLE IF NOT EXISTS progress (destination TEXT PRIMARY KEY, text TEXT)")

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._file, timeout=1)

    def check(self) -> str:
        """Return the file's name."""
        return str(self._file)

    def progress(self, destination: str) -> Progress | None:
        """Return the progress."""
        return self.stored(destination)

    def stored(self, destination: str) -> Progress | None:
        """Return the progress."""
        try:
            with self._lock, self._open() as connection:
                found = connection.execute("SELECT text FROM progress WHERE destination = ?", (destination,)).fetchone()
        except sqlite3.OperationalError as error:
            raise TargetUnavailable(f"copies: {error}") from error
        return Progress.from_json(found[0]) if found else None

    def commit(self, portion: Portion) -> None:
        """Write a portion."""
        try:
            self._commit(portion)
        except sqlite3.OperationalError as error:
            raise TargetUnavailable(f"copies: {error}") from error

    def _commit(self, portion: Portion) -> None:
        with self._lock, self._open() as connection:
            for changes in latest(portion.batches(), self._description.keys):
                name = f"{changes.schema}.{changes.table}"
                if changes.emptied:
                    connection.execute("DELETE FROM copy WHERE name = ?", (name,))
                for gone in changes.deletes.to_pylist():
                    connection.execute("DELETE FROM copy WHERE name = ? AND key = ?", (name, text(list(gone.values()))))
                rows = [
                    (name, text([row[key] for key in changes.keys]), text(row)) for row in changes.upserts.to_pylist()
                ]
                connection.executemany("INSERT OR REPLACE INTO copy VALUES (?, ?, ?)", rows)
            connection.execute(
                "INSERT OR REPLACE INTO progress VALUES (?, ?)", (portion.destination, portion.progress.to_json())
            )

    def close(self) -> None:
        """Do nothing."""


def text(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, default=str, sort_keys=True)


def copied(file: Path, name: str) -> list[str]:
    """Return the rows of a copy as JSON, sorted."""
    if not file.exists():
        return []
    with sqlite3.connect(file, timeout=60) as connection:
        return sorted(row for (row,) in connection.execute("SELECT row FROM copy WHERE name = ?", (name,)))
