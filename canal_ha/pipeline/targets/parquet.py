"""Parquet: a log of all changes, at `<path>/<schema>/<table>/<run>-<commit>-<part>.parquet`, with the names escaped.

A commit writes its files under `<path>/_canal_ha/<destination>/`, then the progress with their names, and then moves
them to their places. The progress is the commit: files that it does not name are removed, and files that it names are
moved when the next process begins. Readers leave out names that begin with an underscore, so they see whole commits
only, and each row once.

A file has the columns of its rows, which stand before `_op`, `_ts`, `_position` and `_ddl` (canal_ha.client.arrow).
Rows of a portion that have other columns get a file of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as arrow_fs
import pyarrow.parquet as pq

from canal_ha.client.arrow import META, TableBatch
from canal_ha.errors import OptionInvalid, SinkRefused, TargetUnavailable
from canal_ha.model.excerpt import excerpt, printable
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.fencing import lacks
from canal_ha.pipeline.paths import OWN, segment, table_path, without_login
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.statements import changes_columns

_CHECK = ".check"  # no destination has this directory
_PROGRESS = "progress.json"
_PENDING = ".pending"


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
        try:
            if "://" in path:
                self._files, base = arrow_fs.FileSystem.from_uri(path)
            else:
                self._files, base = arrow_fs.LocalFileSystem(), str(Path(path).absolute())
        except (OSError, ValueError) as error:
            raise OptionInvalid(
                f"parquet: path = {self._where!r} cannot be opened: {str(error).replace(path, self._where)}"
            ) from None
        self._base = base.rstrip("/")
        self._local = isinstance(self._files, arrow_fs.LocalFileSystem)

    def check(self) -> str:
        """Write a test file; return a description. Raises SinkRefused."""
        try:
            self._write(f"{OWN}/{_CHECK}", b"")
            self._files.delete_file(f"{self._base}/{OWN}/{_CHECK}")
        except OSError as error:
            raise SinkRefused(f"parquet: {self._where} cannot be written: {error}") from error
        return f"parquet at {self._where}"

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        try:
            return self._read(destination)[0]
        except OSError as error:
            raise TargetUnavailable(f"parquet: {self._where}: {error}") from error

    def progress(self, destination: str) -> Progress | None:
        """Return the progress, after the files of the newest commit are in their places."""
        try:
            progress, files = self._read(destination)
            self._publish(destination, files)
            self._remove_rest(destination)
        except OSError as error:
            raise TargetUnavailable(f"parquet: {self._where}: {error}") from error
        return progress

    def commit(self, portion: Portion) -> None:
        """Write the files of a portion, then the progress; see the module."""
        destination, progress = portion.destination, portion.progress
        try:
            stored, _ = self._read(destination)
            if not lacks(stored, portion, f"parquet: {self._where}"):
                return
            files = []
            for number, (place, rows) in enumerate(self._tables(portion)):
                name = f"{progress.run}-{progress.seq:012d}-{number}.parquet"
                pending = f"{OWN}/{segment(destination)}/{name}{_PENDING}"
                sink = pa.BufferOutputStream()
                pq.write_table(rows, sink, compression=self._compression)
                self._write(pending, sink.getvalue())
                files.append((pending, f"{place}/{name}"))
            if any(self._is_missing(pending) for pending, _ in files):
                raise SinkRefused(
                    f"parquet: {self._where}: destination {destination}: another process of this pipeline has gone on,"
                    " and removed the files of this one. Nothing was stored. End one of the two, or start again"
                )
            body = json.dumps({"progress": progress.to_json(), "files": files})
            self._write(self._progress_file(destination), body.encode())
            self._publish(destination, files)
        except OSError as error:
            raise TargetUnavailable(f"parquet: {self._where}: {error}") from error

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _tables(self, portion: Portion) -> Iterator[tuple[str, pa.Table]]:
        """Yield the directory and the rows of each file."""
        tables: dict[str, list[TableBatch]] = {}
        for batch in portion.batches():
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

    def _progress_file(self, destination: str) -> str:
        return f"{OWN}/{segment(destination)}/{_PROGRESS}"

    def _read(self, destination: str) -> tuple[Progress | None, list[tuple[str, str]]]:
        """Return the progress, and the files of its commit: where they are written, and where they belong."""
        path = f"{self._base}/{self._progress_file(destination)}"
        try:
            with self._files.open_input_stream(path) as stream:
                text = stream.read()
        except FileNotFoundError:
            return None, []
        try:
            body: Any = json.loads(text)
            return Progress.from_json(body["progress"]), [(pending, place) for pending, place in body["files"]]
        except (ValueError, KeyError, TypeError) as error:
            raise SinkRefused(f"parquet: {path} is not the progress of a pipeline: {error}") from error

    def _publish(self, destination: str, files: list[tuple[str, str]]) -> None:
        """Move files to their places; those that are there already are left. Raises SinkRefused if one is lost."""
        for pending, place in files:
            if self._is_missing(pending):
                if self._is_missing(place):
                    raise SinkRefused(
                        f"parquet: {self._where}/{place} is gone, and {self._progress_file(destination)} names it: put"
                        " it back. If you moved its rows elsewhere, or can do without them, write an empty list as"
                        " `files` into that progress"
                    )
                continue
            directory = f"{self._base}/{place}".rpartition("/")[0]
            self._files.create_dir(directory, recursive=True)
            self._files.move(f"{self._base}/{pending}", f"{self._base}/{place}")
            self._sync(directory)

    def _is_missing(self, name: str) -> bool:
        return bool(self._files.get_file_info(f"{self._base}/{name}").type == arrow_fs.FileType.NotFound)

    def _remove_rest(self, destination: str) -> None:
        """Remove files that no commit names."""
        selector = arrow_fs.FileSelector(f"{self._base}/{OWN}/{segment(destination)}", allow_not_found=True)
        for info in self._files.get_file_info(selector):
            if info.base_name.endswith(_PENDING):
                self._files.delete_file(info.path)

    def _write(self, name: str, data: bytes) -> None:
        """Write a durable file, replacing an existing one at once."""
        path = f"{self._base}/{name}"
        directory = path.rpartition("/")[0]
        self._files.create_dir(directory, recursive=True)
        if not self._local:
            with self._files.open_output_stream(path) as stream:  # the object appears when it is complete
                stream.write(data)
            return
        under_way = f"{path}.{os.getpid()}{_PENDING}"
        with open(under_way, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(under_way, path)
        self._sync(directory)

    def _sync(self, directory: str) -> None:
        """Make new names in a local directory durable."""
        if self._local:
            descriptor = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


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
