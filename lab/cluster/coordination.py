"""Three ZooKeepers with a link between each two, and an operator's session that looks at what a cluster has written."""

from __future__ import annotations

from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from canal_ha.zookeeper import tree
from lab.proxy import Link, Network
from lab.zookeeper import Ensemble


class Coordination:
    """See the module. When the block begins, the ensemble serves and the operator is connected.

    peer_links: by the id of the server that connects and that of the other one.
    """

    def __init__(self, network: Network) -> None:
        self.peer_links: dict[tuple[int, int], Link] = {}
        self._network = network
        self.ensemble = Ensemble(self._between)
        self._operator: KazooClient

    def _between(self, one: int, other: int, port: int) -> int:
        # a follower that starts early tries again when it is refused, but gives up when its connection breaks
        link = self.peer_links[one, other] = self._network.link(port, patience_s=2.0)
        return link.port

    def __enter__(self) -> Self:
        self.ensemble.__enter__()
        until_back = {"max_tries": -1, "max_delay": 0.5}
        self._operator = KazooClient(self.ensemble.hosts, timeout=30.0, command_retry=until_back)
        self._operator.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._operator.stop()
        self._operator.close()
        self.ensemble.__exit__(*error)

    def running(self, destination: str) -> tuple[str, int] | None:
        """Return address and session of the destination's owner, if any."""
        try:
            data, stat = self._ask(self._operator.get, tree.running(destination))
        except NoNodeError:
            return None
        return tree.RunningData.from_bytes(data).address, stat.ephemeralOwner

    def cursor_version(self, destination: str, client_id: int) -> int | None:
        """Return the version of a client's cursor; None if it has none."""
        stat = self._ask(self._operator.exists, tree.cursor(destination, client_id))
        return None if stat is None else int(stat.version)

    def members(self) -> list[str]:
        """Return the addresses of the nodes that have registered."""
        return list(self._ask(self._operator.get_children, tree.CLUSTER))

    def _ask(self, question: Any, path: str) -> Any:
        return self._operator.retry(question, path)  # until the ensemble answers
