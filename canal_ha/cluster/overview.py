"""Overview: a frozen view of the whole cluster, from ZooKeeper and from the status documents of its nodes.

For commands: it only reads, and it blocks. The caller fetches the status documents and passes them in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from canal_ha.errors import ZnodeDenied
from canal_ha.model.alarm import SOURCE
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.operations import Znode
from canal_ha.zookeeper.race_events import RunningNode
from canal_ha.zookeeper.reading import BlockingZnodes


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node.

    missing: it is not in the list of live nodes, and has not ended in good order.
    status_address: host:port; "" for a Java node.
    version, kernel, uptime_s: from its status document; "" and -1.0 without one.
    problem: why there is no status document.
    alarms: texts of the node's alarms, such as a configuration that differs from its files. The error of a source
        is in DestinationView.
    """

    address: str
    status_address: str = ""
    version: str = ""
    kernel: str = ""
    uptime_s: float = -1.0
    problem: str = ""
    alarms: tuple[str, ...] = ()
    missing: bool = False


@dataclass(frozen=True, slots=True)
class StreamView:
    """A client's stream, from the running node's status. Units are those of instance.status.StreamStatus."""

    state: str
    error: str
    batches: int
    oldest_unacked_s: float
    seconds_behind: float
    bytes_behind: int
    alarms: tuple[str, ...] = ()
    snapshot: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ClientView:
    """One client id.

    cursor: as in ZooKeeper, see LogPosition.public.
    active: address of the active process; "" if none. Clients without ZooKeeper do not appear here.
    stream: None if the running node does not report it.
    """

    client_id: int
    filter: str = ""
    cursor: LogPosition | None = None
    active: str = ""
    stream: StreamView | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DestinationView:
    """One destination.

    runs_on: the owner's address, "" if none.
    released: an operator set it to inactive.
    paused: an operator keeps it stopped on all nodes.
    queue: where its changes go with canal.serverMode = kafka, as in the owner's status; None if clients take them.
    problem: why its znodes cannot be read.
    configured: whether a node has it, or a missing node could have it. False for a removed one whose cursors are kept.
    lazy: it has no owner, because it starts at its first client.
    """

    name: str
    runs_on: str = ""
    released: bool = False
    stand_by: tuple[str, ...] = ()
    source_address: str = ""
    source_error: str = ""
    clients: tuple[ClientView, ...] = ()
    problem: str = ""
    paused: bool = False
    queue: Mapping[str, Any] | None = None
    configured: bool = True
    lazy: bool = False


@dataclass(frozen=True, slots=True)
class Overview:
    """Nodes and destinations, sorted by name."""

    nodes: tuple[NodeView, ...] = ()
    destinations: tuple[DestinationView, ...] = ()

    def with_statuses(self, statuses: Mapping[str, Mapping[str, Any] | str]) -> Overview:
        """Return this overview with the nodes' status. statuses: each node's status document, or why there is none."""
        return Overview(
            tuple(_node_with_status(node, statuses.get(node.address)) for node in self.nodes),
            tuple(_destination_with_status(view, statuses.get(view.runs_on)) for view in self.destinations),
        )


def _node_with_status(node: NodeView, status: Mapping[str, Any] | str | None) -> NodeView:
    if status is None:
        return node
    if isinstance(status, str):
        return replace(node, problem=status)
    facts = status["node"]
    alarms = tuple(each["text"] for each in status.get("alarms", ()) if each.get("alarm") != SOURCE)
    return replace(node, version=facts["version"], kernel=facts["kernel"], uptime_s=facts["uptime_s"], alarms=alarms)


def _destination_with_status(view: DestinationView, status: Mapping[str, Any] | str | None) -> DestinationView:
    if status is None or isinstance(status, str):
        return view
    for destination in status["destinations"]:
        if destination["destination"] == view.name:
            streams = {stream["client_id"]: stream for stream in destination["streams"]}
            known = {client.client_id: client for client in view.clients}
            clients = (known.get(number, ClientView(number)) for number in sorted(known | streams))
            return replace(
                view,
                source_address=destination["source_address"],
                source_error=destination["source_error"],
                queue=destination.get("queue"),
                clients=tuple(_client_with_status(client, streams.get(client.client_id)) for client in clients),
            )
    return view


def _client_with_status(client: ClientView, stream: Mapping[str, Any] | None) -> ClientView:
    if stream is None:
        return client
    return replace(
        client,
        filter=client.filter or stream["filter"],
        stream=StreamView(
            stream["state"],
            stream["error"],
            len(stream["batches"]),
            stream["oldest_unacked_s"],
            stream["seconds_behind"],
            stream["bytes_behind"],
            tuple(stream.get("alarms", ())),
            stream.get("snapshot"),
        ),
    )


def read_overview(znodes: BlockingZnodes) -> Overview:
    """Read the tree. Each node's state is from before or after a simultaneous change. Raises ZooKeeperUnavailable."""
    names = znodes.children(tree.CLUSTER)
    alive = (
        NodeView(name, problem=str(found)) if isinstance(found, ZnodeDenied) else NodeView(name, _content(found))
        for name, found in zip(names, znodes.get_all([tree.member(name) for name in names]), strict=True)
    )
    missing = (NodeView(name, missing=True) for name in {*znodes.children(tree.NODES)} - {*names})
    nodes = sorted((*alive, *missing), key=attrgetter("address"))
    some_missing = any(node.missing for node in nodes)
    return Overview(tuple(nodes), tuple(_destinations(znodes, znodes.children(tree.DESTINATIONS), some_missing)))


def _destinations(znodes: BlockingZnodes, names: Sequence[str], some_missing: bool) -> Iterator[DestinationView]:
    """Ask for all at once, so that hundreds take a few round trips to ZooKeeper. some_missing: of the nodes."""
    owners = znodes.get_all([tree.running(name) for name in names])
    below = znodes.children_of_all([tree.destination(name) for name in names])
    members = znodes.children_of_all([tree.destination_members(name) for name in names])
    idle = {name: able for name, owner, able in zip(names, owners, members, strict=True) if owner is None}
    lazy = _lazy(znodes, idle)
    clients = _clients(
        znodes,
        [
            (name, client_id)
            for name, children in zip(names, below, strict=True)
            if not isinstance(children, ZnodeDenied)
            for client_id in tree.client_ids(children)
        ],
    )
    for name, owner, children, able in zip(names, owners, below, members, strict=True):
        if isinstance(owner, ZnodeDenied) or isinstance(children, ZnodeDenied) or isinstance(able, ZnodeDenied):
            denied = next(each for each in (owner, children, able) if isinstance(each, ZnodeDenied))
            yield DestinationView(name, problem=str(denied))
            continue
        running = RunningNode.read(owner)
        runs_on = running.address if running is not None else ""
        yield DestinationView(
            name,
            runs_on,
            running is not None and not running.active,
            tuple(node for node in able if node != runs_on),
            clients=tuple(clients[name, client_id] for client_id in tree.client_ids(children)),
            paused=tree.paused(name).rpartition("/")[2] in children,
            configured=bool(runs_on or able or some_missing),
            lazy=name in lazy,
        )


def _lazy(znodes: BlockingZnodes, able: Mapping[str, Sequence[str] | ZnodeDenied]) -> frozenset[str]:
    """Return the destinations that start at their first client, wherever that is.

    able: the nodes that could run each destination without an owner.
    """
    asked = [(name, node) for name, nodes in able.items() if not isinstance(nodes, ZnodeDenied) for node in nodes]
    found = znodes.get_all([tree.destination_member(name, node) for name, node in asked])
    told = {True: set[str](), False: set[str]()}
    for (name, _), node in zip(asked, found, strict=True):
        data = tree.MemberData.from_bytes(node.data) if isinstance(node, Znode) else None
        told[data is not None and data.lazy].add(name)
    return frozenset(told[True] - told[False])


def _clients(znodes: BlockingZnodes, asked: Sequence[tuple[str, int]]) -> dict[tuple[str, int], ClientView]:
    """Return the clients, each by its destination and client id."""
    parts = (tree.client_running, tree.cursor, tree.client_filter)
    paths = [part(*client) for client in asked for part in parts]
    found = iter(zip(paths, znodes.get_all(paths), strict=True))
    return {client: _client(client[1], [next(found) for _ in parts]) for client in asked}


def _client(client_id: int, found: Sequence[tuple[str, Znode | ZnodeDenied | None]]) -> ClientView:
    """Return a client. found: the paths and nodes of its active process, its cursor and its filter."""
    problem = "; ".join(f"{path}: {node}" for path, node in found if isinstance(node, ZnodeDenied))
    running, cursor, stored = (None if isinstance(node, ZnodeDenied) else node for _, node in found)
    active = RunningNode.read(running)
    position = None
    if cursor is not None and cursor.data:
        try:
            position = LogPosition.from_json(_content(cursor)).public
        except ValueError as error:
            problem = f"{found[1][0]} cannot be read: {error}"
    return ClientView(client_id, _content(stored), position, active.address if active else "", problem=problem)


def _content(node: Znode | None) -> str:
    return "" if node is None else node.data.decode(errors="replace")
