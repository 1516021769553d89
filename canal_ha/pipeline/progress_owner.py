"""Tells whether the progress in a target is that of this pipeline: two of them must not share one. Pure.

A target keeps one progress for each destination, some targets one for each name of a pipeline, too. A second pipeline
that goes on from it would leave out what only the first one has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from canal_ha.errors import SinkRefused
from canal_ha.model.position import LogPosition

if TYPE_CHECKING:
    from canal_ha.pipeline.progress import Progress


@dataclass(frozen=True, slots=True)
class ProgressOwner:
    """The pipeline that writes a progress.

    pipeline: its name.
    client_id: with which it reads; 0 if that is unknown, as in a task of Spark.
    servers: host:port of its ZooKeeper servers or nodes, with commas; "" if they are unknown.
    """

    pipeline: str
    client_id: int = 0
    servers: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"pipeline": self.pipeline, "clientId": self.client_id, "servers": self.servers}

    @classmethod
    def from_dict(cls, body: Any) -> ProgressOwner:
        """Read what `to_dict` returned. Raises KeyError, TypeError and ValueError."""
        return cls(str(body["pipeline"]), int(body["clientId"]), str(body["servers"]))

    def __str__(self) -> str:
        client = f"client id {self.client_id}" if self.client_id else ""
        reads = " at ".join(part for part in (client, self.servers) if part)
        return f"pipeline {self.pipeline!r}{f' ({reads})' if reads else ''}"

    def reads_as(self, other: ProgressOwner) -> bool:
        """Return whether both read with one client id from servers of which they share one, as far as that is known."""
        mine, others = (set(each.servers.partition("/")[0].split(",")) for each in (self, other))
        same_id = self.client_id == other.client_id or not (self.client_id and other.client_id)
        return same_id and (bool(mine & others) or "" in mine | others)


def foreign(
    progress: Progress | None, mine: ProgressOwner, where: str, cursor: LogPosition | None = None
) -> SinkRefused | None:
    """Return why a progress is not for this pipeline; None if it is.

    The name decides. With the same name, the cursor does: if it has the progress's mark, this pipeline acknowledged it,
    wherever its servers are now.

    progress: of the target; None before the first commit.
    mine: this pipeline.
    where: pipeline, client id and destination, for messages.
    cursor: the server's, with its mark; None if it is unknown.
    """
    owner = progress.owner if progress is not None else None
    if progress is None or owner is None:
        return None
    if owner.pipeline != mine.pipeline:
        way = (
            "Give each pipeline a target of its own, such as another path. If this is the same pipeline, give it the"
            f" name {owner.pipeline!r} back"
        )
    elif cursor is None or owner.reads_as(mine) or _is_acknowledged(cursor, progress):
        return None
    else:
        way = (
            "Give each pipeline a name and a target of its own. If this is the same pipeline, give it client id"
            f" {owner.client_id} back, and, if its servers have moved, list one of {owner.servers} beside the new ones"
            " for one start"
        )
    return SinkRefused(
        f"canal: {where}: the target has the progress of another pipeline: of {owner}, and this is {mine}. With one"
        f" progress, each would leave out what only the other one has. Nothing was written. {way}"
    )


def _is_acknowledged(cursor: LogPosition, progress: Progress) -> bool:
    """Return whether the progress's run moved the cursor."""
    given_up = bool(cursor.mark) and cursor.mark == progress.given_up
    return given_up or cursor.mark.startswith(f"pipeline {progress.run} commit ")
