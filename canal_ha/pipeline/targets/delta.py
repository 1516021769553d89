"""Delta through delta-rs: one Delta table for each source table, at `<path>/<schema>/<table>`, with the names escaped.

mirror      MERGE by key, or append if no file can have a key; the table's columns follow ALTER TABLE
scd2        MERGE of the current versions by key (delta_history.py); a commit for each statement in between
changelog   append, with `_op`, `_ts`, `_position` and `_ddl`

Each commit of a table has application transactions: the number of the portion, and the position and time up to which
the table has everything. If a process dies between two tables, the portion with that number comes again, and may end
elsewhere; the tables that had it take only what is behind their position, until the progress has passed it. The
progress of a destination is a property of a table without rows at `<path>/_canal_ha/<destination>`, and is written
last. Another process that wrote it meanwhile makes that commit fail.

An added column without a default is a change of metadata. Any other change of columns rewrites the table as a stream,
because delta-rs can neither drop, nor rename, nor widen a column.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from hashlib import blake2b
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    ColumnProperties,
    CommitProperties,
    DeltaTable,
    Schema,
    Transaction,
    WriterProperties,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler

from canal_ha import logs
from canal_ha.client.arrow import META, TableBatch
from canal_ha.client.arrow_types import column_type
from canal_ha.decode.ddl.statements import AlterTable, DropColumn, RenameColumn, SetColumn
from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import excerpt, one_line, printable
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.added import added_columns
from canal_ha.pipeline.altered import altered, find
from canal_ha.pipeline.change_columns import check_batch
from canal_ha.pipeline.conversions import converted, same_as_source
from canal_ha.pipeline.description import Description, Evolve, Mode
from canal_ha.pipeline.done import behind, binlog_of, number_of
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.history import check_columns, fitted, in_order, versions
from canal_ha.pipeline.kept_columns import drops_of, new_names, renames_of
from canal_ha.pipeline.latest import LatestChanges, latest
from canal_ha.pipeline.paths import OWN, former, segment, table_path, without_login
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import KEY
from canal_ha.pipeline.statements import changes_columns, effects
from canal_ha.pipeline.table_owner import claimed
from canal_ha.pipeline.targets.delta_history import end_all, take_over
from canal_ha.pipeline.targets.delta_sql import same_key, unused, values_of

# Versions after which a table is loaded again. delta-rs 1.6 appends to what it holds of a table at each version, and
# a commit takes 0.1 ms longer with each of them; loading merges them.
KEPT_VERSIONS = 50
_CHECK = ".check"  # no destination has this directory
_FULL_DISK = "No space left on device"
_OF_STORE = "Generic"  # begins what an object store says that does not answer
_PROPERTY = "canal.progress"
_DESTINATION = "canal.destination"  # in the metadata of commits
_GONE = "_canal_gone"
_COLUMNS = " columns"
_NEWEST = " newest_ms"
_TURN = " turn"  # the binlog that the last changes came from
_DIGEST = " digest"  # of a portion, where positions tell nothing because the server is unknown
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}  # of integers with this number of bits

log = logs.Spared(logs.get(__name__))  # tables and their statements are from outside


def open_target(description: Description) -> DeltaTables:
    """Open the target. Raises OptionInvalid."""
    target = description.target
    if target.mode == "events":
        raise OptionInvalid(f"{description.file}: target.mode = 'events': Delta tables take scd2, mirror or changelog")
    return DeltaTables(
        target.options["path"],
        dict(target.options.get("storage", {})),
        description.keys,
        pipeline=description.name,
        mode=target.mode,
        evolve=target.evolve,
        compact_every=target.options.get("compactEvery", 0),
    )


class DeltaTables:
    """See the module.

    path: directory or URI of the tables.
    storage: delta-rs's options.
    keys: key columns of tables without a primary key.
    pipeline: its name.
    mode: whether tables are copies, histories of versions, or logs of changes.
    evolve: what to do when a table's columns change.
    compact_every: versions of a table after which its small files become larger ones; 0 for never.
    """

    def __init__(
        self,
        path: str,
        storage: dict[str, str],
        keys: Mapping[str, Sequence[str]],
        *,
        pipeline: str,
        mode: Mode,
        evolve: Evolve,
        compact_every: int = 0,
    ) -> None:
        self._path = path.rstrip("/")
        self._where = without_login(self._path)
        self._storage = storage or None
        self.keys = keys
        self.pipeline = pipeline
        self.mode = mode
        self.evolve = evolve
        self._compact_every = compact_every
        self._known: dict[str, DeltaTable] = {}
        self._loaded: dict[str, int] = {}  # URI -> version at which the table was loaded
        self._compacted: dict[str, int] = {}  # URI -> version at the last look
        self._locks: dict[str, threading.Lock] = {}

    def check(self) -> str:
        """Write an empty file and remove it; return a description. Raises SinkRefused and TargetUnavailable.

        The file stays where removing is not allowed: commits need no right to it.
        """
        try:
            if _is_local(self._path):
                Path(_local(self._path)).mkdir(parents=True, exist_ok=True)
            files = DeltaStorageHandler(self._path, self._storage)
            files.open_output_stream(f"{OWN}/{_CHECK}").close()
            with suppress(DeltaError, OSError):
                files.delete_file(f"{OWN}/{_CHECK}")
        except (DeltaError, OSError, ValueError) as error:
            passes = _FULL_DISK in str(error) if _is_local(self._path) else _OF_STORE in str(error)
            kind: Any = TargetUnavailable if passes else SinkRefused
            raise kind(f"delta: {self._where} cannot be written: {without_login(one_line(error))}") from None
        return f"delta at {self._where}"

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        uri = self._progress_uri(destination)
        with _errors(self._where):
            if not self._has_table(uri):
                return None
            return _progress_of(DeltaTable(uri, storage_options=self._storage))

    def progress(self, destination: str) -> Progress | None:
        """Return the progress."""
        self._known.clear()  # the last commit may have failed
        with _errors(self._where):
            table = self._table(self._progress_uri(destination))
            return None if table is None else _progress_of(table)

    def commit(self, portion: Portion) -> None:
        """Write each table, then the progress."""
        with _errors(self._where):
            uri = self._progress_uri(portion.destination)
            place = self._table(uri)
            stored = None if place is None else _progress_of(place)
            if not lacks(stored, portion, f"delta: {self._where}"):
                return
            tables: dict[tuple[str, str], list[TableBatch]] = {}
            for batch in portion.batches():
                tables.setdefault((batch.schema, batch.table), []).append(batch)
            for (schema, name), batches in tables.items():
                # another destination may have a table of this name
                with self._locks.setdefault(f"{schema}.{name}", threading.Lock()):
                    _TableCommit(self, schema, name, portion, stored).write(batches)
            text = portion.progress.to_json()
            once = CommitProperties(max_commit_retries=0)  # a version between is another process's
            if place is None:
                fields = Schema.from_arrow(pa.schema([("destination", pa.string())]))
                self._known[uri] = DeltaTable.create(
                    uri,
                    fields,
                    configuration={_PROPERTY: text},
                    storage_options=self._storage,
                    raise_if_key_not_exists=False,
                )
            else:
                place.alter.set_table_properties({_PROPERTY: text}, raise_if_not_exists=False, commit_properties=once)
        if self._compact_every:
            for schema, name in tables:
                self._compact(self.uri(schema, name))

    def close(self) -> None:
        """Do nothing: nothing stays open."""

    def check_table(self, destination: str, schema: str, table: str, *, merges: bool) -> None:
        """See OwnedTables."""
        with _errors(self._where):
            found, stored = self.table(schema, table), self.stored(destination)
            if found is not None:
                self.claimed(found, destination, "" if stored is None else _run(destination, stored), merges=merges)

    # ---- for _TableCommit

    def claimed(self, table: DeltaTable, destination: str, run: str, *, merges: bool) -> dict[str, str]:
        """Return the properties that make a table a destination's. Raises SinkRefused if it is not for its rows.

        run: name of the transactions of its run.
        merges: a route with `merge: true` leads to the table.
        """
        return claimed(
            table.metadata().configuration,
            self.pipeline,
            destination,
            f"delta: the table {without_login(table.table_uri)}",
            wrote=lambda: table.transaction_version(run) is not None or _has_commits_of(destination, table),
            merges=merges,
            free=lambda: not table.file_uris(),
        )

    def table(self, schema: str, name: str) -> DeltaTable | None:
        """Return the Delta table of a source table, at its newest version; None if there is none."""
        return self._table(self.uri(schema, name))

    def uri(self, schema: str, name: str) -> str:
        """Return the location of a table. The Spark pipeline did not escape names in earlier versions.

        Raises SinkRefused.
        """
        uri = f"{self._path}/{table_path(schema, name)}"
        is_uri = "://" in self._path
        raw_schema, raw_name = former(schema, uri=is_uri), former(name, uri=is_uri)
        if raw_schema is None or raw_name is None:
            return uri
        raw = f"{self._path}/{raw_schema}/{raw_name}"
        if raw == uri or uri in self._known or DeltaTable.is_deltatable(uri, self._storage):
            return uri
        return raw if DeltaTable.is_deltatable(raw, self._storage) else uri

    def create(self, schema: str, name: str, rows: pa.Table, commit: CommitProperties) -> DeltaTable:
        """Create the Delta table of a source table with rows; return it."""
        uri = self.uri(schema, name)
        write_deltalake(uri, rows, mode="error", commit_properties=commit, storage_options=self._storage)
        return self._load(uri)

    def _compact(self, uri: str) -> None:
        """Make larger files of a table's small ones if it is due. The portion is committed, so a failure only waits."""
        table = self._known.get(uri)
        if table is None:
            return
        before, now = self._compacted.get(uri, table.version()), table.version()
        self._compacted[uri] = now
        if before // self._compact_every == now // self._compact_every:
            return
        try:
            done = table.optimize.compact(max_concurrent_tasks=1)
        except (DeltaError, OSError) as error:
            log.warning("delta.compaction_failed", table=without_login(uri), error=without_login(str(error)))
            return
        removed, added = done["numFilesRemoved"], done["numFilesAdded"]
        log.info("delta.compacted", table=without_login(uri), files_before=removed, files_after=added)

    def _table(self, uri: str) -> DeltaTable | None:
        known = self._known.get(uri)
        if known is not None:
            known.update_incremental()
            if known.version() - self._loaded.get(uri, 0) < KEPT_VERSIONS:
                return known
        elif not self._has_table(uri):
            return None
        return self._load(uri)

    def _load(self, uri: str) -> DeltaTable:
        found = self._known[uri] = DeltaTable(uri, storage_options=self._storage)
        self._loaded[uri] = found.version()
        return found

    def _has_table(self, uri: str) -> bool:
        """Return whether there is a table. Raises OSError if a local directory cannot be read: delta-rs says no."""
        if DeltaTable.is_deltatable(uri, self._storage):
            return True
        if _is_local(uri):
            with suppress(FileNotFoundError):
                os.listdir(f"{_local(uri)}/_delta_log")
        return False

    def _progress_uri(self, destination: str) -> str:
        return f"{self._path}/{OWN}/{segment(destination)}"


class _TableCommit:
    """Writes the part of a portion that belongs to one table."""

    def __init__(self, target: DeltaTables, schema: str, name: str, portion: Portion, stored: Progress | None) -> None:
        """Take what one commit needs.

        target: it has the table.
        schema, name: of the table at the source.
        portion: what to commit.
        stored: the target's progress before it.
        """
        self._target = target
        self._schema = schema
        self._name = name
        self._destination = portion.destination
        self._merged = portion.reader.merged(schema, name)
        self._stored = stored
        last = portion.progress.last
        self._newest_ms = portion.progress.newest_ms
        self._seq = portion.progress.seq
        self._number = number_of(last)
        self._run = _run(portion.destination, portion.progress)
        self._place = binlog_of(last)
        self._binlog = f"{self._run} {self._place}" if last.server else ""
        self._turn = _digest_of(self._place.encode())
        self._digest = 0 if self._binlog else _digest_of(portion.frames)
        self._metadata = {_DESTINATION: portion.destination, "canal.position": str(last)}

    def write(self, batches: Sequence[TableBatch]) -> None:
        """Write rows and statements that the table does not have. batches: of this table, in order."""
        target = self._target
        table = target.table(self._schema, self._name)
        if table is not None:
            self._claim(table)
            if self._came_before(table):
                return
        done = self._torn(table)
        done = self._ahead(table) if done is None else done
        left = [batch for batch in (behind(each, done) for each in batches) if batch.rows.num_rows]
        if not left:
            return
        if target.evolve == "stop":
            self._refuse_changes(left)
        if target.mode == "mirror":
            self._mirror(table, left)
        elif target.mode == "scd2":
            self._keep_history(table, left)
        else:
            self._append(table, left)

    def _came_before(self, table: DeltaTable) -> bool:
        """Return whether the table has just this portion, which was interrupted behind it; of an unknown server.

        If the portion was cut in another way, nothing tells which of its rows the table has.
        """
        if self._binlog or (table.transaction_version(self._run) or 0) < self._seq:
            return False
        if table.transaction_version(self._run + _DIGEST) == self._digest:
            return True
        log.warning("delta.rows_may_come_twice", table=f"{self._schema}.{self._name}", portion=self._seq)
        return False

    def _create(self, rows: pa.Table, commit: CommitProperties) -> DeltaTable:
        table = self._target.create(self._schema, self._name, rows, commit)
        self._claim(table)
        return table

    def _claim(self, table: DeltaTable) -> None:
        """Make a table this destination's. Raises SinkRefused if it is another one's, or somebody else's."""
        missing = self._target.claimed(table, self._destination, self._run, merges=self._merged)
        if missing:
            once = CommitProperties(max_commit_retries=0)  # a version between may be another destination's claim
            table.alter.set_table_properties(missing, raise_if_not_exists=False, commit_properties=once)

    def _torn(self, table: DeltaTable | None, part: str = "") -> int | None:
        """Return up to where the table has the changes of this commit, which was interrupted behind the table.

        None if it has none. Else positions do not count: they go back after a switch to another server.

        part: "", or _COLUMNS for statements.
        """
        if table is None or not self._counts(table, part):
            return None
        if (table.transaction_version(self._run + part) or 0) < self._seq:
            return None
        found: int | None = table.transaction_version(self._binlog + part)
        return found

    def _shaped_before(self, table: DeltaTable | None) -> int | None:
        """Return up to where the table has followed statements of this or a later portion; None if it has not."""
        done = self._torn(table, _COLUMNS)
        return self._ahead(table, _COLUMNS) if done is None else done

    def _ahead(self, table: DeltaTable | None, part: str = "") -> int | None:
        """Return up to where the table has changes behind the target's progress; None if it has none.

        An interrupted commit came again and ended earlier, so the portions after it have rows that the table has, too.
        After a reset of the binary logs positions start again, but times go on.

        part: see _torn.
        """
        stored = self._stored
        if table is None or not self._counts(table, part) or stored is None or binlog_of(stored.last) != self._place:
            return None
        reached: int | None = table.transaction_version(self._binlog + part)
        newest_ms = table.transaction_version(self._binlog + part + _NEWEST)
        if reached is None or newest_ms is None or newest_ms < stored.newest_ms:
            return None
        return reached if reached > number_of(stored.last) else None

    def _counts(self, table: DeltaTable, part: str = "") -> bool:
        """Return whether the table's position in this binlog tells what the table has. part: see _torn.

        If its last changes came from another binlog, they can be older, and the changes of this one have to come again.
        """
        turn = table.transaction_version(self._run + part + _TURN)  # None in a table of an earlier version
        return bool(self._binlog) and turn in (None, self._turn)

    def _refuse_changes(self, batches: Sequence[TableBatch]) -> None:
        for _, sql in _statements(batches):
            if changes_columns(sql, self._schema, self._name):
                raise SinkRefused(
                    f"delta: a statement changes the columns of {self._schema}.{self._name}, and evolve is stop:"
                    f" {printable(excerpt(sql))}"
                )

    def _commit(self) -> CommitProperties:
        """Return the properties of the commit after which the table has everything of the portion."""
        whole = [] if self._binlog else [Transaction(self._run + _DIGEST, self._digest)]
        return self._properties([*self._reached(self._number), *self._transactions(_COLUMNS, self._number), *whole])

    def _reached(self, number: int) -> list[Transaction]:
        """Return the transactions of a commit after which the table has all changes up to a position's number."""
        return self._transactions("", number)

    def _shaped(self, number: int | None) -> CommitProperties:
        """Return the properties of a change of columns. number: of its statement's position; None without one."""
        return self._properties([] if number is None else self._transactions(_COLUMNS, number))

    def _transactions(self, part: str, number: int) -> list[Transaction]:
        place, newest = (self._binlog + part, number), (self._binlog + part + _NEWEST, self._newest_ms)
        known = [place, newest] if self._binlog else []
        done = [(self._run + part, self._seq), (self._run + part + _TURN, self._turn), *known]
        return [Transaction(name, version) for name, version in done]

    def _properties(self, done: list[Transaction]) -> CommitProperties:
        return CommitProperties(custom_metadata=self._metadata, app_transactions=done or None)

    # ---- changelog

    def _append(self, table: DeltaTable | None, batches: Sequence[TableBatch]) -> None:
        for each in batches:
            check_batch(each, "delta")
        rows = _unified([pa.Table.from_batches([batch.rows]) for batch in batches], self._where)
        if table is None:
            self._create(rows, self._commit())
            return
        schema = _arrow_schema(table)
        rows = _with_names_of(rows, schema)
        if self._target.evolve == "ignore":
            rows = rows.select([name for name in rows.schema.names if name in schema.names])
        wider = {
            field.name: rows.schema.field(field.name).type
            for field in schema
            if field.name in rows.schema.names and rows.schema.field(field.name).type != field.type
        }
        if wider and self._target.evolve == "evolve":
            kinds = [pa.field(field.name, _common(field.type, wider.get(field.name, field.type))) for field in schema]
            wanted = pa.schema(kinds)
            if wanted != pa.schema([pa.field(field.name, field.type) for field in schema]):
                self._rewrite(table, wanted, lambda batch: _cast_batch(batch, wanted, self._where))
                schema = _arrow_schema(table)
        fields = [
            pa.field(each.name, schema.field(each.name).type if each.name in schema.names else each.type)
            for each in rows.schema
        ]
        write_deltalake(
            table,
            _cast(rows, pa.schema(fields), self._where),
            mode="append",
            schema_mode="merge",
            commit_properties=self._commit(),
            writer_properties=_writing(rows),
        )

    # ---- mirror

    def _mirror(self, table: DeltaTable | None, batches: Sequence[TableBatch]) -> None:
        """Take over the newest row of each key.

        Rows before a statement that changes columns are a commit of their own, with their position: after a crash
        behind the statement, they may come in a portion without it, and would no longer fit.
        """
        places = [number for number, _ in _statements(batches)]
        shaped = self._shaped_before(table)
        parts = self._apart(batches)
        for part in parts:
            whole = self._commit() if part is parts[-1] else self._properties(self._reached(_last_of(part)))
            for changes in (every := latest(part, self._target.keys)):
                own, places = places[: len(changes.statements)], places[len(changes.statements) :]
                if shaped is not None and any(at <= shaped for at in places):
                    continue  # an interrupted commit has written them, and then followed a statement behind them
                commit = whole if changes is every[-1] else self._properties([])
                if table is None:
                    if len(changes.upserts):
                        table = self._create(_plain(changes.upserts), commit)
                elif changes.emptied:
                    self._replace(table, changes, commit)
                else:
                    pairs = zip(changes.statements, own, strict=True)
                    new = [sql for sql, at in pairs if shaped is None or at > shaped]
                    if new and self._target.evolve == "evolve":
                        self._reshape(table, new, own[-1])
                    self._merge(table, changes, commit)

    def _apart(self, batches: Sequence[TableBatch]) -> list[list[TableBatch]]:
        """Return the batches apart where rows come before a statement that changes columns.

        Those of merged tables are in no order, so they stay together.
        """
        parts: list[list[TableBatch]] = [[]]
        may = self._target.evolve == "evolve" and not self._merged
        for batch in batches:
            changes = any(changes_columns(sql, self._schema, self._name) for _, sql in _statements([batch]))
            if changes and may and any(not _statements([before]) for before in parts[-1]):
                parts.append([])
            parts[-1].append(batch)
        return parts

    # ---- scd2

    def _keep_history(self, table: DeltaTable | None, batches: Sequence[TableBatch]) -> None:
        """Take over versions. Each commit has the position up to which the table has them, so none comes twice."""
        batches = _alike(batches)
        left = [number for number, _ in _statements(batches)]
        shaped = self._shaped_before(table)
        for changes in (every := versions(batches, self._target.keys)):
            own, left = left[: len(changes.statements)], left[len(changes.statements) :]
            final = changes is every[-1]
            commit = self._commit() if final else self._properties(self._reached(changes.last))
            if table is None:
                if changes.fields is not None:
                    rows = _plain(pa.concat_tables([changes.begun, changes.read]))
                    table = self._create(rows, commit)
                continue
            check_columns(_arrow_schema(table).names, self._where)
            new = [sql for sql, at in zip(changes.statements, own, strict=True) if shaped is None or at > shaped]
            if new and self._target.evolve == "evolve":
                self._reshape(table, new, own[-1])
            if changes.ended_at is not None:
                end_all(table, changes.ended_at, self._properties(self._reached(own[-1])))
            schema = _arrow_schema(table)
            if changes.fields is not None and self._target.evolve == "evolve":
                schema = self._with_columns_of(table, pa.schema(changes.fields), schema)
            if changes.fields is not None or changes.ends.num_rows:
                ends, begun, read = (self._in(schema, rows) for rows in (changes.ends, changes.begun, changes.read))
                keys = [schema.field(find(schema, key)).name for key in changes.keys]
                take_over(table, keys, (ends, begun, read), commit)

    # ---- columns

    def _replace(self, table: DeltaTable, changes: LatestChanges, commit: CommitProperties) -> None:
        if not len(changes.upserts):
            table.delete(commit_properties=commit)
        elif self._target.evolve == "evolve":
            rows = _plain(changes.upserts)
            write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=commit)
        else:
            rows = self._in(_arrow_schema(table), changes.upserts)
            write_deltalake(table, rows, mode="overwrite", commit_properties=commit)

    def _merge(self, table: DeltaTable, changes: LatestChanges, commit: CommitProperties) -> None:
        """Merge rows by key."""
        upserts, deletes = changes.upserts, changes.deletes
        if not len(upserts) and not len(deletes):
            return
        schema = _arrow_schema(table)
        if self._target.evolve == "evolve" and len(upserts):
            if _plain(upserts).schema != schema and not table.file_uris():  # empty, and maybe created anew
                self._replace(table, changes, commit)
                return
            schema = self._with_columns_of(table, upserts.schema, schema)
        upserts = self._in(schema, upserts)
        keys = [schema.field(find(schema, key)).name for key in changes.keys]
        if _beyond(table, upserts, deletes, keys):
            # without retries, because a version that comes in between may have one of the keys
            once = CommitProperties(commit.custom_metadata, 0, commit.app_transactions)
            write_deltalake(table, upserts, mode="append", schema_mode="merge", commit_properties=once)
            return
        gone = self._in(schema, deletes)
        is_gone = unused(_GONE, schema.names)
        rows = pa.concat_tables(
            [
                upserts.append_column(is_gone, pa.repeat(False, len(upserts))),
                gone.append_column(is_gone, pa.repeat(True, len(gone))),
            ],
            promote_options="default",
        )
        match, values = same_key(keys), values_of(upserts.schema.names)
        merge = table.merge(rows, match, source_alias="s", target_alias="t", commit_properties=commit)
        merge = merge.when_matched_delete(f"s.{is_gone}")
        if len(upserts):
            merge = merge.when_matched_update(values, f"NOT s.{is_gone}").when_not_matched_insert(
                values, f"NOT s.{is_gone}"
            )
        merge.execute()

    def _in(self, schema: pa.Schema, rows: pa.Table) -> pa.Table:
        """Return rows with the names and types of the table; without columns that it lacks."""
        kept = [(at, find(schema, name)) for at, name in enumerate(rows.schema.names)]
        fields = [schema.field(place) for _, place in kept if place >= 0]
        columns = [rows.column(at) for at, place in kept if place >= 0]
        named = pa.Table.from_arrays(columns, names=[field.name for field in fields])
        return _cast(named, pa.schema([pa.field(field.name, field.type) for field in fields]), self._where)

    def _with_columns_of(self, table: DeltaTable, rows: pa.Schema, schema: pa.Schema) -> pa.Schema:
        """Give the table the columns of rows whose statement is not known; return its schema. Raises SinkRefused."""
        missing = [field for field in schema if find(rows, field.name) < 0]
        if missing and self._target.mode != "scd2":
            raise SinkRefused(
                f"delta: rows of {self._where} lack the column {missing[0].name} of the copy, and no statement dropped"
                " it: run SET GLOBAL binlog_row_image = FULL at the source, then read the table again with a snapshot"
            )
        added = [field for field in rows if find(schema, field.name) < 0]
        if added:
            log.warning("delta.column_without_statement", table=self._where, columns=[each.name for each in added])
            self._add(table, added)
        wanted = pa.schema(
            [
                pa.field(each.name, _common(each.type, each.type if at < 0 else rows.field(at).type))
                for each in schema
                for at in [find(rows, each.name)]
            ]
        )
        if wanted != pa.schema([pa.field(each.name, each.type) for each in schema]):
            full = pa.schema([*wanted, *(pa.field(each.name, each.type) for each in added)])
            self._rewrite(table, full, lambda batch: _cast_batch(batch, full, self._where))
        return _arrow_schema(table)

    def _reshape(self, table: DeltaTable, statements: Sequence[str], number: int) -> None:
        """Give the table the columns that it has behind statements. Rewrites it unless they only add columns.

        number: of the last statement's position.
        """
        schema = _arrow_schema(table)
        steps: list[tuple[str, AlterTable]] = []
        plain: list[pa.Field] = []
        moves = False  # a column goes, or gets another name; maybe another one has its name and type then
        for sql in statements:
            for effect in effects(sql, self._schema):
                if (effect.schema, effect.table) != (self._schema, self._name) or effect.alter is None:
                    continue
                steps.append((sql, effect.alter))
                gone = [*drops_of(effect.alter), *(old for old, _ in renames_of(effect.alter))]
                moves = moves or any(find(schema, name) >= 0 for name in gone)
                plain += [
                    pa.field(added.name, added.column.arrow)
                    for added in added_columns(sql)
                    if added.default is None and find(schema, added.name) < 0
                ]

        def reshaped(rows: pa.Table) -> pa.Table:
            for sql, alter in steps:
                if self._target.mode == "scd2":
                    rows = _renamed(rows, alter)
                    alter = _without_names(alter)
                rows = altered(rows, sql, alter, self._retyped)
            return _plain(rows)

        empty = pa.schema([pa.field(each.name, each.type) for each in schema]).empty_table()
        after = reshaped(empty).schema
        only_added = list(after)[: len(schema)] == list(empty.schema) and set(list(after)[len(schema) :]) <= set(plain)
        if after == empty.schema and not moves:
            return
        if only_added and not moves:
            self._add(table, list(after)[len(schema) :], number)
            return
        self._rewrite(
            table, after, lambda batch: _one(reshaped(pa.Table.from_batches([_plain_batch(batch)])), after), number
        )

    def _retyped(self, rows: pa.Table, at: int, mysql_type: str) -> pa.Table:
        declared = column_type(mysql_type, 0)
        old = rows.schema.field(at).type
        kind = declared.arrow if self._target.mode == "mirror" else _common(old, declared.arrow)
        if old == kind:
            return rows
        if not same_as_source(old, kind, declared.name) and len(rows):
            raise _unfit(self._where, f"{rows.schema.names[at]} was {old} and is {mysql_type} now")
        fields = [pa.field(each.name, kind if place == at else each.type) for place, each in enumerate(rows.schema)]
        return _cast(rows, pa.schema(fields), self._where)

    def _add(self, table: DeltaTable, fields: Sequence[pa.Field], number: int | None = None) -> None:
        plain = pa.schema([pa.field(each.name, each.type) for each in fields])
        table.alter.add_columns(list(Schema.from_arrow(plain).fields), commit_properties=self._shaped(number))

    def _rewrite(
        self,
        table: DeltaTable,
        schema: pa.Schema,
        change: Callable[[pa.RecordBatch], pa.RecordBatch],
        number: int | None = None,
    ) -> None:
        """Replace all rows by changed ones, one batch at a time. Raises SinkRefused if one cannot be changed."""
        log.info("delta.rewrite", table=self._where, columns=schema.names)
        old = table.to_pyarrow_dataset()
        refused: list[SinkRefused] = []  # delta-rs makes an error of its own of it, which looks as if it would pass

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in old.to_batches():
                if not batch.num_rows:
                    continue
                try:
                    changed = change(batch)
                except SinkRefused as error:
                    refused.append(error)
                    raise
                yield changed

        reader = pa.RecordBatchReader.from_batches(schema, batches())
        commit = self._shaped(number)
        try:
            write_deltalake(table, reader, mode="overwrite", schema_mode="overwrite", commit_properties=commit)
        except (DeltaError, OSError):
            if refused:
                raise refused[0] from None
            raise

    @property
    def _where(self) -> str:
        return f"{self._schema}.{self._name}"


def _run(destination: str, progress: Progress) -> str:
    """Return the name of the application transactions of a destination's run."""
    return f"canal-ha {destination} {progress.run}"


def _has_commits_of(destination: str, table: DeltaTable) -> bool:
    """Return whether a destination has written a table in any run, as far back as the table's log goes.

    The progress beside the tables belongs to one pipeline, so these commits are of this pipeline.
    """
    return any(commit.get(_DESTINATION) == destination for commit in table.history())


def _renamed(rows: pa.Table, alter: AlterTable) -> pa.Table:
    """Return versions with the names that a statement gives their columns."""
    for old, new in new_names(rows.schema.names, renames_of(alter)):
        rows = rows.rename_columns([new if name == old else name for name in rows.schema.names])
    return rows


def _without_names(alter: AlterTable) -> AlterTable:
    """Return a statement without renames, and without its drops of columns: older versions have values in them."""
    changes = [
        replace(each, old=each.definition.column.name) if isinstance(each, SetColumn) and each.old is not None else each
        for each in alter.changes
        if not isinstance(each, DropColumn | RenameColumn)
    ]
    return replace(alter, changes=tuple(changes))


def _beyond(table: DeltaTable, upserts: pa.Table, deletes: pa.Table, keys: Sequence[str]) -> bool:
    """Return whether no file of the table can have one of the keys, by the least and the greatest value of a column.

    Then the rows need no MERGE, which reads the keys of the whole table. This is so for new rows if keys grow.
    """
    if len(deletes) or not len(upserts):
        return False
    files = pa.table(table.get_add_actions(flatten=True))
    if not len(files):
        return True
    for key in keys:
        if not pa.types.is_integer(upserts.schema.field(key).type):
            continue
        if not {f"min.{key}", f"max.{key}"} <= set(files.schema.names):
            continue
        least, greatest = files.column(f"min.{key}"), files.column(f"max.{key}")
        if least.null_count or greatest.null_count:
            continue  # a file without statistics
        own = pc.min_max(upserts.column(key)).as_py()
        first, last = pc.min(least).as_py(), pc.max(greatest).as_py()
        if own["min"] > last or own["max"] < first:
            return True
    return False


def _one(rows: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return a table of one batch as a batch."""
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in rows.columns], schema=schema)


def _cast(rows: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Cast all columns. Raises SinkRefused for a value that does not fit."""
    try:
        columns = [converted(column, each.type) for column, each in zip(rows.columns, schema, strict=True)]
        return pa.Table.from_arrays(columns, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise _unfit(where, str(error)) from error


def _unfit(where: str, why: str) -> SinkRefused:
    return SinkRefused(
        f"delta: a value of {where} does not fit the copy's column: {why}. Set evolve: evolve, or read the table again"
        " into an empty copy"
    )


def _cast_batch(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    rows = pa.Table.from_batches([_plain_batch(batch)])
    own = pa.schema([pa.field(each.name, each.type) for each in schema if each.name in rows.schema.names])
    rows = _cast(rows.select(own.names), own, where)
    for each in schema:
        if each.name not in own.names:
            rows = rows.append_column(each.name, pa.nulls(len(rows), each.type))
    return _one(rows.select(schema.names), schema)


def _common(old: pa.DataType, new: pa.DataType) -> pa.DataType:
    """Return a type that holds the values of both; the old one if the new one's values may not need more."""
    if old == new:
        return old
    types = pa.types
    if types.is_integer(old) and types.is_integer(new):
        return new if new.bit_width > old.bit_width else old
    if types.is_decimal(old) and types.is_decimal(new):
        scale = max(old.scale, new.scale)
        whole = max(old.precision - old.scale, new.precision - new.scale)
        return pa.decimal128(whole + scale, scale) if whole + scale <= 38 else pa.string()
    if types.is_floating(old) and types.is_floating(new):
        return new if new.bit_width > old.bit_width else old
    if types.is_decimal(old) and types.is_integer(new):
        return pa.decimal128(min(max(old.precision, _DIGITS[new.bit_width] + old.scale), 38), old.scale)
    if types.is_floating(old) and types.is_integer(new) and new.bit_width <= 32:
        return pa.float64()  # it has each of these numbers
    if types.is_integer(old) and types.is_decimal(new):
        return pa.decimal128(min(max(new.precision, 20 + new.scale), 38), new.scale)
    return old if types.is_string(old) or types.is_struct(old) else new


def _unified(tables: Sequence[pa.Table], where: str) -> pa.Table:
    """Return tables as one, with all columns; types are those that hold the values of all. Raises SinkRefused."""
    names: dict[str, pa.Field] = {}
    for table in tables:
        own = len(table.schema) - len(META)
        for field in list(table.schema)[:own]:
            known = names.get(field.name.lower())
            kind = field.type if known is None else _common(known.type, field.type)
            names[field.name.lower()] = pa.field(known.name if known else field.name, kind)
    fitted = []
    for table in tables:
        own = len(table.schema) - len(META)
        columns = []
        for lower, field in names.items():
            at = next((place for place, name in enumerate(table.schema.names[:own]) if name.lower() == lower), -1)
            columns.append(pa.nulls(len(table), field.type) if at < 0 else table.column(at))
        kinds = [pa.field(name, column.type) for name, column in zip(names, columns, strict=True)]
        plain = pa.Table.from_arrays([*columns, *table.columns[own:]], schema=pa.schema([*kinds, *META]))
        fitted.append(_cast(plain, pa.schema([*names.values(), *META]), where))
    return pa.concat_tables(fitted)


def _alike(batches: Sequence[TableBatch]) -> list[TableBatch]:
    """Return the batches of a table so that they need few commits; in the order of the binlog if they need several.

    Tables that a route merges may have different columns. Between two statements all get the same ones, unless their
    keys differ.
    """
    found: list[TableBatch] = []
    if _statements(batches) or len({_keys(batch) for batch in batches}) > 1:
        batches = in_order(batches)
    for is_statement, group in groupby(batches, lambda batch: bool(_statements([batch]))):
        own = list(group)
        if not is_statement and len({_keys(batch) for batch in own}) == 1:
            own = _with_equal_columns(own)
        found += own
    return found


def _keys(batch: TableBatch) -> frozenset[str]:
    """Return the names of the primary key in lower case."""
    return frozenset(each.name.lower() for each in batch.rows.schema if (each.metadata or {}).get(KEY) == b"1")


def _with_equal_columns(batches: list[TableBatch]) -> list[TableBatch]:
    """Return batches with the columns of all; types are those that hold the values of all. Raises SinkRefused."""
    first = batches[0].rows.schema
    if all(batch.rows.schema.equals(first) for batch in batches):
        return batches
    fields: dict[str, pa.Field] = {}
    for batch in batches:
        for field in list(batch.rows.schema)[: -len(META)]:
            known = fields.get(field.name.lower(), field)
            fields[field.name.lower()] = known.with_type(_common(known.type, field.type))
    wanted = pa.schema([*fields.values(), *list(first)[-len(META) :]])
    try:
        return [TableBatch(batch.schema, batch.table, fitted(batch.rows, wanted)) for batch in batches]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        where = f"{batches[0].schema}.{batches[0].table}"
        raise SinkRefused(
            f"delta: tables that become {where} have columns of types that do not fit: {error}"
        ) from error


def _writing(rows: pa.Table) -> WriterProperties:
    """Return how files of a changelog are written.

    delta-rs 1.6 takes 0.3 us a row for the statistics of a column that has empty texts alone, and GTIDs are empty at a
    source without them. Columns inside `_position` can lose their statistics only together.
    """
    gtids = pc.struct_field(rows.column("_position"), "gtid")
    if pc.max(pc.binary_length(gtids)).as_py():
        return WriterProperties(compression="SNAPPY")
    own = ColumnProperties(statistics_enabled="PAGE")
    return WriterProperties(
        compression="SNAPPY",
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties={name: own for name in rows.schema.names if name != "_position"},
    )


def _with_names_of(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows with the target's spelling of names."""
    places = [find(schema, name) for name in rows.schema.names]
    return rows.rename_columns(
        [name if at < 0 else schema.field(at).name for name, at in zip(rows.schema.names, places, strict=True)]
    )


def _plain(rows: pa.Table) -> pa.Table:
    """Return rows without the metadata of fields."""
    return rows.cast(pa.schema([pa.field(each.name, each.type) for each in rows.schema]))


def _plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch without views and large types, which delta-rs may give."""
    fields = [pa.field(each.name, _plain_type(each.type)) for each in batch.schema]
    return batch.cast(pa.schema(fields))


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if str(kind) in ("string_view", "large_string"):
        return pa.string()
    if str(kind) in ("binary_view", "large_binary"):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, _plain_type(each.type)) for each in kind])
    return kind


def _arrow_schema(table: DeltaTable) -> pa.Schema:
    schema = pa.schema(table.schema().to_arrow())
    return pa.schema([pa.field(each.name, _plain_type(each.type)) for each in schema])


def _digest_of(data: bytes) -> int:
    """Return a digest as the version of a transaction."""
    return int.from_bytes(blake2b(data, digest_size=8).digest()) >> 1


def _statements(batches: Sequence[TableBatch]) -> list[tuple[int, str]]:
    """Return the statements among rows: the number of the position, and the text."""
    found: list[tuple[int, str]] = []
    for batch in batches:
        rows = batch.rows
        if rows.num_rows and rows.column(rows.num_columns - len(META))[0].as_py() == "ddl":
            places = rows.column(rows.num_columns - 2).to_pylist()
            texts = rows.column(rows.num_columns - 1).to_pylist()
            numbers = [number_of(LogPosition(place["journal"], place["offset"])) for place in places]
            found += zip(numbers, texts, strict=True)
    return found


def _last_of(batches: Sequence[TableBatch]) -> int:
    """Return the number of the position of the last row or statement."""
    rows = batches[-1].rows
    place = rows.column(rows.num_columns - 2)[-1].as_py()
    return number_of(LogPosition(place["journal"], place["offset"]))


def _is_local(uri: str) -> bool:
    return "://" not in uri or uri.startswith("file://")


def _local(uri: str) -> str:
    """Return the directory of a local URI, or of a path."""
    return url2pathname(uri.removeprefix("file://"))


def _progress_of(table: DeltaTable) -> Progress | None:
    text = table.metadata().configuration.get(_PROPERTY)
    try:
        return None if text is None else Progress.from_json(text)
    except ValueError as error:
        raise SinkRefused(f"delta: {without_login(table.table_uri)}: {error}") from error


@contextmanager
def _errors(where: str) -> Iterator[None]:
    """Turn delta-rs's errors into ours, without logins. where: the target."""
    try:
        yield
    except (CommitFailedError, OSError) as error:
        raise TargetUnavailable(f"delta: {where}: {without_login(one_line(error))}") from None
    except DeltaError as error:
        kind: Any = TargetUnavailable if _OF_STORE in str(error) else SinkRefused
        raise kind(f"delta: {where}: {without_login(one_line(error))}") from None
