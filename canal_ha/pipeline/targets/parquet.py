"""Parquet: a log of all changes, at `<path>/<schema>/<table>/<run>-<commit>-<part>-<token>.parquet`, names escaped.

A commit writes its files under `<path>/_canal_ha/<destination>/`, then the progress with their names, and then moves
them to their places. The progress is the commit: files that it does not name are removed, and files that it names are
moved when the next process begins. Readers leave out names that begin with an underscore, so they see whole commits
only, and each row once.

A process that was suspended while another one went on commits nothing (see FileCommits). Each commit has a random token
in its names, so that no process replaces a file of another one. Before a process moves files of a commit that another
one has stored, or removes files that no commit names, it stores that commit again. The process that wrote them, if it
still runs, is refused then.

A file has the columns of its rows, which stand before `_op`, `_ts`, `_position` and `_ddl` (canal_ha.client.arrow).
Rows of a portion that have other columns get a file of their own.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from canal_ha.client.arrow import META, TableBatch
from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import excerpt, printable
from canal_ha.pipeline.change_columns import check_batch
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.paths import OWN, table_path, without_login
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.statements import changes_columns
from canal_ha.pipeline.targets.file_area import PENDING, FileArea
from canal_ha.pipeline.targets.file_commits import FileCommit, FileCommits

_CHECK = ".check"  # no destination has this directory
_FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
_OF_NETWORK = "NETWORK_CONNECTION"  # an error of S3, as Arrow names it


def open_target(description: Description) -> ParquetFiles:
    """Open the target. Raises OptionInvalid."""
    target = description.target
    if target.mode != "changelog":
        raise OptionInvalid(f"{description.file}: target.mode = {target.mode!r}: parquet files take changelog alone")
    if target.evolve == "ignore":
        raise OptionInvalid(
            f"{description.file}: target.evolve = 'ignore': a file has the columns of its rows; use evolve or stop"
        )
    compression = target.options.get("compression", "zstd")
    return ParquetFiles(target.options["path"], compression, stop=target.evolve == "stop")


class ParquetFiles:
    """See the module.

    path: directory or URI.
    compression: of the files.
    stop: refuse a statement that changes columns.
    """

    def __init__(self, path: str, compression: str, *, stop: bool) -> None:
        self._where = without_login(path)
        self._compression = compression
        self._stop = stop
        self._area = FileArea(path)
        self._commits = FileCommits(self._area, self._where)

    def check(self) -> str:
        """Write a test file; return a description. Raises SinkRefused and TargetUnavailable."""
        try:
            self._area.write(f"{OWN}/{_CHECK}", b"")
            self._area.delete(f"{OWN}/{_CHECK}")
        except OSError as error:
            passes = error.errno in _FULL_DISK or _OF_NETWORK in str(error)
            kind = TargetUnavailable if passes else SinkRefused
            raise kind(f"parquet: {self._where} cannot be written: {error}") from error
        return f"parquet at {self._where}"

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        try:
            return self._commits.newest(destination).progress
        except OSError as error:
            raise TargetUnavailable(f"parquet: {self._where}: {error}") from error

    def progress(self, destination: str) -> Progress | None:
        """Return the progress, after the files of the newest commit are in their places."""
        try:
            return self._settled(destination, self._commits.newest(destination)).progress
        except OSError as error:
            raise TargetUnavailable(f"parquet: {self._where}: {error}") from error

    def commit(self, portion: Portion) -> None:
        """Write the files of a portion, then the progress; see the module."""
        destination, progress = portion.destination, portion.progress
        try:
            before = self._commits.newest(destination)
            if not lacks(before.progress, portion, f"parquet: {self._where}"):
                self._settled(destination, before)
                return
            files, token = [], secrets.token_hex(4)
            for number, (place, rows) in enumerate(self._tables(portion)):
                name = f"{progress.run}-{progress.seq:012d}-{number}-{token}.parquet"
                pending = f"{self._commits.directory(destination)}/{name}{PENDING}"
                sink = pa.BufferOutputStream()
                pq.write_table(rows, sink, compression=self._compression)
                self._area.write(pending, sink.getvalue())
                files.append((pending, f"{place}/{name}"))
            done = self._commits.store(destination, before, token, progress, tuple(files))
            self._publish(done)
            self._commits.remove_older(destination, before)
        except OSError as error:
            raise TargetUnavailable(f"parquet: {self._where}: {error}") from error

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _tables(self, portion: Portion) -> Iterator[tuple[str, pa.Table]]:
        """Yield the directory and the rows of each file."""
        tables: dict[str, list[TableBatch]] = {}
        for batch in portion.batches():
            check_batch(batch, "parquet")
            tables.setdefault(table_path(batch.schema, batch.table), []).append(batch)
        for place, batches in tables.items():
            for rows in self._alike(batches):
                yield place, rows

    def _alike(self, batches: list[TableBatch]) -> Iterator[pa.Table]:
        """Yield the rows of one table, those with equal columns together. A statement joins the rows before it."""
        waiting: list[pa.RecordBatch] = []
        schema: pa.Schema | None = None
        for batch in batches:
            rows = batch.rows
            if rows.column(rows.num_columns - len(META))[0].as_py() == "ddl":
                self._check(batch)
            elif schema is not None and not schema.equals(rows.schema):
                yield _together(waiting, schema)
                waiting, schema = [], rows.schema
            else:
                schema = rows.schema
            waiting.append(rows)
        if waiting:
            yield _together(waiting, schema or waiting[0].schema)

    def _check(self, batch: TableBatch) -> None:
        [sql] = batch.rows.column(batch.rows.num_columns - 1).to_pylist()
        if self._stop and changes_columns(sql, batch.schema, batch.table):
            raise SinkRefused(
                f"parquet: a statement changes the columns of {batch.schema}.{batch.table}, and evolve is stop:"
                f" {printable(excerpt(sql))}"
            )

    def _publish(self, commit: FileCommit) -> None:
        """Move files to their places; those that are there already are left. Raises SinkRefused if one is lost."""
        for pending, place in commit.files:
            if not self._area.is_missing(pending):
                self._area.move(pending, place)
            elif self._area.is_missing(place):
                raise SinkRefused(
                    f"parquet: {self._where}/{place} is gone, and {commit.name} names it: put it back. If you moved its"
                    " rows elsewhere, or can do without them, write an empty list as `files` into that progress"
                )

    def _settled(self, destination: str, newest: FileCommit) -> FileCommit:
        """Return the newest commit after its files are in their places, and others are removed.

        Raises SinkRefused if another process commits meanwhile.
        """
        directory = self._commits.directory(destination)
        pending = [f"{directory}/{name}" for name in self._area.names(directory) if name.endswith(PENDING)]
        if not pending:
            self._publish(newest)
            return newest
        own = self._commits.store(destination, newest, secrets.token_hex(4), newest.progress, newest.files)
        self._publish(own)
        for name in set(pending) - {name for name, _ in own.files}:
            self._area.delete(name)
        self._commits.remove_older(destination, newest)
        return own


def _together(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return rows as one table. Statements have no values in the columns of the table."""
    fitted = []
    for rows in batches:
        if rows.schema.equals(schema):
            fitted.append(rows)
        else:
            own = len(schema) - len(META)
            empty = [pa.nulls(rows.num_rows, field.type) for field in list(schema)[:own]]
            fitted.append(pa.RecordBatch.from_arrays([*empty, *rows.columns[-len(META) :]], schema=schema))
    return pa.Table.from_batches(fitted, schema=schema)
