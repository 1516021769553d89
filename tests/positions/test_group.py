"""A destination that merges real servers: what its client receives, compared with what was committed."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from click.testing import CliRunner

from canal_ha.cli.main import group
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from lab import MariaDB, MySQL, Node, SqlServer, ZooKeeper
from lab.ports import LOOPBACK
from lab.zookeeper import session
from tests.positions.group import TEMPLATE, Reader, Verdict, Writer, following, judged
from tests.waiting import until

pytestmark = pytest.mark.real

PROPERTIES = {"canal.instance.global.spring.xml": TEMPLATE}


def caught_up(reader: Reader, writers: list[Writer]) -> None:
    """Stop the writers, and wait until the client has all their transactions."""
    for writer in writers:
        writer.end()
    wanted = {writer.source: writer.committed for writer in writers}
    until(lambda: reader.seen == wanted, seconds=60, what=f"{wanted}, there is {reader.seen}")


def verdict(reader: Reader, writers: list[Writer], *, late: Collection[int] = ()) -> Verdict:
    """Judge the delivery, print the verdict and return it."""
    found = judged(reader.entries, {writer.source: writer.committed for writer in writers}, late=late)
    print(found)
    return found


def grown(reader: Reader, by: int) -> None:
    """Wait until the client has `by` more transactions of every source."""
    before = dict(reader.seen)
    sources = before or {1: 0, 2: 0}
    until(
        lambda: all(reader.seen.get(source, 0) >= number + by for source, number in sources.items()),
        seconds=60,
        what=f"{by} more transactions than {before}, there is {reader.seen}: {reader.failures[-3:]}",
    )


def connect_to(node: Node) -> SimpleConnector:
    """Return a client of that node."""
    return SimpleConnector(LOOPBACK, node.port, "both")


@contextmanager
def three_nodes(
    zookeeper: ZooKeeper, database: str, destinations: dict[str, dict[str, str]]
) -> Iterator[tuple[list[Node], Reader]]:
    """Start three nodes below a ZooKeeper path of their own; yield them and a subscribed client."""
    properties = {**PROPERTIES, "canal.zookeeper.session.timeout": "2000"}
    chroot = f"{zookeeper.hosts}/{database}"
    zookeeper_root(zookeeper, database)
    with ExitStack() as stack:
        nodes = [Node(destinations, zk_servers=chroot, properties=properties, name=f"node{n}") for n in range(3)]
        for node in nodes:
            stack.push(node)
            node.launch()
        reader = stack.enter_context(Reader(lambda: ClusterConnector(chroot, "both"), database))
        until(lambda: subscribed(*nodes), seconds=60, what="a subscription")
        yield nodes, reader


def test_restart_crash_and_fail_over(mysql: MySQL, mariadb: MariaDB, database: str, zookeeper: ZooKeeper) -> None:
    """A merged stream of MySQL and MariaDB survives an orderly stop of its node and a crash of the next one.

    Nothing is lost; transactions arrive whole, in the order of each source and of time. The stop repeats none of them,
    and the crash less than half.
    """
    writers = [Writer(1, mysql, database), Writer(2, mariadb, database)]
    destinations = {"both": following({1: mysql, 2: mariadb})}
    with three_nodes(zookeeper, database, destinations) as (nodes, reader):
        for writer in writers:
            writer.start()
        grown(reader, 25)
        owner(nodes).stop()  # an orderly stop
        grown(reader, 25)
        assert judged(reader.entries, reader.seen).repeated == 0
        owner(nodes).kill()
        grown(reader, 25)
        caught_up(reader, writers)
        found = verdict(reader, writers)
    assert (found.lost, found.out_of_order, found.parted, found.back_in_time) == (0, 0, 0, 0)
    assert found.repeated < sum(found.delivered.values()) / 2


def test_a_source_dies_and_comes_back(mysql: MySQL, database: str) -> None:
    """While one source is down, the other continues after canal.instance.group.wait, with an alarm.

    When the source is back, all its rows arrive in order, and none twice. `cursor set` can then move it alone.
    """
    with MariaDB(server_id=2) as second:
        servers: dict[int, SqlServer] = {1: mysql, 2: second}
        writers = [Writer(source, server, database) for source, server in servers.items()]
        with Node({"both": following(servers, group_wait="1.5")}, properties=PROPERTIES) as node:
            with Reader(lambda: connect_to(node), database) as reader:
                until(lambda: subscribed(node), seconds=60, what="a subscription")
                for writer in writers:
                    writer.start()
                grown(reader, 20)
                second.kill()
                began = time.monotonic()
                until(lambda: "source.left_behind" in node.log_file("both"), what="the alarm about the dead source")
                at = reader.seen[1]
                until(lambda: reader.seen[1] > at + 60, what="the other source's going on")
                print(f"went on within {time.monotonic() - began:.1f} s")
                assert any(part["left_behind"] for part in parts_of(node))
                second.start()
                grown(reader, 20)
                caught_up(reader, writers)
                until(lambda: not any(part["left_behind"] for part in parts_of(node)), what="being waited for again")
            found = verdict(reader, writers, late={2})
            node.stop()
            shown = canal_ha("cursor", "show", "--conf", str(node.conf), "--destination", "both")
            assert f"2, {second.address}: its journal exists, with 1 older ones" in shown
            where = ("--conf", str(node.conf), "--destination", "both", "--client-id", "1001")
            moved = canal_ha("cursor", "set", *where, "--to", "2/earliest", "--yes")
            assert "to 1/" in moved
            assert "position       source 2: client 1001" in canal_ha("check", "--conf", str(node.conf))
            node.start()
            with Reader(lambda: connect_to(node), database) as again:
                until(lambda: again.seen.get(2) == found.delivered[2], seconds=60, what="source 2 from its beginning")
            assert set(again.seen) == {2}
    assert (found.lost, found.out_of_order, found.parted, found.back_in_time) == (0, 0, 0, 0)
    assert found.repeated == 0
    assert found.cut <= 1


def canal_ha(*arguments: str) -> str:
    """Run a command, check that it succeeds, and return its output."""
    done = CliRunner().invoke(group, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def zookeeper_root(zookeeper: ZooKeeper, name: str) -> None:
    """Create the path /`name` in ZooKeeper."""
    with session(zookeeper.hosts) as client:
        client.ensure_path(f"/{name}")


def owner(nodes: list[Node]) -> Node:
    """Wait for the node that runs the destination, and return it."""
    return until(lambda: next((node for node in nodes if node.alive() and node.running()), None), what="an owner")


def subscribed(*nodes: Node) -> bool:
    """Return whether a client's stream is open on one of the nodes."""
    return any(
        stream["state"] == "open"
        for node in nodes
        if node.alive() and node.running()
        for destination in node.status()["destinations"]
        for stream in destination["streams"]
    )


def parts_of(node: Node) -> list[dict[str, object]]:
    """Return the status of each source of the only stream."""
    return list(node.status()["destinations"][0]["streams"][0]["parts"])
