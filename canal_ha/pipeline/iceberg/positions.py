"""How far a table is: the progress in its snapshots, and whether it is ahead of the target.

A crash between the commits of two tables leaves one ahead. The engine then reads again from the target's progress, and
can cut the changes into other portions. Pure.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import ancestors_of

from canal_ha.pipeline.done import binlog_of, number_of
from canal_ha.pipeline.progress import Progress


def table_progress(metadata: TableMetadata, key: str) -> Progress | None:
    """Return the newest progress in the snapshots of a table; None without one. key: of the summary."""
    for snapshot in ancestors_of(metadata.current_snapshot(), metadata):
        text = snapshot.summary.additional_properties.get(key) if snapshot.summary else None
        if text:
            return Progress.from_json(text)
    return None


def writers(metadata: TableMetadata, prefix: str) -> list[str]:
    """Return the destinations with progress in the snapshots of a table, the newest first. prefix: of the summary."""
    found = [
        key.removeprefix(prefix)
        for snapshot in ancestors_of(metadata.current_snapshot(), metadata)
        for key in (snapshot.summary.additional_properties if snapshot.summary else {})
        if key.startswith(prefix)
    ]
    return list(dict.fromkeys(found))


def known_until(table: Progress | None, target: Progress | None, portion: Progress) -> int | None:
    """Return the number of the position (canal_ha.pipeline.done) up to which a table has a portion's changes.

    None if it has none of them, or if that cannot be told: positions of several servers, of an unknown server, and of
    the sources of a merged destination cannot be compared. After a reset of the binary logs they start again, but times
    go on.

    table: its progress.
    target: the target's progress before the portion.
    portion: the portion's progress.
    """
    if table is None or table.run != portion.run or table.last.part or not table.last.server:
        return None
    if binlog_of(table.last) != binlog_of(portion.last):
        return None
    reached = number_of(table.last)
    if target is None or not target.seq:
        return reached
    if binlog_of(target.last) != binlog_of(table.last):
        return reached if table.seq > target.seq else None
    return reached if reached > number_of(target.last) and table.newest_ms >= target.newest_ms else None


def later(table: Progress, portion: Progress) -> Progress:
    """Return the progress of a table that is ahead, after a portion of the same binlog."""
    if number_of(table.last) <= number_of(portion.last):
        return portion
    return Progress(portion.run, portion.seq, table.last, max(table.newest_ms, portion.newest_ms))
