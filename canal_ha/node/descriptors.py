"""The limit of open files: each connection of a client and each question to a source needs a descriptor."""

from __future__ import annotations

import resource

from canal_ha import logs

LOG = logs.get(__name__)
RESERVE = 256  # for sources, ZooKeeper, logs, status and metrics


def raise_limit(connections: int) -> None:
    """Raise the soft limit of open files to the hard one, and warn if that is too low.

    connections: of clients, as many as the configuration allows.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    needed = connections + RESERVE
    if hard != resource.RLIM_INFINITY and hard < needed:
        action = "raise it (LimitNOFILE of systemd, ulimit -Hn), or lower canal.client.connections.max"
        LOG.warning("node.few_descriptors", limit=hard, needed=needed, action=action)
