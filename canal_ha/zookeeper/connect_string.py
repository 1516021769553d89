"""canal.zkServers, as nodes and clients hand it to kazoo."""

from __future__ import annotations


def connect_string(servers: str) -> tuple[str, bool]:
    """canal.zkServers as kazoo takes it, and whether servers may be tried in any order.

    `a:2181,b:2181/chroot;c:2181`: groups are separated by `;`, an earlier group's servers are tried first, a chroot
    behind any group holds for all.
    """
    groups = [group.strip() for group in servers.split(";") if group.strip()]
    hosts, chroot = [], ""
    for group in groups:
        names, slash, path = group.partition("/")
        hosts += [name.strip() for name in names.split(",") if name.strip()]
        if slash and path.strip("/"):
            chroot = "/" + path.strip("/")
    return ",".join(hosts) + chroot, len(groups) < 2
