"""Portions of given entries, for tests of targets without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from canal_ha.model.position import LogPosition
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.targets.target import PipelineTarget
from tests.spark import entries as made

JOURNAL = "bin.000001"


class Writer:
    """Commits one portion after the other, as a flow does.

    target: where they go.
    transforms, keys: of the pipeline.
    """

    def __init__(
        self,
        target: PipelineTarget,
        destination: str = "d",
        transforms: Sequence[Mapping[str, Any]] = (),
        keys: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.target = target
        self.reader = ChangeReader(lambda schema, table: True, transforms=transforms, keys=keys)
        stored = target.progress(destination)
        self.progress = stored or Progress("run", 0, LogPosition("", 0), 0)
        self._destination = destination
        if stored is None:
            target.commit(Portion(destination, b"", self.progress, 0, True, self.reader))

    def portion(self, *entries: bytes, offset: int, server: str = "uuid") -> Portion:
        """Return the next portion. offset: of its last entry. server: whose binlog it is."""
        last = LogPosition(JOURNAL, offset, server_id=1, server=server)
        after = self.progress.after(last, 1000)
        return Portion(self._destination, made.frames(entries), after, len(entries), True, self.reader)

    def commit(self, *entries: bytes, offset: int, server: str = "uuid") -> None:
        """Commit entries."""
        portion = self.portion(*entries, offset=offset, server=server)
        self.target.commit(portion)
        self.progress = portion.progress
