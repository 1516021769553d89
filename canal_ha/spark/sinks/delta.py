"""Delta through delta-rs: one Delta table per source table, at `<path>/<schema>/<table>`, with the names escaped.

A batch is one commit that merges rows by key. The commit stores the batch's end in application transactions: the
application is checkpoint and spool, the version is the last segment; a second transaction has that segment's writer.
Changes that are repeated are skipped, even if a restored checkpoint splits them into other batches. A new checkpoint
starts again. No JVM part is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from canal_ha.errors import SinkRefused
from canal_ha.pipeline.added import Added
from canal_ha.pipeline.paths import former, segment
from canal_ha.spark.fold import TableChanges
from canal_ha.spark.lineage import Epoch, ReportedProgress
from canal_ha.spark.mysql_types import to_arrow
from canal_ha.spark.sinks.batch import MicroBatch

_GONE = "_canal_gone"
_WRITER = "/writer"
_UNTOLD = 0  # not the code of any epoch


class Delta:
    """A sink for Delta tables.

    path: directory or URI of the tables.
    time_zone: time zone of the timestamp texts.
    storage_options: delta-rs's.
    """

    def __init__(self, path: str, time_zone: str, storage_options: dict[str, str] | None = None) -> None:
        self._path = path.rstrip("/")
        self._time_zone = time_zone
        self._storage_options = storage_options

    def check(self) -> str:
        """Check that the location can be opened; return a description. Raises SinkRefused."""
        try:
            DeltaTable.is_deltatable(f"{self._path}/canal/check", self._storage_options)
        except (DeltaError, OSError, ValueError) as error:
            raise SinkRefused(f"delta: {self._path} cannot be opened: {error}") from error
        return f"delta at {self._path}"

    def apply(self, batch: MicroBatch) -> None:
        """Write each portion of a batch with one commit for each table. Raises SinkRefused."""
        for portion in batch.portions:
            for changes in portion.tables.values():
                self._apply(changes, portion)

    def _apply(self, changes: TableChanges, batch: MicroBatch) -> None:
        uri = f"{self._path}/{segment(changes.schema)}/{segment(changes.table)}"
        try:
            uri = self._existing(uri, changes)
            if not DeltaTable.is_deltatable(uri, self._storage_options):
                if changes.rows:
                    rows, commit = self._arrow(changes, pa.schema([])), self._commit(batch, {})
                    write_deltalake(
                        uri, rows, mode="error", commit_properties=commit, storage_options=self._storage_options
                    )
                return
            table = DeltaTable(uri, storage_options=self._storage_options)
            done = {spool: claim for spool in batch.ends if (claim := _claim(table, application(batch, spool)))}
            left = batch.after(done).get(changes.name)
            if left is None or not (left.rows or left.emptied or left.alters):
                return
            commit = self._commit(batch, done)
            schema = pa.schema(table.schema().to_arrow())
            if left.emptied:
                self._replace(table, left, commit)
            else:
                self._merge(table, left, schema, commit)
        except DeltaError as error:
            raise SinkRefused(f"delta: {uri}, batch {batch.batch_id}: {error}") from error

    def _existing(self, uri: str, changes: TableChanges) -> str:
        """Return the table's location. Earlier versions did not escape its names."""
        is_uri = "://" in self._path
        schema, table = former(changes.schema, uri=is_uri), former(changes.table, uri=is_uri)
        if schema is None or table is None:
            return uri
        raw = f"{self._path}/{schema}/{table}"
        options = self._storage_options
        if raw == uri or DeltaTable.is_deltatable(uri, options) or not DeltaTable.is_deltatable(raw, options):
            return uri
        return raw

    @staticmethod
    def _commit(batch: MicroBatch, done: Mapping[str, ReportedProgress]) -> CommitProperties:
        transactions = []
        for spool, end in batch.ends_after(done).items():
            name = application(batch, spool)
            transactions += [
                Transaction(name, end.seq),
                Transaction(f"{name}{_WRITER}", end.writer.code if end.writer else _UNTOLD),
            ]
        return CommitProperties(
            custom_metadata={"canal.run": batch.run, "canal.batch": str(batch.batch_id)}, app_transactions=transactions
        )

    def _replace(self, table: DeltaTable, changes: TableChanges, commit: CommitProperties) -> None:
        if not changes.kept:
            table.delete(commit_properties=commit)
            return
        write_deltalake(
            table,
            self._arrow(changes, pa.schema([])),
            mode="overwrite",
            schema_mode="overwrite",
            commit_properties=commit,
        )

    def _merge(self, table: DeltaTable, changes: TableChanges, schema: pa.Schema, commit: CommitProperties) -> None:
        """Merge rows by key.

        Rows with former keys are deleted first, in commits of their own, which can be repeated. Columns are added
        first, in a separate commit that is not repeated; older rows get their defaults. A dropped
        column stays without values, so that they do not reappear if the column is added again.
        """
        for gone in changes.former:
            fields = [pa.field(name, plain_arrow(schema.field(name).type)) for name in gone.columns]
            texts = zip(*gone.keys, strict=True)
            arrays = [
                to_arrow(list(column), kind, each.type, self._time_zone)
                for column, kind, each in zip(texts, gone.columns.values(), fields, strict=True)
            ]
            lost = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
            table.merge(lost, _match(gone.columns), source_alias="s", target_alias="t").when_matched_delete().execute()
        missing = [added for name, added in changes.added.items() if schema.get_field_index(name) < 0]
        if missing:
            fields = [pa.field(added.name, added.column.arrow) for added in missing]
            table.alter.add_columns(list(Schema.from_arrow(pa.schema(fields)).fields))
            schema = pa.schema(table.schema().to_arrow())
        defaults = {
            quoted(name): literal(added, schema.field(name).type, self._time_zone)
            for name, added in changes.added.items()
            if added.default is not None
        }
        cleared = [name for name in schema.names if name.lower() in changes.dropped]
        defaults = {quoted(name): "NULL" for name in cleared} | defaults
        if not changes.rows:
            if defaults:
                table.update(defaults, commit_properties=commit)
            return
        rows = self._arrow(changes, schema, gone=True)
        absent = [name for name in cleared if name not in changes.columns]
        for name in absent:
            kind = plain_arrow(schema.field(name).type)
            rows = rows.append_column(pa.field(name, kind), pa.nulls(len(rows), kind))
        assignments = {quoted(name): f"s.{quoted(name)}" for name in (*changes.columns, *absent)}
        merge = table.merge(
            rows, _match(changes.keys), source_alias="s", target_alias="t", merge_schema=True, commit_properties=commit
        )
        merge = merge.when_matched_delete(f"s.{_GONE}").when_matched_update(assignments, f"NOT s.{_GONE}")
        merge = merge.when_not_matched_insert(assignments, f"NOT s.{_GONE}")
        if defaults:
            merge = merge.when_not_matched_by_source_update(defaults)
        merge.execute()

    def _arrow(self, changes: TableChanges, schema: pa.Schema, *, gone: bool = False) -> pa.Table:
        """Return the existing rows, then the deleted keys. Known columns have the target's type."""
        kept = changes.kept
        lost = [dict(zip(changes.keys, key, strict=True)) for key in changes.gone] if gone else []
        arrays, fields = [], []
        for name, column in changes.columns.items():
            place = schema.get_field_index(name)
            target = column.arrow if place < 0 else schema.field(place).type
            texts = [row.get(name) for row in (*kept, *lost)]
            arrays.append(to_arrow(texts, column, plain_arrow(target), self._time_zone))
            fields.append(pa.field(name, plain_arrow(target)))
        if gone:
            arrays.append(pa.array([False] * len(kept) + [True] * len(lost), pa.bool_()))
            fields.append(pa.field(_GONE, pa.bool_()))
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def application(batch: MicroBatch, spool: str) -> str:
    """Return the application name under which a table stores its progress."""
    return f"{batch.run}/{spool}"


def _claim(table: DeltaTable, name: str) -> ReportedProgress | None:
    """Read a table's progress; earlier versions stored no writer."""
    seq = table.transaction_version(name)
    if seq is None:
        return None
    writer = table.transaction_version(f"{name}{_WRITER}") or _UNTOLD
    return ReportedProgress(seq, Epoch.of_code(writer) if writer != _UNTOLD else None)


def _match(keys: Iterable[str]) -> str:
    return " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in keys)


def plain_arrow(kind: pa.DataType) -> pa.DataType:
    """Return the plain variant of a view or large type, which delta-rs may report."""
    if str(kind) in ("string_view", "large_string"):
        return pa.string()
    if str(kind) in ("binary_view", "large_binary"):
        return pa.binary()
    return kind


def literal(added: Added, kind: pa.DataType, time_zone: str) -> str:
    """Return a column's default as an SQL expression."""
    [found] = to_arrow([added.default], added.column, plain_arrow(kind), time_zone).to_pylist()
    if found is None:
        return "NULL"
    if isinstance(found, bytes):
        return f"arrow_cast(X'{found.hex()}', 'Binary')"
    text = str(int(found)) if isinstance(found, bool) else str(found)
    if pa.types.is_decimal(kind):
        return f"arrow_cast('{text}', 'Decimal128({kind.precision}, {kind.scale})')"
    escaped = text.replace("'", "''")
    return f"CAST('{escaped}' AS {_SQL_TYPES.get(str(plain_arrow(kind)), 'VARCHAR')})"


_SQL_TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "date32[day]": "DATE",
    "timestamp[us]": "TIMESTAMP",
    "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE",
}


def quoted(name: str) -> str:
    """Return a quoted name for the merge's expressions."""
    return f"`{name.replace('`', '``')}`"
