"""A flow that stands by for another process."""

from __future__ import annotations

from pathlib import Path

from canal_ha.client.message import Message
from canal_ha.errors import TargetUnavailable, WaitedTooLong
from canal_ha.pipeline.flow import Flow
from canal_ha.pipeline.options import parse
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.source import Judge
from tests.pipeline import test_gaps
from tests.pipeline.given import described
from tests.waiting import until


class Client(test_gaps.Client):
    """Stands by until its first GET has ended; then the other process has gone."""

    standing_by: str | None = "host:1"  # type: ignore[assignment]

    def connect(self) -> None:
        """See FlowClient."""

    def get_without_ack(self, batch_size: int, timeout_ms: int, *, eager: bool) -> Message:
        """See FlowClient."""
        if self._left:
            self._left.clear()
            raise WaitedTooLong("client 1001 is active at host:1")
        self.standing_by = None
        self._judge(None)
        raise AssertionError


class Source(test_gaps.Source):
    """Gives one of them on each connection."""

    def client(self, judge: Judge) -> Client:
        """See FlowSource."""
        self.connections = 1
        return Client(self, judge)


class DownTarget(test_gaps.Target):
    """Does not answer."""

    def progress(self, destination: str) -> Progress | None:
        """See PipelineTarget."""
        raise TargetUnavailable("it is down")


def test_a_flow_that_became_active_while_its_target_was_down_still_counted_as_standing_by(tmp_path: Path) -> None:
    """So `canal-ha pipeline status` had no word of the target."""
    options = parse({"servers": "node:1", "destination": "d"})
    flow = Flow(described("parquet", "mirror", tmp_path, {}), options, Source(), DownTarget())
    flow.start()
    try:
        until(lambda: "it is down" in flow.state.waiting)
        assert not flow.state.standing_by
        assert flow.state.in_charge
    finally:
        flow.stop()
        flow.join()
