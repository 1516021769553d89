"""A client program: subscribes, sends GETs ahead, acknowledges in order, and does what clients do at times."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from canal_ha.errors import NotSubscribed
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.wire.packets import Acknowledge, Get, Request, Rollback, Subscribe, Unsubscribe
from canal_ha.zookeeper import tree
from lab.simulation.node import Connection
from lab.simulation.referee import Delivery
from lab.simulation.source import FILTERS

if TYPE_CHECKING:
    from lab.simulation.storm import Simulation

LOOK_S = 0.15  # how often a program without a node looks for one
WAIT_MS = 300.0
UNNOTICED_S = 3.0  # a node notices the end of a connection without network at most so long after the program
SILENCE_S = 1.5  # without a reply for so long, the program gives its connection up


class Program:
    """The program of one client id. Another one takes its place when it dies.

    sturdy: it keeps its connection after an error, as simple clients do: it rolls back and goes on.
    patient: it acknowledges nothing before it has a batch that ends with a transaction.
    tells_cursor: its SUBSCRIBEs ask for the cursor.
    spare: it subscribes once to a filter; on later connections it only rolls back.
    """

    def __init__(self, simulation: Simulation, destination: str, client_id: int, random: Random) -> None:
        self._simulation = simulation
        self._referee = simulation.referee
        self._world = simulation.world
        self._random = random
        self._destination = destination
        self._client_id = client_id
        self._filter = random.choice(tuple(FILTERS))
        self._sturdy = random.random() < 0.5
        self._patient = random.random() < 0.2
        self._tells_cursor = random.random() < 0.5
        self._ahead = random.choice((1, 1, 2, 4))  # GETs that it sends before their turn
        self._size = random.choice((1, 3, 8, 20, 60))
        self._busy_s = random.choice((0.0, 0.02, 0.2))  # how long it works at a batch, at most
        self._late = Random(
            f"late {simulation.seed} {destination} {client_id}"
        )  # so that other draws stay what they were
        self._spare = self._late.random() < 0.3
        self._subscribed_to: str | None = None  # the filter, as far as it knows
        self._connection: Connection | None = None
        self._held: deque[Delivery] = deque()  # to acknowledge, oldest first
        self._round = 0  # ROLLBACKs and SUBSCRIBEs so far
        self._sent: deque[int] = deque()  # the round of each GET under way
        self._working = False
        self._wishes: deque[str] = deque()  # what to do before the next GET
        self._heard_at = 0.0
        self._look(0.0)

    @property
    def identity(self) -> ClientIdentity:
        """Who the program is."""
        return ClientIdentity(self._destination, self._client_id, self._filter)

    def wish(self, what: str) -> None:
        """Do this soon: roll back, change the filter, unsubscribe, or die."""
        if what == "die":
            if self._connection and self._late.random() < 0.5:
                self._cut_off(self._connection)
            self._give_up()
            self._look(self._random.uniform(0.0, 1.0))
        else:
            self._wishes.append(what)

    def meet_another(self) -> None:
        """A second program of the client id begins, and this one unsubscribes at times."""
        if self._random.random() < 0.5:
            self.wish("unsubscribe")
        SecondProgram(self._simulation, self._destination, self._client_id, ("", self._filter))

    def hurry(self) -> None:
        """Work fast from now on."""
        self._size, self._busy_s = 60, 0.0

    def cut(self) -> None:
        """Lose the network between the program and its node. The program notices at once, or by the silence."""
        if self._connection:
            self._cut_off(self._connection)
            if self._late.random() < 0.5:
                self._give_up()
                self._look(self._late.uniform(0.0, LOOK_S))

    def _cut_off(self, connection: Connection) -> None:
        """Cut a connection off. Some GETs that are under way arrive late, maybe after those of the next connection."""
        unnoticed_s = self._late.choice((0.5, UNNOTICED_S)) * self._late.random()
        connection.cut_off(unnoticed_s)
        for _ in range(self._late.randint(0, 3)):
            get = Get(self.identity, GetRequest(self._size, WAIT_MS, True))
            connection.send_late(get, self._late.uniform(0.0, unnoticed_s))

    # ---- connections

    def _look(self, delay_s: float) -> None:
        self._world.callLater(delay_s, self._connect)

    def _connect(self) -> None:
        """Connect to the node that `running` names."""
        if self._connection is not None:
            return
        found = self._simulation.ensemble.tree.get(tree.running(self._destination))
        data = None if found is None else tree.RunningData.from_bytes(found.data)
        node = self._simulation.node_called(data.address) if data is not None else None
        if node is None or node.process.dead or node.stopping:
            self._look(LOOK_S)
            return
        mine: list[Connection] = []

        def current() -> bool:
            return bool(mine) and self._connection is mine[0]

        def received(request: Request, answer: object, error: Exception | None) -> None:
            if current():
                self._received(request, answer, error)

        def closed() -> None:
            if current():
                self._give_up()
                self._look(self._random.uniform(0.0, LOOK_S))

        self._connection = connection = Connection(node, received, closed)
        mine.append(connection)
        self._heard_at = self._world.seconds()
        self._watch(connection)
        if self._random.random() < 0.5:
            self._send(Rollback(self.identity, 0))  # canal's clients do this first
        self._subscribe()

    def _watch(self, connection: Connection) -> None:
        if self._connection is not connection:
            return
        left_s = self._heard_at + SILENCE_S - self._world.seconds()
        if left_s > 0:
            self._world.callLater(left_s + 0.001, self._watch, connection)
            return
        self._give_up()
        self._look(LOOK_S)

    def _give_up(self) -> None:
        connection, self._connection = self._connection, None
        self._begin_round()
        self._sent.clear()
        if connection:
            connection.close()

    def _begin_round(self) -> None:
        self._round += 1
        self._held.clear()

    def _send(self, request: Request) -> None:
        if self._connection:
            self._connection.send(request)

    # ---- the exchange

    def _subscribe(self) -> None:
        self._begin_round()
        if not (self._spare and self._subscribed_to == self._filter):
            self._send(Subscribe(self.identity, tell_cursor=self._tells_cursor))
        self._send(Rollback(self.identity, 0))
        self._ask()

    def _ask(self) -> None:
        """Keep as many GETs under way as the program sends ahead."""
        while len(self._sent) < self._ahead and self._connection:
            self._sent.append(self._round)
            wait_ms = 0.0 if self._random.random() < 0.1 else WAIT_MS
            eager = self._random.random() < 0.7
            self._send(Get(self.identity, GetRequest(self._size, wait_ms, eager)))

    def _received(self, request: Request, answer: object, error: Exception | None) -> None:
        self._heard_at = self._world.seconds()
        asked = self._sent.popleft() if isinstance(request, Get) else self._round
        if error is not None:
            self._subscribed_to = None if isinstance(error, NotSubscribed) else self._subscribed_to
            self._refused(request)
        elif isinstance(request, Subscribe):
            self._subscribed_to = request.identity.filter
        elif isinstance(request, Unsubscribe):
            self._subscribed_to = None
            self._give_up()
            self._look(self._random.uniform(0.0, 0.5))
        elif isinstance(request, Get):
            if isinstance(answer, Delivery) and asked == self._round:
                self._held.append(answer)
                self._work()
            delay_s = 0.0 if answer is not None else 0.1
            self._world.callLater(delay_s, self._next, self._connection)

    def _refused(self, request: Request) -> None:
        if self._sturdy and self._random.random() < 0.9:
            self._begin_round()
            self._world.callLater(self._random.uniform(0.05, 0.3), self._begin_again, self._connection, request)
        else:
            self._give_up()
            self._look(self._random.uniform(0.0, LOOK_S))

    def _begin_again(self, connection: Connection | None, request: Request) -> None:
        if connection is None or connection is not self._connection:
            return
        found = self._simulation.ensemble.tree.get(tree.running(self._destination))
        if found is None or tree.RunningData.from_bytes(found.data).address != connection.node.name:
            self._give_up()
            self._look(0.0)
        elif isinstance(request, Subscribe) or self._random.random() < 0.3:
            self._subscribe()
        else:
            self._begin_round()
            self._send(Rollback(self.identity, 0))
            self._ask()

    def _next(self, connection: Connection | None) -> None:
        if connection is None or connection is not self._connection:
            return
        if self._wishes:
            self._fulfil(self._wishes.popleft())
        self._ask()

    def _fulfil(self, wish: str) -> None:
        if wish == "roll back":
            oldest = self._held[0].batch_id if self._held and self._random.random() < 0.5 else 0
            self._begin_round()
            self._send(Rollback(self.identity, oldest))
        elif wish == "change filter":
            self._filter = self._random.choice([each for each in FILTERS if each and each != self._filter])
            held = tuple(self._held)
            self._begin_round()
            self._send(Subscribe(self.identity, tell_cursor=self._tells_cursor))
            if self._random.random() < 0.5:  # what the old filter has chosen is acknowledged, to no effect
                for delivery in held:
                    self._referee.acknowledged(self._destination, self._client_id, delivery)
                    self._send(Acknowledge(self.identity, delivery.batch_id))
            self._send(Rollback(self.identity, 0))
        elif wish == "unsubscribe":
            self._begin_round()
            self._send(Unsubscribe(self.identity))

    # ---- work

    def _work(self) -> None:
        if not self._working and self._may_acknowledge():
            self._working = True
            self._world.callLater(self._random.uniform(0.0, self._busy_s), self._worked, self._round)

    def _worked(self, asked: int) -> None:
        self._working = False
        if asked == self._round and self._held and self._connection:
            delivery = self._held.popleft()
            self._referee.acknowledged(self._destination, self._client_id, delivery)
            self._send(Acknowledge(self.identity, delivery.batch_id))
        self._work()

    def _may_acknowledge(self) -> bool:
        return any(delivery.whole or not self._patient for delivery in self._held)


class SecondProgram:
    """Another program of a client id, on a connection of its own: it subscribes and unsubscribes a few times."""

    def __init__(self, simulation: Simulation, destination: str, client_id: int, filters: Sequence[str]) -> None:
        """Begin at once, if a node runs the destination.

        filters: what it subscribes to, one of these at a time.
        """
        self._world = simulation.world
        self._random = simulation.random
        self._filters = filters
        self._destination = destination
        self._client_id = client_id
        self._left = self._random.randint(1, 6)  # requests
        runners = simulation.runners(destination)
        self._connection = Connection(runners[0], lambda *reply: None, lambda: None) if runners else None
        self._go_on()

    def _go_on(self) -> None:
        connection, random = self._connection, self._random
        if connection is None or connection.over:
            return
        if not self._left:
            connection.close()
            return
        self._left -= 1
        identity = ClientIdentity(self._destination, self._client_id, random.choice(self._filters))
        if random.random() < 0.3:
            connection.send(Unsubscribe(identity))
        else:
            connection.send(Subscribe(identity, tell_cursor=random.random() < 0.5))
        self._world.callLater(random.choice((0.0, random.uniform(0.0, 0.02), random.uniform(0.0, 0.3))), self._go_on)
