"""Refuses changes of rows that a source has logged as statements: the binlog has no rows of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import RemoteProtocolError, SinkRefused
from canal_ha.model.entry import EventType

if TYPE_CHECKING:
    from canal_ha.pipeline.statements import StatementEffect

_ROW_EVENTS = frozenset({EventType.INSERT, EventType.UPDATE, EventType.DELETE})

Takes = Callable[[str, str], bool]
"""Returns whether a reader takes the rows of a table (schema, name)."""


def check_statements(frames: bytes, takes: Takes) -> None:
    """Check all entries of a portion or segment. Raises SinkRefused as `check_statement`, and RemoteProtocolError."""
    entry = Entries(frames, 0, len(frames))
    try:
        while (count := entry.next_unusual()) >= 0:
            if count == 0:
                check_statement(entry, takes)
    except Broken as error:
        raise RemoteProtocolError(f"invalid entry: {error}") from error


def check_statement(entry: Entries, takes: Takes) -> None:
    """Raise SinkRefused for a statement that changes rows of a table that is taken, or of unknown tables.

    entry: one without rows.
    """
    if entry.event_type not in _ROW_EVENTS and entry.event_type != EventType.CREATE:
        return
    from canal_ha.pipeline.statements import changes_unnamed, effects  # imports the grammar of SQL

    schema, table = entry.text(entry.schema_start, entry.schema_stop), entry.text(entry.table_start, entry.table_stop)
    sql = entry.text(entry.sql_start, entry.sql_stop)
    if entry.is_ddl:
        check_filled([effect for effect in effects(sql, schema) if takes(effect.schema, effect.table)], place_of(entry))
        return
    unnamed = not table or changes_unnamed(sql)
    if unnamed or takes(schema, table):
        where = f"{schema}.{table}" if table else "several tables, or of tables that it does not name"
        raise _without_rows(f"{EventType(entry.event_type).name} of {where}", place_of(entry))


def check_filled(effects: Iterable[StatementEffect], place: str) -> None:
    """Raise SinkRefused for a logged CREATE TABLE ... SELECT.

    effects: of one statement.
    place: of its entry; see place_of.
    """
    for effect in effects:
        if effect.selected:
            raise _without_rows(f"CREATE TABLE ... SELECT of {effect.name}", place)


def _without_rows(what: str, place: str) -> SinkRefused:
    """Return the error for a statement whose rows the binlog does not have."""
    return SinkRefused(
        f"canal: the source has logged a statement without its rows, {what}, at {place}. Leave the table out of tables,"
        " or out of the filter of a query. Or run SET GLOBAL binlog_format = ROW at the source, where sessions must not"
        " change it, start the pipeline or query after this place, and read the table again with a snapshot"
    )


def place_of(entry: Entries) -> str:
    """Return journal and offset of an entry, for messages."""
    return f"{entry.text(entry.journal_start, entry.journal_stop)}:{entry.offset}"
