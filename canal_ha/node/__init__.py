"""A node: every room wired together, from configuration to SIGTERM. Reactor thread.

In: a CanalConfig. Out: an exit code. With ZooKeeper, the cluster room decides which destinations run here. Without it,
every configured destination runs here. If the data port is taken, the node ends. If the metrics port or the status port
is taken, the node logs that and runs on.
"""

from canal_ha.node.run import serve

__all__ = ["serve"]
