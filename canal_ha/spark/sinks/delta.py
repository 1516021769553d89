"""Delta through delta-rs: one Delta table per source table, at `<path>/<schema>/<table>`, with the names escaped.

A batch is one commit: merged by key, with what it ends with as application transactions: the application is checkpoint
and spool, the version the last segment; a second one has that segment's writer. What is repeated is left out, also
where a restored checkpoint cuts it into other batches; a new checkpoint counts anew. No JVM part is needed.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from canal_ha.errors import SinkRefused
from canal_ha.spark.added import Added
from canal_ha.spark.fold import TableChanges
from canal_ha.spark.lineage import Epoch, ReportedProgress
from canal_ha.spark.mysql_types import to_arrow
from canal_ha.spark.sinks.batch import MicroBatch
from canal_ha.spark.sinks.paths import former, segment

_GONE = "_canal_gone"
_WRITER = "/writer"
_UNTOLD = 0  # no epoch's code


class Delta:
    """path: directory or URI below which the tables are; time_zone: of timestamp texts; storage_options: delta-rs's."""

    def __init__(self, path: str, time_zone: str, storage_options: dict[str, str] | None = None) -> None:
        self._path = path.rstrip("/")
        self._time_zone = time_zone
        self._storage_options = storage_options

    def check(self) -> str:
        """Open what could be there."""
        try:
            DeltaTable.is_deltatable(f"{self._path}/canal/check", self._storage_options)
        except (DeltaError, OSError, ValueError) as error:
            raise SinkRefused(f"delta: {self._path} cannot be opened: {error}") from error
        return f"delta at {self._path}"

    def apply(self, batch: MicroBatch) -> None:
        """One commit per table."""
        for changes in batch.tables.values():
            self._apply(changes, batch)

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
        """Where the table is: versions before this one escaped nothing in its names."""
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
        """Columns are added first, in a commit of their own that is not repeated; older rows get their defaults.

        A column that was dropped stays, without values: should it come back, none of them may.
        """
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
        match = " AND ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in changes.keys)
        merge = table.merge(
            rows, match, source_alias="s", target_alias="t", merge_schema=True, commit_properties=commit
        )
        merge = merge.when_matched_delete(f"s.{_GONE}").when_matched_update(assignments, f"NOT s.{_GONE}")
        merge = merge.when_not_matched_insert(assignments, f"NOT s.{_GONE}")
        if defaults:
            merge = merge.when_not_matched_by_source_update(defaults)
        merge.execute()

    def _arrow(self, changes: TableChanges, schema: pa.Schema, *, gone: bool = False) -> pa.Table:
        """Rows that exist, behind them the keys that do not; a column has the target's type where it is there."""
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
    """Under which name a table remembers the last segment it has."""
    return f"{batch.run}/{spool}"


def _claim(table: DeltaTable, name: str) -> ReportedProgress | None:
    """What a table remembers; earlier versions wrote no writer."""
    seq = table.transaction_version(name)
    if seq is None:
        return None
    writer = table.transaction_version(f"{name}{_WRITER}") or _UNTOLD
    return ReportedProgress(seq, Epoch.of_code(writer) if writer != _UNTOLD else None)


def plain_arrow(kind: pa.DataType) -> pa.DataType:
    """delta-rs may tell a column as view or large type; the plain one is what we build."""
    if str(kind) in ("string_view", "large_string"):
        return pa.string()
    if str(kind) in ("binary_view", "large_binary"):
        return pa.binary()
    return kind


def literal(added: Added, kind: pa.DataType, time_zone: str) -> str:
    """A column's default as an expression."""
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
    """A name in the merge's expressions."""
    return f"`{name.replace('`', '``')}`"
