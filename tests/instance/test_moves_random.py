"""A stream on two servers with one history, one of which lags: whatever happens, a copy ends with the newest values."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from twisted.internet.defer import Deferred

from canal_ha.errors import RingClosed
from canal_ha.instance.feed import FeedRequest, Move
from canal_ha.instance.feed_pace import FeedPace
from canal_ha.instance.stream import Stream
from canal_ha.meta.batch_ids import Numbers
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment, Source
from tests.instance.test_stream import JOURNAL, Bench, Remembering
from tests.segments import Item, segment

STEPS = 100
FOUND = (455, 1153, 1929, 2476, 3429, 3580, 3787, 4532, 4976)  # runs that left an older value before
SERVERS = {name: Source("127.0.0.1", port, uuid=name) for name, port in (("a", 3306), ("b", 3307))}
OTHER = {"a": "b", "b": "a"}
WEIGHTS = {
    "write": 4,
    "replicate": 2,
    "promote": 1,
    "switch": 2,
    "pump": 8,
    "get": 8,
    "ack": 7,
    "roll back": 1,
    "park": 1,
    "begin again": 1,
    "filter": 1,
    "restart": 1,
    "hop": 3,
}


def at(server: str, number: int) -> LogPosition:
    """Return the boundary before a transaction."""
    source = SERVERS[server]
    return LogPosition(
        JOURNAL, 100 + 100 * number, 999 + number, 1, address=source.address, port=source.port, server=server
    )


@dataclass
class World:
    """The keys of the transactions in order, how many each server has, which one writes, and which one is read.

    kept: how many transactions a stream remembers. window: how far it goes back if the server has none of them.
    """

    kept: int
    window: int
    log: list[int] = field(default_factory=list)
    has: dict[str, int] = field(default_factory=lambda: {"a": 0, "b": 0})
    master: str = "a"
    read: str = "a"

    def replicate(self, count: int) -> None:
        """Let the other server take over so many transactions at most."""
        other = OTHER[self.master]
        self.has[other] = min(self.has[self.master], self.has[other] + count)


class MovingFeed:
    """A feed that finds its place on the other server by the last transactions, else by time. Implements Feed."""

    shared = lent = False
    tap = ""
    received_bytes = last_event_ms = 0
    idle, idle_at = True, 0.0
    decoded = None

    def __init__(self, world: World, request: FeedRequest) -> None:
        self._world, self._request = world, request
        start = request.start
        self._server = start.server
        self._next = (start.offset - 100) // 100 + start.consumed
        texts = start.trail.split(",")
        self._known = [int(text.split()[1]) for text in texts if text.startswith("end")][-world.kept :]
        self._expected: set[int] = set()
        self._left: tuple[str, int, set[int]] | None = None
        self._delivered_any = self._stopped = False

    def start(self) -> None:
        """See Feed."""

    def stop(self) -> None:
        """See Feed."""
        self._stopped = True

    def pump(self, count: int) -> None:
        """Pass on so many transactions at most."""
        if not self._stopped and self._server != self._world.read:
            self._move(self._world.read)
        for _ in range(count):
            if self._stopped or self._next >= self._world.has[self._server]:
                return
            number, self._next = self._next, self._next + 1
            if number in self._expected:
                self._expected.remove(number)
                continue
            self._expected.clear()
            try:
                self._request.accept(self._transaction(number))
            except RingClosed:
                return
            self._left, self._delivered_any = None, True
            self._known = [*self._known, number][-self._world.kept :]

    def _transaction(self, number: int) -> Segment:
        offset, ms = 100 + 100 * number, 1000 + number
        kinds = ((0, EntryKind.BEGIN, "begin"), (30, EntryKind.ROWS, "rows"), (60, EntryKind.END, "end"))
        items = [
            Item(offset + place, kind, f"{word} {number} {self._world.log[number]}".encode(), timestamp_ms=ms)
            for place, kind, word in kinds
        ]
        return replace(segment(items, journal=JOURNAL), source=SERVERS[self._server])

    def _move(self, to: str) -> None:
        before, has = at(self._server, self._next), self._world.has[to]
        whole, again = True, False
        if self._left and self._left[0] == to:
            _, self._next, self._expected = self._left
            self._left = None
        else:
            if self._left is None and self._delivered_any:
                self._left = self._server, self._next, self._expected
            places = [place for place, number in enumerate(self._known) if number < has]
            self._expected = set()
            if places:
                self._next = self._known[places[-1]] + 1
                self._expected = set(self._known[places[-1] + 1 :])
                whole = not self._expected
            else:
                self._next = max(0, min(min(self._known, default=self._next) - self._world.window, has))
                whole, again = False, True
        self._server = to
        self._request.moved(Move(before, at(to, self._next), whole, {}, again))


class Run:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._keys = self._random.choice([1, 2, 5])
        self._writes = self._random.randrange(10, STEPS)
        self.world = World(self._random.choice([1, 1, 2, 3]), self._random.choice([1, 3, 8]))
        self._bench = Bench()
        self._bench.meta.replaced(1001, at("a", 0))
        self._feed: MovingFeed | None = None
        self.copy: dict[int, int] = {}
        self.got: set[int] = set()
        self._stream = self._made()

    def _made(self) -> Stream:
        bench = self._bench
        return Stream(
            bench.config,
            1001,
            bench.meta,
            self._open_feed,
            bench.reactor,
            check_room=lambda: None,
            tell=bench.tell,
            batch_ids=Numbers(),
            pace=FeedPace(bench.reactor.seconds),
            soon=lambda wake: wake(),
            from_feed=bench.reactor.callFromThread,
            remember=Remembering,
        )

    def _open_feed(self, request: FeedRequest) -> MovingFeed:
        self._feed = MovingFeed(self.world, request)
        return self._feed

    def _get(self, transactions: int) -> bool:
        """Apply the next batch to the copy at once. Return whether there was one."""
        answers: list[GetAnswer] = []
        Deferred.fromCoroutine(self._stream.get(GetRequest(3 * transactions, 0.0))).addCallback(answers.append)
        self._bench.reactor.hop()
        (answer,) = answers
        for body in self._bench.bodies(answer) if answer.batch else ():
            word, number, key = body.split()
            if word == "rows":
                self.copy[int(key)] = int(number)
                self.got.add(int(number))
        return answer.batch is not None

    def _ack(self) -> None:
        if self._stream.in_flight:
            self._stream.ack(self._stream.in_flight[0])

    def _restart(self) -> None:
        """Let another node go on with the cursor as it is."""
        cursor = self._bench.meta.cursor(1001)
        assert cursor is not None
        self._bench.meta.replaced(1001, self._stream.with_trail(cursor))
        if self._feed:
            self._feed.stop()
        self._feed = None
        self._stream = self._made()

    def step(self, number: int) -> None:
        """Do something."""
        rng, world, stream = self._random, self.world, self._stream
        match rng.choices([*WEIGHTS], [*WEIGHTS.values()])[0]:
            case "write" if number < self._writes:
                world.log += [rng.randrange(self._keys) for _ in range(rng.randrange(1, 4))]
                world.has[world.master] = len(world.log)
            case "replicate":
                world.replicate(rng.randrange(1, 6))
            case "promote" if world.has["a"] == world.has["b"]:
                world.master = OTHER[world.master]
            case "switch":
                world.read = OTHER[world.read]
            case "pump" if self._feed:
                self._feed.pump(rng.randrange(1, 5))
            case "get":
                self._get(rng.choice([1, 1, 2, 3]))
            case "ack":
                self._ack()
            case "roll back":
                stream.rollback(0)
            case "park":
                self._bench.reactor.advance(301)
                stream.park_if_idle()
            case "begin again":
                stream.restart()
            case "filter":
                stream.subscribed(f"filter {number}")
            case "restart":
                self._restart()
            case "hop":
                self._bench.reactor.hop()

    def end(self) -> None:
        """Let the servers become equal, and the client get and acknowledge everything."""
        self.world.replicate(len(self.world.log))
        idle = 0
        while idle < 5:
            if self._feed:
                self._feed.pump(100)
            idle = 0 if self._get(10) else idle + 1
            while self._stream.in_flight:
                self._ack()


@pytest.mark.parametrize("seeds", [range(200), range(200, 400), FOUND], ids=["first", "second", "found"])
def test_a_copy_ends_with_the_newest_values_whatever_the_source_does(seeds: Sequence[int]) -> None:
    """Each run writes, replicates, switches, gets, acknowledges, rolls back, parks and restarts in a random order."""
    for seed in seeds:
        run = Run(seed)
        for number in range(STEPS):
            run.step(number)
        run.end()
        assert run.copy == {key: number for number, key in enumerate(run.world.log)}, seed
        assert run.got == set(range(len(run.world.log))), seed
