"""Commits: writes micro-batches into the target of a YAML file. One task for each destination, on an executor.

    checkpoint -> SegmentRange -> task: spool -> Portion -> target.commit

The driver plans, and has no row. A task reads its destination's segments from the spool, and commits them in portions,
with the same reader, transforms and target as a pipeline without Spark. All changes of a destination go through one
task, one commit after the other: so the order of its binlog stays, and so does the one place that has its progress.

The target's progress names the last segment that it has. The checkpoint only says where a micro-batch ends. So a
micro-batch that comes again, in whatever parts, writes what the target lacks, and a target that was restored gets the
segments that it has lost, if the spool still has them. If the target cannot go on from what it has, the query ends.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from canal_ha import logs
from canal_ha.errors import CanalError, DataLoss, SpoolUnusable, TargetUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.flow import PAUSES_S
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.progress_owner import ProgressOwner, foreign
from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.refilling import tables_that_may_be_gone, tables_to_read_again
from canal_ha.pipeline.taken import Taken
from canal_ha.pipeline.targets import open_target
from canal_ha.pipeline.targets.target import PipelineTarget
from canal_ha.spark import segments
from canal_ha.spark.cursor import claim_of, mark_of
from canal_ha.spark.manifest import SegmentInfo
from canal_ha.spark.portions import split
from canal_ha.spark.spool import newest_manifest
from canal_ha.spark.storage import open_storage

PATIENCE_S = 300.0  # for a target that does not answer
_NOWHERE = LogPosition("", 0)

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Terms:
    """What all tasks of a pipeline need.

    description: of the pipeline, without its source and Spark's settings, which may have passwords.
    time_zone, fail_on_data_loss: options of the source.
    snapshot: whether the pipeline may have tables read.
    """

    description: Description
    time_zone: str
    fail_on_data_loss: bool
    snapshot: bool


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """The segments of one destination in a micro-batch.

    destination: its name.
    uri: of its spool.
    after: number of the last segment before the micro-batch.
    last: number of its last segment.
    """

    destination: str
    uri: str
    after: int
    last: int


@dataclass(frozen=True, slots=True)
class Written:
    """What a task has done.

    destination: its name.
    rows: number of rows and statements that it has written.
    read_again: tables to read again, as `schema.table`, before the micro-batch counts as done.
    gone: tables that a snapshot is to leave out if they are gone.
    problem: why it has stopped; None if it has written all.
    """

    destination: str
    rows: int = 0
    read_again: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    problem: CanalError | None = None


def write(terms: Terms, given: SegmentRange) -> Written:
    """Write what the target lacks, up to the range's end. Waits PATIENCE_S for a target that does not answer."""
    failures, since = 0, time.monotonic()
    while True:
        try:
            target = open_target(terms.description)
            try:
                return _Task(terms, given, target).run()
            finally:
                target.close()
        except TargetUnavailable as error:
            pause_s = PAUSES_S[min(failures, len(PAUSES_S) - 1)]
            if time.monotonic() - since + pause_s > PATIENCE_S:
                return Written(given.destination, problem=error)
            failures += 1
            log.warning(
                "pipeline.target_unavailable", destination=given.destination, again_in_s=pause_s, error=str(error)
            )
            time.sleep(pause_s)
        except CanalError as error:
            return Written(given.destination, problem=error)


class _Task:
    def __init__(self, terms: Terms, given: SegmentRange, target: PipelineTarget) -> None:
        self._terms = terms
        self._given = given
        self._target = target
        description = terms.description
        self._where = f"pipeline {description.name}, destination {given.destination}"
        self._reader = ChangeReader(Taken(description), terms.time_zone, description.transforms, description.keys)
        self._storage = open_storage(given.uri)
        manifest = newest_manifest(self._storage)
        if manifest is None:
            raise SpoolUnusable(f"canal: {given.uri} has no spool: driver and executors have to share `state`")
        self._manifest = manifest
        self._again: dict[str, None] = {}
        self._gone: dict[str, None] = {}

    def run(self) -> Written:
        """Write, and return what was done. Raises the errors of the target, DataLoss and SpoolUnusable."""
        given, manifest = self._given, self._manifest
        after, progress = self._begin(self._target.progress(given.destination))
        rows = 0
        self._ask_as_before(after, progress)
        for frames, infos, last in self._pieces(after, given.last):
            info = infos[-1]
            newest_ms = max(each.last.timestamp_ms for each in infos)
            if _goes_back(progress.last, last):
                progress = self._begin_run(replace(progress, last=_NOWHERE, newest_ms=0))
            key_names = self._reader.key_names(frames, progress.key_names)
            spooled = mark_of(manifest, info.seq)
            progress = progress.after(last, newest_ms, whole=info.closed, spooled=spooled, key_names=key_names)
            count = sum(each.rows for each in infos)
            portion = Portion(given.destination, frames, progress, count, info.closed, self._reader)
            self._ask(portion)
            self._target.commit(portion)
            rows += count
        return Written(given.destination, rows, tuple(self._again), tuple(self._gone))

    def _begin(self, stored: Progress | None) -> tuple[int, Progress]:
        """Return the last segment that need not be written, and the progress that the next commit follows.

        Raises SinkRefused for the progress of another pipeline, and DataLoss, unless changes are given up; then a new
        run begins.
        """
        given, manifest, owner = self._given, self._manifest, ProgressOwner(self._terms.description.name)
        other = foreign(stored, owner, self._where)
        if other is not None:
            raise other
        after, problem = -1, ""
        claim = None if stored is None else claim_of(stored.spooled, manifest)
        if stored is not None and claim is None:
            after, problem = given.after, self._foreign(stored)
        elif stored is not None and claim is not None:
            after, known = manifest.lineage.covered(claim, manifest.next_seq)
            if not known:
                after = max(after, given.after)
                problem = self._ahead(stored, after)
        if not problem and after < manifest.oldest - 1:
            after, problem = manifest.oldest - 1, self._gap(stored)
        if problem and self._terms.fail_on_data_loss:
            raise DataLoss(f"canal: {self._where}: {problem}. To give these changes up, set failOnDataLoss to false")
        if problem:
            log.warning("pipeline.data_loss", destination=given.destination, error=problem)
        if stored is not None and not problem:
            return after, replace(stored, owner=stored.owner or owner)
        if stored is None:
            self._target.check()  # it creates what keeps the progress
        begun = Progress("", 0, _NOWHERE, 0) if stored is None else stored
        return after, self._begin_run(replace(begun, given_up="", spooled=mark_of(manifest, after), owner=owner))

    def _begin_run(self, progress: Progress) -> Progress:
        """Store a progress under a new name, so that tables do not compare positions with those of the run before."""
        begun = replace(progress, run=secrets.token_hex(8))
        self._target.commit(Portion(self._given.destination, b"", begun, 0, True, self._reader))
        return begun

    def _foreign(self, stored: Progress) -> str:
        who = f"another spool ({stored.spooled})" if stored.spooled else "a pipeline without Spark"
        return (
            f"the target's progress, {stored.last}, is that of {who}, and cannot be compared with the spool"
            f" {self._given.uri}. Give this pipeline a target of its own, or the `state` with that spool back"
        )

    def _ahead(self, stored: Progress, after: int) -> str:
        """Return what is wrong with a target that is ahead of the spool; "" if a mirror can go on.

        The spool was restored from an older copy, and its newest writer got the changes behind its end again. A mirror
        takes them over twice without harm; a log of changes would have them twice.
        """
        new = range(after + 1, self._given.last + 1)
        if self._terms.description.target.mode == "mirror" and self._manifest.lineage.follow(new):
            return ""
        return (
            f"the target has changes up to {stored.last}, which the spool {self._given.uri} lacks: it was restored from"
            " an older copy, and a log of changes would get them twice, or miss some. Fill an empty target with a"
            " snapshot, under a clientId and a `state` of its own"
        )

    def _gap(self, stored: Progress | None) -> str:
        has = (
            "it has no progress" if stored is None else f"it was restored from an older copy, and ends at {stored.last}"
        )
        return (
            f"changes are missing in the target: {has}; the spool {self._given.uri} begins with segment"
            f" {self._manifest.oldest} (retainBatches). Fill an empty target with a snapshot, under a clientId and a"
            " `state` of its own"
        )

    def _ask_as_before(self, after: int, progress: Progress) -> None:
        """Ask because of segments that the target has, too: an earlier try may not have asked."""
        for frames, infos, _ in self._pieces(self._given.after, min(after, self._given.last)):
            self._ask(Portion(self._given.destination, frames, progress, 0, infos[-1].closed, self._reader))

    def _ask(self, portion: Portion) -> None:
        """Note what the node has to read again, or to leave out, because of a portion."""
        target, snapshot = self._terms.description.target, self._terms.snapshot
        self._again |= dict.fromkeys(tables_to_read_again(portion, target, self._where, snapshot=snapshot))
        self._gone |= dict.fromkeys(tables_that_may_be_gone(portion, target, snapshot=snapshot))

    def _pieces(self, after: int, last: int) -> Iterator[tuple[bytes, Sequence[SegmentInfo], LogPosition]]:
        """Yield the entries of portions, their segments, and the last position, which names the server.

        A portion has entries of one binlog, so their positions grow.
        """
        for part in split(self._manifest.between(after, last)):
            frames: list[bytes] = []
            infos: list[SegmentInfo] = []
            reached = _NOWHERE
            for info in part:
                contents = self._read(info)
                place = replace(info.last, server=contents.server)
                if infos and (place.server != reached.server or _goes_back(reached, place)):
                    yield b"".join(frames), infos, reached
                    frames, infos = [], []
                reached = place
                frames.append(contents.frames)
                infos.append(info)
            yield b"".join(frames), infos, reached

    def _read(self, info: SegmentInfo) -> segments.Contents:
        file = f"{self._given.uri}/{info.name}"
        try:
            return segments.decode(self._storage.read(info.name), file)
        except FileNotFoundError as error:
            raise DataLoss(f"canal: segment {file} is missing: driver and executors have to share `state`") from error


def _goes_back(before: LogPosition, now: LogPosition) -> bool:
    """Return whether a server's binlog began again between two positions, or is read again from an earlier place.

    Nothing tells that of several servers, or of an unknown one.
    """
    return bool(now.server) and now.server == before.server and now.order[:3] < before.order[:3]
