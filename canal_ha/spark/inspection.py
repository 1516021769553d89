"""What can be told about a pipeline without running it: its parts, and how far it is. No Spark is started."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from canal_ha.client.discovery import split_address
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.errors import CanalError
from canal_ha.spark import offsets as o
from canal_ha.spark import refusals
from canal_ha.spark.cursor import CursorVerdict, judge
from canal_ha.spark.destinations import resolve
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.options import SourceOptions
from canal_ha.spark.pipeline_file import Pipeline
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.storage import open_storage
from canal_ha.zookeeper.reading import BlockingZnodes

CONNECT_TIMEOUT_S = 5.0
_PROBE = "canal-ha-check"


@dataclass(frozen=True, slots=True)
class PartReport:
    """One part of a pipeline. problem: "" when it is as it should be."""

    part: str
    says: str
    problem: str = ""


def check(pipeline: Pipeline) -> Iterator[PartReport]:
    """Look at every part: who serves, the spool, the checkpoint, the sinks."""
    from canal_ha.spark.pipeline import sinks_of

    options = pipeline.options
    try:
        names = resolve(options)
        yield PartReport("destinations", ", ".join(names))
    except CanalError as error:
        names = ()
        yield PartReport("destinations", ", ".join(options.destinations), str(error))
    reachable = _reachable(pipeline)
    yield reachable
    if options.zk_servers and not reachable.problem:
        yield from _client_ids(options, names)
    try:
        storage = open_storage(options.spool_dir)
        storage.write(_PROBE, b"")
        storage.delete([_PROBE])
        yield PartReport("spool", options.spool_dir)
    except CanalError as error:
        yield PartReport("spool", options.spool_dir, str(error))
    try:
        for state in status(pipeline, names):
            yield PartReport("checkpoint", f"{state.destination}: {state.says}", state.problem)
    except CanalError as error:
        yield PartReport("checkpoint", pipeline.checkpoint, str(error))
    for kind, given in pipeline.sinks:
        try:
            [sink] = sinks_of(pipeline.with_sink(kind, given))
            yield PartReport("sink", sink.check())
        except CanalError as error:
            yield PartReport("sink", kind, str(error))


def _client_ids(options: SourceOptions, names: tuple[str, ...]) -> Iterator[PartReport]:
    """Whether another spool acknowledges with the client id. Only ZooKeeper tells that to somebody who does not
    subscribe.
    """
    for name in names:
        what = f"{options.client_id} of {name}"
        try:
            with BlockingZnodes(options.zk_servers) as znodes:
                cursor = CursorNodes(znodes).read(name, options.client_id)
            storage = open_storage(options.spool_dir, name, str(options.client_id))
            manifest = newest_manifest(storage) or Manifest(spool="(a new one)")  # read last: it has what is marked
        except CanalError as error:
            yield PartReport("client id", f"{what}: its cursor cannot be read: {error}")
            continue
        if cursor is not None and judge(cursor, manifest) is CursorVerdict.FOREIGN:
            yield PartReport("client id", what, str(refusals.taken(name, options, storage.uri, manifest, cursor)))
        else:
            yield PartReport("client id", what)


def _reachable(pipeline: Pipeline) -> PartReport:
    """Whether any of the addresses that a client starts from accepts connections."""
    options = pipeline.options
    given = options.zk_servers.partition("/")[0].split(",") if options.zk_servers else list(options.servers)
    part = "ZooKeeper" if options.zk_servers else "servers"
    problems = []
    for address in given:
        try:
            socket.create_connection(split_address(address), CONNECT_TIMEOUT_S).close()
            return PartReport(part, address)
        except (OSError, ValueError) as error:
            problems.append(f"{address}: {error}")
    return PartReport(part, ",".join(given), "nobody answers: " + "; ".join(problems))


@dataclass(frozen=True, slots=True)
class DestinationState:
    """One destination of a pipeline. batch: last micro-batch committed, -1 before the first; waiting: segments;
    lag_s: age of the newest committed change, -1 when unknown; problem: why a restart would fail.
    """

    destination: str
    batch: int
    manifest: Manifest | None
    committed: o.Offset | None
    problem: str = ""

    @property
    def waiting(self) -> int:
        """Segments spooled and not committed."""
        if self.manifest is None:
            return 0
        after = self.manifest.oldest - 1
        if self.committed is not None:
            after = self.manifest.lineage.covered(self.committed.claim, self.manifest.next_seq)[0]
        return max(self.manifest.next_seq - 1 - after, 0)

    @property
    def lag_s(self) -> float:
        """Seconds since the newest committed change was made at the source."""
        return time.time() - self.committed.last.timestamp_ms / 1000 if self.committed else -1.0

    @property
    def says(self) -> str:
        """In a few words."""
        if self.committed is None:
            return "nothing committed yet"
        return f"batch {self.batch} ended at {self.committed.last}, {self.waiting} segments wait"


def status(pipeline: Pipeline, names: tuple[str, ...] | None = None) -> list[DestinationState]:
    """How far each destination is. Raises what a spool or a checkpoint that cannot be read raises."""
    options = pipeline.options
    batch, committed = last_commit(pipeline.checkpoint)
    states = []
    for name in sorted({*(resolve(options) if names is None else names), *committed}):
        manifest = newest_manifest(open_storage(options.spool_dir, name, str(options.client_id)))
        offset = committed.get(name)
        problem = ""
        if manifest is None and offset is not None:
            problem = f"the spool of {name} is gone"
        elif manifest is not None:
            try:
                o.resume_after(name, offset, manifest, fail_on_data_loss=True)
            except CanalError as error:
                problem = str(error)
            problem = manifest.problem or problem
        states.append(DestinationState(name, batch, manifest, offset, problem))
    return states


def last_commit(checkpoint: str) -> tuple[int, o.Offsets]:
    """The last committed micro-batch of a checkpoint and where it ended; -1 and nothing before the first."""
    commits = [int(name) for name in open_storage(checkpoint, "commits").names() if name.isdigit()]
    if not commits:
        return -1, {}
    batch = max(commits)
    text = open_storage(checkpoint, "offsets").read(str(batch)).decode()
    return batch, o.from_json(json.loads(text.splitlines()[2]))  # version, metadata, then one line per source
