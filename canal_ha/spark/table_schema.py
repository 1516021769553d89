"""Finds the columns of a table for format=table: as declared, from its newest rows in the spool, or, without a spool,
from the first row of a batch.
"""

from __future__ import annotations

from canal_ha.errors import OptionInvalid
from canal_ha.spark import segments, shapes
from canal_ha.spark.destinations import resolve
from canal_ha.spark.entries import DDL, EntryRows, changes_of
from canal_ha.spark.options import SourceOptions
from canal_ha.spark.private_reads import delivered, plan
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.storage import open_storage

Columns = tuple[tuple[str, str, int], ...]

LOOK_BACK = 200  # segments; a table without rows in them must be declared


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
    for segment in reversed(manifest.segments[-LOOK_BACK:] if manifest else ()):
        try:
            contents = segments.decode(storage.read(segment.name), segment.name)
        except FileNotFoundError:
            continue
        if options.table not in contents.rows:
            continue
        if rows := _rows(options, contents.frames, segment.name):
            return rows[-1].layout.columns
    return ()


def _in_batch(options: SourceOptions, destination: str) -> Columns:
    batch = options.for_batch()
    for frames in delivered(batch, plan(batch, destination)):
        if rows := _rows(options, frames, "the batch"):
            return rows[0].layout.columns
    return ()


def _rows(options: SourceOptions, frames: bytes, name: str) -> list[EntryRows]:
    return [
        change
        for change in changes_of(frames, name)
        if change.op != DDL and f"{change.header.schemaName}.{change.header.tableName}" == options.table
    ]
