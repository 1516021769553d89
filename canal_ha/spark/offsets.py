"""Spark's offsets: for each destination the last read segment and its binlog position. Pure.

    {"v":1,"destinations":{"example":{"seq":41,"spool":"5f1c...","server":1,"journal":"mysql-bin.000007",
     "offset":9911,"sub":0,"time":1795244373969,"gtid":"...","writer":"00000003-9c01d2ab"}}}

`seq`, `spool` and `writer` identify the segment (offsets of earlier versions have no writer). The rest is for
operators, lag and checks. Spark compares offsets as texts, so keys have a fixed order, destinations are sorted, and
there are no floats. A missing destination was not read at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from canal_ha.errors import DataLoss
from canal_ha.model.position import LogPosition
from canal_ha.spark.lineage import Epoch, ReportedProgress
from canal_ha.spark.manifest import Manifest, SegmentInfo

VERSION = 1
BEFORE_ALL = -1
TASK_BYTES = 4 << 20  # raw entries worth a task; a task's overhead equals about 20,000 small rows
TASK_BYTES_MOST = 64 << 20


@dataclass(frozen=True, slots=True)
class Offset:
    """The progress of one destination.

    seq: last segment read.
    spool: identity of its spool.
    last: position of the segment's last entry.
    writer: the segment's writer; None in an offset of an earlier version.
    """

    seq: int
    spool: str
    last: LogPosition
    writer: Epoch | None = None

    @property
    def claim(self) -> ReportedProgress:
        """The claim that the spool's lineage checks."""
        return ReportedProgress(self.seq, self.writer)

    def is_place_of(self, other: Offset) -> bool:
        """Return whether both name the same segment. A missing writer matches any writer."""
        both = self.writer is not None and other.writer is not None
        return (self.seq, self.spool) == (other.seq, other.spool) and not (both and self.writer != other.writer)


Offsets = dict[str, Offset]


def to_json(offsets: Mapping[str, Offset]) -> dict[str, Any]:
    """Return the form that Spark stores in its checkpoint."""
    return {"v": VERSION, "destinations": {name: _to_dict(offsets[name]) for name in sorted(offsets)}}


def from_json(body: Mapping[str, Any]) -> Offsets:
    """Parse the form of `to_json`. Raises DataLoss for a checkpoint that this source did not write."""
    try:
        if body["v"] != VERSION:
            raise DataLoss(f"canal: the checkpoint has offsets of version {body['v']}, this is version {VERSION}")
        return {str(name): _from_dict(value) for name, value in body["destinations"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataLoss(f"canal: the checkpoint was not written by this source: {dict(body)!r}") from error


def _to_dict(offset: Offset) -> dict[str, Any]:
    last = offset.last
    body = {
        "seq": offset.seq,
        "spool": offset.spool,
        "server": last.server_id,
        "journal": last.journal,
        "offset": last.offset,
        "sub": last.sub_index,
        "time": last.timestamp_ms,
        "gtid": last.gtid,
    }
    return body if offset.writer is None else {**body, "writer": str(offset.writer)}


def _from_dict(body: Mapping[str, Any]) -> Offset:
    last = LogPosition(
        journal=str(body["journal"]),
        offset=int(body["offset"]),
        sub_index=int(body["sub"]),
        timestamp_ms=int(body["time"]),
        server_id=None if body["server"] is None else int(body["server"]),
        gtid=body["gtid"],
    )
    writer = Epoch.parse(body["writer"]) if "writer" in body else None
    return Offset(int(body["seq"]), str(body["spool"]), last, writer)


def of(manifest: Manifest, segment: SegmentInfo) -> Offset:
    """Return the offset after this segment is read."""
    return Offset(segment.seq, manifest.spool, segment.last, manifest.lineage.writer_of(segment.seq))


def resume_after(destination: str, offset: Offset | None, manifest: Manifest, *, fail_on_data_loss: bool) -> int:
    """Return the last segment that need not be read; for a new query the one before the oldest.

    destination: name of the destination.
    offset: its offset in the checkpoint; None for a new query.
    manifest: of its spool.
    fail_on_data_loss: False returns the last segment that checkpoint and spool share, or the one before the oldest.
    Raises DataLoss if the spool is another one or lacks the next segment.
    """
    oldest = manifest.oldest - 1
    if offset is None:
        return oldest
    problem = _problem(destination, offset, manifest)
    if problem is None:
        return offset.seq
    if fail_on_data_loss:
        raise DataLoss(f"canal: {problem}; set failOnDataLoss=false to continue with the remaining segments")
    if offset.spool != manifest.spool:
        return oldest
    return max(oldest, manifest.lineage.covered(offset.claim, manifest.next_seq)[0])


def _problem(destination: str, offset: Offset, manifest: Manifest) -> str | None:
    if offset.spool != manifest.spool:
        return f"the checkpoint was written with another spool of {destination} ({offset.spool}, now {manifest.spool})"
    if offset.seq < manifest.oldest - 1:
        return (
            f"the checkpoint of {destination} is at {offset.last}, segment {offset.seq}, but the spool begins with"
            f" segment {manifest.oldest} (retainBatches)"
        )
    shared, known = manifest.lineage.covered(offset.claim, manifest.next_seq)
    if not known:
        kept = f"it shares segments up to {shared}" if shared >= 0 else "the writer of that segment is unknown"
        return (
            f"the checkpoint of {destination} is at segment {offset.seq}, {offset.last}, which the spool lacks;"
            f" it was probably restored from an older copy: its last segment is {manifest.next_seq - 1}, {kept}"
        )
    return None


@dataclass(frozen=True, slots=True)
class Limit:
    """The limits of a micro-batch. 0: no limit."""

    rows: int = 0
    size_bytes: int = 0


def admit(
    start: Mapping[str, Offset],
    manifests: Mapping[str, Manifest],
    limit: Limit,
    targets: Mapping[str, int] | None = None,
    *,
    fail_on_data_loss: bool = True,
) -> Offsets:
    """Return the end of the next micro-batch: complete transactions, fairly over the destinations, at least one.

    start: where the micro-batch begins. Destinations without a manifest stay there.
    manifests: the spools of the destinations.
    limit: limits of the micro-batch.
    targets: last segment to admit by destination; a destination that is missing in it is not admitted. None: no bound.
    fail_on_data_loss: see resume_after.
    Raises DataLoss.
    """
    ends = dict(start)
    waiting: dict[str, list[tuple[SegmentInfo, ...]]] = {}
    for name in sorted(manifests):
        manifest = manifests[name]
        after = resume_after(name, start.get(name), manifest, fail_on_data_loss=fail_on_data_loss)
        last = manifest.next_seq if targets is None else targets.get(name, BEFORE_ALL)
        groups = transactions(manifest.between(after, last))
        if groups:
            waiting[name] = groups[::-1]
    rows = size_bytes = 0
    while waiting:
        for name in list(waiting):
            group = waiting[name].pop()
            rows += sum(segment.rows for segment in group)
            size_bytes += sum(segment.raw_bytes for segment in group)
            admitted_before = ends != dict(start)
            too_many = bool(limit.rows) and rows > limit.rows
            too_large = bool(limit.size_bytes) and size_bytes > limit.size_bytes
            if admitted_before and (too_many or too_large):
                return ends
            ends[name] = of(manifests[name], group[-1])
            if not waiting[name]:
                del waiting[name]
    return ends


def transactions(segments: tuple[SegmentInfo, ...], *, unfinished: bool = False) -> list[tuple[SegmentInfo, ...]]:
    """Group segments by transaction. unfinished: also return one at the end that is unfinished."""
    groups: list[tuple[SegmentInfo, ...]] = []
    begun = 0
    for index, segment in enumerate(segments):
        if segment.closed:
            groups.append(segments[begun : index + 1])
            begun = index + 1
    if unfinished and begun < len(segments):
        groups.append(segments[begun:])
    return groups


def plan(
    start: Mapping[str, Offset],
    end: Mapping[str, Offset],
    manifests: Mapping[str, Manifest],
    *,
    fail_on_data_loss: bool,
) -> dict[str, tuple[SegmentInfo, ...]]:
    """Return the segments of a micro-batch by destination.

    start, end: bounds of the micro-batch.
    manifests: the spools of the destinations.
    fail_on_data_loss: see resume_after.
    Raises DataLoss if a segment is missing.
    """
    planned: dict[str, tuple[SegmentInfo, ...]] = {}
    for name in sorted(end):
        began = start.get(name)
        if began is not None and began.is_place_of(end[name]):
            continue
        manifest = manifests.get(name)
        if manifest is None:
            if fail_on_data_loss:
                raise DataLoss(f"canal: the checkpoint names destination {name}, which this query does not read")
            continue
        # Spark reads an unfinished micro-batch again with the same bounds
        after = resume_after(name, began, manifest, fail_on_data_loss=fail_on_data_loss)
        last = end[name].seq
        if resume_after(name, end[name], manifest, fail_on_data_loss=fail_on_data_loss) != last:
            continue
        planned[name] = manifest.between(after, last)
    return planned


def tasks(files: tuple[SegmentInfo, ...], processors: int) -> list[tuple[SegmentInfo, ...]]:
    """Split consecutive segments into groups of similar size that keep all processors busy.

    processors: their number.
    """
    size = sum(file.raw_bytes for file in files)
    rounds = -(-size // (processors * TASK_BYTES_MOST))
    count = max(min(processors * rounds, size // TASK_BYTES), 1)
    groups: list[list[SegmentInfo]] = [[] for _ in range(count)]
    before = 0
    for file in files:
        middle = before + file.raw_bytes // 2
        groups[min(middle * count // max(size, 1), count - 1)].append(file)
        before += file.raw_bytes
    return [tuple(group) for group in groups if group]
