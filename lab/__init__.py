"""Real servers for tests, demonstrations and benchmarks: databases, ZooKeeper and nodes on free loopback ports.

In: the packages of `deploy/install.sh`. Out: running servers in temporary directories, which end with this process in
any case. The caller that starts a server owns it. A server that cannot start raises `StartFailed`, which names the
missing part and how to install it; nothing is skipped.
"""

from lab.mysql import MariaDB, MySQL, MySQL56, SqlServer
from lab.node import Client, Node, follow
from lab.ports import free_port
from lab.process import Process, StartFailed
from lab.proxy import Link, Network
from lab.zookeeper import Ensemble, ZooKeeper

__all__ = [
    "Client",
    "Ensemble",
    "Link",
    "MariaDB",
    "MySQL",
    "MySQL56",
    "Network",
    "Node",
    "Process",
    "SqlServer",
    "StartFailed",
    "ZooKeeper",
    "follow",
    "free_port",
]
