"""canal's plain patterns for statements (canal.instance.filter.druid.ddl = false): always one result.

They use the text alone. Their weaknesses are kept: a table name that contains a blank or dot is cut there.
"""

from __future__ import annotations

import re

from canal_ha.model.entry import EventType

_FLAGS = re.IGNORECASE | re.DOTALL
_TABLE_STATEMENTS = tuple(
    (event_type, re.compile(pattern, _FLAGS))
    for event_type, pattern in (
        (EventType.ALTER, r"\s*ALTER\s*(?:IGNORE)?\s*TABLE\s*(?P<name>.*)"),
        (EventType.CREATE, r"\s*CREATE\s*(?:TEMPORARY)?\s*TABLE\s*(?P<name>.*)"),
        (EventType.ERASE, r"\s*DROP\s*(?:TEMPORARY)?\s*TABLE\s*(?P<name>.*)"),
        (EventType.TRUNCATE, r"\s*TRUNCATE\s*(?:TABLE)?\s*(?P<name>.*)"),
        (EventType.RENAME, r"\s*RENAME\s+TABLE\s+(?P<origin>.+?)\s+TO\s+(?P<name>.+)"),
        (EventType.CINDEX, r"\s*CREATE\s*(?:UNIQUE)?(?:FULLTEXT)?(?:SPATIAL)?\s*INDEX\s*.*?\s+ON\s+(?P<name>.*)"),
        (EventType.DINDEX, r"\s*DROP\s*INDEX\s*.*?\s+ON\s+(?P<name>.*)"),
    )
)
_ROW_STATEMENTS = tuple(
    (event_type, re.compile(pattern, _FLAGS))
    for event_type, pattern in (
        (EventType.INSERT, r"\s*(?:INSERT|MERGE|REPLACE)"),
        (EventType.UPDATE, r"\s*UPDATE"),
        (EventType.DELETE, r"\s*DELETE"),
    )
)
_NAME = re.compile(r"(?:IF\s*NOT\s*EXISTS\s*)?(?:IF\s*EXISTS\s*)?(`?.+?`?[;(\s]+?)", _FLAGS)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

Table = tuple[str | None, str | None]


def match(sql: str, default_schema: str) -> tuple[EventType, Table, Table]:
    """Return event type, table and, for RENAME, the old table; each table as (schema, name)."""
    text = _COMMENT.sub(" ", sql)
    for event_type, pattern in _TABLE_STATEMENTS:
        found = pattern.fullmatch(text)
        if found:
            table = _table(found["name"], default_schema)
            if event_type is not EventType.RENAME:
                return event_type, table or (default_schema, None), (None, None)
            origin = _table(found["origin"], default_schema)
            if table and origin:
                return event_type, table, origin
    for event_type, pattern in _ROW_STATEMENTS:
        if pattern.match(text):
            return event_type, (default_schema, None), (None, None)
    return EventType.QUERY, (default_schema, None), (None, None)


def _table(text: str, default_schema: str) -> Table | None:
    found = _NAME.match(text + " ")
    if not found:
        return None
    name = found[1].removesuffix(";").removesuffix("(").strip()
    parts = [part for part in _bare(name).split(".") if part]
    if not parts:
        return None
    return (_bare(parts[0]), _bare(parts[1])) if len(parts) > 1 else (default_schema, _bare(parts[0]))


def _bare(name: str) -> str:
    return name.removesuffix("`").removeprefix("`")
