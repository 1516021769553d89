"""What a flow needs of its source: a client, and answers about the binlog. A cluster or this node gives them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from canal_ha.client.message import Message
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.same_binlog import SameBinlog

Judge = Callable[[LogPosition | None], None]
"""Called on every connection with the server's cursor, before anything is fetched. Its exception ends the call."""


class FlowClient(Protocol):
    """One client id of one destination. See canal_ha.client.cluster.ClusterConnector."""

    @property
    def node(self) -> str | None:
        """Address of the node; None without a connection."""

    @property
    def connection(self) -> int:
        """Number of the connection of the last reply. A new number means: batches in flight are delivered again."""

    @property
    def standing_by(self) -> str | None:
        """Address of the active process if it is another one."""

    def connect(self) -> None:
        """Find the destination, ask the judge, and subscribe."""

    def disconnect(self) -> None:
        """Give batches in flight back."""

    def get_without_ack(self, batch_size: int, timeout_ms: int, *, eager: bool) -> Message:
        """Return the next batch; empty if none came in time. Raises WaitedTooLong and ConnectionLost."""

    def ack(self, batch_id: int, mark: str) -> None:
        """Acknowledge the oldest batch in flight. One of a lost connection is ignored."""

    def stop_running(self) -> None:
        """End waiting calls; safe in a signal handler."""


class FlowSource(Protocol):
    """Access to one destination. See canal_ha.pipeline.access.SourceAccess."""

    destination: str

    def client(self, judge: Judge) -> FlowClient:
        """Return the client, not connected."""

    def cursor(self, node: str | None) -> LogPosition | None:
        """Return the server's cursor of the client id; None if it is not told. node: of the client."""

    def end(self) -> LogPosition | None:
        """Return the present end of the source's binlog; None if the server does not tell it."""

    def changes_between(self, node: str | None, begin: LogPosition, end: LogPosition) -> bool:
        """Return whether there are entries behind `begin`, up to `end`."""

    def same_binlog(self, cursor: LogPosition, progress: Progress) -> SameBinlog:
        """Return whether the source still has the binlog of the target's last entry. cursor: not behind that."""

    def read_again(self, node: str | None, tables: Sequence[str], gone: Sequence[str] = ()) -> None:
        """Have tables read from their first row. gone: left out of an unfinished snapshot if they are gone."""
