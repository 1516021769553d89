"""A transaction without rows: it carries the progress of a snapshot when a chunk has no rows for the stream. Pure."""

from __future__ import annotations

from array import array
from dataclasses import replace
from itertools import accumulate

from canal_ha.decode.kernel.primitives import varint
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment, Source
from canal_ha.model.snapshot import SnapshotState
from canal_ha.wire.proto import entry_protocol_pb2 as pb


def marker(at: LogPosition, source: Source) -> Segment:
    """Return the begin and the end of a transaction at this position. source: of the stream's segments."""
    header = pb.Header(
        version=1,
        logfileName=at.journal,
        logfileOffset=at.offset,
        serverId=at.server_id or 0,
        serverenCode="UTF-8",
        executeTime=at.timestamp_ms,
        sourceType=pb.MYSQL,
    )
    entries = [
        pb.Entry(header=header, entryType=kind, storeValue=store.SerializeToString()).SerializeToString()
        for kind, store in (
            (pb.TRANSACTIONBEGIN, pb.TransactionBegin()),
            (pb.TRANSACTIONEND, pb.TransactionEnd(transactionId="")),
        )
    ]
    frames = [b"\x12" + varint(len(entry)) + entry for entry in entries]
    return Segment(
        source=source,
        journal=at.journal,
        frames=b"".join(frames),
        ends=array("q", accumulate(map(len, frames))),
        offsets=array("q", [at.offset] * 2),
        subs=array("i", [at.sub_index] * 2),
        timestamps=array("q", [at.timestamp_ms] * 2),
        event_lengths=array("q", [0] * 2),
        row_counts=array("i", [0] * 2),
        kinds=bytes([EntryKind.BEGIN, EntryKind.END]),
        run_starts=array("q", [0]),
        run_server_ids=array("q", [at.server_id or 0]),
        run_gtids=(at.gtid or "",),
        entry_ends=array("q", accumulate(map(len, entries))),
        row_ends=array("q", [0, 0]),
    )


def ending(segment: Segment, at: LogPosition, after: SnapshotState) -> Segment:
    """Return a segment of a snapshot with the cursor once it is acknowledged.

    at: the boundary where it stands. after: the state then.
    """
    return replace(segment, chunk_end=replace(at, trail="", mark="", snapshot=after.text))
