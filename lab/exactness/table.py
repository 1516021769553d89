"""The table that is copied: each row has a version, which grows with every change of its key, also beyond a DELETE."""

from __future__ import annotations

from lab.mysql import SqlServer

SCHEMA = "exact"
TABLE = f"{SCHEMA}.t"
VERSIONS = f"{SCHEMA}.versions"
FILTER = rf"{SCHEMA}\.t"
COLUMNS = ("id", "version", "pad")
FIRST_VERSION = 1
ROW_BYTES = 1000  # about

_FILLED_AT_ONCE = 500


def create(server: SqlServer, keys: int) -> None:
    """Create the table with rows for seven of eight keys; every key has a version. The binlog has none of this."""
    statements = [
        "SET SESSION sql_log_bin = 0",
        f"CREATE DATABASE {SCHEMA}",
        f"CREATE TABLE {TABLE} (id INT PRIMARY KEY, version BIGINT NOT NULL, pad VARCHAR(1200) NOT NULL)",
        f"CREATE TABLE {VERSIONS} (id INT PRIMARY KEY, v BIGINT NOT NULL)",
    ]
    for first in range(0, keys, _FILLED_AT_ONCE):
        some = range(first, min(first + _FILLED_AT_ONCE, keys))
        versions = ", ".join(f"({key}, {FIRST_VERSION})" for key in some)
        rows = ", ".join(f"({key}, {FIRST_VERSION}, {pad(FIRST_VERSION)})" for key in some if key % 8 != 7)
        statements += [f"INSERT INTO {VERSIONS} VALUES {versions}", f"INSERT INTO {TABLE} VALUES {rows}"]
    server.execute(*statements)


def pad(version: int) -> str:
    """Return an SQL expression of a text that other versions do not have."""
    return f"REPEAT('{chr(ord('a') + version % 26)}', {ROW_BYTES - 50 + version % 41})"
