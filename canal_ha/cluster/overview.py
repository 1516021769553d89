"""The whole cluster at one moment, as ZooKeeper and its nodes tell it: frozen data, and how to read it.

Read-only, blocking, without a reactor: for commands. What nodes say of themselves is handed in by the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from canal_ha.errors import ZooKeeperUnavailable
from canal_ha.model.position import LogPosition
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.connect_string import connect_string

CONNECT_MOST_S = 10.0


@dataclass(frozen=True, slots=True)
class NodeView:
    """A live node. status_address: host:port, "" for a Java node; problem: why it could not be asked.

    version, kernel, uptime_s: as it says; "", -1.0 when it was not asked or did not answer.
    alarms: where the configuration that it runs with is not the one in its files, in words.
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
    """What the running node says of a client's stream; units as in instance.status.StreamStatus."""

    state: str
    error: str
    batches: int
    oldest_unacked_s: float
    seconds_behind: float
    bytes_behind: int
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientView:
    """One client id. cursor: as in ZooKeeper; active: address of the process that is active, "" for none (clients
    without ZooKeeper are not seen here); stream: None when the running node does not tell.
    """

    client_id: int
    filter: str = ""
    cursor: LogPosition | None = None
    active: str = ""
    stream: StreamView | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class DestinationView:
    """One destination. runs_on: address, "" for nobody; released: an operator has set it to inactive."""

    name: str
    runs_on: str = ""
    released: bool = False
    stand_by: tuple[str, ...] = ()
    source_address: str = ""
    source_error: str = ""
    clients: tuple[ClientView, ...] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """Nodes and destinations, each by name."""

    nodes: tuple[NodeView, ...] = ()
    destinations: tuple[DestinationView, ...] = ()

    def told(self, statuses: Mapping[str, Mapping[str, Any] | str]) -> Overview:
        """With what nodes say. statuses: per node its status document, or why there is none."""
        return Overview(
            tuple(_node_told(node, statuses.get(node.address)) for node in self.nodes),
            tuple(_destination_told(view, statuses.get(view.runs_on)) for view in self.destinations),
        )


def _node_told(node: NodeView, status: Mapping[str, Any] | str | None) -> NodeView:
    if status is None:
        return node
    if isinstance(status, str):
        return replace(node, problem=status)
    facts = status["node"]
    alarms = tuple(alarm["text"] for alarm in status.get("alarms", ()))
    return replace(node, version=facts["version"], kernel=facts["kernel"], uptime_s=facts["uptime_s"], alarms=alarms)


def _destination_told(view: DestinationView, status: Mapping[str, Any] | str | None) -> DestinationView:
    if status is None or isinstance(status, str):
        return view
    for told in status["destinations"]:
        if told["destination"] == view.name:
            streams = {stream["client_id"]: stream for stream in told["streams"]}
            known = {client.client_id: client for client in view.clients}
            clients = (known.get(number, ClientView(number)) for number in sorted(known | streams))
            return replace(
                view,
                source_address=told["source_address"],
                source_error=told["source_error"],
                clients=tuple(_client_told(client, streams.get(client.client_id)) for client in clients),
            )
    return view


def _client_told(client: ClientView, stream: Mapping[str, Any] | None) -> ClientView:
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


class TreeReader:
    """A session to read the tree with; `with` opens and closes it. servers: as canal.zkServers; auth: user:password.

    Every method raises ZooKeeperUnavailable.
    """

    def __init__(self, servers: str, auth: str = "") -> None:
        self._servers = servers
        hosts, random_order = connect_string(servers)
        self._client = KazooClient(
            hosts, randomize_hosts=random_order, read_only=True, auth_data=[("digest", auth)] if auth else None
        )

    def __enter__(self) -> Self:
        try:
            self._client.start(timeout=CONNECT_MOST_S)
        except (KazooTimeoutError, KazooException) as error:
            self._close()
            raise ZooKeeperUnavailable(f"no ZooKeeper answers at {self._servers}: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._client.stop()
        self._client.close()

    def read(self) -> Overview:
        """The tree now. Not one moment's: what changes meanwhile is seen before or after."""
        try:
            nodes = [NodeView(name, self._text(tree.member(name))) for name in self._children(tree.CLUSTER)]
            return Overview(tuple(nodes), tuple(map(self._destination, self._children(tree.DESTINATIONS))))
        except NoAuthError as error:
            raise ZooKeeperUnavailable(
                f"ZooKeeper at {self._servers} refuses to show the nodes: is canal.zookeeper.auth set?"
            ) from error
        except (KazooTimeoutError, KazooException) as error:
            raise ZooKeeperUnavailable(f"ZooKeeper at {self._servers}: {error!r}") from error

    def _destination(self, name: str) -> DestinationView:
        data = self._data(tree.running(name))
        running = tree.RunningData.from_bytes(data) if data is not None else None
        runs_on = running.address if running is not None else ""
        clients = sorted(int(child) for child in self._children(tree.destination(name)) if child.isdecimal())
        return DestinationView(
            name,
            runs_on,
            running is not None and not running.active,
            tuple(node for node in self._children(tree.destination_members(name)) if node != runs_on),
            clients=tuple(self._client_view(name, client_id) for client_id in clients),
        )

    def _client_view(self, destination: str, client_id: int) -> ClientView:
        active = self._data(tree.client_running(destination, client_id))
        cursor, problem = None, ""
        text = self._text(tree.cursor(destination, client_id))
        if text:
            try:
                cursor = LogPosition.from_json(text)
            except ValueError as error:
                problem = f"{tree.cursor(destination, client_id)} cannot be read: {error}"
        return ClientView(
            client_id,
            self._text(tree.client_filter(destination, client_id)),
            cursor,
            "" if active is None else tree.RunningData.from_bytes(active).address,
            problem=problem,
        )

    def _children(self, path: str) -> Sequence[str]:
        try:
            return sorted(self._client.get_children(path))
        except NoNodeError:
            return ()

    def _data(self, path: str) -> bytes | None:
        try:
            data: bytes | None = self._client.get(path)[0]
        except NoNodeError:
            return None
        return data or b""

    def _text(self, path: str) -> str:
        return (self._data(path) or b"").decode(errors="replace")
