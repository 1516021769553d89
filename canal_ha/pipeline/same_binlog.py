"""Tells whether the source still has the binlog in which a target's last committed entry is.

After RESET BINARY LOGS, journals have the same names and positions again. Times are whole seconds, and a session can
set them, so they do not tell new entries from those that come again. But the binlog of the target has an entry at the
place of the last committed one, of the same time and from the same server.
"""

from __future__ import annotations

import enum

from canal_ha.client.cluster import ClusterConnector
from canal_ha.errors import PositionLost, ServerRefused
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.progress import Progress
from canal_ha.wire.client_session import END_OF_RANGE

_FETCH_WAIT_MS = 1000
_LOST = "does not exist"  # a node's text for a position that its source does not have


class SameBinlog(enum.Enum):
    """Whether a binlog is the one in which a position was."""

    YES = "yes"
    NO = "no"
    UNCLEAR = "unclear"
    UNASKED = "the server does not tell"


def compare(
    connector: ClusterConnector, cursor: LogPosition, progress: Progress, filter: str, fetch: int
) -> SameBinlog:
    """Look for the target's last entry in the source's binlog.

    It is unclear if the binlog has no entry there, but older ones before it: an empty transaction does not always come.

    connector: connected, of a private read.
    cursor: where reading goes on; not behind the last entry.
    progress: the target's.
    filter: the pipeline's.
    fetch: of a GET.
    Raises the errors of a connector.
    """
    last = progress.last
    end = connector.read_from("latest", filter=filter)
    if end is None or end.part or end.server != last.server:
        return SameBinlog.UNASKED
    if end.order[:3] < last.order[:3]:
        return SameBinlog.NO
    begin = cursor if cursor.journal == last.journal else LogPosition(last.journal, 4)
    try:
        connector.read_from(str(begin), f"{last.journal}:{last.offset + 1}", filter)
    except (PositionLost, ServerRefused) as refused:
        if isinstance(refused, PositionLost) or _LOST in str(refused):
            return SameBinlog.NO
        raise
    older = begin is not cursor  # what is before is not read
    while True:
        try:
            message = connector.get_without_ack(fetch, _FETCH_WAIT_MS, eager=True)
        except ServerRefused as refused:
            if END_OF_RANGE in str(refused):
                return SameBinlog.UNCLEAR if older else SameBinlog.NO
            raise
        entries = message.walk()
        while entries.next():
            place = LogPosition(entries.text(entries.journal_start, entries.journal_stop), entries.offset)
            if place.order[:3] == last.order[:3]:
                same = (entries.time_ms, entries.server_id) == (last.timestamp_ms, last.server_id)
                return SameBinlog.YES if same else SameBinlog.NO
            older = older or entries.time_ms <= progress.newest_ms
        connector.ack(message.id)
