"""Copy on write: removes or changes rows by key in the data files that have them, and adds rows, in one snapshot.

pyiceberg's own `delete` and `upsert` take a filter of all keys, and need several snapshots. With 10,000 changed keys
that takes many times as long, and with a key of two columns minutes. pyiceberg writes no delete files.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, FileScanTask, Transaction
from pyiceberg.types import BooleanType, PrimitiveType

from canal_ha.pipeline.history import CURRENT
from canal_ha.pipeline.iceberg.columns import arrow_schema, filled, fitted
from canal_ha.pipeline.iceberg.versioning import VersionUpdate

_HELD_BYTES = 256 << 20  # of rows that wait to be written to files
_AT = "__row"


class FileRewrite:
    """The changes of one snapshot.

    transaction: of the table.
    io: of the table.
    name: schema.table, for messages.
    """

    def __init__(self, transaction: Transaction, io: FileIO, name: str) -> None:
        self._transaction = transaction
        self._name = name
        self._metadata = transaction.table_metadata
        self._io = io
        self._wanted = arrow_schema(self._metadata.schema())
        self._removed: list[DataFile] = []
        self._added: list[DataFile] = []
        self._held: list[pa.Table] = []
        self._numbers = count()

    def remove_all(self) -> None:
        """Remove every row."""
        self._removed += [task.file for task in self._tasks()]

    def remove(self, keys: pa.Table, defaults: dict[str, Any]) -> None:
        """Remove the rows with these keys.

        keys: the key's columns, with the table's names.
        defaults: values of added columns, which all other rows get; then all files are written again.
        """
        fields = {each.name: each for each in self._metadata.schema().fields}
        own = Schema(*(fields[name] for name in keys.schema.names))
        for task in self._tasks():
            found = self._matches(task, keys, own)
            if not found and not defaults:
                continue
            rows = fitted(self._read(task, self._metadata.schema()), self._wanted, self._name)
            if found:
                keep = pc.invert(pc.is_in(_numbered(len(rows)), pa.array(found, pa.int64())))
                rows = rows.filter(keep)
            self._removed.append(task.file)
            self.add(filled(rows, defaults))

    def update(self, versions: VersionUpdate, defaults: dict[str, Any]) -> None:
        """Change versions of rows.

        versions: what changes.
        defaults: values of added columns, which all rows get; then all files are written again.
        """
        fields = {each.name: each for each in self._metadata.schema().fields}
        looked_at = Schema(*(fields[name] for name in versions.columns))
        for task in self._tasks():
            if defaults or self._has_versions(task, versions, looked_at):
                rows = fitted(self._read(task, self._metadata.schema()), self._wanted, self._name)
                self._removed.append(task.file)
                self.add(versions.applied(filled(rows, defaults)))

    def add(self, rows: pa.Table) -> None:
        """Add rows with the table's columns."""
        if len(rows):
            self._held.append(rows)
        if sum(each.nbytes for each in self._held) >= _HELD_BYTES:
            self._write()

    def commit(self, properties: dict[str, str]) -> None:
        """Stage the snapshot in the transaction. properties: of its summary."""
        self._write()
        update = self._transaction.update_snapshot(snapshot_properties=properties)
        with update.overwrite() if self._removed else update.fast_append() as snapshot:
            for file in self._removed:
                snapshot.delete_data_file(file)
            for file in self._added:
                snapshot.append_data_file(file)

    def _tasks(self) -> Iterator[FileScanTask]:
        yield from DataScan(table_metadata=self._metadata, io=self._io).plan_files()

    def _read(self, task: FileScanTask, columns: Schema) -> pa.Table:
        return ArrowScan(self._metadata, self._io, columns, AlwaysTrue()).to_table([task])

    def _has_versions(self, task: FileScanTask, versions: VersionUpdate, looked_at: Schema) -> bool:
        """Return whether a row of a file changes. looked_at: the columns that tell it."""
        highest = (task.file.upper_bounds or {}).get(looked_at.find_field(CURRENT).field_id)
        if highest is not None and not from_bytes(BooleanType(), highest):
            return False
        keys = versions.keys
        if keys is not None:
            own = Schema(*(each for each in looked_at.fields if each.name in keys.schema.names))
            if not len(self._candidates(task.file, keys, own)):
                return False
        wanted = pa.schema([self._wanted.field(each.name) for each in looked_at.fields])
        return versions.changes(fitted(self._read(task, looked_at), wanted, self._name))

    def _matches(self, task: FileScanTask, keys: pa.Table, own: Schema) -> list[int]:
        """Return the numbers of the rows of a file that have one of the keys."""
        candidates = self._candidates(task.file, keys, own)
        if not len(candidates):
            return []
        rows = fitted(self._read(task, own), keys.schema, self._name)
        names = [str(at) for at in range(keys.num_columns)]  # a join takes names such as ".id" for paths
        numbered = rows.rename_columns(names).append_column(_AT, _numbered(len(rows)))
        found = numbered.join(candidates.rename_columns(names), names, join_type="left semi")
        return list(found.column(_AT).to_pylist())

    def _candidates(self, file: DataFile, keys: pa.Table, own: Schema) -> pa.Table:
        """Return the keys that lie between the bounds of a file's columns."""
        for column in own.fields:
            low, high = (bounds.get(column.field_id) for bounds in (file.lower_bounds or {}, file.upper_bounds or {}))
            kind = keys.schema.field(column.name).type
            plain = column.field_type
            if low is None or high is None or pa.types.is_floating(kind) or not isinstance(plain, PrimitiveType):
                continue
            least, most = (pa.scalar(from_bytes(plain, each), kind) for each in (low, high))
            values = keys.column(column.name)
            between = pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most))
            keys = keys.filter(pc.fill_null(between, True))  # bounds do not tell whether a file has NULL
        return keys

    def _write(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            self._held = []
            self._added += _dataframe_to_data_files(self._metadata, rows, self._io, counter=self._numbers)


def _numbered(count: int) -> pa.Array:
    """Return 0, 1, 2, ..., without an object for each."""
    return pc.subtract(pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int64()), count)), 1)
