"""Overview: a frozen view of the whole cluster, from ZooKeeper and from the status documents of its nodes.

For commands: it only reads, and it blocks. The caller fetches the status documents and passes them in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.race_events import RunningNode
from canal_ha.zookeeper.reading import BlockingZnodes


@dataclass(frozen=True, slots=True)
class NodeView:
    """A live node.

    status_address: host:port; "" for a Java node.
    version, kernel, uptime_s: from its status document; "" and -1.0 without one.
    problem: why there is no status document.
    alarms: texts of the node's alarms, such as a configuration that differs from its files.
    """

    address: str
    status_address: str = ""
    version: str = ""
    kernel: str = ""
    uptime_s: float = -1.0
    problem: str = ""
    alarms: tuple[str, ...] = ()


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


@dataclass(frozen=True, slots=True)
class ClientView:
    """One client id.

    cursor: as in ZooKeeper.
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
    """One destination. runs_on: the owner's address, "" if none. released: an operator set it to inactive."""

    name: str
    runs_on: str = ""
    released: bool = False
    stand_by: tuple[str, ...] = ()
    source_address: str = ""
    source_error: str = ""
    clients: tuple[ClientView, ...] = ()


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
    alarms = tuple(alarm["text"] for alarm in status.get("alarms", ()))
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
        ),
    )


def read_overview(znodes: BlockingZnodes) -> Overview:
    """Read the tree. Each node's state is from before or after a simultaneous change. Raises ZooKeeperUnavailable."""
    nodes = (NodeView(name, _text(znodes, tree.member(name))) for name in znodes.children(tree.CLUSTER))
    destinations = (_destination(znodes, name) for name in znodes.children(tree.DESTINATIONS))
    return Overview(tuple(nodes), tuple(destinations))


def _destination(znodes: BlockingZnodes, name: str) -> DestinationView:
    running = RunningNode.read(znodes.get(tree.running(name)))
    runs_on = running.address if running is not None else ""
    clients = sorted(int(child) for child in znodes.children(tree.destination(name)) if child.isdecimal())
    return DestinationView(
        name,
        runs_on,
        running is not None and not running.active,
        tuple(node for node in znodes.children(tree.destination_members(name)) if node != runs_on),
        clients=tuple(_client_view(znodes, name, client_id) for client_id in clients),
    )


def _client_view(znodes: BlockingZnodes, destination: str, client_id: int) -> ClientView:
    active = RunningNode.read(znodes.get(tree.client_running(destination, client_id)))
    cursor, problem = None, ""
    text = _text(znodes, tree.cursor(destination, client_id))
    if text:
        try:
            cursor = LogPosition.from_json(text)
        except ValueError as error:
            problem = f"{tree.cursor(destination, client_id)} cannot be read: {error}"
    return ClientView(
        client_id,
        _text(znodes, tree.client_filter(destination, client_id)),
        cursor,
        "" if active is None else active.address,
        problem=problem,
    )


def _text(znodes: BlockingZnodes, path: str) -> str:
    node = znodes.get(path)
    return "" if node is None else node.data.decode(errors="replace")
