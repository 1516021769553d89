"""Mover: hands destinations from node to node, pauses them, and keeps the nodes evenly loaded. Reactor thread.

A node asks for a move by naming the successor in `running`. The owner does the rest, as running.py says. Each claim's
`running` begins at version 0, so the request also checks the epoch: no claim came between the look and the request.
Every node asks when an operator wants a move. One node alone also balances the cluster: the first by name of those that
could take a destination. It moves one destination at a time, and none while nodes come and go. It plans several moves
at once, and plans anew when a node came or went, when an operator has rebalanced the cluster, and after a while.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from canal_ha.cluster.placement import Placed, PlannedMove, plan
from canal_ha.cluster.session import ClusterSession, answers_to
from canal_ha.errors import CanalError, PlacementRefused, TransactionRefused, ZnodeDenied, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData
from canal_ha.zookeeper.race_events import RunningNode

TICK_S = 1.0  # between two looks at whether the nodes are settled
AGAIN_S = 60.0  # after a move failed, while the nodes stay the same
REST_S = 60.0  # the longest time between two looks at the whole cluster, unless the next move is later
UNSEEN_AGAIN_S = 2.0  # after a look without an answer: nobody was asked to move anything
LOOK_S = 0.02  # between two looks at a destination that is handed over
ANSWER_MOST_S = 15.0  # for a hand-over, which flushes, or a pause
READ_AT_ONCE = 16  # destinations that are asked for together; claims and cursors need answers in between


@dataclass(frozen=True, slots=True)
class HandedOver:
    """A move that was made. seconds: from the request until the new owner's claim; rows wait no longer than that."""

    move: PlannedMove
    seconds: float


class Mover:
    """See the module.

    node: registerIp:port.
    session: the ZooKeeper session.
    view: what this node knows of the members and of the owners; while both stay the same, so does the plan.
    settled: whether no node came or went lately.
    interval_s: between two moves that nobody asked for.
    clock: seconds and callLater of a reactor.
    log: structlog's.
    """

    def __init__(
        self,
        node: str,
        session: ClusterSession,
        *,
        view: Callable[[], tuple[Hashable, Hashable]],
        settled: Callable[[], bool],
        interval_s: float,
        clock: Any,
        log: Any,
    ) -> None:
        self._node = node
        self._session = session
        self._view = view
        self._settled = settled
        self._interval_s = interval_s
        self._clock = clock
        self._log = log
        self._timer: Any = None
        self._balancing = False  # with a plan, of which a move is under way or awaited
        self._moving = False  # a move of a plan is under way, or several of an operator's
        self._plan_until = 0.0
        self._rest: Hashable = None  # the view, or its members alone, with which nothing was left to do
        self._rest_until = 0.0
        self._not_before = 0.0
        self._failed_among: Hashable = None  # the members when the last look or move failed

    def start(self) -> None:
        """Begin to balance the cluster whenever it is settled."""
        self._timer = self._clock.callLater(TICK_S, self._tick)

    def stop(self) -> None:
        """Ask for no further moves."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    # ---- what operators ask for: every method raises ZooKeeperUnavailable

    async def placed(self) -> tuple[Placed, ...]:
        """Return every destination, by name."""
        return tuple([each async for piece in self._pieces() for each in piece])

    async def move(self, destination: str, to: str, *, dry_run: bool = False) -> HandedOver:
        """Let the owner hand the destination to a node. Raises PlacementRefused with the reason if it cannot.

        dry_run: only find out whether it could.
        """
        found = await self._known(destination)
        if found.paused:
            raise PlacementRefused(f"{destination} is paused: resume it first")
        if not found.owner:
            raise PlacementRefused(f"no node runs {destination}, so there is nothing to hand over")
        if found.owner == to:
            raise PlacementRefused(f"{destination} runs on {to} already")
        if found.owner in found.others:
            raise PlacementRefused(f"{found.owner} runs {destination} and cannot hand it over: it is {_FOREIGN}")
        if to in found.others:
            raise PlacementRefused(f"{to} cannot be chosen: it is {_FOREIGN}")
        if to not in found.members:
            could = ", ".join(node for node in found.members if node != found.owner) or "no other node"
            alive = to in await self._session.children(tree.CLUSTER)
            reason = f"{to} does not have {destination}" if alive else f"no node {to} is alive"
            raise PlacementRefused(f"{reason}; {could} could run {destination}")
        move = PlannedMove(destination, found.owner, to)
        return HandedOver(move, 0.0) if dry_run else await self._hand_over(move)

    async def pause(self, destination: str, *, dry_run: bool = False) -> str:
        """Stop the destination until it is resumed. Return the node that ran it, "" if none did.

        dry_run: only find out who runs it.
        Raises PlacementRefused if it is paused already, or if its owner does not stop.
        """
        found = await self._known(destination)
        if found.paused:
            raise PlacementRefused(f"{destination} is paused already")
        if not dry_run:
            await self._change(Create(tree.paused(destination)))
            if not await self._waited(lambda: self._runs_nowhere(destination)):
                raise PlacementRefused(
                    f"{destination} is paused, but {found.owner} still runs it after {ANSWER_MOST_S:g} s: a Java node"
                    " does not know of pauses; stop it there"
                )
        return found.owner

    async def resume(self, destination: str, *, dry_run: bool = False) -> str:
        """Let the nodes race for a paused destination. Return the node that runs it, "" if none does soon.

        dry_run: only find out whether it is paused.
        Raises PlacementRefused if it is not.
        """
        if not (await self._known(destination)).paused:
            raise PlacementRefused(f"{destination} is not paused")
        if dry_run:
            return ""
        await self._change(Delete(tree.paused(destination)))
        await self._waited(lambda: self._runs_somewhere(destination))
        running = await self._running(destination)
        return running.address if running else ""

    async def rebalance(self, *, dry_run: bool = False) -> tuple[HandedOver, ...]:
        """Make the moves that leave every node with about as many destinations, one after the other; return them.

        dry_run: only return them, with 0 seconds each.
        Raises PlacementRefused if a move fails, or if such moves are under way.
        """
        if dry_run:
            return tuple(HandedOver(move, 0.0) for move in plan(await self.placed()))
        if self._moving:
            raise PlacementRefused("this node rebalances the cluster already; `canal-ha destination list` shows it")
        self._moving = True
        self._plan_until = 0.0
        try:
            return tuple([await self._hand_over(move) for move in plan(await self.placed())])
        finally:
            self._moving = False

    # ---- moves that nobody asked for

    def _tick(self) -> None:
        self._timer = self._clock.callLater(TICK_S, self._tick)
        if self._not_before and self._view()[0] != self._failed_among:
            self._not_before = 0.0  # a move to a node that dies fails
        busy = self._balancing or self._moving
        if busy or self._clock.seconds() < self._not_before or not self._settled():
            return
        view = self._view()
        if self._rest not in (view, view[0]) or self._clock.seconds() >= self._rest_until:
            self._balancing = True
            self._plan_until = self._clock.seconds() + REST_S
            Deferred.fromCoroutine(self._balance(view)).addBoth(self._balanced, view)

    async def _balance(self, view: tuple[Hashable, Hashable]) -> None:
        try:
            placed = await self._placed_if_first()
        except ZooKeeperUnavailable as error:
            self._failed(error, view, AGAIN_S if isinstance(error, ZnodeDenied) else UNSEEN_AGAIN_S)
            return
        first = min((node for each in placed for node in each.members), default="") == self._node
        moves = plan(placed) if first else ()
        if not moves:
            self._rest, self._rest_until = view if first else view[0], self._clock.seconds() + REST_S
        for move in moves:
            outdated = self._clock.seconds() >= self._plan_until or self._view()[0] != view[0]
            if self._timer is None or outdated or not self._settled():
                return
            self._moving = True
            try:
                moved = await self._hand_over(move)
            finally:
                self._moving = False
            self._log.info(
                "placement.moved",
                destination=move.destination,
                moved_from=move.moved_from,
                moved_to=move.moved_to,
                seconds=round(moved.seconds, 3),
            )
            await deferLater(self._clock, self._interval_s)

    async def _placed_if_first(self) -> Sequence[Placed]:
        """Return every destination, by name; those read so far once one shows that another node is the first."""
        found: list[Placed] = []
        async for piece in self._pieces():
            found += piece
            if any(node < self._node for each in piece for node in each.members):
                break
        return found

    def _balanced(self, result: Any, view: tuple[Hashable, Hashable]) -> None:
        self._balancing = False
        if result is not None:
            self._failed(result.value, view, AGAIN_S)
            result.trap(CanalError)

    def _failed(self, error: Exception, view: tuple[Hashable, Hashable], again_in_s: float) -> None:
        self._not_before = self._clock.seconds() + again_in_s
        self._failed_among = view[0]
        self._log.warning("placement.not_moved", error=str(error), again_in_s=again_in_s)

    # ---- inside

    async def _hand_over(self, move: PlannedMove) -> HandedOver:
        """Name the successor, and wait until it runs the destination."""
        destination = move.destination
        claimed = await self._session.get(tree.destination(destination))  # before `running`: its version is the epoch
        running = await self._running(destination)
        if claimed is None or running is None or running.address != move.moved_from or not running.active:
            raise PlacementRefused(f"{move.moved_from} does not run {destination} any more")
        if running.successor:
            raise PlacementRefused(f"{move.moved_from} is handing {destination} to {running.successor} already")
        data = tree.RunningData(move.moved_from, successor=move.moved_to)
        began = self._clock.seconds()
        await self._change(
            Check(tree.destination(destination), claimed.version),
            SetData(tree.running(destination), data.to_bytes(), running.version),
        )
        await self._waited(lambda: self._has_left(move))
        running = await self._running(destination)
        if running is None or running.address != move.moved_to:
            now = f"{running.address} runs {destination}" if running else f"no node runs {destination} yet"
            raise PlacementRefused(
                f"{move.moved_to} has not taken {destination}, and {now}: the logs of {move.moved_from} and"
                f" {move.moved_to} say why"
            )
        return HandedOver(move, self._clock.seconds() - began)

    async def _has_left(self, move: PlannedMove) -> bool:
        running = await self._running(move.destination)
        return running is not None and running.active and running.address != move.moved_from

    async def _runs_nowhere(self, destination: str) -> bool:
        return await self._running(destination) is None

    async def _runs_somewhere(self, destination: str) -> bool:
        return await self._running(destination) is not None

    async def _waited(self, holds: Callable[[], Coroutine[Deferred[Any], Any, bool]]) -> bool:
        """Wait until a condition holds, at most ANSWER_MOST_S. Return whether it does."""
        until = self._clock.seconds() + ANSWER_MOST_S
        while not await holds():
            if self._clock.seconds() >= until:
                return False
            await deferLater(self._clock, LOOK_S)
        return True

    async def _change(self, *operations: Operation) -> None:
        try:
            await self._session.transaction(operations)
        except TransactionRefused as refused:
            raise PlacementRefused(f"{refused.path} was changed at the same moment: try again") from refused

    async def _running(self, destination: str) -> RunningNode | None:
        return RunningNode.read(await self._session.get(tree.running(destination)))

    async def _known(self, destination: str) -> Placed:
        if await self._session.get(tree.destination(destination)) is None:
            raise PlacementRefused(f"no node has a destination {destination}; `canal-ha destination list` shows all")
        return await self._placed(destination)

    async def _pieces(self) -> AsyncIterator[Sequence[Placed]]:
        """Yield every destination, by name, some at a time."""
        names = await self._session.children(tree.DESTINATIONS)
        for first in range(0, len(names), READ_AT_ONCE):
            yield await answers_to([self._placed(name) for name in names[first : first + READ_AT_ONCE]])

    async def _placed(self, destination: str) -> Placed:
        try:
            return await self._readable(destination)
        except ZnodeDenied:
            return Placed(destination)

    async def _readable(self, destination: str) -> Placed:
        nodes = await self._session.children(tree.destination_members(destination))
        running, paused, *found = await answers_to(
            [
                self._session.get(path)
                for path in (
                    tree.running(destination),
                    tree.paused(destination),
                    *(tree.destination_member(destination, node) for node in nodes),
                )
            ]
        )
        data = {
            node: tree.MemberData.from_bytes(each.data if each else b"")
            for node, each in zip(nodes, found, strict=True)
        }
        owner = RunningNode.read(running)
        return Placed(
            destination,
            owner.address if owner and owner.active else "",
            running.created if running else 0,
            {node: each.preferred for node, each in data.items() if each},
            tuple(node for node, each in data.items() if not each),
            paused is not None,
        )


_FOREIGN = "a Java node, or one of an earlier version"
