"""canal's own cluster client for Java on our nodes: it continues after fail-overs, as it does on canal's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lab import MariaDB, Network, Node, ZooKeeper, follow
from lab.cluster.delivery import Delivery
from lab.cluster.java import JavaClient
from tests.cluster_faults.ledger import Ledger, Writer
from tests.waiting import until

pytestmark = pytest.mark.real

PATIENCE_S = 60.0  # the Java client waits 5 s between its attempts


@pytest.fixture
def written(mariadb: MariaDB, database: str) -> Iterator[Ledger]:
    """Yield the ledger of a steady writer."""
    writer = Writer(mariadb, [database], seed=1)
    writer.create()
    with writer:
        yield writer.ledgers[database]
    assert writer.error is None


def test_the_java_client_reads_through_fail_overs(
    zookeeper: ZooKeeper, mariadb: MariaDB, written: Ledger, tmp_path: Path
) -> None:
    """The same process gets every row, in order, through an orderly stop and a SIGKILL of the node it reads from."""
    hosts = f"{zookeeper.hosts}/java-{written.schema}"
    follows = {"example": follow(mariadb, {"canal.instance.filter.regex": rf"{written.schema}\..*"})}
    nodes = [Node(follows, zk_servers=hosts, name=f"node{number}") for number in range(2)]
    delivery = Delivery(inferred=False)
    with ExitStack() as stack:
        for node in nodes:
            stack.enter_context(node)
        client = JavaClient(hosts, "example", delivery, tmp_path / "java.log")
        stack.callback(client.process.kill)
        until(
            lambda: client.subscribed or client.process.poll() is not None,
            seconds=PATIENCE_S,
            what="the Java client's subscription",
        )
        assert client.subscribed, (tmp_path / "java.log").read_text()
        head = written.head
        caught_up(delivery, written)
        first = min(delivery.seen)
        assert first <= head + 1  # nothing that was committed after the subscription is missing
        for name in ("orderly stop", "SIGKILL"):
            owner = until(lambda: next((node for node in nodes if node.running()), None), what="an owner")
            began = time.monotonic()
            if name == "SIGKILL":
                owner.kill()
            else:
                owner.stop()
            caught_up(delivery, written)
            print(f"Java client through {name}: next row after {delivery.silence_s(began):.2f} s")
            owner.start()
        assert client.process.poll() is None, (tmp_path / "java.log").read_text()
        head = written.head
        caught_up(delivery, written)
        assert delivery.lost(head) == first - 1
        assert [line for line in delivery.out_of_order if not line.endswith("after 0")] == []


@pytest.mark.nightly("tests/instance/test_regained.py: ids of batches; the test above: fail-overs")
def test_the_java_client_gets_every_row_after_its_node_lost_and_regained_the_destination(
    zookeeper: ZooKeeper, mariadb: MariaDB, written: Ledger, tmp_path: Path
) -> None:
    """Its connection stays, and it acknowledges a batch of before. The node refuses that; the client connects anew."""
    chroot = f"java-regained-{written.schema}"
    follows = {"example": follow(mariadb, {"canal.instance.filter.regex": rf"{written.schema}\..*"})}
    delivery = Delivery()
    with ExitStack() as stack:
        link = stack.enter_context(Network()).link(zookeeper.port)
        properties = {"canal.zookeeper.session.timeout": "3000"}
        node = stack.enter_context(Node(follows, zk_servers=f"{link.address}/{chroot}", properties=properties))
        log = tmp_path / "java.log"
        client = JavaClient(f"{zookeeper.hosts}/{chroot}", "example", delivery, log, work_s=6.0)
        stack.callback(client.process.kill)
        until(lambda: delivery.seen or client.process.poll() is not None, seconds=PATIENCE_S, what="the first batch")
        assert delivery.seen, log.read_text()
        first = min(delivery.seen)
        link.cut()
        until(lambda: "example" not in node.running(), what="the end of the lease")
        link.heal()
        until(lambda: "example" in node.running(), what="the second claim")
        until(lambda: "is not exist" in node.log_file(), seconds=PATIENCE_S, what="the refusal of the old ACK")
        caught_up(delivery, written)
        assert client.process.poll() is None, log.read_text()
        head = written.head
        caught_up(delivery, written)
        assert delivery.lost(head) == first - 1


def caught_up(delivery: Delivery, written: Ledger) -> None:
    """Wait until all rows committed by now have arrived, and one more."""
    head = written.head
    until(lambda: delivery.highest > head, seconds=PATIENCE_S, what="the arrival of all committed rows")
