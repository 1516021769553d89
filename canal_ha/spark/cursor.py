"""Compares the server's cursor with a spool: does the spool hold everything before the cursor? Pure.

Each acknowledgement carries a mark with spool, writer and number of the newest segment. The server stores the mark with
the cursor. A cursor without a mark was moved by another client; then only positions can be compared.
"""

from __future__ import annotations

import re
from enum import Enum

from canal_ha.model.position import LogPosition, split_journal
from canal_ha.spark.lineage import Epoch, ReportedProgress
from canal_ha.spark.manifest import Manifest

_MARK = re.compile(r"spool ([0-9A-Za-z_-]{1,64}) writer ([0-9]{1,8}-[0-9a-f]{1,16}|none) segment (-1|[0-9]{1,18})")


class CursorVerdict(Enum):
    """The result of a comparison."""

    FOLLOWS = "everything before the cursor is in the spool"
    UNKNOWN = "the cursor and the spool cannot be compared"
    LOST = "the cursor is after the spool's end"
    FOREIGN = "another spool or client moved the cursor"


def mark(manifest: Manifest) -> str:
    """Return the mark of an acknowledgement of durable entries."""
    return mark_of(manifest, manifest.next_seq - 1)


def mark_of(manifest: Manifest, seq: int) -> str:
    """Return the mark of everything up to a segment; -1 for nothing."""
    return f"spool {manifest.spool} writer {manifest.lineage.writer_of(seq) or 'none'} segment {seq}"


def claim_of(mark: str, manifest: Manifest) -> ReportedProgress | None:
    """Return what a mark claims to have of a spool; None if it is not a mark of this spool."""
    found = _MARK.fullmatch(mark)
    if found is None or found[1] != manifest.spool:
        return None
    return ReportedProgress(int(found[3]), None if found[2] == "none" else Epoch.parse(found[2]))


def judge(cursor: LogPosition | None, manifest: Manifest) -> CursorVerdict:
    """Compare the cursor with the spool, before any batch is fetched.

    cursor: the server's cursor with its mark; None from a server that does not send it.
    manifest: the spool's current manifest.
    """
    if cursor is None:
        return CursorVerdict.UNKNOWN
    if cursor.mark:
        claim = claim_of(cursor.mark, manifest)
        if claim is None:
            return CursorVerdict.FOREIGN
        return CursorVerdict.FOLLOWS if manifest.lineage.covered(claim, manifest.next_seq)[1] else CursorVerdict.LOST
    if manifest.last is None:
        return CursorVerdict.FOLLOWS
    return _by_position(cursor, manifest.last)


def _by_position(cursor: LogPosition, last: LogPosition) -> CursorVerdict:
    """Compare positions of one server; those of several servers, or of another one after a switch, are UNKNOWN."""
    base, number = split_journal(cursor.journal)
    known, reached = split_journal(last.journal)
    if cursor.part or base != known or (cursor.server and last.server and cursor.server != last.server):
        return CursorVerdict.UNKNOWN
    if cursor.server_id is not None and last.server_id is not None and cursor.server_id != last.server_id:
        return CursorVerdict.UNKNOWN
    if (number, cursor.offset) <= (reached, last.offset):
        return CursorVerdict.FOLLOWS
    if cursor.server_id is None and 0 < cursor.timestamp_ms < last.timestamp_ms:
        return CursorVerdict.UNKNOWN  # later by position but earlier by time: a position in another binlog
    return CursorVerdict.LOST
