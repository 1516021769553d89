"""Requests during the start of an instance: a client that follows `running` sends them milliseconds after a claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import Clock

from canal_ha.config.model import InstanceConfig, SourceConfig, WhenLost
from canal_ha.errors import MetaUnreadable, NotRunningHere
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.instance import Instance
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import Snapshot
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.node.claims import UndisputedClaim
from tests.instance.origin import PlainOrigin
from tests.sim.replay import ReplayFeed

T = TypeVar("T")
IDENTITY = ClientIdentity("example", 1001, "")


class SlowBackend(MemoryBackend):
    """A backend that loads when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.loading: Deferred[Snapshot] = Deferred()

    async def load(self) -> Snapshot:
        """See MetaBackend."""
        return await self.loading


class NoRows:
    """A source without new rows."""

    version = ""

    def newest(self) -> LogPosition:
        """See SourceView."""
        return LogPosition("mysql-bin.000001", 4)

    def start(self, kept: LogPosition | None) -> LogPosition:
        """See SourceView."""
        return self.newest()

    def find(self, place: Place) -> LogPosition:
        """See SourceView."""
        return self.newest()

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        """See SourceView."""
        return self.newest()


class Silent:
    """An InstanceListener that logs nothing."""

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        """See InstanceListener."""

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        """See InstanceListener."""


class OneThread(Clock):
    """Virtual time without threads."""

    def callFromThread(self, call: Callable[..., object], /, *args: object) -> None:
        """Do nothing, because there is no other thread."""


def blocking(call: Callable[[], T], /) -> Deferred[T]:
    """Run the call at once, in this thread."""
    return succeed(call())


class ClosingOrigin(PlainOrigin):
    """An origin that counts its close() calls."""

    def __init__(self) -> None:
        super().__init__(NoRows(), self._replay)
        self.closed = 0

    def close(self) -> None:
        """See Origin."""
        self.closed += 1

    @staticmethod
    def _replay(request: FeedRequest) -> Feed:
        return ReplayFeed(request, [])


def slow_instance(config: InstanceConfig, origin: ClosingOrigin, backend: SlowBackend, batch_ids: BatchIds) -> Instance:
    """Return an instance whose cursors load when the backend says so."""
    return Instance(
        config,
        origin,
        lambda edits: backend,
        UndisputedClaim(lambda error: None),
        OneThread(),
        run_blocking=blocking,
        log=Silent(),
        flush_period_ms=0,
        batch_ids=batch_ids,
    )


@pytest.fixture
def backend() -> SlowBackend:
    return SlowBackend()


@pytest.fixture
def origin() -> ClosingOrigin:
    return ClosingOrigin()


@pytest.fixture
def embedded(backend: SlowBackend, origin: ClosingOrigin) -> Embedded:
    """Return an Embedded that has begun to start `example`."""
    embedded = Embedded()
    instance = slow_instance(InstanceConfig("example", SourceConfig("127.0.0.1")), origin, backend, embedded.batch_ids)
    Deferred.fromCoroutine(embedded.start(instance)).addErrback(lambda failure: failure.trap(MetaUnreadable))
    return embedded


def asked(embedded: Embedded) -> tuple[Deferred[Any], list[Any]]:
    """Send a SUBSCRIBE; return it and the list that gets its result."""
    answers: list[Any] = []
    request: Deferred[Any] = Deferred.fromCoroutine(embedded.subscribe(IDENTITY))
    request.addCallbacks(answers.append, lambda failure: answers.append(failure.value))
    return request, answers


def test_a_request_waits_for_the_start(embedded: Embedded, backend: SlowBackend) -> None:
    """The request is not refused: the instance answers it when it runs."""
    _, answers = asked(embedded)
    assert answers == []
    backend.loading.callback(Snapshot())
    assert [str(answer) for answer in answers] == ["mysql-bin.000001:4"]
    assert IDENTITY.client_id in backend.snapshot.clients


def test_a_start_that_fails_refuses_who_waited(embedded: Embedded, backend: SlowBackend) -> None:
    """The client then asks another node."""
    _, answers = asked(embedded)
    backend.loading.errback(MetaUnreadable("broken"))
    assert [type(answer) for answer in answers] == [NotRunningHere]


def test_a_start_that_fails_closes_its_source(embedded: Embedded, backend: SlowBackend, origin: ClosingOrigin) -> None:
    """An open source would keep its connections and its detecting thread until the process ends."""
    backend.loading.errback(MetaUnreadable("broken"))
    assert origin.closed == 1


def test_a_stop_waits_for_a_start_under_way_and_closes_its_source(
    embedded: Embedded, backend: SlowBackend, origin: ClosingOrigin
) -> None:
    """The next start of the destination finds nothing left of this one."""
    stopped: list[object] = []
    Deferred.fromCoroutine(embedded.stop("example")).addCallback(stopped.append)
    assert (stopped, origin.closed) == ([], 0)
    backend.loading.callback(Snapshot())
    assert (stopped, origin.closed) == ([None], 1)
    assert embedded.running("example") is None


def test_a_clean_up_of_a_failed_start_that_is_cancelled_still_comes_before_the_next_start(
    backend: SlowBackend, origin: ClosingOrigin
) -> None:
    """A stop that comes meanwhile ends when the source is closed, and not when the start is given up."""
    embedded, closing = Embedded(), Deferred[None]()

    def pool(call: Callable[[], T], /) -> Deferred[T]:
        done: Deferred[T] = Deferred()
        closing.addCallback(lambda _: done.callback(call()))
        return done

    instance = Instance(
        InstanceConfig("example", SourceConfig("127.0.0.1")),
        origin,
        lambda edits: backend,
        UndisputedClaim(lambda error: None),
        OneThread(),
        run_blocking=pool,
        log=Silent(),
        flush_period_ms=0,
        batch_ids=embedded.batch_ids,
    )
    start: Deferred[Any] = Deferred.fromCoroutine(embedded.start(instance))
    errors: list[type[BaseException]] = []
    start.addCallbacks(errors.append, lambda failure: errors.append(type(failure.value)))
    backend.loading.errback(MetaUnreadable("broken"))
    assert (errors, origin.closed) == ([], 0)
    start.cancel()
    assert errors == [CancelledError]
    stopped: list[object] = []
    Deferred.fromCoroutine(embedded.stop("example")).addCallback(stopped.append)
    assert (stopped, origin.closed) == ([], 0)
    closing.callback(None)
    assert (stopped, origin.closed) == ([None], 1)


def test_a_waiting_request_can_be_cancelled(embedded: Embedded, backend: SlowBackend) -> None:
    """A request is cancelled when its connection closes. Other waiting requests are still answered."""
    request, answers = asked(embedded)
    _, others = asked(embedded)
    request.cancel()
    assert [type(answer) for answer in answers] == [CancelledError]
    backend.loading.callback(Snapshot())
    assert [str(answer) for answer in others] == ["mysql-bin.000001:4"]
