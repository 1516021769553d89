"""Whether the source still has the binlog of the target's last entry, and what a flow does then."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.message import Message
from canal_ha.errors import CanalError, DataLoss, ServerRefused
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.flow import Flow
from canal_ha.pipeline.options import parse
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.same_binlog import SameBinlog, compare
from canal_ha.pipeline.source import Judge
from canal_ha.wire.client_session import END_OF_RANGE
from canal_ha.wire.messages import Fetched
from tests.pipeline import test_gaps as gaps
from tests.pipeline.given import described
from tests.spark.entries import begin, end, frames, insert

CURSOR = LogPosition("bin.000001", 4, 0, 1, server="a")


def transaction(offset: int, key: int, time: int) -> list[bytes]:
    """Return a transaction that ends 20 bytes behind its begin."""
    return [begin(offset, time=time), insert(offset + 10, key, time=time), end(offset + 20, time=time)]


class Read:
    """A private read of a binlog."""

    def __init__(self, entries: list[bytes], reaches: LogPosition) -> None:
        self._entries = entries
        self._end = reaches

    def read_from(self, place: str, until: str = "", filter: str = "") -> LogPosition:
        """See ClusterConnector."""
        return self._end

    def get_without_ack(self, batch_size: int, timeout_ms: int, *, eager: bool) -> Message:
        """See ClusterConnector."""
        if not self._entries:
            raise ServerRefused(END_OF_RANGE)
        entries, self._entries = self._entries, []
        return Message(Fetched(1, frames(entries)))

    def ack(self, batch_id: int) -> None:
        """See ClusterConnector."""


@pytest.mark.parametrize(
    ("entries", "reaches", "expected"),
    [
        ([*transaction(500, 1, 10_000), *transaction(900, 2, 10_000)], 2000, SameBinlog.YES),
        ([*transaction(500, 1, 10_000), *transaction(900, 2, 11_000)], 2000, SameBinlog.NO),
        (transaction(500, 1, 11_000), 2000, SameBinlog.NO),
        (transaction(500, 1, 10_000), 2000, SameBinlog.UNCLEAR),
        (transaction(500, 1, 10_000), 600, SameBinlog.NO),
    ],
    ids=["same", "another entry there", "all is newer", "nothing there", "shorter"],
)
def test_the_last_entry_tells_the_binlog(entries: list[bytes], reaches: int, expected: SameBinlog) -> None:
    """If nothing is at its place, times decide, unless an entry before it is old enough to be known."""
    done = Progress("r", 3, LogPosition("bin.000001", 920, 10_000, 1, server="a"), 10_000)
    read = Read(entries, replace(CURSOR, offset=reaches))
    assert compare(cast(ClusterConnector, read), CURSOR, done, "", 100) is expected


def flow_gets(
    target: Rows, directory: Path, cursor: LogPosition | None, found: SameBinlog, *entries: bytes, **options: str
) -> CanalError | None:
    """Run a flow that gets entries; return its error."""

    class Client(gaps.Client):
        def __init__(self, source: gaps.Source, judge: Judge) -> None:
            self.connection = 1
            self._judge = judge
            self._left = [Message(Fetched(1, frames(entries))), *[Message(Fetched(EMPTY_BATCH_ID, b""))] * 3]

        def connect(self) -> None:
            self._judge(cursor)

    class Source(gaps.Source):
        def client(self, judge: Judge) -> gaps.Client:
            return Client(self, judge)

        def same_binlog(self, cursor: LogPosition, progress: Progress) -> SameBinlog:
            return found

    given: dict[str, Any] = {"servers": "node:1", "destination": "d", "availableNowQuietMs": "0", **options}
    flow = Flow(described("parquet", "changelog", directory, {}), parse(given), Source(), target, once=True)
    flow.start()
    flow.join()
    return flow.error


class Rows(gaps.Target):
    """Keeps the keys of all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[int] = []

    def commit(self, portion: Portion) -> None:
        """See PipelineTarget."""
        super().commit(portion)
        self.keys += [int(str(row.after["id"])) for row in portion.changes() if row.after]


@pytest.mark.parametrize("newest", [10_000, 2**31 * 1000], ids=["same second", "future"])
def test_rows_after_a_reset_of_the_binary_logs_are_not_dropped(newest: int, tmp_path: Path) -> None:
    """Neither within the second of the last commit nor after a row from the future."""
    target = Rows()
    before = [*transaction(500, 1, newest), *transaction(900, 2, 10_000)]
    assert flow_gets(target, tmp_path, CURSOR, SameBinlog.UNASKED, *before) is None
    anew = [*transaction(150, 3, 10_000), *transaction(300, 4, 10_000), *transaction(1000, 5, 11_000)]
    assert flow_gets(target, tmp_path, CURSOR, SameBinlog.NO, *anew) is None
    assert target.keys == [1, 2, 3, 4, 5]
    again = [*anew, *transaction(1100, 6, 11_000)]
    assert flow_gets(target, tmp_path, CURSOR, SameBinlog.YES, *again) is None
    assert target.keys == [1, 2, 3, 4, 5, 6]


def test_an_unclear_binlog_stops_the_flow(tmp_path: Path) -> None:
    """Nothing is dropped and nothing comes twice, unless the file allows it."""
    target = Rows()
    old = transaction(500, 1, 10_000)
    assert flow_gets(target, tmp_path, CURSOR, SameBinlog.UNASKED, *old) is None
    error = flow_gets(target, tmp_path, CURSOR, SameBinlog.UNCLEAR, *old)
    assert isinstance(error, DataLoss)
    assert "failOnDataLoss" in str(error)
    assert target.keys == [1]
    assert flow_gets(target, tmp_path, CURSOR, SameBinlog.UNCLEAR, *old, failOnDataLoss="false") is None
    assert target.keys == [1, 1]


def test_a_row_from_the_future_does_not_end_the_comparison_of_times(tmp_path: Path) -> None:
    """A server that does not name itself is not asked. Rows of another second are new."""
    target = Rows()
    before = [*transaction(500, 1, 2**50), *transaction(900, 2, 10_000)]
    assert flow_gets(target, tmp_path, None, SameBinlog.UNASKED, *before) is None
    assert target._progress is not None
    target._progress = replace(target._progress, newest_ms=2**50)  # of an earlier version
    anew = transaction(150, 3, 2**49)
    assert flow_gets(target, tmp_path, None, SameBinlog.UNASKED, *anew) is None
    assert target.keys == [1, 2, 3]
