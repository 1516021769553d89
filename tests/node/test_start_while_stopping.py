"""A destination of a node without ZooKeeper starts while it stops. Its cursors are in a file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import Deferred

from canal_ha.config.model import CanalConfig, InstanceConfig, SourceConfig
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.instance import Instance
from canal_ha.meta.files import FileBackend
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.node.claims import UndisputedClaim
from canal_ha.node.hosting import Hosting
from canal_ha.node.instance_log import InstanceLog
from canal_ha.node.lone_placements import LonePlacements
from canal_ha.node.queues import Queues
from canal_ha.server.audit import Audit
from tests.instance.test_embedded import ClosingOrigin, OneThread, Silent, blocking
from tests.instance.test_stop import begun
from tests.instance.test_stream import now

T = TypeVar("T")
CURSOR = LogPosition("mysql-bin.000001", 500)


class SlowDisk:
    """A pool that runs calls at once, or keeps them while it is slow."""

    def __init__(self) -> None:
        self.slow = False
        self._kept: list[Callable[[], None]] = []

    def __call__(self, call: Callable[[], T], /) -> Deferred[T]:
        """See RunBlocking."""
        if not self.slow:
            return blocking(call)
        done: Deferred[T] = Deferred()
        self._kept.append(lambda: done.callback(call()))
        return done

    def catch_up(self) -> None:
        """Run what was kept."""
        self.slow, kept, self._kept = False, self._kept, []
        for call in kept:
            call()


class FileAssembly:
    """Makes instances with cursors in files."""

    def __init__(self, embedded: Embedded, disk: SlowDisk) -> None:
        self._embedded = embedded
        self._disk = disk
        self.closed = False

    def alone(self, config: InstanceConfig, gave_up: object) -> Instance:
        """See Assembly."""
        return Instance(
            config,
            ClosingOrigin(),
            lambda edits: FileBackend(config.data_dir, config.destination, self._disk),
            UndisputedClaim(lambda error: None),
            OneThread(),
            run_blocking=blocking,
            log=Silent(),
            flush_period_ms=1000,
            batch_ids=self._embedded.batch_ids,
        )

    def close(self) -> None:
        """See Assembly."""
        self.closed = True


class SlowQueues(Queues):
    """Its flows end when the test says so."""

    ending: Deferred[None] | None = None
    broken = ""  # the destination whose flow cannot be stopped

    async def stop(self, destination: str, *, orderly: bool) -> None:
        """See Queues."""
        if destination == self.broken:
            raise RuntimeError("no queue")
        if self.ending is not None:
            await self.ending


class FileHosting(Hosting):
    """Hosts `example`, which runs, and has a client with an acknowledged cursor that is not written yet."""

    def __init__(self, directory: Path) -> None:
        clock, self.embedded, self.disk = OneThread(), Embedded(), SlowDisk()
        audit = Audit(clock, lambda line: None)
        super().__init__(CanalConfig(directory, ()), clock, self.embedded, audit)
        self.configured["example"] = InstanceConfig("example", SourceConfig("127.0.0.1"), data_dir=directory)
        self._assembly: Any = FileAssembly(self.embedded, self.disk)
        self.queues = self.slow_queues = SlowQueues(clock, self.embedded, InstanceLog(audit))
        now(self.start_alone("example"))
        now(self.embedded.subscribe(ClientIdentity("example", 1001)))
        running = self.embedded.running("example")
        assert running is not None
        running.meta.move(1001, CURSOR)

    def cursor(self) -> LogPosition | None:
        """Return the client's cursor; None also if the destination does not run."""
        running = self.embedded.running("example")
        return running.meta.cursor(1001) if running else None


@pytest.fixture
def hosting(tmp_path: Path) -> FileHosting:
    return FileHosting(tmp_path)


def test_a_resumption_during_the_stop_of_a_pause_delivers_no_row_again(hosting: FileHosting) -> None:
    """It waits for the last flush, and the cursor is the acknowledged one."""
    placements = LonePlacements("10.0.0.1:11111", hosting)
    hosting.disk.slow = True
    paused = begun(placements.pause("example", dry_run=False))
    resumed = begun(placements.resume("example", dry_run=False))
    assert (paused, resumed) == ([], [])
    hosting.disk.catch_up()
    assert (paused, resumed) == (["10.0.0.1:11111"], ["10.0.0.1:11111"])
    assert hosting.cursor() == CURSOR


def test_a_resumption_while_the_queue_of_a_paused_destination_ends_is_not_lost(hosting: FileHosting) -> None:
    """The instance still runs then, and stops afterwards."""
    placements = LonePlacements("10.0.0.1:11111", hosting)
    hosting.slow_queues.ending = ending = Deferred[None]()
    paused = begun(placements.pause("example", dry_run=False))
    resumed = begun(placements.resume("example", dry_run=False))
    assert (paused, resumed) == ([], [])
    ending.callback(None)
    assert (len(paused), resumed, hosting.cursor()) == (1, ["10.0.0.1:11111"], CURSOR)


def test_files_that_are_deleted_after_the_end_of_a_destination_stay_deleted(
    hosting: FileHosting, tmp_path: Path
) -> None:
    """The end includes the last flush, which would make the cursor file again."""
    hosting.disk.slow = True
    stopped, ended = begun(hosting.stop_alone("example")), begun(hosting.ended("example"))
    assert (stopped, ended) == ([], [])
    hosting.disk.catch_up()
    assert (stopped, ended) == ([None], [None])
    shutil.rmtree(tmp_path / "example")
    assert begun(hosting.ended("example")) == [None]
    assert not (tmp_path / "example").exists()


def test_a_destination_that_was_removed_while_it_stopped_does_not_start(hosting: FileHosting) -> None:
    """The start that waits asks again what is configured."""
    hosting.disk.slow = True
    stopped, started = begun(hosting.stop_alone("example")), begun(hosting.start_alone("example"))
    del hosting.configured["example"]
    hosting.disk.catch_up()
    assert (stopped, started, hosting.runs("example")) == ([None], [None], False)


def test_a_node_that_stops_waits_for_destinations_that_are_stopping_already(hosting: FileHosting) -> None:
    """Else its process would end before their last flush."""
    hosting.disk.slow = True
    paused = begun(hosting.stop_alone("example"))
    stopped = begun(hosting.stop_all())
    assert (paused, stopped) == ([], [])
    hosting.disk.catch_up()
    assert (paused, stopped) == ([None], [None])


def test_pools_end_when_a_destination_cannot_stop_and_not_before_the_others_have(
    hosting: FileHosting, tmp_path: Path
) -> None:
    """One that raises keeps no thread of the node alive, and takes no pool from the last flush of another one."""
    hosting.configured["broken"] = InstanceConfig("broken", SourceConfig("127.0.0.1"), data_dir=tmp_path)
    now(hosting.start_alone("broken"))
    hosting.slow_queues.broken = "broken"
    hosting.disk.slow = True
    stopped = begun(hosting.stop_all())
    assert (stopped, hosting._assembly.closed) == ([], False)
    hosting.disk.catch_up()
    assert ([str(each) for each in stopped], hosting._assembly.closed) == (["no queue"], True)
