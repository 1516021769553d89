"""Assembly: builds the instance of one destination from its configuration.

Files of cursors are written in threads of their own, and what may read a source's journals has threads of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from canal_ha.cluster.ownership import Ownership
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig
from canal_ha.errors import CanalError
from canal_ha.instance.claim import Claim
from canal_ha.instance.instance import Instance
from canal_ha.instance.origin import Origin
from canal_ha.instance.rounds import Rounds
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.meta.files import FileBackend
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import CursorEdits, MetaBackend, OpenBackend
from canal_ha.model.tell import Tell
from canal_ha.node.claims import OwnedClaim, UndisputedClaim
from canal_ha.node.group import GroupOrigin
from canal_ha.node.growing_pool import GrowingPool
from canal_ha.node.instance_log import InstanceLog
from canal_ha.node.origin import FilesOrigin
from canal_ha.node.upstreams import Upstreams
from canal_ha.node.waiting_znodes import ReactorZnodes
from canal_ha.source.connection.reactor_reads import ReactorReads
from canal_ha.source.history.stores import HistoryClaim
from canal_ha.source.server.tap import Taps

T = TypeVar("T")
TURNS = 20  # of the regular chores of all instances, within each period
CURSOR_THREADS = 4  # that write files of cursors; questions to a source that hangs take none of them
THREADS = 16  # of each of the next two, while their calls end
QUESTION_THREADS = 400  # that ask sources, if these hang
LONG_THREADS = 200  # that search journals or read a table history; no look at a source waits for them


class Assembly:
    """Builds the instances of one node. None of them is started here."""

    def __init__(self, config: CanalConfig, reactor: Any, log: InstanceLog, batch_ids: BatchIds) -> None:
        """Keep what the instances have in common.

        config: the node's.
        reactor: Twisted's.
        log: hears what happens to the instances.
        batch_ids: gives the ids of batches, for as long as the process lives.
        """
        self._config = config
        self._reactor = reactor
        self._log = log
        self._batch_ids = batch_ids
        self._reads = ReactorReads(reactor)
        self._taps = Taps(self._reads)
        self._rounds = Rounds(reactor, TURNS, lambda: self._reads.behind)
        self._cursor_pool = ThreadPool(0, CURSOR_THREADS, "cursors")
        self._cursor_pool.start()
        self._questions = GrowingPool(reactor, "questions", THREADS, QUESTION_THREADS)
        self._long_work = GrowingPool(reactor, "long", THREADS, LONG_THREADS)

    @property
    def taps(self) -> Taps:
        """The dumps for many streams of a server."""
        return self._taps

    def close(self) -> None:
        """End the threads and the taps, after the instances have stopped."""
        self._taps.close()
        self._cursor_pool.stop()
        self._questions.stop()
        self._long_work.stop()

    def owned(self, config: InstanceConfig, ownership: Ownership) -> Instance:
        """Build an instance that runs while this node owns the destination in ZooKeeper."""

        def open_backend(edits: CursorEdits) -> MetaBackend:
            if config.cursor_place is CursorPlace.ZOOKEEPER:
                return ownership.meta(
                    replaced=edits.cursor_replaced,
                    lost=edits.cursor_lost,
                    skipped=edits.nodes_skipped,
                    mended=edits.client_mended,
                )
            return self.cursors(config)

        history = HistoryClaim(config.destination, ownership.epoch, ReactorZnodes(ownership, self._reactor))
        return self._instance(config, OwnedClaim(ownership), open_backend, self._config.zk_flush_period_ms, history)

    def alone(self, config: InstanceConfig, gave_up: Callable[[CanalError], None]) -> Instance:
        """Build an instance for a node without ZooKeeper. gave_up: called when the instance cannot go on."""

        def open_backend(edits: CursorEdits) -> MetaBackend:
            return self.cursors(config)

        return self._instance(config, UndisputedClaim(gave_up), open_backend, config.file_flush_period_ms)

    def cursors(self, config: InstanceConfig) -> MetaBackend:
        """Return where a node keeps cursors by itself. Without ZooKeeper the default template keeps them in files."""
        if config.cursor_place is CursorPlace.MEMORY:
            return MemoryBackend()
        return FileBackend(config.data_dir, config.destination, self._write_cursors)

    def _write_cursors(self, call: Callable[[], T]) -> Awaitable[T]:
        return deferToThreadPool(self._reactor, self._cursor_pool, call)

    def _instance(
        self,
        config: InstanceConfig,
        claim: Claim,
        open_backend: OpenBackend,
        flush_period_ms: int,
        history: HistoryClaim | None = None,
    ) -> Instance:
        def tell(name: str, /, *, alarm: bool = False, **facts: object) -> None:
            self._reactor.callFromThread(lambda: self._log.event(config.destination, name, alarm=alarm, **facts))

        return Instance(
            config,
            origin_of(config, tell, history, self._reads, self._taps),
            open_backend,
            claim,
            self._reactor,
            run_blocking=self._questions.run,
            run_long=self._long_work.run,
            log=self._log,
            flush_period_ms=flush_period_ms,
            batch_ids=self._batch_ids,
            from_feed=self._reads.call,
            rounds=self._rounds,
        )


def origin_of(
    config: InstanceConfig, tell: Tell, claim: HistoryClaim | None, reads: ReactorReads, taps: Taps
) -> Origin:
    """Return where the rows of a destination come from: files, several servers, or one server with its standby.

    config: of the destination.
    tell: hears what happens to it.
    claim: fences the writes of its table history; None without ZooKeeper.
    reads: the reactor's reads of dumps.
    taps: of the node.
    """
    if config.local:
        return FilesOrigin(config, config.local)
    return GroupOrigin(config, tell, claim) if config.group else Upstreams(config, tell, claim, reads, taps)
