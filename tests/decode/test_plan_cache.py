"""A stream's plans: how much is kept, what is shared, and that no row ever lacks its plan."""

from __future__ import annotations

import gc
from pathlib import Path

from canal_ha.decode import types
from canal_ha.decode.filters import FieldFilter
from canal_ha.decode.kernel.stream import EventStream
from canal_ha.decode.plan_cache import PLANS_BYTES, PlanCache
from canal_ha.decode.table_map import TableMap, parse_table_map
from canal_ha.model.position import LogPosition
from canal_ha.model.table import Column, TableSchema
from canal_ha.wire.proto import entry_protocol_pb2 as entry
from lab.dump import INTS, JOURNAL, AnyTable, ColumnType, Dump, decoder, entries, table_map

COLUMNS = 20
TEXTS = [ColumnType(types.VARCHAR, b"\x00\x01")] * COLUMNS


class OwnColumns(AnyTable):
    """Every table has columns that no other table has."""

    def table(self, table_map: TableMap, at: LogPosition) -> TableSchema:
        super().table(table_map, at)
        names = (f"{table_map.name}_column_{index}" for index in range(len(table_map.types)))
        columns = tuple(Column(name, "varchar(64)") for name in names)
        return TableSchema(table_map.schema, table_map.name, columns)


def resident_bytes() -> int:
    """What this process has in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_table_ids_without_end_do_not_fill_the_memory() -> None:
    """Tables that are opened anew again and again take less than 60 MB, though no two of them share a column."""
    work = decoder(OwnColumns())
    list(work.feed(bytes(Dump().format().data)))
    dump = Dump(position=200)
    gc.collect()
    before = resident_bytes()
    for table_id in range(1, 3_001):
        dump.data = bytearray()
        dump.begin().table(table_id, "s", f"t{table_id % 2500}", TEXTS).xid()
        list(work.feed(bytes(dump.data)))
    gc.collect()
    assert resident_bytes() - before < 60e6


def test_tables_with_equal_columns_share_them() -> None:
    """A table under a new id, or another table that looks the same, needs no columns of its own."""
    work = EventStream(JOURNAL, 4, 1024, 262144, None)
    cache = PlanCache(work, FieldFilter("", ""), "utf-8", budget_bytes=PLANS_BYTES, charset_of=AnyTable().charset)
    bodies = [table_map(table_id, "s", f"t{table_id % 2}", INTS) for table_id in range(4)]
    history = AnyTable()
    maps = [parse_table_map(body) for body in bodies]
    plans = [
        cache.plan(each, history.table(each, LogPosition(JOURNAL, 4)), body)
        for each, body in zip(maps, bodies, strict=True)
    ]
    assert len({id(plan.before[0]) for plan in plans}) == 1


def test_a_field_filter_keeps_equal_tables_apart() -> None:
    """A column that is dropped in one table shows in the other."""
    dump = Dump().format().begin().table(1, name="t").insert(7).xid().begin().table(2, name="u")
    dump.insert(7, table_id=2).xid()
    work = decoder(AnyTable(), fields=FieldFilter("", "s.t:c0"))
    raws = [entry.Entry.FromString(raw) for raw in entries(work.feed(bytes(dump.data)))]
    changes = [entry.RowChange.FromString(one.storeValue) for one in raws if one.entryType == entry.ROWDATA]
    assert [len(change.rowDatas[0].afterColumns) for change in changes] == [0, 1]


def test_rows_of_a_statement_with_many_tables_find_their_plans() -> None:
    """The plans of one statement stay until it ends, however small the budget; later table maps make others."""
    history = OwnColumns()
    work = decoder(history, plans_bytes=1)
    dump, tables = Dump().format(), range(10)
    for first in (0, 10, 20, 30):
        dump.begin()
        for table in tables:
            dump.table(first + table, name=f"t{table}")
        for table in tables:
            dump.insert(7, table_id=first + table, last=table == tables[-1])
        dump.xid()
    found = [entry.Entry.FromString(raw).header.tableName for raw in entries(work.feed(bytes(dump.data)))]
    assert [name for name in found if name] == [f"t{table}" for table in tables] * 4
    asked = len(history.asked)
    list(work.feed(bytes(Dump(position=dump.position).table(0, name="t0").data)))
    assert len(history.asked) == asked + 1
