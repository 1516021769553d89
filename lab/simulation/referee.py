"""The promises of ARCHITECTURE.md, each with a name. The referee sees everything: commits, answers, programs, sources.

A broken promise is noted with its time; the run goes on to the next moment and ends there, because the code under test
might catch an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from random import Random
from typing import TYPE_CHECKING

from canal_ha.cluster.inputs import StopReason
from canal_ha.errors import (
    BatchNotFirst,
    BatchUnknown,
    CanalError,
    CursorReplaced,
    Fenced,
    MetaWriteFailed,
    NotRunningHere,
    NotSubscribed,
    SourceUnavailable,
)
from canal_ha.instance.instance import Instance
from canal_ha.model.batch import GetAnswer
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind
from canal_ha.wire.packets import Acknowledge, Get, Request, Rollback, Subscribe, Unsubscribe
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Create, Delete, Operation, SetData
from canal_ha.zookeeper.tree import RunningData
from lab.simulation.source import FILTERS, Server, Source, rows_of
from lab.simulation.time import World
from lab.simulation.zookeeper import Ensemble

if TYPE_CHECKING:
    from lab.simulation.node import Connection, Node

NOTICED_S = 4.0  # a healthy node hears of an edit within this time
PAUSE_S = 2.0  # a node that was healthy for so long knows which destinations are paused
LATE_S = 2.5  # a healthy node makes an acknowledged cursor durable within its flush period and this time

PROMISES = {
    "acked-is-durable": "With a flush period of 0, an acknowledged cursor is durable when its ACK is done.",
    "acked-not-again": "While an instance runs, it delivers no row that it has let a client acknowledge.",
    "acked-not-again-after-orderly-stop": "After an orderly stop no acknowledged row is delivered again.",
    "batch-ids-not-reused": "On one connection every batch has a greater id than those before.",
    "cursor-never-back": "A cursor moves forward only, unless an operator moves it.",
    "cursor-within-acks": "A cursor never passes a row that its client has not acknowledged.",
    "edit-noticed": "A healthy owner goes on at a cursor that an operator wrote, also while its client is idle.",
    "edit-wins": "The owner never overwrites a cursor that an operator wrote.",
    "first-start-kept": "The first client begins where the source stood when the destination first ran.",
    "flushed-in-time": "A healthy owner makes an acknowledged cursor durable soon after the flush period.",
    "in-order": "A batch holds rows in the order of their commits.",
    "lost-nothing": "When everything works again, every client gets and acknowledges all its rows.",
    "no-gap": "A batch begins at the first row that is neither acknowledged nor in flight, or before it.",
    "no-stream-on-stopped-instance": "A stopped instance reads nothing from its source.",
    "no-surprise": "No error is unexpected.",
    "one-owner-serves": "A node answers clients only while it owns the destination.",
    "one-owner-writes": "Only the newest owner of a destination writes its cursors.",
    "own-write-is-no-edit": "An owner does not take its own write for an operator's.",
    "paused-stays-stopped": "A healthy node stops a paused destination, and none starts it before it is resumed.",
    "redelivery-at-boundary": "A new owner begins to deliver at the boundary of a transaction.",
    "somebody-runs": "When everything works again, exactly one node runs each destination, and `running` names it."
    " Nobody but a person makes `running` name a node that does not hold it.",
    "start-is-durable": "A client's first cursor is durable before its SUBSCRIBE is answered.",
    "switch-is-durable": "After a switch of the source, every later owner begins with the new server.",
}


ANY_REFUSAL = (NotRunningHere,)
"""Why a node may refuse any request."""

REFUSALS: dict[type[Request], tuple[type[CanalError], ...]] = {
    Subscribe: (Fenced, MetaWriteFailed, SourceUnavailable),
    Unsubscribe: (Fenced, MetaWriteFailed),
    Get: (CursorReplaced, NotSubscribed),
    Acknowledge: (BatchNotFirst, BatchUnknown, CursorReplaced, MetaWriteFailed, NotSubscribed),
    Rollback: (BatchNotFirst, BatchUnknown),  # after an ACK that was refused
}
"""Why it may refuse one of these, besides."""


class Broken(AssertionError):
    """A promise is broken. promise: its name."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise


@dataclass(frozen=True, slots=True)
class Delivery:
    """A batch as a program gets it.

    edits: operator's edits of the cursor before the node took the batch.
    whole: it ends with a transaction.
    """

    batch_id: int
    rows: tuple[int, ...]
    edits: int
    whole: bool


@dataclass
class Consumer:
    """What is true of one client id.

    durable: the last row before its cursor in ZooKeeper; None while it has none.
    processed: rows that its programs have acknowledged, whether or not the ACK arrived.
    spans: since when, as rows, which tables are delivered; the first since `durable`.
    """

    durable: int | None = None
    answered: bool = False  # a SUBSCRIBE was answered since it got its first cursor
    processed: set[int] = field(default_factory=set)
    filter: str = ""
    spans: list[tuple[int, str]] = field(default_factory=list)
    edits: int = 0
    edited: bool = False  # the last change of the cursor was an operator's
    noticed: bool = True  # the owner knows of it
    edit_texts: set[str] = field(default_factory=set)
    edited_to: str = ""  # the operator's last position
    promised: tuple[int, Node, float] | None = None  # after an orderly stop: rows that must not come again
    fresh: bool = False  # nothing was delivered since the last instance started
    in_flight: dict[int, Connection] = field(default_factory=dict)
    """Rows that the running instance delivered since the last ROLLBACK, with the connection. The client may have ended
    it, and the node does not know that yet."""
    newest: Connection | None = None  # subscribed or rolled back last; None if the node knows that it is over
    taken_back: set[int] = field(default_factory=set)  # rows that the newest connection has to get before any other
    astray: dict[Connection, set[int]] = field(default_factory=dict)  # rows that went to older connections
    begins_again: bool = False  # the running instance changed servers inside a transaction, and began it again

    def began(self, connection: Connection) -> None:
        """A connection has subscribed or rolled back."""
        if connection is not self.newest:
            self.newest = connection
            self.taken_back.clear()

    def forget_deliveries(self) -> None:
        """Another instance begins, or the cursor was edited: what was delivered before comes again or is void."""
        self.in_flight.clear()
        self.taken_back.clear()
        self.astray.clear()


class Referee:
    """See the module. trace: the newest events, oldest first."""

    def __init__(self, world: World, ensemble: Ensemble, sources: dict[str, Source], random: Random) -> None:
        self.broken: list[tuple[float, str, str]] = []
        self.trace: list[str] = []
        self.nodes: list[Node] = []  # every process so far
        self.writes = self.deliveries = self.rows = 0
        self.owner: dict[str, int] = {}  # session of the newest claim
        self._named: dict[str, str] = {}  # whom `running` named last
        self.flush_period_ms = 1000
        self._consumers: dict[tuple[str, int], Consumer] = {}
        self._running: dict[str, tuple[Node, Instance]] = {}
        self._acked: dict[tuple[str, int], tuple[Instance, int]] = {}  # what the running instance let it acknowledge
        self._stopping: dict[str, tuple[Node, Instance, float]] = {}
        self._kept_start: dict[str, int] = {}
        # the configured master, or what an operator's switch has chosen
        self._chosen: dict[str, Server | None] = {name: source.servers[0] for name, source in sources.items()}
        self._had_client: set[str] = set()
        self._meddled: dict[str, float] = {}
        self._paused: dict[str, float] = {}  # since when
        self._ends: dict[tuple[Node, str, int, int], LogPosition] = {}  # of batches: where their ACKs move the cursor
        self._world = world
        self._ensemble = ensemble
        self._sources = sources
        self._random = random
        ensemble.commits.append(self._committed)

    def note(self, what: str) -> None:
        """Add an event to the trace."""
        self.trace.append(f"{self._world.seconds():8.3f} {what}")

    def broke(self, promise: str, what: str) -> None:
        """Note a broken promise."""
        assert promise in PROMISES, promise
        self.note(f"BROKEN {promise}: {what}")
        self.broken.append((self._world.seconds(), promise, what))

    def consumer(self, destination: str, client_id: int) -> Consumer:
        """Return what is true of a client id."""
        return self._consumers.setdefault((destination, client_id), Consumer())

    # ---- what operators do

    def meddled(self, destination: str, for_s: float) -> None:
        """An operator deleted `running` or ended a session early.

        Until the owner notices, within its lease, two nodes may serve the destination, though only one can write.
        """
        self._meddled[destination] = self._world.seconds() + for_s

    def reset(self, destination: str) -> None:
        """The destination begins anew, because its nodes in ZooKeeper are gone or old."""
        for key, consumer in self._consumers.items():
            if key[0] == destination:
                consumer.durable = None
                consumer.promised = None
                consumer.processed.clear()
                consumer.edits += 1
        self._had_client.add(destination)
        self._chosen.pop(destination, None)
        self._acked = {key: acked for key, acked in self._acked.items() if key[0] != destination}

    def restored(self, destination: str) -> None:
        """The ensemble came back with old cursors."""
        self.reset(destination)
        for (name, client_id), consumer in self._consumers.items():
            node = self._ensemble.tree.get(tree.cursor(destination, client_id))
            if name == destination and node is not None and node.data:
                self._begins(consumer, self._sources[destination].row(LogPosition.from_json(node.data.decode())))
                consumer.edit_texts.add(str(LogPosition.from_json(node.data.decode())))
                consumer.noticed = False

    # ---- what ZooKeeper commits

    def _committed(self, session_id: int, operations: Sequence[Operation], versions: tuple[int, ...]) -> None:
        for operation, _ in groupby(operations):  # a claim may repeat one many times
            parts = operation.path.split("/")
            if len(parts) < 5 or parts[3] != "destinations":
                continue
            destination, name = parts[4], parts[-1]
            if len(parts) == 5 and isinstance(operation, SetData):  # a claim
                self.owner[destination] = session_id
                self.note(f"{destination}: session {session_id} claims")
            elif name == "cursor" and isinstance(operation, Create | SetData):
                self._cursor_written(destination, int(parts[5]), session_id, operation.data)
            elif name == "cursor" and isinstance(operation, Delete):
                consumer = self.consumer(destination, int(parts[5]))
                consumer.durable = consumer.promised = None
                consumer.edits += 1
                self._acked.pop((destination, int(parts[5])), None)
            elif name == "filter" and isinstance(operation, Create | SetData):
                consumer = self.consumer(destination, int(parts[5]))
                consumer.filter = operation.data.decode()
                consumer.taken_back.clear()
                tables = FILTERS[consumer.filter]
                consumer.spans = [(row, _both(before, tables)) for row, before in consumer.spans]
            elif name == "filter" and isinstance(operation, Delete):
                self.consumer(destination, int(parts[5])).filter = ""
            elif name == "parse" and not isinstance(operation, Delete) and session_id:
                position = LogPosition.from_json(operation.data.decode())  # type: ignore[union-attr]  # not a Check
                self._kept_start.setdefault(destination, self._sources[destination].row(position))
            elif name == "running" and len(parts) == 6 and isinstance(operation, Delete):
                self._released(destination, session_id)
            elif name == "running" and len(parts) == 6 and isinstance(operation, Create | SetData):
                data = RunningData.from_bytes(operation.data)
                if data.successor and not data.active:
                    self._released(destination, session_id)
                self._running_written(destination, session_id, data.address)
            elif name == "paused":
                self._pause(destination, paused=isinstance(operation, Create))

    def _running_written(self, destination: str, session_id: int, address: str) -> None:
        node = self._ensemble.tree.get(tree.running(destination))
        holder = next((each.name for each in self.nodes if node is not None and node.owner in each.session.held), "")
        before, self._named[destination] = self._named.get(destination), address
        if session_id and holder and address not in (holder, before):  # else a person wrote it
            self.broke(
                "somebody-runs", f"{destination}: session {session_id} writes that {address}, not {holder} runs it"
            )

    def _cursor_written(self, destination: str, client_id: int, session_id: int, data: bytes) -> None:
        consumer, source = self.consumer(destination, client_id), self._sources[destination]
        position = LogPosition.from_json(data.decode())
        row = source.row(position)
        where = f"{destination}/{client_id}"
        self.note(f"{where}: session {session_id} writes cursor {row} ({position})")
        if not session_id:
            self._edited(consumer, destination, client_id, position, row)
            return
        self.writes += 1
        owner = self.owner.get(destination)
        if owner != session_id and not any({owner, session_id} <= node.session.held for node in self.nodes):
            self.broke("one-owner-writes", f"{where}: session {session_id}, the owner is {owner}")
        before = consumer.durable
        if before is None or not consumer.answered:
            self._begins(consumer, row)
            kept = self._kept_start.get(destination, row)
            if destination not in self._had_client and row != kept:
                self.broke("first-start-kept", f"{where}: begins behind row {row}, row {kept} was kept")
            self._had_client.add(destination)
            return
        if row < before:
            promise = "edit-wins" if consumer.edited else "cursor-never-back"
            self.broke(promise, f"{where}: from row {before} to row {row}")
        missing = self._missing(consumer, source, row)
        if missing is not None:
            promise = "edit-wins" if consumer.edited and not consumer.noticed else "cursor-within-acks"
            self.broke(promise, f"{where}: passes row {missing} on its way from {before} to {row}")
        consumer.durable = row
        consumer.edited = False
        consumer.noticed = True
        consumer.spans = [(row, consumer.spans[-1][1])]

    def _begins(self, consumer: Consumer, row: int) -> None:
        """A client gets its first cursor."""
        consumer.durable = row
        consumer.answered = False
        consumer.processed.clear()
        consumer.spans = [(row, FILTERS[consumer.filter])]

    def _edited(self, consumer: Consumer, destination: str, client_id: int, position: LogPosition, row: int) -> None:
        consumer.edits += 1
        consumer.taken_back.clear()
        consumer.edited, consumer.noticed = True, False
        consumer.durable = row
        consumer.promised = None
        consumer.processed = {each for each in consumer.processed if each <= row}
        # not FILTERS[consumer.filter]: a SUBSCRIBE that the node refused may have stored a filter that does not count
        consumer.spans = [(row, consumer.spans[-1][1] if consumer.spans else FILTERS[consumer.filter])]
        consumer.edit_texts.add(str(position))
        consumer.edited_to = str(position)
        self._acked.pop((destination, client_id), None)
        node, instance = self._running.get(destination, (None, None))
        edits, at = consumer.edits, self._world.seconds()

        def check() -> None:
            if node is None or self._running.get(destination) != (node, instance) or consumer.edits != edits:
                return
            if not consumer.noticed and node.fine_for(self._world.seconds() - at):
                self.broke("edit-noticed", f"{destination}/{client_id}: {node.name} does not know of row {row}")

        self._world.callLater(NOTICED_S, check)

    def _missing(self, consumer: Consumer, source: Source, to: int) -> int | None:
        """Return the first row up to `to` that was delivered to the client and not acknowledged."""
        ends = [start for start, _ in consumer.spans[1:]] + [to]
        tables = consumer.spans[-1][1]
        found: int | None = None
        for (start, own), end in zip(reversed(consumer.spans), reversed(ends), strict=True):
            tables = _both(tables, own)
            missing = source.log.missing(start + 1, min(end, to), tables, consumer.processed)
            found = found if missing is None else missing
        return found

    def _released(self, destination: str, session_id: int) -> None:
        """The owner released the destination in good order: everything acknowledged is durable."""
        node, instance, at = self._stopping.pop(destination, (None, None, 0.0))
        if node is None or instance is None or node.session.id != session_id:
            return
        if not node.fine_for(self._world.seconds() - at + LATE_S):
            return  # its lease may have been over
        source = self._sources[destination]
        for identity in instance.meta.clients():
            cursor = instance.meta.cursor(identity.client_id)
            consumer = self.consumer(destination, identity.client_id)
            durable = consumer.durable
            if cursor is not None and durable is not None and consumer.noticed and source.row(cursor) > durable:
                self.broke(
                    "acked-not-again-after-orderly-stop",
                    f"{destination}/{identity.client_id}: released at {durable}, {source.row(cursor)} was acknowledged",
                )

    def _pause(self, destination: str, *, paused: bool) -> None:
        self.note(f"{destination}: {'paused' if paused else 'resumed'}")
        self._paused.pop(destination, None)
        if paused:
            at = self._paused[destination] = self._world.seconds()
            self._world.callLater(NOTICED_S, self._must_be_stopped, destination, at)

    def _must_be_stopped(self, destination: str, at: float) -> None:
        node, _ = self._running.get(destination, (None, None))
        if node is not None and self._paused.get(destination) == at and node.fine_for(PAUSE_S):
            self.broke("paused-stays-stopped", f"{destination}: {node.name} still serves")

    # ---- what nodes do

    def started(self, destination: str, node: Node, instance: Instance) -> None:
        """An instance serves from now on."""
        self.note(f"{destination}: {node.name} serves")
        paused_at = self._paused.get(destination, float("inf"))
        if self._world.seconds() > paused_at + PAUSE_S and node.fine_for(PAUSE_S):
            self.broke("paused-stays-stopped", f"{destination}: {node.name} starts")
        self._running[destination] = (node, instance)
        for (name, client_id), consumer in self._consumers.items():
            cursor = instance.meta.cursor(client_id)
            if name != destination or cursor is None:
                continue
            consumer.fresh, consumer.begins_again = True, False
            consumer.forget_deliveries()
            if consumer.durable is not None:
                consumer.spans = [(consumer.durable, FILTERS[consumer.filter])]
                if self._sources[destination].row(cursor) == consumer.durable:
                    consumer.noticed = True

    def stopping(self, destination: str, node: Node, instance: Instance | None, reason: StopReason) -> None:
        """An instance stops."""
        self.note(f"{destination}: {node.name} stops: {reason.value}")
        if self._running.get(destination, (None,))[0] is node:
            del self._running[destination]
        self._stopping.pop(destination, None)
        if instance is None or not reason.orderly:
            return
        self._stopping[destination] = (node, instance, self._world.seconds())
        if (
            reason is not StopReason.SHUTDOWN
            or not node.fine_for(2.0)
            or self._world.seconds() < self._meddled.get(destination, -1.0)
        ):
            return
        for identity in instance.meta.clients():
            consumer = self.consumer(destination, identity.client_id)
            cursor = instance.meta.cursor(identity.client_id)
            if cursor is not None and consumer.noticed:
                row = self._sources[destination].row(cursor)
                consumer.promised = (row, node, self._world.seconds())

    def event(self, destination: str, node: Node, name: str, alarm: bool, facts: dict[str, object]) -> None:
        """An instance reports an event."""
        if name == "cursor.replaced":
            consumer = self.consumer(destination, int(str(facts["client_id"])))
            consumer.forget_deliveries()  # an edit voids the batches in flight
            self.note(f"{destination}: {node.name} takes over the edit {facts['position']}")
            self._acked.pop((destination, int(str(facts["client_id"]))), None)
            meddled = self._world.seconds() < self._meddled.get(destination, -1.0)
            if str(facts["position"]) not in consumer.edit_texts and not meddled:
                self.broke("own-write-is-no-edit", f"{destination}: {node.name} takes {facts['position']} for an edit")
            consumer.noticed = consumer.edited_to in ("", str(facts["position"]))  # else a newer edit is on its way
        elif name == "stream.moved":
            consumer = self.consumer(destination, int(str(facts["client_id"])))
            consumer.begins_again = consumer.begins_again or alarm
            consumer.taken_back.clear()
        elif name == "instance.broken":
            self.broke("no-surprise", f"{destination} at {node.name}: {facts['error']} {facts['trace']}")

    def _serves(self, destination: str, node: Node, what: str) -> None:
        session_id = node.session.id
        owner = self.owner.get(destination)
        if self._world.seconds() < self._meddled.get(destination, -1.0):
            return
        if owner != session_id or session_id not in self._ensemble.sessions:
            alive = "lives" if session_id in self._ensemble.sessions else "is over"
            self.broke(
                "one-owner-serves",
                f"{destination}: {node.name} answers {what}; its session {session_id} {alive}, {owner} owns it",
            )

    def fetched(self, connection: Connection, identity: ClientIdentity, message: GetAnswer) -> Delivery | None:
        """A node answers a GET. Return what the program gets; None for an empty batch."""
        node, destination, client_id = connection.node, identity.destination, identity.client_id
        self._serves(destination, node, "a GET")
        if message.batch is None:
            return None
        rows = rows_of(message.batch.views)
        consumer, where = self.consumer(destination, client_id), f"{destination}/{client_id}"
        self.note(f"{where}: {node.name} delivers batch {message.batch_id} with {_range(rows)}")
        self.deliveries += 1
        self.rows += len(rows)
        if message.batch_id <= connection.last_id:
            self.broke("batch-ids-not-reused", f"{where}: batch {message.batch_id} after {connection.last_id}")
        connection.last_id = max(connection.last_id, message.batch_id)
        if rows:
            self._check_rows(connection, consumer, where, rows, destination, client_id)
            self._delivered(consumer, connection, rows)
            consumer.fresh = False
        segment, _, last = message.batch.pieces[-1]
        whole = segment.kinds[last - 1] in (EntryKind.END, EntryKind.DDL)
        if message.batch.range.ack is not None:
            self._ends[node, destination, client_id, message.batch_id] = message.batch.range.ack
        return Delivery(message.batch_id, rows, consumer.edits, whole)

    def _delivered(self, consumer: Consumer, connection: Connection, rows: Sequence[int]) -> None:
        """Note which rows are in flight. Those that a newer connection has taken back are not, on an older one."""
        if consumer.newest in (None, connection):
            consumer.taken_back.difference_update(rows)
        else:
            rows = [row for row in rows if row not in consumer.taken_back]
            consumer.astray.setdefault(connection, set()).update(rows)
        consumer.in_flight.update(dict.fromkeys(rows, connection))

    def _check_rows(
        self,
        connection: Connection,
        consumer: Consumer,
        where: str,
        rows: tuple[int, ...],
        destination: str,
        client_id: int,
    ) -> None:
        source, first = self._sources[destination], rows[0]
        if any(not self._may_follow(consumer, source, one, other) for one, other in pairwise(rows)):
            self.broke("in-order", f"{where}: {rows}")
        serving, instance = self._running.get(destination, (None, None))
        acked_by, acked = self._acked.get((destination, client_id), (None, 0))
        if acked_by is instance and instance is not None and first <= acked:
            self.broke("acked-not-again", f"{where}: row {first}, {acked} is acknowledged")
        if consumer.promised:
            row, node, at = consumer.promised
            if first <= row and node.fine_since <= at:
                self.broke("acked-not-again-after-orderly-stop", f"{where}: row {first}, {row} was acknowledged")
        if consumer.durable is None or not consumer.noticed or serving is not connection.node:
            return
        start, tables = consumer.spans[-1]
        if consumer.fresh and source.log.missing(source.log.begin_of(first), first - 1, tables, ()) is not None:
            self.broke("redelivery-at-boundary", f"{where}: begins at row {first}")
        known = consumer.processed | consumer.in_flight.keys()
        missing = source.log.missing(start + 1, first - 1, tables, known)
        if missing is None:
            missing = source.log.missing(first, rows[-1], tables, rows)
        if missing is not None:
            self.broke("no-gap", f"{where}: delivers {_range(rows)} before row {missing}")

    def _may_follow(self, consumer: Consumer, source: Source, one: int, other: int) -> bool:
        """Return whether a row may follow another in a batch: a later one, or the first of a transaction come again."""
        begin = source.log.begin_of(one)
        return one < other or (
            consumer.begins_again
            and other >= begin
            and source.log.missing(begin, other - 1, consumer.spans[-1][1], ()) is None
        )

    def rolls_back(self, identity: ClientIdentity, connection: Connection | None, *, unasked: bool) -> Consumer:
        """A node begins a roll-back; return what was true of the client before.

        connection: the one that asks; None if it is over, or if the node does so by itself.
        unasked: the node does so by itself.
        """
        consumer = self.consumer(identity.destination, identity.client_id)
        before = replace(consumer)
        rows, consumer.in_flight, consumer.astray = set(consumer.in_flight), {}, {}
        consumer.taken_back = set(consumer.taken_back)
        if connection is not None:
            consumer.began(connection)
        if connection is not None or unasked:
            consumer.taken_back |= rows
        return before

    def did_not_roll_back(self, identity: ClientIdentity, before: Consumer) -> None:
        """A node has refused a roll-back before which this was true."""
        consumer = self.consumer(identity.destination, identity.client_id)
        consumer.in_flight, consumer.astray = before.in_flight, before.astray
        consumer.newest, consumer.taken_back = before.newest, before.taken_back

    def lost(self, connection: Connection) -> None:
        """A node notices that a connection is over."""
        for consumer in self._consumers.values():
            if consumer.newest is connection:
                consumer.newest = None
                consumer.taken_back.clear()

    def ended(self, connection: Connection) -> None:
        """A node has done what the end of a connection asks for. What had gone astray there comes again."""
        for consumer in self._consumers.values():
            for row in consumer.astray.pop(connection, ()):
                if consumer.newest not in (None, connection) and consumer.in_flight.get(row) is connection:
                    del consumer.in_flight[row]

    def subscribed(self, connection: Connection, request: Subscribe, cursor: LogPosition | None) -> None:
        """A node answers a SUBSCRIBE."""
        destination, client_id = request.identity.destination, request.identity.client_id
        self._serves(destination, connection.node, "a SUBSCRIBE")
        consumer = self.consumer(destination, client_id)
        if connection in connection.node.talking and (request.identity.filter or not request.tell_cursor):
            consumer.began(connection)
        consumer.answered = True
        if self._world.seconds() < self._meddled.get(destination, -1.0):
            return
        if cursor is None or tree.cursor(destination, client_id) not in self._ensemble.tree:
            self.broke("start-is-durable", f"{destination}/{client_id}: subscribed without a cursor in ZooKeeper")
            return
        if cursor is not None and consumer.spans and consumer.spans[-1][1] != FILTERS[consumer.filter]:
            row = max(self._sources[destination].row(cursor), consumer.spans[-1][0])
            consumer.spans.append((row, FILTERS[consumer.filter]))

    def ack_done(self, node: Node, request: Acknowledge) -> None:
        """A node has carried out an ACK."""
        destination, client_id = request.identity.destination, request.identity.client_id
        self._serves(destination, node, "an ACK")
        running, instance = self._running.get(destination, (None, None))
        if running is not node or instance is None:
            return
        cursor, consumer = instance.meta.cursor(client_id), self.consumer(destination, client_id)
        if cursor is None or consumer.durable is None or not consumer.noticed:
            return
        row = self._sources[destination].row(cursor)
        self._acked[destination, client_id] = (instance, row)
        # another connection's ACK may have moved the cursor further, and is not done
        end = self._ends.pop((node, destination, client_id, request.batch_id), None)
        row = consumer.durable if end is None else min(row, self._sources[destination].row(end))
        if not self.flush_period_ms and row > consumer.durable:
            self.broke(
                "acked-is-durable", f"{destination}/{client_id}: {row} is acknowledged, {consumer.durable} durable"
            )
        elif self._random.random() < 0.3:
            now, edits = self._world.seconds(), consumer.edits
            wait_s = self.flush_period_ms / 1000 + LATE_S

            def check() -> None:
                still = self._running.get(destination, (None, None))[1] is instance and consumer.edits == edits
                durable = consumer.durable
                if still and node.fine_for(self._world.seconds() - now) and durable is not None and durable < row:
                    self.broke("flushed-in-time", f"{destination}/{client_id}: {row} acknowledged, {durable} durable")

            self._world.callLater(wait_s, check)

    def failed(self, request: Request, error: Exception) -> None:
        """A node answers with an error."""
        if not isinstance(error, (*ANY_REFUSAL, *REFUSALS.get(type(request), ()))):
            self.broke("no-surprise", f"{type(request).__name__}: {error!r}")

    def switched(self, destination: str, server: Server | None) -> Server | None:
        """An operator's switch has succeeded; None: nobody knows whether it did. Return what was chosen before."""
        before = self._chosen.get(destination)
        self._chosen[destination] = server
        return before

    def began(self, destination: str, server: Server) -> None:
        """A new owner begins with this server."""
        chosen = self._chosen.get(destination)
        if chosen is not None and server is not chosen:
            self.broke("switch-is-durable", f"{destination}: begins with {server.name} after a switch to {chosen.name}")

    # ---- what programs do

    def acknowledged(self, destination: str, client_id: int, delivery: Delivery) -> None:
        """A program sends the ACK of a batch."""
        consumer = self.consumer(destination, client_id)
        if delivery.edits == consumer.edits:
            consumer.processed.update(delivery.rows)

    # ---- at the end

    def is_done(self, destination: str, client_id: int) -> bool:
        """Return whether the client has all rows and its cursor is durable."""
        consumer, source = self.consumer(destination, client_id), self._sources[destination]
        if consumer.durable is None:
            return False
        tables = FILTERS[consumer.filter]
        return source.log.missing(consumer.durable + 1, source.log.last, tables, ()) is None

    def must_be_done(self, destination: str, client_id: int) -> None:
        """Note a broken promise unless the client has all rows and its cursor is durable."""
        consumer, source = self.consumer(destination, client_id), self._sources[destination]
        if consumer.durable is None:
            self.broke("lost-nothing", f"{destination}/{client_id}: has no cursor")
            return
        missing = source.log.missing(consumer.durable + 1, source.log.last, FILTERS[consumer.filter], ())
        if missing is not None:
            self.broke("lost-nothing", f"{destination}/{client_id}: stays before row {missing} of {source.log.last}")


def _both(tables: str, others: str) -> str:
    """Return the tables that are in both."""
    return "".join(table for table in tables if table in others)


def _range(rows: tuple[int, ...]) -> str:
    return f"rows {rows[0]}..{rows[-1]}" if rows else "no rows"
