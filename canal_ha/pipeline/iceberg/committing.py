"""The changes of one table in a portion, written into its Iceberg table in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table, Transaction

from canal_ha.client.arrow import META, TableBatch
from canal_ha.errors import SinkRefused
from canal_ha.pipeline.change_columns import check_batch
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.history import TO, RowVersions, versions
from canal_ha.pipeline.iceberg.columns import ColumnChanges, fitted
from canal_ha.pipeline.iceberg.rewriting import FileRewrite
from canal_ha.pipeline.iceberg.versioning import VersionUpdate
from canal_ha.pipeline.latest import LatestChanges, latest


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A commit.

    description: the pipeline.
    schema, table: names of the source's table.
    found: the Iceberg table; None if there is none.
    create: creates it with these columns.
    summary: properties of the snapshot that completes the commit.
    """

    description: Description
    schema: str
    table: str
    found: Table | None
    create: Callable[[pa.Schema], Table]
    summary: dict[str, str]

    def append(self, batches: Sequence[TableBatch]) -> None:
        """Append every change. Columns that the source drops or renames stay. Raises SinkRefused."""
        if not batches:
            return
        for each in batches:
            check_batch(each, "iceberg")
        own = [pa.schema(list(each.rows.schema)[: -len(META)]) for each in batches]
        found = self.found or self.create(pa.schema([*own[-1], *META]))
        transaction = found.transaction()
        bare = len(found.schema().fields) == len(META)  # its only changes are statements
        columns = self._columns(transaction, fresh=bare or found.current_snapshot() is None)
        for schema in own:
            columns.take(schema)
        files = FileRewrite(transaction, found.io, self._name)
        for each in batches:
            files.add(fitted(pa.Table.from_batches([each.rows]), columns.arrow, self._name))
        files.commit(self.summary)
        _commit(transaction)

    def mirror(self, batches: Sequence[TableBatch]) -> None:
        """Take over the newest row of each key. All snapshots of the portion are one commit. Raises SinkRefused."""
        changes = latest(batches, self.description.keys)
        fields = next((each.upserts.schema for each in changes if len(each.upserts.schema)), None)
        if self.found is None and fields is None:
            return  # the table is created with its first row
        found = self.found or self.create(fields)
        transaction = found.transaction()
        for each in changes:
            self._take_over(found, transaction, each, self.summary if each is changes[-1] else {})
        _commit(transaction)

    def history(self, batches: Sequence[TableBatch]) -> None:
        """Take over versions of rows. All snapshots of the portion are one commit. Raises SinkRefused."""
        changes = versions(batches, self.description.keys)
        fields = next((each.fields for each in changes if each.fields is not None), None)
        if self.found is None and fields is None:
            return  # the table is created with its first version
        found = self.found or self.create(pa.schema(fields))
        transaction = found.transaction()
        fresh = found.current_snapshot() is None
        for each in changes:
            if not fresh or each.fields is not None:
                self._keep(found, transaction, each, self.summary if each is changes[-1] else {}, fresh=fresh)
                fresh = False
        _commit(transaction)

    @property
    def _name(self) -> str:
        return f"{self.schema}.{self.table}"

    def _take_over(
        self, found: Table, transaction: Transaction, changes: LatestChanges, summary: dict[str, str]
    ) -> None:
        snapshot = transaction.table_metadata.current_snapshot()
        columns = self._columns(transaction, fresh=snapshot is None, renames=True, drops=True)
        if snapshot is not None:
            columns.follow(changes.statements, self.schema, self.table)
        rows = snapshot.summary["total-records"] if snapshot is not None and snapshot.summary else "0"
        columns.take(changes.upserts.schema, replaced=changes.emptied or rows == "0")
        wanted = columns.arrow
        files = FileRewrite(transaction, found.io, self._name)
        if changes.emptied:
            files.remove_all()
        else:
            key = self._key_columns(wanted, changes.keys)
            keys = [fitted(each, key, self._name) for each in (changes.deletes, changes.upserts)]
            files.remove(pa.concat_tables(keys), columns.defaults)
        files.add(fitted(changes.upserts, wanted, self._name))
        files.commit(summary)

    def _keep(
        self, found: Table, transaction: Transaction, changes: RowVersions, summary: dict[str, str], *, fresh: bool
    ) -> None:
        """Stage the snapshot of one stretch. Columns that the source drops stay: older versions have values in them."""
        columns = self._columns(transaction, fresh=fresh, renames=True)
        if not fresh:
            columns.follow(changes.statements, self.schema, self.table)
        columns.take(pa.schema(changes.fields or []))
        wanted = columns.arrow
        key = self._key_columns(wanted, changes.keys)
        names = {name.lower() for name in changes.read.schema.names}
        read = fitted(changes.read, pa.schema([each for each in wanted if each.name.lower() in names]), self._name)
        ends = fitted(changes.ends, pa.schema([*key, wanted.field(TO)]), self._name)
        update = VersionUpdate(changes.ended_at, key.names, ends, read)
        files = FileRewrite(transaction, found.io, self._name)
        files.update(update, columns.defaults)
        for rows in (update.fresh, changes.begun):
            files.add(fitted(rows, wanted, self._name))
        files.commit(summary)

    def _columns(
        self, transaction: Transaction, *, fresh: bool, renames: bool = False, drops: bool = False
    ) -> ColumnChanges:
        """Return the columns of the table. fresh: it has had no row, so its first ones decide."""
        policy = "evolve" if fresh else self.description.target.evolve
        return ColumnChanges(transaction, self._name, policy, renames, drops)

    def _key_columns(self, columns: pa.Schema, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self._key_column(columns, name) for name in names])

    def _key_column(self, columns: pa.Schema, name: str) -> pa.Field:
        for column in columns:
            if column.name.lower() == name.lower():
                return column
        raise SinkRefused(
            f"iceberg: the Iceberg table of {self._name} has no column {name}, a part of the key, because of"
            " `evolve: ignore`; add it by hand"
        )


def _commit(transaction: Transaction) -> None:
    """Commit unless somebody else has committed. pyiceberg would put the rows onto that, which may have them."""
    transaction._snapshot_producers.clear()
    transaction.commit_transaction()
