"""Compares the server's cursor with a target: does the target have everything before the cursor? Pure.

Each acknowledgement carries the target's progress as a mark, which the server stores with the cursor. A cursor without
a mark was moved by another client, by an operator, or to another server; then only positions can be compared.
"""

from __future__ import annotations

import re

from canal_ha.errors import CanalError, ClientIdTaken, DataLoss
from canal_ha.model.position import LogPosition, split_journal
from canal_ha.pipeline.progress import Progress

_MARK = re.compile(r"pipeline ([^ ]{1,100}) commit ([0-9]{1,18})")


def judge(cursor: LogPosition | None, progress: Progress | None, where: str) -> CanalError | None:
    """Return why the target cannot go on from the cursor; None if it can, or if that is unknown.

    cursor: the server's, with its mark; None from a server that does not send it.
    progress: the target's; None before its first commit.
    where: pipeline, client id and destination, for messages.
    """
    if cursor is None or (progress is not None and cursor.mark and cursor.mark == progress.given_up):
        return None
    if cursor.mark:
        found = _MARK.fullmatch(cursor.mark)
        if found is None or progress is None or found[1] != progress.run:
            return _taken(cursor, progress, where)
        return _lost(cursor, progress, where) if int(found[2]) > progress.seq else None
    if progress is not None and progress.seq and _is_behind(progress.last, cursor):
        return _lost(cursor, progress, where)
    return None


def begins_anew(cursor: LogPosition | None, progress: Progress) -> bool:
    """Return whether the next commits need a new run's name: their positions or numbers may repeat earlier ones.

    That is so if changes are given up, and if the binlog began again: the cursor is before the target's end, and no
    older than that. Times are whole seconds, and sessions set them: see may_be_another_binlog.
    """
    if cursor is None or not progress.seq or (cursor.mark and cursor.mark == progress.given_up):
        return False
    if cursor.mark:
        found = _MARK.fullmatch(cursor.mark)
        return found is None or found[1] != progress.run or int(found[2]) > progress.seq
    last = progress.last
    return cursor.order[:3] < last.order[:3] and not 0 < cursor.timestamp_ms <= last.timestamp_ms


def may_be_another_binlog(cursor: LogPosition | None, progress: Progress) -> bool:
    """Return whether only the source tells if the binlog began again: no acknowledgement moved the cursor there.

    Servers that do not name themselves, and the sources of a merged stream, cannot be asked for one place.
    """
    if cursor is None or cursor.mark or cursor.part or not progress.seq:
        return False
    last = progress.last
    same_server = bool(cursor.server) and cursor.server == last.server
    return same_server and cursor.order[:3] < last.order[:3]


def unclear(cursor: LogPosition, progress: Progress, where: str) -> DataLoss:
    """Return the error for entries that are new, or known, and nothing tells which. The arguments are those of judge.

    cursor: without a mark.
    """
    last = progress.last
    return DataLoss(
        f"canal: {where}: something moved the cursor back to {cursor}, and the target ends at {last}, where the"
        " source's binlog has no entry of the pipeline's tables. Either its binary logs were reset: then all changes"
        " from the cursor on are new. Or the target has those up to its end. Nothing was read. To take all of them"
        " over, those that the target has a second time: set failOnDataLoss to false and start it. If the target has"
        f" them: run `canal-ha cursor set` with --to {last.journal}:{last.offset} for this destination and client id,"
        " and start it"
    )


def _is_behind(last: LogPosition, cursor: LogPosition) -> bool:
    """Return whether `last` is before the cursor. Positions in binlogs of several servers tell nothing."""
    base, number = split_journal(cursor.journal)
    known, reached = split_journal(last.journal)
    if cursor.part or base != known or (cursor.server and last.server and cursor.server != last.server):
        return False
    if (number, cursor.offset) <= (reached, last.offset):
        return False
    # later by position but earlier by time: a position in another binlog
    return not 0 < cursor.timestamp_ms < last.timestamp_ms


def _taken(cursor: LogPosition, progress: Progress | None, where: str) -> ClientIdTaken:
    mine = "has no progress" if progress is None else f"is {progress.mark!r}"
    return ClientIdTaken(
        f"canal: {where}: the client id is in use by something else: {cursor.mark!r} acknowledged the cursor at"
        f" {cursor}, and this target {mine}. Each would miss what the other one reads. Give this pipeline a clientId of"
        " its own. If the other one is no longer used: unsubscribe the client id, and fill this target with a snapshot"
    )


def _lost(cursor: LogPosition, progress: Progress, where: str) -> DataLoss:
    who = (
        f"it acknowledged them itself ({cursor.mark}), so it was restored from an older copy"
        if cursor.mark
        else "another client or an operator moved the cursor there"
    )
    last = progress.last
    return DataLoss(
        f"canal: {where}: changes are missing in the target: it ends at {last}, and the server's cursor is at {cursor},"
        f" because {who}. To have them delivered again: stop the pipeline, run `canal-ha cursor set` with"
        f" --to {last.journal}:{last.offset} for this destination and client id, and start it; this works as long as"
        f" the source keeps {last.journal}. To give them up: set failOnDataLoss to false"
    )
