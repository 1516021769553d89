"""AnnouncedHistory: tells a listener the statements that a decoder applies."""

from __future__ import annotations

from collections.abc import Callable

from canal_ha.decode.history.history import TableHistory
from canal_ha.decode.table_map import TableMap
from canal_ha.model.position import LogPosition
from canal_ha.model.table import TableSchema

Altering = Callable[[str, str], None]


class AnnouncedHistory:
    """Implements TableHistory with another one.

    history: the other one.
    altering: called with the default schema and the text of each statement, before the decoder makes its entry.
    """

    def __init__(self, history: TableHistory, altering: Altering) -> None:
        self._history = history
        self._altering = altering

    @property
    def lowers_names(self) -> bool:
        """See TableHistory."""
        return self._history.lowers_names

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        """See TableHistory."""
        return self._history.table(table_map, at)

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        """See TableHistory."""
        self._altering(default_schema, sql)
        return self._history.apply(at, default_schema, sql)

    def charset(self, schema: str) -> str:
        """See TableHistory."""
        return self._history.charset(schema)
