"""A decoder that only finds transaction boundaries and statements: it accepts no table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from canal_ha.config.model import DecodeOptions
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.filters import FieldFilter, TableFilter
from canal_ha.decode.prepared import PreparedParts
from canal_ha.decode.table_map import TableMap
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.model.table import TableSchema

_NO_TABLE = TableFilter("", r".*\..*")
_QUIET = DecodeOptions(filter_query_dcl=True, filter_query_dml=True, filter_query_ddl=True, filter_rows=True)


class Statements:
    """A history for such a decoder: it passes statements on, and is never asked for a table."""

    lowers_names = False  # only positions count

    def __init__(self, apply: Callable[[LogPosition, str, str], object]) -> None:
        self._apply = apply

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        raise AssertionError(f"{table_map.schema}.{table_map.name} at {at}: no table passes the filter here")

    def charset(self, schema: str) -> str:
        return ""

    def apply(self, at: LogPosition, default_schema: str, sql: str) -> bool:
        self._apply(at, default_schema, sql)
        return False


_IGNORED = Statements(lambda at, default_schema, sql: None)


def boundary_decoder(
    journal: str,
    offset: int,
    history: Statements = _IGNORED,
    *,
    gtid_set: str | None = None,
    prepared: PreparedParts | None = None,
    in_prepared_part: bool = False,
) -> Decoder:
    """Return a decoder that yields no entries.

    journal, offset: the event where it begins.
    history: takes the statements.
    gtid_set: executed before that event, to be continued; None for no sets.
    prepared, in_prepared_part: as for a Decoder.
    """
    return Decoder(
        source=Source("", 0),
        journal=journal,
        position=offset,
        options=_QUIET if gtid_set is None else replace(_QUIET, gtid_on=True),
        tables=_NO_TABLE,
        fields=FieldFilter("", ""),
        history=history,
        gtid_set=gtid_set,
        prepared=prepared,
        in_prepared_part=in_prepared_part,
    )
