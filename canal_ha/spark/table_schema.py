"""Finds the columns of a table for format=table: as declared, or from its newest rows in the spool."""

from __future__ import annotations

from canal_ha.errors import OptionInvalid
from canal_ha.spark import segments, shapes
from canal_ha.spark.destinations import resolve
from canal_ha.spark.entries import DDL, changes_of
from canal_ha.spark.options import SourceOptions
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.storage import open_storage

LOOK_BACK = 200  # segments; a table without rows in them must be declared


def table_schema(options: SourceOptions) -> str:
    """Return Spark DDL. Raises OptionInvalid if the table is not declared and the spool has no row of it."""
    if options.table_schema:
        return shapes.table_of_ddl(options.table_schema)
    for destination in resolve(options):
        columns = _columns(options, destination)
        if columns:
            return shapes.table_of_columns(columns)
    raise OptionInvalid(
        f"canal: option tableSchema is missing (Spark DDL, e.g. `id BIGINT, name STRING`), and the spool has no row of"
        f" {options.table} that shows its columns"
    )


def _columns(options: SourceOptions, destination: str) -> tuple[tuple[str, str, int], ...]:
    storage = open_storage(options.spool_dir, destination, str(options.client_id))
    manifest = newest_manifest(storage)
    for segment in reversed(manifest.segments[-LOOK_BACK:] if manifest else ()):
        try:
            contents = segments.decode(storage.read(segment.name), segment.name)
        except FileNotFoundError:
            continue
        if options.table not in contents.rows:
            continue
        rows = [
            change
            for change in changes_of(contents.frames, segment.name)
            if change.op != DDL and f"{change.header.schemaName}.{change.header.tableName}" == options.table
        ]
        if rows:
            return rows[-1].layout.columns
    return ()
