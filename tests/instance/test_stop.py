"""Stops and starts of an instance at bad moments: its store does not answer, or a client asks at the same time."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import pytest
from twisted.internet.defer import CancelledError, Deferred

from canal_ha.config.model import BatchMode, InstanceConfig, SourceConfig, WhenLost
from canal_ha.errors import CanalError, ClientConnected, MetaWriteFailed, NotRunningHere
from canal_ha.instance import instance as instance_module
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.instance import LAST_FLUSH_S, Instance
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import Change, Snapshot
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from tests.instance.origin import PlainOrigin
from tests.instance.test_embedded import NoRows, OneThread, Silent, blocking
from tests.instance.test_regained import PromptFeed
from tests.instance.test_stream import now, transactions
from tests.sim.replay import ReplayFeed

T = TypeVar("T")
IDENTITY = ClientIdentity("example", 1001, "")


class Lease:
    """A claim that the test can end."""

    def __init__(self) -> None:
        self.over = False

    def check(self) -> None:
        """See Claim."""
        if self.over:
            raise NotRunningHere("example")

    def lost(self, error: CanalError) -> None:
        """See Claim."""


class Store(MemoryBackend):
    """A backend whose writes fail while it is away, and wait while there is a gate."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        super().__init__(snapshot)
        self.away = False
        self.attempts = 0
        self.gate: Deferred[None] | None = None
        self.locked_by = ""

    async def write(self, changes: tuple[Change, ...]) -> None:
        """See MetaBackend."""
        self.attempts += 1
        if self.away:
            raise MetaWriteFailed("no answer")
        if self.gate is not None:
            await self.gate
        await super().write(changes)

    async def holder(self, client_id: int) -> str:
        """See MetaBackend."""
        return self.locked_by


class OpenFeeds(ReplayFeed):
    """A feed without rows that counts in `open` while it runs."""

    open: ClassVar[set[ReplayFeed]] = set()

    def start(self) -> None:
        """See Feed."""
        self.open.add(self)

    def stop(self) -> None:
        """See Feed."""
        self.open.discard(self)


class Heard(Silent):
    """An InstanceListener that keeps events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []

    def event(self, destination: str, name: str, /, *, alarm: bool = False, **facts: object) -> None:
        """See InstanceListener."""
        self.events.append((name, facts))


class Bench:
    """One instance behind an Embedded, in virtual time."""

    def __init__(
        self,
        *,
        snapshot: Snapshot | None = None,
        flush_period_ms: int = 1000,
        rows: bool = False,
        position_lost: WhenLost = WhenLost.FAIL,
    ) -> None:
        self.clock = OneThread()
        self.lease = Lease()
        self.held: list[Deferred[Any]] | None = None  # calls that the pool does not get to
        self.store = Store(snapshot)
        self.view = Begins()
        self.embedded = Embedded()
        OpenFeeds.open.clear()
        self._heard = Heard()
        self.events = self._heard.events
        self._config = InstanceConfig(
            "example", SourceConfig("127.0.0.1"), batch_mode=BatchMode.ITEMSIZE, position_lost=position_lost
        )
        self._flush_period_ms = flush_period_ms
        self._rows = rows
        self.instance = self.another()
        now(self.embedded.start(self.instance))

    def another(self) -> Instance:
        """Return an instance of the destination that has not started."""

        def open_feed(request: FeedRequest) -> Feed:
            return PromptFeed(request, [transactions(2)]) if self._rows else OpenFeeds(request, [])

        return Instance(
            self._config,
            PlainOrigin(self.view, open_feed),
            lambda edits: self.store,
            self.lease,
            self.clock,
            run_blocking=self.blocking,
            log=self._heard,
            flush_period_ms=self._flush_period_ms,
            batch_ids=self.embedded.batch_ids,
        )

    def blocking(self, call: Callable[[], T], /) -> Deferred[T]:
        """Run the call at once, or hold it back while there is a list."""
        if self.held is None:
            return blocking(call)
        self.held.append(answer := Deferred[T]())
        return answer

    def pass_time(self, seconds: float) -> None:
        """Let time pass in small steps."""
        for _ in range(int(seconds * 10)):
            self.clock.advance(0.1)

    def acknowledged(self) -> LogPosition:
        """Subscribe the client, move its cursor as an ACK does, and return the cursor."""
        now(self.embedded.subscribe(IDENTITY))
        cursor = LogPosition("mysql-bin.000001", 500)
        self.instance.meta.move(1001, cursor)
        return cursor


class Begins(NoRows):
    """A source that begins at a kept start. Its binlog grows when the test moves `end`."""

    def __init__(self) -> None:
        self.end = super().newest()

    def newest(self) -> LogPosition:
        """See SourceView."""
        return self.end

    def start(self, kept: LogPosition | None) -> LogPosition:
        """See SourceView."""
        return kept or self.newest()


def begun(work: Coroutine[Any, Any, T]) -> list[T | BaseException]:
    """Begin a call. Return a list that gets its result or its error."""
    results: list[T | BaseException] = []
    Deferred.fromCoroutine(work).addCallbacks(results.append, lambda failure: results.append(failure.value))
    return results


def test_acknowledged_rows_do_not_come_again_when_zookeeper_reconnects_during_an_orderly_stop() -> None:
    """The last flush is repeated until ZooKeeper answers, and the stop waits for it."""
    bench = Bench()
    cursor = bench.acknowledged()
    bench.store.away = True
    stopped = begun(bench.embedded.stop("example"))
    bench.pass_time(1.0)
    assert stopped == []
    bench.store.away = False
    bench.pass_time(1.0)
    assert stopped == [None]
    assert bench.store.snapshot.cursors == {1001: cursor}


def test_acknowledged_rows_do_not_come_again_when_a_destination_starts_while_it_stops() -> None:
    """The start waits for the last flush, and a request waits for the start."""
    bench = Bench()
    cursor = bench.acknowledged()
    bench.store.gate = gate = Deferred[None]()
    stopped = begun(bench.embedded.stop("example"))
    started = begun(bench.embedded.start(bench.another()))
    ended = begun(bench.embedded.ended("example"))
    subscribed = begun(bench.embedded.subscribe(IDENTITY))
    assert (stopped, started, ended, subscribed) == ([], [], [], [])
    bench.store.gate = None
    gate.callback(None)
    assert (stopped, started, ended, subscribed) == ([None], [None], [None], [cursor])


def test_a_start_that_waits_for_a_stop_can_be_given_up() -> None:
    """Then nothing runs when the stop has ended, and the next start does not wait."""
    bench = Bench()
    bench.acknowledged()
    bench.store.gate = gate = Deferred[None]()
    stopped = begun(bench.embedded.stop("example"))
    start: Deferred[None] = Deferred.fromCoroutine(bench.embedded.start(bench.another()))
    errors: list[type[BaseException]] = []
    start.addCallbacks(lambda _: None, lambda failure: errors.append(type(failure.value)))
    start.cancel()
    assert errors == [CancelledError]
    bench.store.gate = None
    gate.callback(None)
    assert stopped == [None]
    assert bench.embedded.running("example") is None
    assert begun(bench.embedded.start(bench.another())) == [None]


@pytest.mark.parametrize("lease_ends", [False, True])
def test_an_orderly_stop_without_an_answer_ends_in_time(lease_ends: bool) -> None:
    """It ends after a while, and as soon as another node may own the destination."""
    bench = Bench()
    bench.acknowledged()
    bench.store.away = True
    stopped = begun(bench.embedded.stop("example"))
    bench.pass_time(1.0)
    bench.lease.over = lease_ends
    bench.pass_time(0.5)
    assert stopped == ([None] if lease_ends else [])
    bench.pass_time(LAST_FLUSH_S)
    assert stopped == [None]


def test_a_stop_that_could_not_write_cursors_says_whose_rows_come_again() -> None:
    """It names the client ids and the reason. After a stop that has written everything it says nothing."""
    for away in (False, True):
        bench = Bench()
        bench.acknowledged()
        bench.store.away = away
        stopped = begun(bench.embedded.stop("example"))
        bench.pass_time(LAST_FLUSH_S + 1.0)
        assert stopped == [None]
        said = [facts for name, facts in bench.events if name == "cursor.not_written"]
        assert [(facts["client_ids"], facts["error"]) for facts in said] == ([("1001", "no answer")] if away else [])


def test_an_ack_that_could_not_be_written_at_once_says_so_and_is_written_later() -> None:
    """With a flush period of 0, an ACK without an error is durable. A write that failed waits for no other ACK."""
    bench = Bench(flush_period_ms=0, rows=True)
    now(bench.embedded.subscribe(IDENTITY))
    first, second = (now(bench.embedded.get(IDENTITY, GetRequest(3, 0.0))) for _ in range(2))
    assert begun(bench.embedded.ack(IDENTITY, first.batch_id)) == [None]
    assert bench.store.snapshot.cursors[1001].offset == 160
    bench.store.away = True
    (error,) = begun(bench.embedded.ack(IDENTITY, second.batch_id))
    assert isinstance(error, MetaWriteFailed)
    assert bench.store.snapshot.cursors[1001].offset == 160
    bench.store.away = False
    bench.pass_time(1.5)
    assert bench.store.snapshot.cursors[1001].offset == 260
    now(bench.embedded.stop("example"))


def test_a_stop_that_is_not_orderly_flushes_nothing() -> None:
    """The cursors belong to another node."""
    bench = Bench()
    bench.acknowledged()
    attempts = bench.store.attempts
    assert begun(bench.embedded.stop("example", flush=False)) == [None]
    assert bench.store.attempts == attempts


def test_a_switch_that_was_refused_without_an_answer_is_taken_back_when_it_lands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if a second one is refused before the first one has landed."""
    monkeypatch.setattr(instance_module, "KEEP_WITHIN_S", 0.05)
    bench = Bench(snapshot=Snapshot(servers=("one:3306",)))
    monkeypatch.setattr(bench.clock, "callFromThread", lambda call: call())
    bench.store.gate = gate = Deferred[None]()
    for address in ("two:3306", "three:3306"):
        with pytest.raises(MetaWriteFailed):
            bench.instance._keep_servers((address,))
    bench.store.gate = None
    gate.callback(None)
    assert bench.store.snapshot.servers == bench.instance.meta.servers == ("one:3306",)
    bench.instance._keep_servers(("two:3306",))
    bench.pass_time(2.0)
    assert bench.store.snapshot.servers == bench.instance.meta.servers == ("two:3306",)


def test_a_subscribe_during_a_stop_leaves_no_stream_open() -> None:
    """The client is refused and asks another node. Nobody would close a stream that opens after the stop."""
    bench = Bench()
    bench.store.gate = Deferred()
    subscribed = begun(bench.embedded.subscribe(IDENTITY))
    stopped = begun(bench.embedded.stop("example"))
    assert subscribed == []
    bench.store.gate.callback(None)
    bench.pass_time(0.1)
    assert stopped == [None]
    assert [type(answer) for answer in subscribed] == [NotRunningHere]
    assert OpenFeeds.open == set()


def test_a_subscribe_during_an_unsubscribe_of_the_same_client_gets_a_durable_cursor() -> None:
    """It is a new client then, with a start of its own, and its stream stays open."""
    bench = Bench()
    bench.acknowledged()
    bench.store.gate = gate = Deferred[None]()
    left = begun(bench.embedded.unsubscribe(IDENTITY))
    subscribed = begun(bench.embedded.subscribe(IDENTITY))
    bench.store.gate = None
    gate.callback(None)
    bench.pass_time(0.1)
    assert left == [None]
    assert subscribed == [NoRows().newest()]
    assert bench.store.snapshot.cursors == {1001: NoRows().newest()}
    assert now(bench.embedded.get(IDENTITY, GetRequest(1, 0.0))).batch is None


def test_the_cursor_of_a_client_with_a_lock_is_not_deleted() -> None:
    """A client of a cluster may be between two connections. Its lock would go with its cursor."""
    bench = Bench()
    cursor = bench.acknowledged()
    bench.store.locked_by = "10.0.0.7"
    with pytest.raises(ClientConnected, match=re.escape("in use by 10.0.0.7: stop that process first")):
        now(bench.embedded.delete_cursor("example", 1001, dry_run=False))
    assert bench.instance.meta.cursor(1001) == cursor
    bench.store.locked_by = ""
    assert now(bench.embedded.delete_cursor("example", 1001, dry_run=False)) == cursor
    assert bench.store.snapshot.clients == {}


def test_hundreds_of_subscribes_that_wait_for_one_another_are_all_answered() -> None:
    """The client's connections send them while its first one is being written."""
    bench = Bench()
    bench.store.gate = gate = Deferred[None]()
    answers = [begun(bench.embedded.subscribe(IDENTITY)) for _ in range(500)]
    bench.store.gate = None
    gate.callback(None)
    for _ in range(500):
        bench.clock.advance(0)
    assert answers == [[NoRows().newest()]] * 500


def test_a_filter_that_compiles_slowly_delays_no_other_client() -> None:
    """One client's filters wait for each other. A blank or a known filter, and another client's, wait for none."""
    bench = Bench()
    known, other = replace(IDENTITY, filter="shop"), replace(IDENTITY, client_id=1002)
    now(bench.embedded.subscribe(known))
    now(bench.embedded.subscribe(other))
    bench.held = []
    slow = [begun(bench.embedded.subscribe(replace(other, client_id=1003, filter=f"slow{n}"))) for n in range(3)]
    assert len(bench.held) == 1
    assert begun(bench.embedded.subscribe(known)) == [NoRows().newest()]
    assert begun(bench.embedded.subscribe(other)) == [NoRows().newest()]
    assert begun(bench.embedded.subscribe(replace(other, filter="new"))) == []
    assert len(bench.held) == 2
    assert slow == [[], [], []]


def test_the_kept_start_of_the_first_client_counts_also_if_its_node_came_first() -> None:
    """A client makes its node in ZooKeeper before it subscribes. It begins at the kept start, not at the newest row."""
    start = LogPosition("mysql-bin.000001", 100)
    bench = Bench(snapshot=Snapshot({1001: IDENTITY}, {}, start))
    assert now(bench.embedded.subscribe(IDENTITY)) == start
    assert now(bench.embedded.subscribe(ClientIdentity("example", 1002, ""))) == NoRows().newest()


def test_a_start_is_kept_also_if_a_client_without_a_cursor_is_known() -> None:
    """The client has made its node in ZooKeeper, and has not subscribed yet."""
    bench = Bench(snapshot=Snapshot({1001: IDENTITY}, {}))
    assert bench.store.snapshot.start == NoRows().newest()
