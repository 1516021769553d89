"""Manifest: the valid segments of a spool, and how far they were read. Pure.

A spool belongs to one (destination, client id). Each writer has an epoch and writes manifests of that epoch only. The
manifest of the newest epoch is valid. It is JSON with a fixed order of keys; segments are arrays, because there are
thousands of them:

    {"v":1,"spool":"5f1c...",
     "segments":[[seq,name,bytes,raw,rows,closed,written_ms,server,journal,offset,sub,time,gtid],...],
     "reads":[12,15],"newest_ms":...,"ddl":{"shop.orders":"ALTER ..."},"writers":[[epoch,first seq,follows],...],
     "since":0,"forgotten":0,"problem":"","server":"8f0e...","server_from":0}

Older versions ignore writers, server and server_from, and write manifests without them. Only they read newest_ms.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from canal_ha.errors import SpoolUnusable
from canal_ha.model.position import LogPosition
from canal_ha.spark.lineage import Epoch, Lineage, Writer

VERSION = 1
DDL_KEPT = 1000  # tables whose latest statement is kept


@dataclass(frozen=True)
class SegmentInfo:
    """One segment file.

    seq: 0, 1, ... without gaps over all epochs.
    name: name of the file.
    size_bytes: size of the file.
    raw_bytes: size of its entries.
    rows: number of its rows.
    closed: it ends at the end of a transaction.
    written_ms: ms since 1970.
    last: position of its last entry.
    """

    seq: int
    name: str
    size_bytes: int
    raw_bytes: int
    rows: int
    closed: bool
    written_ms: int
    last: LogPosition

    @cached_property
    def text(self) -> str:
        """The segment in a manifest, as JSON. Each manifest of a writer has the texts of all before it again."""
        return _json(_to_list(self))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a manifest file.

    spool: identity of the spool.
    segments: by seq, without gaps.
    next_seq: number of the next segment.
    reads: last segments of the finished micro-batches, ascending.
    ddl: latest statement by table.
    lineage: writers of the segments.
    problem: why the last writer refused to continue; "" if it did not.
    server: the server of the last position (LogPosition.server); "" if unknown.
    server_from: number of the first segment since the entries come from that server.
    """

    spool: str
    segments: tuple[SegmentInfo, ...] = ()
    next_seq: int = 0
    reads: tuple[int, ...] = ()
    ddl: dict[str, str] = field(default_factory=dict)
    lineage: Lineage = field(default_factory=Lineage)
    problem: str = ""
    server: str = ""
    server_from: int = 0

    @property
    def oldest(self) -> int:
        """Number of the oldest existing segment, or of the next one."""
        return self.segments[0].seq if self.segments else self.next_seq

    @property
    def last(self) -> LogPosition | None:
        """Position of the newest entry; None only before the first, because the last segment is never removed."""
        return replace(self.segments[-1].last, server=self.server) if self.segments else None

    @property
    def done(self) -> int:
        """Last segment that was read; -1 for none."""
        return self.reads[-1] if self.reads else -1

    def between(self, after: int, last: int) -> tuple[SegmentInfo, ...]:
        """Return the segments after `after`, up to `last`."""
        base = self.oldest
        return self.segments[max(after + 1 - base, 0) : max(last + 1 - base, 0)]

    def may_come_again(self, server: str) -> tuple[SegmentInfo, ...]:
        """Return the newest segments, as far as their entries can be the next ones of a binlog.

        If another server was read in between, and gave older values again, the same entries have to come once more.

        server: whose binlog it is, as LogPosition.server; "" if unknown.
        """
        if server and self.server and server != self.server:
            return ()
        return self.between(self.server_from - 1, self.next_seq)

    @property
    def unread_bytes(self) -> int:
        """Bytes of the segments that wait to be read."""
        return sum(segment.size_bytes for segment in self.between(self.done, self.next_seq))

    @property
    def readable(self) -> bool:
        """Whether a complete transaction waits to be read."""
        return any(segment.closed for segment in self.between(self.done, self.next_seq))

    def with_segment(self, segment: SegmentInfo, ddl: dict[str, str], epoch: Epoch, *, follows: bool) -> Manifest:
        """Return the manifest with one more segment.

        segment: the next segment.
        ddl: this segment's statements by table.
        epoch: the writer.
        follows: nothing is missing before this writer's first segment.
        """
        known = {name: sql for name, sql in self.ddl.items() if name not in ddl} | ddl
        moved = self.server and segment.last.server not in ("", self.server)
        for name in list(known)[: max(len(known) - DDL_KEPT, 0)]:
            del known[name]
        return replace(
            self,
            segments=(*self.segments, segment),
            next_seq=segment.seq + 1,
            ddl=known,
            lineage=self.lineage.with_segment(segment.seq, epoch, follows=follows),
            server=segment.last.server,
            server_from=segment.seq if moved else self.server_from,
        )

    def with_read(self, seq: int) -> Manifest:
        """Return the manifest after a micro-batch that ended with this segment."""
        if seq <= self.done:
            return self
        return replace(self, reads=(*self.reads, seq))

    def pruned(self, retain_batches: int) -> tuple[Manifest, tuple[SegmentInfo, ...]]:
        """Return the manifest without the segments that only older micro-batches need, and those segments.

        The newest segment always stays: its position separates redelivered entries from new ones.

        retain_batches: number of the latest micro-batches to keep.
        """
        if len(self.reads) <= retain_batches:
            return self, ()
        reads = self.reads[-retain_batches:]
        bound = min(self.reads[-retain_batches - 1], self.next_seq - 2)
        gone = tuple(segment for segment in self.segments if segment.seq <= bound)
        return replace(self, reads=reads, segments=self.segments[len(gone) :]), gone

    def from_first_of(self, names: Iterable[str]) -> Manifest:
        """Return the manifest without the oldest segments that are not among these files; the newest always stays."""
        there = set(names)
        missing = 0
        while missing < len(self.segments) - 1 and self.segments[missing].name not in there:
            missing += 1
        return replace(self, segments=self.segments[missing:])

    def to_bytes(self) -> bytes:
        """Return the manifest as JSON."""
        head = {"v": VERSION, "spool": self.spool, "next": self.next_seq}
        segments = ",".join([segment.text for segment in self.segments])
        rest = {
            "reads": self.reads,
            "newest_ms": self.segments[-1].last.timestamp_ms if self.segments else 0,
            "ddl": self.ddl,
            "writers": [[str(each.epoch), each.first, int(each.follows)] for each in self.lineage.writers],
            "since": self.lineage.since,
            "forgotten": self.lineage.forgotten,
            "problem": self.problem,
            "server": self.server,
            "server_from": self.server_from,
        }
        return f'{_json(head)[:-1]},"segments":[{segments}],{_json(rest)[1:]}'.encode()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> Manifest:
        """Parse a manifest. name: its name, for messages. Raises SpoolUnusable."""
        try:
            body = json.loads(data)
            if body["v"] != VERSION:
                raise SpoolUnusable(f"{name}: format {body['v']} was written by another version of canal-ha")
            segments = tuple(map(_from_list, body["segments"]))
            return cls(
                spool=str(body["spool"]),
                segments=segments,
                next_seq=int(body["next"]),
                reads=tuple(body["reads"]),
                ddl=dict(body["ddl"]),
                lineage=_lineage(body, segments),
                problem=str(body.get("problem", "")),
                server=str(body.get("server", "")),
                server_from=_int(body.get("server_from", 0)),
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolUnusable(f"{name} is not the manifest of a spool: {error}") from error


def _lineage(body: Mapping[str, Any], segments: Iterable[SegmentInfo]) -> Lineage:
    """Read the writers; if another version omitted them, derive them from the names of the segments."""
    if "writers" in body:
        writers = tuple(
            Writer(Epoch.parse(epoch), _int(first), bool(follows)) for epoch, first, follows in body["writers"]
        )
        return Lineage(writers, None if body["since"] is None else _int(body["since"]), _int(body["forgotten"]))
    lineage = Lineage(since=_int(body["next"]))
    for segment in segments:
        for epoch in of_segments([segment.name]):
            lineage = lineage.with_segment(segment.seq, epoch, follows=False)
    return lineage


def _json(body: object) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def _to_list(segment: SegmentInfo) -> list[object]:
    last = segment.last
    head = [segment.seq, segment.name, segment.size_bytes, segment.raw_bytes, segment.rows, int(segment.closed)]
    place = [last.server_id, last.journal, last.offset, last.sub_index, last.timestamp_ms, last.gtid]
    return [*head, segment.written_ms, *place]


def _from_list(item: Sequence[object]) -> SegmentInfo:
    seq, name, size, raw, rows, closed, written, server, journal, offset, sub, time_ms, gtid = item
    return SegmentInfo(
        seq=_int(seq),
        name=str(name),
        size_bytes=_int(size),
        raw_bytes=_int(raw),
        rows=_int(rows),
        closed=bool(closed),
        written_ms=_int(written),
        last=LogPosition(
            journal=str(journal),
            offset=_int(offset),
            sub_index=_int(sub),
            timestamp_ms=_int(time_ms),
            server_id=_int(server),
            gtid=str(gtid),
        ),
    )


def _int(value: object) -> int:
    if not isinstance(value, int):
        raise ValueError(f"{value!r} is not a whole number")
    return value


# ---- names of files

_CLAIM = re.compile(r"epoch-(\d{8})-([0-9a-f]+)")
_SEGMENT = re.compile(r"segment-\d{12}-(\d{8})-([0-9a-f]+)\.zst")
_MANIFEST = re.compile(r"manifest-(\d{8})-([0-9a-f]+)\.json")


def claim_name(epoch: Epoch) -> str:
    """Return the name of the file with which a writer claims an epoch."""
    return f"epoch-{epoch}"


def manifest_name(epoch: Epoch) -> str:
    """Return the name of an epoch's manifest."""
    return f"manifest-{epoch}.json"


def segment_name(epoch: Epoch, seq: int) -> str:
    """Return the name of a segment. It contains the writer, so that no two writers ever write the same file."""
    return f"segment-{seq:012d}-{epoch}.zst"


def claims(names: Iterable[str]) -> list[Epoch]:
    """Return the claimed epochs, ascending."""
    return _epochs(_CLAIM, names)


def manifests(names: Iterable[str]) -> list[Epoch]:
    """Return the epochs with a manifest, ascending."""
    return _epochs(_MANIFEST, names)


def of_segments(names: Iterable[str]) -> list[Epoch]:
    """Return the epochs of these segments' writers, ascending."""
    return _epochs(_SEGMENT, names)


def _epochs(pattern: re.Pattern[str], names: Iterable[str]) -> list[Epoch]:
    found = (pattern.fullmatch(name) for name in names)
    return sorted(Epoch(int(match[1]), match[2]) for match in found if match)
