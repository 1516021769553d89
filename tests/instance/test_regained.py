"""Clients that keep old batch ids, on a node that loses and regains a destination, compared with a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from canal_ha.config.model import BatchMode, InstanceConfig, SourceConfig
from canal_ha.errors import BatchNotFirst, BatchUnknown, CanalError, NotRunningHere, NotSubscribed
from canal_ha.instance.claim import Claim
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.instance import Instance
from canal_ha.meta.memory import MemoryBackend
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.node.claims import UndisputedClaim
from tests.instance.origin import PlainOrigin
from tests.instance.test_embedded import NoRows, OneThread, Silent, blocking
from tests.instance.test_stream import JOURNAL, Bench, now, transactions
from tests.sampling import examples
from tests.sim.replay import ReplayFeed

ROWS = frozenset(range(8))  # each in its own transaction
CLIENTS = (1001, 1002)
FILTERS = ("", "shop\\..*")


class Beginning(NoRows):
    """A source whose clients begin at its first transaction."""

    def start(self, kept: LogPosition | None) -> LogPosition:
        """See SourceView."""
        return LogPosition(JOURNAL, 100)

    def find(self, place: Place) -> LogPosition:
        """See SourceView."""
        return LogPosition(JOURNAL, 100)


class PromptFeed(ReplayFeed):
    """A feed that has pushed everything when start() returns."""

    def start(self) -> None:
        """See Feed."""
        super().start()
        self.join()


class OneNode:
    """A node that can lose its destination and claim it again. Cursors are the flushed ones.

    right: the claim that its instances check; None for an undisputed one.
    config: more of the destination's.
    """

    def __init__(self, right: Claim | None = None, **config: Any) -> None:
        self._right = right or UndisputedClaim(lambda error: None)
        self.clock = OneThread()
        self.embedded = Embedded()
        self._backend = MemoryBackend()
        self._config = InstanceConfig(
            "example", SourceConfig("127.0.0.1"), batch_mode=BatchMode.ITEMSIZE, stream_idle_s=300, **config
        )

    def claim(self) -> None:
        now(self.embedded.start(self._instance()))

    def lose(self, *, flush: bool = False) -> None:
        now(self.embedded.stop("example", flush=flush))

    @property
    def instance(self) -> Instance:
        running = self.embedded.running("example")
        assert running is not None
        return running

    def passed(self, client_id: int) -> set[int]:
        """Return the rows before the client's cursor."""
        cursor = self.instance.meta.cursor(client_id)
        return set() if cursor is None else {row for row in ROWS if 130 + row * 100 < cursor.offset}

    def in_flight(self, client_id: int) -> tuple[int, ...]:
        streams = self.instance.status().streams
        return next((stream.batches for stream in streams if stream.client_id == client_id), ())

    def _instance(self) -> Instance:
        def open_feed(request: FeedRequest) -> Feed:
            return PromptFeed(request, [transactions(len(ROWS))])

        return Instance(
            self._config,
            PlainOrigin(Beginning(), open_feed),
            lambda edits: self._backend,
            self._right,
            self.clock,
            run_blocking=blocking,
            log=Silent(),
            flush_period_ms=1000,
            batch_ids=self.embedded.batch_ids,
        )


def rows(message: GetAnswer) -> frozenset[int]:
    """Return the rows of a message."""
    bodies = Bench.bodies(message) if message.batch else []
    return frozenset(int(body.split()[1]) for body in bodies if body.startswith("rows"))


def test_batch_ids_are_not_reused_after_the_same_node_claims_again() -> None:
    """ACK and ROLLBACK of an old batch are refused, and the cursor passes only rows with a valid ACK."""
    node, identity = OneNode(), ClientIdentity("example", 1001)
    node.claim()
    now(node.embedded.subscribe(identity))
    old = [now(node.embedded.get(identity, GetRequest(3, 0.0))) for _ in range(2)]
    assert [(batch.batch_id, rows(batch)) for batch in old] == [(1, frozenset({0})), (2, frozenset({1}))]
    node.lose()
    node.claim()
    new = now(node.embedded.get(identity, GetRequest(100, 0.0)))
    assert rows(new) == ROWS
    assert new.batch_id == 3
    for batch in old:
        with pytest.raises(BatchUnknown):
            now(node.embedded.ack(identity, batch.batch_id))
        with pytest.raises(BatchUnknown):
            now(node.embedded.rollback(identity, batch.batch_id))
    assert node.passed(1001) == set()
    assert node.in_flight(1001) == (3,)
    now(node.embedded.rollback(identity, 0))
    again = now(node.embedded.get(identity, GetRequest(100, 0.0)))
    assert rows(again) == ROWS
    now(node.embedded.ack(identity, again.batch_id))
    assert node.passed(1001) == ROWS
    node.lose()


@dataclass(eq=False)
class Held:
    """A batch that a client keeps for ever. void: another filter selected its rows."""

    client_id: int
    batch_id: int
    rows: frozenset[int]
    void: bool = False


class RegainedMachine(RuleBasedStateMachine):
    """No cursor passes a row whose batch was not acknowledged since the stream last started at its cursor."""

    def __init__(self) -> None:
        super().__init__()
        self.node = OneNode()
        self.running = False
        self.filters: dict[int, str] = {}  # filters of subscribed clients
        self.held: list[Held] = []
        self.in_flight: dict[int, list[Held]] = {client_id: [] for client_id in CLIENTS}
        self.acknowledged: dict[int, set[int]] = {client_id: set() for client_id in CLIENTS}
        self.last_id = dict.fromkeys(CLIENTS, 0)
        self.claim()
        for client_id in CLIENTS:
            self.subscribe(client_id, "")

    def teardown(self) -> None:
        """Check that a client that connects again and rolls back gets every row that it did not acknowledge."""
        if not self.running:
            self.claim()
        for client_id in self.filters:
            identity = self.identity(client_id)
            now(self.node.embedded.rollback(identity, 0))
            message = now(self.node.embedded.get(identity, GetRequest(100, 0.0)))
            assert rows(message) | self.acknowledged[client_id] == ROWS
            if message.batch:
                now(self.node.embedded.ack(identity, message.batch_id))
            assert self.node.passed(client_id) == ROWS
        self.node.lose()

    @staticmethod
    def identity(client_id: int) -> ClientIdentity:
        return ClientIdentity("example", client_id)

    def begin_anew(self, client_id: int) -> None:
        """Note that everything after the cursor is delivered again."""
        self.in_flight[client_id].clear()
        self.acknowledged[client_id] = self.node.passed(client_id)

    # ---- the node

    @precondition(lambda self: not self.running)
    @rule()
    def claim(self) -> None:
        self.node.claim()
        self.running = True
        for client_id in CLIENTS:
            self.begin_anew(client_id)

    @precondition(lambda self: self.running)
    @rule(flush=st.booleans(), regain=st.booleans())
    def lose(self, flush: bool, regain: bool) -> None:
        self.node.lose(flush=flush)
        self.running = False
        if regain:
            self.claim()

    @precondition(lambda self: self.running)
    @rule(seconds=st.sampled_from([1, 301]))
    def time_passes(self, seconds: int) -> None:
        """Let time pass: cursors are flushed, and idle streams are parked."""
        self.node.clock.advance(seconds)

    @precondition(lambda self: self.running)
    @rule(client_id=st.sampled_from(CLIENTS), row=st.sampled_from(sorted(ROWS)))
    def rewind(self, client_id: int, row: int) -> None:
        """Edit the cursor as an operator does."""
        if client_id in self.filters:
            self.node.instance.cursor_replaced(client_id, LogPosition(JOURNAL, 100 + row * 100))
            self.begin_anew(client_id)

    # ---- clients, whose connections never close

    @precondition(lambda self: self.running)
    @rule(client_id=st.sampled_from(CLIENTS), filter_text=st.sampled_from(FILTERS))
    def subscribe(self, client_id: int, filter_text: str) -> None:
        known = self.filters.get(client_id)
        now(self.node.embedded.subscribe(ClientIdentity("example", client_id, filter_text)))
        self.filters[client_id] = filter_text or known or ""
        if known is not None and self.filters[client_id] != known:
            for held in self.in_flight[client_id]:
                held.void = True
            self.acknowledged[client_id] = self.node.passed(client_id)

    @precondition(lambda self: self.running)
    @rule(client_id=st.sampled_from(CLIENTS), subscribe=st.booleans())
    def unsubscribe(self, client_id: int, subscribe: bool) -> None:
        now(self.node.embedded.unsubscribe(self.identity(client_id)))
        self.filters.pop(client_id, None)
        self.begin_anew(client_id)
        if subscribe:
            self.subscribe(client_id, "")

    @precondition(lambda self: self.running)
    @rule(client_id=st.sampled_from(CLIENTS), sizes=st.lists(st.integers(1, 10), min_size=1, max_size=4))
    def get(self, client_id: int, sizes: list[int]) -> None:
        for size in sizes:
            if client_id not in self.filters:
                with pytest.raises(NotSubscribed):
                    now(self.node.embedded.get(self.identity(client_id), GetRequest(size, 0.0)))
                return
            message = now(self.node.embedded.get(self.identity(client_id), GetRequest(size, 0.0)))
            if not message.batch:
                return
            self.last_id[client_id] += 1
            assert message.batch_id == self.last_id[client_id]
            self.held.append(Held(client_id, message.batch_id, rows(message)))
            self.in_flight[client_id].append(self.held[-1])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        expected = self.refusal(held)
        if expected:
            with pytest.raises(expected):
                now(self.node.embedded.ack(self.identity(held.client_id), held.batch_id))
            return
        now(self.node.embedded.ack(self.identity(held.client_id), held.batch_id))
        self.in_flight[held.client_id].remove(held)
        if not held.void:
            self.acknowledged[held.client_id] |= held.rows

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.held))
        expected = self.refusal(held)
        if expected and expected is not NotSubscribed:  # as in canal, such a client gets no error
            with pytest.raises(expected):
                now(self.node.embedded.rollback(self.identity(held.client_id), held.batch_id))
            return
        now(self.node.embedded.rollback(self.identity(held.client_id), held.batch_id))
        self.in_flight[held.client_id].clear()

    @precondition(lambda self: self.running)
    @rule(client_id=st.sampled_from(CLIENTS))
    def connect_anew(self, client_id: int) -> None:
        now(self.node.embedded.rollback(self.identity(client_id), 0))
        self.in_flight[client_id].clear()

    @precondition(lambda self: self.running)
    @rule(client_id=st.sampled_from(CLIENTS))
    def read_privately(self, client_id: int) -> None:
        """Read on the same connection. No batch that the client holds is a batch of the read."""
        read = now(self.node.embedded.read_from(self.identity(client_id), Place(JOURNAL, 100), None))
        batch = now(read.get(GetRequest(3, 0.0)))
        for held in self.held:
            with pytest.raises(BatchUnknown):
                read.ack(held.batch_id)
        read.ack(batch.batch_id)
        read.close("enough")

    def refusal(self, held: Held) -> type[CanalError] | None:
        """Return the error of an ACK or ROLLBACK of this batch; None if it must succeed."""
        if not self.running:
            return NotRunningHere
        if held.client_id not in self.filters:
            return NotSubscribed
        in_flight = self.in_flight[held.client_id]
        if held not in in_flight:
            return BatchUnknown
        return None if held is in_flight[0] else BatchNotFirst

    # ---- what must hold

    @invariant()
    def cursors_pass_what_was_acknowledged(self) -> None:
        for client_id in CLIENTS if self.running else ():
            assert self.node.passed(client_id) <= self.acknowledged[client_id]
            assert self.node.in_flight(client_id) == tuple(held.batch_id for held in self.in_flight[client_id])


TestRegained = RegainedMachine.TestCase
TestRegained.settings = settings(max_examples=examples(60), stateful_step_count=20, deadline=None)
