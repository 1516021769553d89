"""A run that ends by itself while the snapshot of its client id is paused."""

from __future__ import annotations

from pathlib import Path

from canal_ha.client.message import Message
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.pipeline.flow import Flow
from canal_ha.pipeline.options import parse
from canal_ha.pipeline.source import Judge
from canal_ha.wire.messages import Fetched
from tests.pipeline import test_gaps
from tests.pipeline.given import described

PAUSED = SnapshotState("s1", ("s.t",), phase=SnapshotPhase.PAUSED, rows=10, total=20)


class Client(test_gaps.Client):
    """Gets nothing more."""

    def get_without_ack(self, batch_size: int, timeout_ms: int, *, eager: bool) -> Message:
        """See FlowClient."""
        return Message(Fetched(EMPTY_BATCH_ID, b""))


class Source(test_gaps.Source):
    """Has a client whose snapshot is paused."""

    def client(self, judge: Judge) -> Client:
        """See FlowSource."""
        self.connections = 1
        return Client(self, judge)

    def cursor(self, node: str | None) -> LogPosition | None:  # type: ignore[override]
        """See FlowSource."""
        return LogPosition("mysql-bin.000001", 4, snapshot=PAUSED.text)


def test_a_run_that_ends_by_itself_tells_that_a_snapshot_is_paused(tmp_path: Path) -> None:
    """It does not wait for the rest of the rows, which may not come for days."""
    options = parse({"servers": "n:1", "destination": "d", "snapshot": "initial", "availableNowQuietMs": "0"})
    flow = Flow(described("parquet", "mirror", tmp_path, {}), options, Source(), test_gaps.Target(), once=True)
    flow.start()
    flow.join()
    assert (flow.error, flow.state.done) == (None, True)
    assert flow.state.snapshot == "s1 has read 10 of about 20 rows, paused"
