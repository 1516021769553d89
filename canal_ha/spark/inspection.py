"""Inspects the parts and the progress of a pipeline without starting Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from canal_ha.cluster.cursors import CursorNodes
from canal_ha.errors import CanalError
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.destinations import resolve
from canal_ha.pipeline.inspection import PartReport, destinations, reachable, unused_keys
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.targets import open_target
from canal_ha.spark import offsets as o
from canal_ha.spark import refusals
from canal_ha.spark.cursor import CursorVerdict, judge
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.pipeline_file import Pipeline
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.storage import open_storage
from canal_ha.spark.waits import told
from canal_ha.zookeeper.reading import BlockingZnodes

_PROBE = "canal-ha-check"


def check(pipeline: Pipeline) -> Iterator[PartReport]:
    """Check the servers, the spool, the checkpoint and the sinks."""
    from canal_ha.spark.pipeline import sinks_of

    options = pipeline.options
    names, found = destinations(options)
    yield found
    reached = reachable(options)
    yield reached
    if options.zk_servers and not reached.problem:
        yield from _client_ids(options, names)
    try:
        storage = open_storage(options.spool_dir)
        if not storage.problem:
            storage.write(_PROBE, b"")
            storage.delete([_PROBE])
        yield PartReport("spool", options.spool_dir, storage.problem)
    except CanalError as error:
        yield PartReport("spool", options.spool_dir, str(error))
    try:
        for state in status(pipeline, names):
            yield PartReport("checkpoint", f"{state.destination}: {state.says}", state.problem)
    except CanalError as error:
        yield PartReport("checkpoint", pipeline.checkpoint, str(error))
    if pipeline.described is not None:
        yield from unused_keys(pipeline.described)
        yield _target(pipeline.described)
    for kind, given in pipeline.sinks:
        try:
            [sink] = sinks_of(pipeline.with_sink(kind, given))
            yield PartReport("sink", sink.check())
        except CanalError as error:
            yield PartReport("sink", kind, str(error))


def _target(described: Description) -> PartReport:
    try:
        target = open_target(described)
        try:
            return PartReport("target", target.check())
        finally:
            target.close()
    except CanalError as error:
        return PartReport("target", described.target.kind, str(error))


def _client_ids(options: SourceOptions, names: tuple[str, ...]) -> Iterator[PartReport]:
    """Check whether another spool acknowledges with the client id.

    Without a subscription, only ZooKeeper shows that.
    """
    for name in names:
        what = f"{options.client_id} of {name}"
        try:
            with BlockingZnodes(options.zk_servers, options.zk_access) as znodes:
                cursor = CursorNodes(znodes).read(name, options.client_id)
            storage = open_storage(options.spool_dir, name, str(options.client_id))
            manifest = newest_manifest(storage) or Manifest(spool="(a new one)")  # read last: has the mark
        except CanalError as error:
            yield PartReport("client id", f"{what}: cannot read its cursor: {error}")
            continue
        if cursor is not None and judge(cursor, manifest) is CursorVerdict.FOREIGN:
            yield PartReport("client id", what, str(refusals.taken(name, options, storage.uri, manifest, cursor)))
        else:
            yield PartReport("client id", what)


@dataclass(frozen=True, slots=True)
class DestinationState:
    """The progress of one destination of a pipeline.

    destination: name of the destination.
    batch: last committed micro-batch; -1 before the first.
    manifest: of the spool; None without a spool.
    committed: end of the last commit; None before the first.
    problem: why a restart would fail; "" if it would not.
    waits: what a driver without a connection waits for; "" for nothing.
    """

    destination: str
    batch: int
    manifest: Manifest | None
    committed: o.Offset | None
    problem: str = ""
    waits: str = ""

    @property
    def waiting(self) -> int:
        """The number of segments that are spooled and not committed."""
        if self.manifest is None:
            return 0
        after = self.manifest.oldest - 1
        if self.committed is not None:
            after = self.manifest.lineage.covered(self.committed.claim, self.manifest.next_seq)[0]
        return max(self.manifest.next_seq - 1 - after, 0)

    @property
    def lag_s(self) -> float:
        """Age of the newest committed change, s; -1 if unknown."""
        return time.time() - self.committed.last.timestamp_ms / 1000 if self.committed else -1.0

    @property
    def says(self) -> str:
        """A short description."""
        waits = f"; a driver waits: {self.waits}" if self.waits else ""
        if self.committed is None:
            return f"nothing committed yet{waits}"
        return f"batch {self.batch} ended at {self.committed.last}, {self.waiting} segments wait{waits}"


def status(pipeline: Pipeline, names: tuple[str, ...] | None = None) -> list[DestinationState]:
    """Return the progress of each destination. Raises CanalError for an unreadable spool or checkpoint."""
    options = pipeline.options
    batch, committed = last_commit(pipeline.checkpoint)
    states = []
    for name in sorted({*(resolve(options) if names is None else names), *committed}):
        storage = open_storage(options.spool_dir, name, str(options.client_id))
        manifest = newest_manifest(storage)
        offset = committed.get(name)
        problem = ""
        if manifest is None and offset is not None:
            problem = f"the spool of {name} is missing"
        elif manifest is not None:
            try:
                o.resume_after(name, offset, manifest, fail_on_data_loss=True)
            except CanalError as error:
                problem = str(error)
            problem = manifest.problem or problem
        waits = told(storage, time.time_ns() // 1_000_000)
        states.append(DestinationState(name, batch, manifest, offset, problem, waits))
    return states


def last_commit(checkpoint: str) -> tuple[int, o.Offsets]:
    """Return the last committed micro-batch of a checkpoint and its end; -1 and no offsets before the first."""
    commits = [int(name) for name in open_storage(checkpoint, "commits").names() if name.isdigit()]
    if not commits:
        return -1, {}
    batch = max(commits)
    text = open_storage(checkpoint, "offsets").read(str(batch)).decode()
    return batch, o.from_json(json.loads(text.splitlines()[2]))  # lines: version, metadata, one per source
