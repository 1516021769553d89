"""Who may change the znodes: warnings for the start of a node and for `canal-ha check`. It blocks."""

from __future__ import annotations

from collections.abc import Iterable

from canal_ha.model.excerpt import some
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes

ORDER = "docs/how-to/change-the-zookeeper-account.md has the order"
NO_CREDENTIALS = (
    "whoever reaches ZooKeeper can move and delete every cursor: set canal.zookeeper.auth or canal.zookeeper.sasl"
    f" ({ORDER})"
)


def open_znodes(znodes: BlockingZnodes, destinations: Iterable[str]) -> str:
    """Return the warning that names znodes which everybody may change; "" if there are none.

    An earlier version or a node without credentials made them. Raises ZooKeeperUnavailable.
    """
    paths = [tree.ROOT, tree.CLUSTER, tree.NODES, tree.DESTINATIONS]
    for name in destinations:
        children = znodes.children(tree.destination(name))
        paths += [tree.destination(name), tree.destination_members(name), tree.parse(name), tree.source(name)]
        paths.append(tree.history(name))
        for client_id in tree.client_ids(children):
            paths += [tree.client(name, client_id), tree.cursor(name, client_id), tree.client_filter(name, client_id)]
    found = znodes.open_to_all(paths)
    if not found:
        return ""
    return (
        f"everybody may change {some(found)}: when all nodes have their account, run"
        f" ZK_AUTH=user:password bash zk/acl.sh host:port ({ORDER})"
    )
