"""The plans of one stream, bounded in bytes. Tables with equal columns share their cells.

A server gives a table another id whenever it opens it, so a stream sees table ids without end. Plans are kept in two
generations. New ones join the younger; when that has half the budget, it becomes the older one, and the plans that were
the older one are forgotten. A table map makes a forgotten plan again. The kernel finds plans of both generations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from canal_ha.decode.exact import lacks_charsets, with_charset
from canal_ha.decode.filters import FieldFilter
from canal_ha.decode.kernel.cells import TablePlan
from canal_ha.decode.kernel.stream import EventStream
from canal_ha.decode.plans import Columns, plan_of
from canal_ha.decode.privacy import NO_PRIVACY, Privacy
from canal_ha.decode.table_map import TableMap
from canal_ha.model.table import Column, TableSchema

PLANS_BYTES = 40 << 20  # of one stream: some 1,000 tables of 20 different columns each
_PLAN_BYTES = 1000  # of a plan without its columns and its event
_COLUMN_BYTES = 1900  # of the two cells of a column, and their texts
_TEXT_COPIES = 6  # of a mysqlType text, in the table's definition and in the cells; it can list 65,535 labels
_POINTERS_BYTES = 32  # of a plan, to the two cells of a column

_Key = tuple[bytes, tuple[Column, ...], tuple[str, str, int]]


class PlanCache:
    """Makes plans and hands them to the kernel.

    work: the kernel's stream.
    fields: which columns to drop.
    charset: canal.instance.connectionCharset.
    budget_bytes: a bound on all plans. The plans of one statement may exceed it until the statement ends.
    charset_of: see TableHistory.charset.
    exact: whether values are in the exact form (docs/protocol.md#exact), not in canal's.
    privacy: which columns to protect.
    """

    def __init__(
        self,
        work: EventStream,
        fields: FieldFilter,
        charset: str,
        *,
        budget_bytes: int,
        charset_of: Callable[[str], str],
        exact: bool = False,
        privacy: Privacy = NO_PRIVACY,
    ) -> None:
        self._work = work
        self._fields = fields
        self._privacy = privacy
        self._charset = charset
        self._charset_of = charset_of
        self._exact = exact
        self._most_bytes = budget_bytes // 2  # of one generation
        self._younger: dict[_Key, Columns] = {}
        self._older: dict[_Key, Columns] = {}
        self._columns_bytes = 0  # of the younger generation, as the next
        self._plans_bytes = 0

    def plan(self, table_map: TableMap, schema: TableSchema, body: bytes) -> TablePlan:
        """Return the plan of a table.

        table_map: the event.
        schema: the table's columns.
        body: the event's.
        Raises TableUnknown.
        """
        return plan_of(self._columns(table_map, schema, body), table_map, body)

    def keep(self, table_id: int, plan: TablePlan) -> None:
        """Let the kernel use this plan for the rows of a table id."""
        if self._columns_bytes + self._plans_bytes >= self._most_bytes and self._work.age_plans():
            self._older, self._younger = self._younger, {}
            self._columns_bytes = self._plans_bytes = 0
        if table_id not in self._work.plans:  # after a doubt it is made again
            self._plans_bytes += _PLAN_BYTES + len(plan.body) + _POINTERS_BYTES * plan.width
        self._work.set_plan(table_id, plan)

    def forget(self) -> None:
        """Forget all plans, because table ids restart. The columns stay, for the same tables under other ids."""
        self._work.forget_plans()
        self._plans_bytes = 0

    def _columns(self, table_map: TableMap, schema: TableSchema, body: bytes) -> Columns:
        names = (table_map.schema, table_map.name, schema.version)
        names_end = 8 + body[8] + 2  # id, flags, schema
        names_end += body[names_end] + 2
        protects = bool(self._privacy.columns_of(table_map.schema, table_map.name))
        asks = (self._exact or protects) and lacks_charsets(schema.columns, table_map)
        own = asks or protects or self._fields.touches(table_map.schema, table_map.name)
        key = (body[names_end:], schema.columns, names if own else ("", "", 0))
        columns = self._younger.get(key)
        if columns is None:
            columns = self._older.get(key)
            if columns is None:
                if asks:
                    schema = replace(schema, columns=with_charset(schema.columns, self._charset_of(table_map.schema)))
                columns = Columns(table_map, schema, self._fields, self._privacy, self._charset, exact=self._exact)
            self._younger[key] = columns
            texts = sum(len(column.mysql_type) for column in schema.columns)
            self._columns_bytes += len(key[0]) + _COLUMN_BYTES * len(columns.before) + _TEXT_COPIES * texts
        return columns
