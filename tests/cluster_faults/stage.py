"""The whole cluster: three ZooKeepers, two databases, three nodes, writers and clients, and links that can be cut."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lab import MariaDB, MySQL, Network, Node, SqlServer, follow
from lab.cluster.coordination import Coordination
from lab.cluster.delivery import Delivery
from lab.cluster.members import Member
from lab.cluster.readers import CLIENT_ID, Reader
from lab.staged import Staged
from tests.cluster_faults.ledger import Ledger, Writer
from tests.waiting import until

SESSION_S = 6.0  # the default of canal.zookeeper.session.timeout
PATIENCE_S = 60.0  # for steps without a limit of their own: a machine may be slow


class Stage(Staged):
    """A whole cluster. When the block begins, everything runs, and rows arrive everywhere.

    destinations: name -> kind of the server it follows.
    doubled: destinations with a second client process.
    """

    def __init__(self, destinations: Mapping[str, type[MySQL] | type[MariaDB]], doubled: tuple[str, ...]) -> None:
        super().__init__()
        self._kinds = destinations
        self._doubled = doubled
        self.network = Network()
        self.coordination = Coordination(self.network)
        self.ensemble = self.coordination.ensemble
        self.servers: dict[type[SqlServer], SqlServer] = {}
        self.writers: list[Writer] = []
        self.ledgers: dict[str, Ledger] = {}
        self.members: list[Member] = []
        self.deliveries = {destination: Delivery() for destination in destinations}
        self.readers: list[Reader] = []
        self._made_readers = 0

    def _start(self) -> None:
        enter = self._stack.enter_context
        enter(self.network)
        self.servers = {kind: kind(server_id=number) for number, kind in enumerate(set(self._kinds.values()), 1)}
        for process in (*self.ensemble.nodes, *self.servers.values()):
            process.launch()
        enter(self.coordination)
        for number, (kind, server) in enumerate(self.servers.items()):
            enter(server)
            schemas = [name for name, its_kind in self._kinds.items() if its_kind is kind]
            writer = Writer(server, schemas, seed=number)
            writer.create()
            self.writers.append(writer)
            self.ledgers |= writer.ledgers
        configured = {
            name: follow(self.servers[kind], {"canal.instance.filter.regex": rf"{name}\..*"})
            for name, kind in self._kinds.items()
        }
        for number in range(3):
            links = {zookeeper: self.network.link(zookeeper.port) for zookeeper in self.ensemble.nodes}
            hosts = ",".join(link.address for link in links.values())
            self.members.append(Member(Node(configured, zk_servers=hosts, name=f"node{number}"), links))
            self.members[-1].node.launch()
        for member in self.members:
            enter(member.node)
        until(lambda: all(self.owner(name) for name in self._kinds), seconds=PATIENCE_S, what="the first race")
        self._stack.callback(self._end_readers)
        for name in self._kinds:
            for _ in range(2 if name in self._doubled else 1):
                self.add_reader(name)
        until(lambda: all(map(self.cursor_exists, self._kinds)), seconds=PATIENCE_S, what="the first subscriptions")
        for writer in self.writers:
            enter(writer)
        self.caught_up()

    def _end_readers(self) -> None:
        for reader in self.readers:
            reader.kill()

    # ---- who and where

    def owner(self, destination: str) -> Member | None:
        """Return the member that `running` names, if any."""
        found = self.running(destination)
        return next((member for member in self.members if found is not None and member.address == found[0]), None)

    def running(self, destination: str) -> tuple[str, int] | None:
        """Return address and session of the owner, if any."""
        return self.coordination.running(destination)

    def owned_by(self, member: Member) -> tuple[str, ...]:
        """Return the destinations that run on a member."""
        return tuple(name for name in self._kinds if self.owner(name) is member)

    def cursor_exists(self, destination: str, client_id: int = CLIENT_ID) -> bool:
        """Return whether the client has subscribed, and so has a cursor."""
        return self.coordination.cursor_version(destination, client_id) is not None

    def nodes(self) -> list[str]:
        """Return the addresses of the nodes that have registered."""
        return self.coordination.members()

    def add_reader(self, destination: str) -> Reader:
        """Start another process of the destination's client."""
        self._made_readers += 1
        name = f"{destination}-client{self._made_readers}"
        errors = self.members[0].node.directory.with_name(f"{self.members[0].node.directory.name}-{name}.log")
        self._stack.callback(errors.unlink, missing_ok=True)
        links = [self.network.link(zookeeper.port) for zookeeper in self.ensemble.nodes]
        reader = Reader(name, links, destination, self.deliveries[destination], errors)
        self.readers.append(reader)
        return reader

    # ---- waiting

    def caught_up(self, seconds: float = PATIENCE_S) -> None:
        """Wait until all rows committed by now have arrived."""
        heads = {name: ledger.head for name, ledger in self.ledgers.items()}

        def there() -> bool:
            assert not [writer.error for writer in self.writers if writer.error], "a writer failed"
            return all(self.deliveries[name].highest >= head for name, head in heads.items())

        try:
            until(there, seconds=seconds, what="the arrival of all committed rows")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def flushed(self) -> None:
        """Wait until every cursor has been written again."""

        before = {name: self.coordination.cursor_version(name, CLIENT_ID) for name in self._kinds}
        until(
            lambda: all(self.coordination.cursor_version(name, CLIENT_ID) != it for name, it in before.items()),
            seconds=PATIENCE_S,
            what="a flush of all cursors",
        )

    def moved_from(self, destinations: tuple[str, ...], member: Member) -> Callable[[], bool]:
        """Return the condition that other nodes run all of these destinations."""
        return lambda: all(self.owner(name) not in (None, member) for name in destinations)

    def describe(self) -> str:
        """Return a text for error messages: who runs what, how far it is, and what clients and nodes have logged."""
        lines = [
            f"{name}: running {self.running(name)}, committed {self.ledgers[name].head},"
            f" delivered {delivery.highest}, last by {delivery.active}"
            for name, delivery in self.deliveries.items()
        ]
        for reader in self.readers:
            lines += [f"--- {reader.name} (ended: {reader.process.poll()})", *_tail(reader.errors)]
        for member in self.members:
            lines += [f"--- {member.node.name} {member.address}", member.node.log_tail(40)]
        return "\n".join(lines)


def _tail(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines()[-12:]


def at_least(seconds: float, since: float) -> None:
    """Sleep until `seconds` after `since` (monotonic seconds), for a fault that lasts a given time."""
    time.sleep(max(0.0, since + seconds - time.monotonic()))
