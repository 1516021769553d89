"""canal.zkServers, translated for kazoo."""

from __future__ import annotations


def connect_string(servers: str) -> tuple[str, bool]:
    """Return the hosts as kazoo takes them, and whether kazoo may try them in any order.

    servers: as in `a:2181,b:2181/chroot;c:2181`. `;` separates groups, and the servers of an earlier group are tried
    first. A chroot behind any group holds for all of them.
    """
    groups = [group.strip() for group in servers.split(";") if group.strip()]
    hosts, chroot = [], ""
    for group in groups:
        names, slash, path = group.partition("/")
        hosts += [name.strip() for name in names.split(",") if name.strip()]
        if slash and path.strip("/"):
            chroot = "/" + path.strip("/")
    return ",".join(hosts) + chroot, len(groups) < 2
