"""A flow commits nothing behind changes that another connection with its client id got."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from canal_ha.client.message import Message
from canal_ha.errors import WaitedTooLong
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.flow import Flow
from canal_ha.pipeline.options import parse
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.same_binlog import SameBinlog
from canal_ha.pipeline.source import Judge
from canal_ha.wire.messages import Fetched
from tests.pipeline.given import described
from tests.spark.entries import begin, end, frames


def batch(number: int, *transactions: int) -> Message:
    """Return a batch of transactions."""
    entries = [entry for each in transactions for entry in (begin(each * 100), end(each * 100 + 50))]
    return Message(Fetched(number, frames(entries)))


CONNECTIONS = (
    (batch(3, 1), batch(5, 3)),  # another connection got batch 4, which has transaction 2
    (batch(6, 1, 2, 3), Message(Fetched(EMPTY_BATCH_ID, b""))),
)


class Client:
    """A client whose connections give what CONNECTIONS says."""

    node = "node"
    standing_by = None

    def __init__(self, source: Source, judge: Judge) -> None:
        self.connection = source.connections
        self._judge = judge
        self._left = list(CONNECTIONS[source.connections - 1])

    def connect(self) -> None:
        """See FlowClient."""
        self._judge(None)

    def disconnect(self) -> None:
        """See FlowClient."""

    def get_without_ack(self, batch_size: int, timeout_ms: int, *, eager: bool) -> Message:
        """See FlowClient."""
        if not self._left:
            raise WaitedTooLong("nothing")
        return self._left.pop(0)

    def ack(self, batch_id: int, mark: str) -> None:
        """See FlowClient."""

    def stop_running(self) -> None:
        """See FlowClient."""


class Source:
    """The access to a destination."""

    destination = "d"

    def __init__(self) -> None:
        self.connections = 0

    def client(self, judge: Judge) -> Client:
        """See FlowSource."""
        self.connections += 1
        return Client(self, judge)

    def cursor(self, node: str | None) -> None:
        """See FlowSource."""

    def end(self) -> None:
        """See FlowSource."""

    def changes_between(self, node: str | None, begin: LogPosition, end: LogPosition) -> bool:
        """See FlowSource."""
        return False

    def same_binlog(self, cursor: LogPosition, progress: Progress) -> SameBinlog:
        """See FlowSource."""
        return SameBinlog.UNASKED

    def read_again(self, node: str | None, tables: Sequence[str], gone: Sequence[str] = ()) -> None:
        """See FlowSource."""


class Target:
    """Keeps the offsets of the last entry of each commit."""

    def __init__(self) -> None:
        self.commits: list[int] = []
        self._progress: Progress | None = None

    def check(self) -> str:
        """See PipelineTarget."""
        return ""

    def stored(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        return self._progress

    progress = stored

    def commit(self, portion: Portion) -> None:
        """See PipelineTarget."""
        self._progress = portion.progress
        if portion.frames:
            self.commits.append(portion.progress.last.offset)

    def close(self) -> None:
        """See PipelineTarget."""


def test_changes_behind_a_missing_batch_are_not_committed(tmp_path: Path) -> None:
    """The flow begins again at the cursor, and gets everything."""
    target, source = Target(), Source()
    options = parse({"servers": "node:1", "destination": "d", "availableNowQuietMs": "0"})
    flow = Flow(described("parquet", "mirror", tmp_path, {}), options, source, target, once=True)
    flow.start()
    flow.join()
    assert flow.error is None
    assert source.connections == 2
    assert target.commits == [350]
