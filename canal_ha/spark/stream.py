"""The stream reader of the source.

Spark creates it several times: one copy in the driver's source process manages offsets, others are pickled and read on
executors. So nothing is opened before it is used.

When Spark asks for the offset after `start`, everything up to `start` is committed. This is the only sign for the last
micro-batch, because commit() comes one batch late and never for the last. Retention follows both.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from canal_ha.errors import ConnectorStopped, DataLoss, SourceUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.options import Shape, SourceOptions
from canal_ha.spark import offsets as o
from canal_ha.spark import segments
from canal_ha.spark.compatible import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    arrow_schema,
)
from canal_ha.spark.error_text import plain_errors
from canal_ha.spark.manifest import Manifest, SegmentInfo
from canal_ha.spark.shapes import META
from canal_ha.spark.steps import Steps
from canal_ha.spark.storage import open_storage

if TYPE_CHECKING:
    import pyarrow as pa

    from canal_ha.spark.tailer import Connector, Tailer

IDLE_WAIT_S = 0.2  # wait before reporting no data; Spark asks again at once
LOOK_S = 0.05
CHECKED_SEGMENTS = 4  # newest ones of a micro-batch, until the declared columns are compared with the table
CALL_TIMEOUT_S = 10.0
STANDSTILL_S = 120.0  # longest time without progress while catching up with a destination

_stopping = threading.Lock()


@dataclass(frozen=True)
class CanalPartition(InputPartition):
    """The work of one task.

    destination: name of the destination.
    uri: of the storage.
    files: number and name of each segment.
    statement: latest DDL statement of the table that is read.
    """

    destination: str
    uri: str
    files: tuple[tuple[int, str], ...]
    statement: str


class CanalStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of one query. steps: called with the name of each step before it happens."""

    def __init__(self, options: SourceOptions, schema: StructType, steps: Steps) -> None:
        self._options = options
        self._schema = schema
        self._steps = steps
        self._tailers: dict[str, Tailer] = {}
        self._until_now = False
        self._unchecked = bool(options.table_schema)  # not compared with the table yet
        self._planned: o.Offsets = {}
        self._pid = 0
        self._ended = False

    def __getstate__(self) -> dict[str, Any]:
        executors = replace(self._options, password="")  # they read the spool, and log in nowhere
        return {**self.__dict__, "_options": executors, "_tailers": {}}

    # ---- offsets, in the driver

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset before the first entry; opens nothing."""
        return o.to_json({})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit, only for display: both limits are applied, whichever one Spark passes back."""
        if self._options.max_rows:
            return ReadMaxRows(self._options.max_rows)
        if self._options.max_bytes:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    @plain_errors
    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Return the end of the next micro-batch, at the end of a transaction.

        Waits briefly if there is nothing new. Spark 4.0 and 4.1 give no arguments; what is done is known from commit().
        """
        tailers = self._open()
        begun = o.from_json(start) if start is not None else self._planned
        for name, offset in begun.items() if start is not None else ():
            self._done(name, offset)
        end = self._admit(begun, limit)
        waits = True
        while waits and o.to_json(end) == o.to_json(begun):
            waits = self._await_more(tailers)
            end = self._admit(begun, limit)
        if end != begun:
            self._steps("offset")
        self._planned = end
        return o.to_json(end)

    @plain_errors
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the end of the durable segments; Spark compares it with a micro-batch's end."""
        return o.to_json({name: o.of(m, m.segments[-1]) for name, m in self._manifests().items() if m.segments})

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:
        """Read the changes up to the end of the source's binlog at this moment, and no further."""
        self._until_now = True
        self._open()

    @plain_errors
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Split the segments into tasks. Raises DataLoss."""
        manifests = self._known_manifests(o.from_json(end))
        planned = o.plan(
            o.from_json(start), o.from_json(end), manifests, fail_on_data_loss=self._options.fail_on_data_loss
        )
        partitions: list[InputPartition] = []
        for name, files in planned.items():
            self._check_columns(name, files)
            uri = self._storage_uri(name)
            statement = manifests[name].ddl.get(self._options.table, "")
            partitions += [
                CanalPartition(name, uri, tuple((file.seq, file.name) for file in group), statement)
                for group in o.tasks(files, os.cpu_count() or 1)
            ]
        return partitions

    def commit(self, end: dict[str, Any]) -> None:
        """Note that a micro-batch is done. retainBatches older ones can still be replayed."""
        for name, offset in o.from_json(end).items():
            self._done(name, offset)

    def stop(self) -> None:
        """Stop all tailers and wait until they released the client id."""
        if self._pid != os.getpid():
            return
        with _stopping:  # a second caller waits until the first is done
            tailers, self._tailers = self._tailers, {}
            stoppers = [threading.Thread(target=tailer.stop) for tailer in tailers.values()]
            for stopper in stoppers:
                stopper.start()
            for stopper in stoppers:
                stopper.join()

    # ---- rows, on executors

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Decode the segments of a partition; needs no other state."""
        from canal_ha.spark.arrow import SegmentReading, check_logged, entries_to_arrow

        assert isinstance(partition, CanalPartition)
        options = self._options
        schema = arrow_schema(self._schema)
        reading = SegmentReading(
            options.shape, schema, options.table, options.evolution, options.time_zone, options.filter
        )
        storage = open_storage(partition.uri)
        statement = partition.statement
        for seq, name in partition.files:
            file = f"{partition.uri}/{name}"
            try:
                contents = segments.decode(storage.read(name), file)
            except FileNotFoundError as error:
                raise DataLoss(
                    f"canal: segment {file} is missing: check that spoolDir is the same directory on all machines"
                ) from error
            if options.shape is Shape.TABLE and options.table not in contents.rows:
                if contents.statements:
                    check_logged(contents.frames, file, reading)
                continue
            yield from entries_to_arrow(
                contents.frames, partition.destination, seq, file, reading, statement, statements=contents.statements
            )

    # ---- inside

    def _open(self) -> dict[str, Tailer]:
        if self._ended:
            raise ConnectorStopped("canal: the query ends")
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._tailers = {}
            atexit.register(self.stop)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, self._terminated)
        if not self._tailers:
            from canal_ha.pipeline.destinations import resolve  # imports that executors do not need
            from canal_ha.spark.tailer import Tailer

            for name in resolve(self._options):
                storage = open_storage(self._options.spool_dir, name, str(self._options.client_id))
                dial = partial(self._dial, name)
                tailer = Tailer(self._options, name, storage, self._steps, dial, until_now=self._until_now)
                self._tailers[name] = tailer
                tailer.start()
        return self._tailers

    def _dial(self, destination: str, judge: Callable[[LogPosition | None], None]) -> Connector:
        from canal_ha.client.cluster import ClusterConnector

        options = self._options
        return ClusterConnector(
            options.zk_servers or list(options.servers),
            destination,
            options.client_id,
            options.user,
            options.password,
            filter=options.filter,
            exact=options.exact,
            call_timeout_s=CALL_TIMEOUT_S,
            rollback_on_disconnect=True,  # a fenced driver's batches in flight go to the newer driver
            zk_session_timeout_ms=options.session_timeout_ms,
            zk_auth=options.zk_access,
            judge=judge,
            snapshot=options.snapshot,
            tls=options.tls,
        )

    def _terminated(self, number: int, frame: FrameType | None) -> None:
        """Spark ends its source process with SIGTERM, without stop().

        The interrupted main thread may hold a lock that a tailer needs to stop, so another thread stops it.
        """
        self._ended = True
        threading.Thread(target=self._end, name="ending").start()

    def _end(self) -> None:
        self.stop()
        os._exit(0)

    def _manifests(self) -> dict[str, Manifest]:
        found = {name: tailer.manifest for name, tailer in self._open().items()}
        return {name: manifest for name, manifest in found.items() if manifest is not None}

    def _known_manifests(self, offsets: o.Offsets) -> dict[str, Manifest]:
        manifests = self._manifests()
        missing = [name for name in offsets if name in self._tailers and name not in manifests]
        if missing and self._options.fail_on_data_loss:
            where = ", ".join(self._storage_uri(name) for name in missing)
            raise DataLoss(f"canal: the checkpoint refers to a spool that is gone: {where}")
        return manifests

    def _storage_uri(self, destination: str) -> str:
        return open_storage(self._options.spool_dir, destination, str(self._options.client_id)).uri

    def _admit(self, start: o.Offsets, limit: ReadLimit | None) -> o.Offsets:
        bound = o.Limit()
        if limit is not None and not isinstance(limit, ReadAllAvailable):
            bound = o.Limit(self._options.max_rows, self._options.max_bytes)
        manifests = self._manifests()
        wanted = {name: self._tailers[name].wanted for name in manifests} if self._until_now else None
        return o.admit(start, manifests, bound, wanted, fail_on_data_loss=self._options.fail_on_data_loss)

    def _await_more(self, tailers: dict[str, Tailer]) -> bool:
        """Wait for a segment, and return whether to wait for another one if that cannot be read yet.

        A query that ends by itself waits until all are read. Raises SourceUnavailable if a destination makes no
        progress before that.
        """
        before = {name: tailer.wanted for name, tailer in tailers.items()}
        if not self._until_now:
            if len(before) == 1:
                [(name, wanted)] = before.items()
                tailers[name].wait_beyond(wanted, IDLE_WAIT_S)
            else:
                time.sleep(IDLE_WAIT_S)
            return False
        since = time.monotonic()
        while late := [name for name, tailer in tailers.items() if not tailer.complete()]:
            if any(tailer.wanted > before[name] for name, tailer in tailers.items()):
                return True
            if time.monotonic() - since > STANDSTILL_S:
                why = f"does it run, and is client {self._options.client_id} active elsewhere?"
                raise SourceUnavailable(
                    f"canal: destination {late[0]} delivered nothing for {STANDSTILL_S:.0f} s:"
                    f" {tailers[late[0]].trouble or why}"
                )
            time.sleep(LOOK_S)
        return False

    def _check_columns(self, destination: str, files: tuple[SegmentInfo, ...]) -> None:
        """Compare declared columns with the first rows of the table that the query meets. Raises OptionInvalid."""
        if not self._unchecked:
            return
        from canal_ha.spark.table_schema import check_declared, newest_columns

        storage = open_storage(self._options.spool_dir, destination, str(self._options.client_id))
        names = [file.name for file in reversed(files[-CHECKED_SEGMENTS:])]
        columns = newest_columns(storage, names, self._options)
        if columns:
            check_declared(self._options, (name for name in self._schema.names if name not in META), columns)
            self._unchecked = False

    def _done(self, name: str, offset: o.Offset) -> None:
        tailer = self._open().get(name)
        if tailer is None:
            return
        manifest = tailer.manifest
        if manifest is not None and manifest.spool == offset.spool:
            tailer.done_up_to(manifest.lineage.covered(offset.claim, manifest.next_seq)[0])
