"""The history of a table in Delta (SCD2): one MERGE ends versions, begins others and takes over what was read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable

from canal_ha.pipeline.history import CURRENT, POSITION, TO, VERSION_KEY
from canal_ha.pipeline.targets.delta_sql import same_key, unused, values_of

_ACTION = "_canal_action"
_END, _BEGIN, _READ = 0, 1, 2


def end_all(table: DeltaTable, moment: datetime, commit: CommitProperties) -> None:
    """End all current versions at a time."""
    text = f"CAST('{moment.isoformat()}' AS TIMESTAMP)"
    table.update({TO: text, CURRENT: "false"}, predicate=f"{CURRENT} = true", commit_properties=commit)


def take_over(
    table: DeltaTable, keys: Sequence[str], rows: tuple[pa.Table, pa.Table, pa.Table], commit: CommitProperties
) -> None:
    """Merge versions.

    keys: names of the key's columns.
    rows: `ends`, `begun` and `read` of RowVersions, with the table's names and types.
    commit: properties of the commit.
    """
    ends, begun, read = rows
    does = unused(_ACTION, begun.schema.names)
    parts = [
        each.append_column(does, pa.repeat(pa.scalar(action, pa.int8()), len(each)))
        for each, action in ((ends, _END), (begun, _BEGIN), (read, _READ))
    ]
    given = pa.concat_tables(parts, promote_options="default")
    match = f"t.{CURRENT} = true AND s.{does} <> {_BEGIN} AND {same_key(keys)}"
    columns = begun.schema.names
    fresh = values_of([name for name in columns if name not in VERSION_KEY])
    merge = table.merge(given, match, source_alias="s", target_alias="t", commit_properties=commit)
    merge = merge.when_matched_update({TO: f"s.{TO}", CURRENT: "false"}, f"s.{does} = {_END}")
    merge = merge.when_matched_update(fresh, f"s.{does} = {_READ}")
    merge.when_not_matched_insert(values_of(columns), f"s.{POSITION} IS NOT NULL").execute()
