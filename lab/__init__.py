"""Real parts for tests, demonstrations and benchmarks: databases, ZooKeeper and nodes on free loopback ports.

In: what `deploy/install.sh` has put on this machine. Out: running servers in temporary directories, which end with
this process whatever ends it. Whoever starts a server owns it. What cannot be started raises `StartFailed`, which
says what is missing and how to get it; nothing is skipped.
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
