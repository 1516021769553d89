"""A decoder for walks over a binlog: it accepts no table, and tells where transactions end and which statements ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.table_map import TableMap
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.model.table import TableSchema

_NO_TABLE = TableFilter("", r".*\..*")
_QUIET = DecodeOptions(filter_query_dcl=True, filter_query_dml=True, filter_query_ddl=True, filter_rows=True)


class Statements:
    """A history that is asked for no table, because none passes the filters, and passes statements on."""

    def __init__(self, told: Callable[[LogPosition, str, str], None]) -> None:
        self._told = told

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        raise AssertionError(f"{table_map.schema}.{table_map.name} at {at}: a walk wants no table")

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> None:
        self._told(at, default_schema, sql)


_UNHEARD = Statements(lambda at, default_schema, sql: None)


def walker(journal: str, offset: int, history: Statements = _UNHEARD, *, gtid_set: str | None = None) -> Decoder:
    """Begins at this event; yields no entries. gtid_set: executed before it, to be carried on; None: not asked for."""
    return Decoder(
        source=Source("", 0),
        journal=journal,
        position=offset,
        options=_QUIET if gtid_set is None else replace(_QUIET, gtid_on=True),
        tables=_NO_TABLE,
        fields=FieldFilter("", ""),
        history=history,
        gtid_set=gtid_set,
    )
