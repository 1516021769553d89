"""Finds the columns of a table for format=table: as declared, from its newest rows in the spool, or, without a spool,
from the first row of a batch.

The spool keeps the columns that were found, for a table without rows in its newest segments. Declared columns are
compared with the newest rows: a column that the table does not have would be NULL for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from urllib.parse import quote

from canal_ha.decode.kernel import codes
from canal_ha.decode.kernel.entries import Entries
from canal_ha.decode.kernel.primitives import Broken
from canal_ha.errors import OptionInvalid, SpoolUnusable
from canal_ha.pipeline.destinations import resolve
from canal_ha.pipeline.options import SourceOptions
from canal_ha.spark import segments, shapes
from canal_ha.spark.entries import DDL, EntryRows, changes_of
from canal_ha.spark.private_reads import delivered, plan
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.storage import Storage, open_storage

Columns = tuple[tuple[str, str, int], ...]

LOOK_BACK = 200  # segments


def table_schema(options: SourceOptions) -> str:
    """Return Spark DDL. Raises OptionInvalid if the table is not declared and there is no row of it."""
    if options.table_schema:
        return shapes.table_of_ddl(options.table_schema)
    found = _in_spool if options.spool_dir else _in_batch
    for destination in resolve(options):
        columns = found(options, destination)
        if columns:
            return shapes.table_of_columns(columns)
    where = "the spool" if options.spool_dir else "the batch"
    raise OptionInvalid(
        f"canal: option tableSchema is missing (Spark DDL, e.g. `id BIGINT, name STRING`), and {where} has no row of"
        f" {options.table} that shows its columns"
    )


def _in_spool(options: SourceOptions, destination: str) -> Columns:
    storage = open_storage(options.spool_dir, destination, str(options.client_id))
    manifest = newest_manifest(storage)
    names = [segment.name for segment in reversed(manifest.segments[-LOOK_BACK:])] if manifest else []
    kept = f"columns-{quote(options.table, safe='')}.json"
    found = newest_columns(storage, names, options)
    known = _kept(storage, kept)
    if found and found != known:
        storage.write(kept, json.dumps(found).encode())
    return found or known


def newest_columns(storage: Storage, names: Iterable[str], options: SourceOptions) -> Columns:
    """Return the columns of the table's newest rows.

    storage: of the spool.
    names: its segments, newest first; one that is gone is passed over.
    options: the query's.
    """
    for name in names:
        try:
            contents = segments.decode(storage.read(name), name)
        except FileNotFoundError:
            continue
        last = _last_rows(options, contents.frames, name) if options.table in contents.rows else b""
        if rows := _rows(options, last, name):
            return rows[-1].layout.columns
    return ()


def check_declared(options: SourceOptions, declared: Iterable[str], columns: Columns) -> None:
    """Compare the names of declared columns with those of the table's newest rows. Raises OptionInvalid."""
    there = {name.lower(): name for name, _, _ in columns}
    for name in declared:
        if name.lower() not in there:
            close = get_close_matches(name.lower(), there, 1)
            meant = f"; did you mean {there[close[0]]!r}?" if close else ""
            raise OptionInvalid(
                f"canal: option tableSchema has the column {name!r}, which the newest rows of {options.table} lack"
                f"{meant}. It would be NULL in every row: leave it out, or start the query after the statement that"
                " adds it"
            )


def _kept(storage: Storage, name: str) -> Columns:
    try:
        return tuple((str(column), str(kind), int(code)) for column, kind, code in json.loads(storage.read(name)))
    except (FileNotFoundError, ValueError):
        return ()


def _in_batch(options: SourceOptions, destination: str) -> Columns:
    batch = options.for_batch()
    for frames in delivered(batch, plan(batch, destination)):
        if rows := _rows(options, frames, "the batch"):
            return rows[0].layout.columns
    return ()


def _last_rows(options: SourceOptions, frames: bytes, name: str) -> bytes:
    """Return the last entry with rows of the table, as frames; empty without one. Raises SpoolUnusable."""
    entry = Entries(frames, 0, len(frames))
    table = options.table.encode()
    start, found = 0, slice(0)
    try:
        while entry.next():
            is_of_table = entry.kind == codes.ROWDATA and _table_of(entry) == table
            if is_of_table and entry.change() and entry.event_type <= codes.EVENT_DELETE:
                found = slice(start, entry.pos)
            start = entry.pos
    except Broken as error:
        raise SpoolUnusable(f"{name} holds invalid entries: {error}") from error
    return frames[found]


def _table_of(entry: Entries) -> bytes:
    return entry.src[entry.schema_start : entry.schema_stop] + b"." + entry.src[entry.table_start : entry.table_stop]


def _rows(options: SourceOptions, frames: bytes, name: str) -> list[EntryRows]:
    return [
        change
        for change in changes_of(frames, name)
        if change.op != DDL and f"{change.header.schemaName}.{change.header.tableName}" == options.table
    ]
