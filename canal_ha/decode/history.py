"""A table's columns as of a position, shared by the streams of one instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from canal_ha.decode.table_map import TableMap
from canal_ha.errors import TableUnknown
from canal_ha.model.position import LogPosition
from canal_ha.model.table import TableSchema

Fetch = Callable[[str, str], str | None]


class TableHistory(Protocol):
    """What a decoder asks about tables."""

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """The columns of the mapped table as of `at`. Raises TableUnknown."""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        """Take in a statement that passed the filters. at: its position."""


class History:
    """All versions of all tables of one instance; safe to share between threads.

    fetch: SHOW CREATE TABLE's text as of now for (schema, table), None when there is no such table.
    """

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def view(self, at: LogPosition | None) -> TableHistory:
        """The tables as one stream sees them. at: where the stream starts, None when not known yet."""
        return _View(self._fetch)


class _View:
    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        raise TableUnknown(f"{table_map.schema}.{table_map.name} at {at}: no definition known")

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        del at, default_schema, sql
