"""Several sources in one destination, for minutes: nodes and sources die all the time."""

from __future__ import annotations

import time
from contextlib import ExitStack
from random import Random

import pytest

from canal_ha.client.cluster import ClusterConnector
from tests.positions.group import Reader, Writer, following
from tests.positions.test_group import PROPERTIES, caught_up, grown, owner, subscribed, verdict, zookeeper_root
from tests.real import MariaDB, MySQL, Node, SqlServer, ZooKeeper
from tests.waiting import until

pytestmark = pytest.mark.long


@pytest.mark.parametrize("sources_die", [False, True])
def test_for_minutes(zookeeper: ZooKeeper, database: str, sources_die: bool) -> None:
    """Three sources under three nodes, one of which is killed or stopped every few seconds, and with sources_die one of
    the sources too: nothing is lost or parted, and as long as all sources live nothing goes back in time.
    """
    random = Random(int(sources_die))
    with MySQL(server_id=1) as one, MariaDB(server_id=2) as two, MariaDB(server_id=3) as three:
        servers: dict[int, SqlServer] = {1: one, 2: two, 3: three}
        writers = [Writer(source, server, database) for source, server in servers.items()]
        properties = {**PROPERTIES, "canal.zookeeper.session.timeout": "2000"}
        chroot = f"{zookeeper.hosts}/{database}"
        zookeeper_root(zookeeper, database)
        with ExitStack() as stack:
            destinations = {"both": following(servers, group_wait="3" if sources_die else "30")}
            nodes = [Node(destinations, zk_servers=chroot, properties=properties, name=f"node{n}") for n in range(3)]
            for node in nodes:
                stack.push(node)
                node.launch()
            reader = stack.enter_context(Reader(lambda: ClusterConnector(chroot, "both"), database))
            until(lambda: subscribed(*nodes), seconds=60, what="a subscription")
            for writer in writers:
                writer.start()
            for round_ in range(16):
                grown(reader, random.randrange(5, 40))
                if sources_die and round_ % 2:
                    server = random.choice(list(servers.values()))
                    server.kill()
                    time.sleep(random.random() * 6)
                    server.start()
                    continue
                node = owner(nodes)
                random.choice((node.kill, node.stop))()
                node.launch()
            caught_up(reader, writers)
            found = verdict(reader, writers, late=set(servers) if sources_die else ())
    assert (found.lost, found.out_of_order, found.parted, found.back_in_time) == (0, 0, 0, 0)
