"""A node: every room wired together, from configuration to SIGTERM. Reactor thread.

In: a CanalConfig. Out: an exit code. With ZooKeeper the cluster room decides what runs here; without, everything
configured does. A data port that is taken ends the node; a metrics or status port that is taken is logged.
"""

from canal_ha.node.run import serve

__all__ = ["serve"]
