"""Cluster: the node's single entry point to this room. Reactor thread."""

from __future__ import annotations

import socket
from collections.abc import Callable, Hashable
from random import Random
from typing import Any

import structlog
from twisted.internet.defer import Deferred, gatherResults

from canal_ha.cluster.denials import Denials
from canal_ha.cluster.destination_holders import DestinationHolders
from canal_ha.cluster.election import Election, Owner
from canal_ha.cluster.members import Members
from canal_ha.cluster.mover import Mover
from canal_ha.cluster.session import ClusterSession
from canal_ha.config.model import CanalConfig
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.race_events import SessionEvent, SessionUp

EVERY_ADDRESS = ("", "0.0.0.0", "::")


class Cluster:
    """This node's part in the cluster.

    config: the node's configuration.
    reactor: Twisted's.
    session: the ZooKeeper session.
    owner: runs the instances.
    status_address: host:port of this node's status endpoint, published beside its name.
    random: decides the order of claims and the random part of their delays.
    """

    def __init__(
        self,
        config: CanalConfig,
        reactor: Any,
        session: ClusterSession,
        owner: Owner,
        status_address: Callable[[], str],
        *,
        random: Random | None = None,
        log: Any = None,
    ) -> None:
        self.node = node_address(config)
        log = log or structlog.get_logger("canal.cluster")
        self._log = log
        self._session = session
        self.denials = Denials(log)
        self.members = Members(self.node, session, status_address, clock=reactor, denials=self.denials, log=log)
        self._election = Election(
            self.node,
            session,
            self.members,
            owner,
            clock=reactor,
            random=random or Random(),
            denials=self.denials,
            log=log,
        )
        self.holders = DestinationHolders(session)
        self.mover = Mover(
            self.node,
            session,
            view=self._view,
            settled=self._is_settled,
            interval_s=config.rebalance_interval_s,
            clock=reactor,
            log=log,
        )
        self._clock = reactor
        self._rebalance_delay_s = config.rebalance_delay_s
        self._known: set[str] = set()
        self._session_ids: set[int] = set()

    async def start(self) -> None:
        """Begin to connect and return at once. Without ZooKeeper no destination runs, and the log says so."""
        self._log.info("cluster.starting", node=self.node)
        self._session.listen(self._session_changed)
        if self._rebalance_delay_s >= 0:
            self.mover.start()
        await self._session.start()

    async def stop(self) -> None:
        """Shut down in order: stop every instance (which flushes), release its destination, unregister, disconnect."""
        self.mover.stop()
        racing = sorted(self._election.states())  # also a destination whose removal has not ended
        await gatherResults([Deferred.fromCoroutine(self._election.remove(destination)) for destination in racing])
        await self._election.released()
        await self.members.stop()
        await self._session.stop()
        self._log.info("cluster.stopped", node=self.node)

    # ---- destinations

    def add(self, destination: str, *, race: bool = True, preferred: bool = True, lazy: bool = False) -> None:
        """Register this node as able to run the destination.

        destination: its name.
        race: False: do not race yet; a later `add` does.
        preferred: whether this node has all labels that the destination prefers.
        lazy: whether the destination starts at its first client.
        """
        self._known.add(destination)
        self.members.register(destination, tree.MemberData(preferred, lazy).to_bytes())
        if race:
            self._election.add(destination)

    async def remove(self, destination: str) -> None:
        """Take no further part in running the destination. If it runs here, stop it and release it in good order."""
        self._known.discard(destination)
        await self._election.remove(destination)
        if destination not in self._known:  # else it was added again meanwhile
            await self.members.unregister(destination)

    def hand_over(self, destination: str) -> None:
        """Let another node take the destination in good order; this node waits 5 s before it races again."""
        self._election.hand_over(destination)

    def runs(self, destination: str) -> bool:
        """Return whether this node may act as the destination's owner now."""
        return self._election.runs(destination)

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper is connected."""
        return self._session.connected

    @property
    def sessions(self) -> int:
        """How many sessions there were since the start."""
        return len(self._session_ids)

    @property
    def running(self) -> tuple[str, ...]:
        """The destinations that run here."""
        return self._election.running

    def states(self) -> dict[str, tuple[str, str]]:
        """Return for each destination its RaceState and, in STANDBY, the owner's address."""
        return self._election.states()

    def owners(self) -> dict[str, str]:
        """Return for each destination the address of its owner; "" while this node knows none."""
        return {name: self.node if state == "RUNNING" else owner for name, (state, owner) in self.states().items()}

    def _view(self) -> tuple[Hashable, Hashable]:
        return self.members.names, tuple(sorted(self.owners().items()))

    def _is_settled(self) -> bool:
        if not self._session.connected or self._election.claims:
            return False
        return self.members.stable_in(self._clock.seconds(), self._rebalance_delay_s) == 0.0

    def _session_changed(self, event: SessionEvent) -> None:
        if isinstance(event, SessionUp):
            self._session_ids.add(event.session_id)
            self.members.connected()
        self._election.session_changed(event)


def node_address(config: CanalConfig) -> str:
    """Return registerIp:port: canal.register.ip, else canal.ip, else the machine's address for outgoing traffic."""
    bound = "" if config.ip in EVERY_ADDRESS else config.ip
    return f"{config.register_ip or bound or local_address()}:{config.port}"


def local_address() -> str:
    """Return the local IPv4 address of the default route, or loopback if there is none. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: only makes the kernel choose a route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
