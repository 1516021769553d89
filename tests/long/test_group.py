"""Several sources in one destination for minutes, while nodes and sources die."""

from __future__ import annotations

import time
from random import Random

import pytest

from lab import MariaDB, MySQL, SqlServer, ZooKeeper
from tests.positions.group import Writer, following
from tests.positions.test_group import caught_up, grown, owner, three_nodes, verdict

pytestmark = pytest.mark.long


@pytest.mark.parametrize("sources_die", [False, True])
def test_for_minutes(zookeeper: ZooKeeper, database: str, sources_die: bool) -> None:
    """Three sources on three nodes: nothing is lost, reordered or separated while nodes die.

    Every few seconds a node is killed or stopped, or, with sources_die, a source is killed. While all sources live,
    nothing goes back in time.
    """
    random = Random(int(sources_die))
    with MySQL(server_id=1) as one, MariaDB(server_id=2) as two, MariaDB(server_id=3) as three:
        servers: dict[int, SqlServer] = {1: one, 2: two, 3: three}
        writers = [Writer(source, server, database) for source, server in servers.items()]
        destinations = {"both": following(servers, group_wait="3" if sources_die else "30")}
        with three_nodes(zookeeper, database, destinations) as (nodes, reader):
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
