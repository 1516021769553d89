"""The first page with 500 destinations: its processor time in memory, and its time on a real cluster of three nodes.

    python -m bench.page              processor time, in memory, with two clients a destination
    python -m bench.page --real       until a browser has the page of a node, on real nodes, ZooKeeper and MySQL

A picture of the cluster is shown for some seconds. A new one asks ZooKeeper and the other nodes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from urllib.request import urlopen

from bench.measure import percentile
from canal_ha.admin.cluster_view import SHOWN_MOST_S
from lab import MySQL, Node, ZooKeeper, follow
from lab.desk import EXAMPLE, STREAM, Browser, Desk
from lab.ports import LOOPBACK
from lab.waiting import until

DESTINATIONS = 500
NODES = 3
ROUNDS = 20
START_S = 180.0


def in_memory() -> None:
    """Print medians of processor time."""
    streams = tuple(replace(STREAM, client_id=client_id) for client_id in (1001, 1002))
    names = [f"shop-{number}" for number in range(DESTINATIONS)]
    desk = Desk(instances=[replace(EXAMPLE, destination=name, streams=streams) for name in names])
    browser = Browser(desk)
    browser.log_in("admin")

    def look() -> int:
        return len(browser.get("/").body)

    _report("processor time", look, time.process_time, lambda: desk.clock.advance(SHOWN_MOST_S + 1))


def on_a_cluster() -> None:
    """Print medians and maxima of the time that a page takes."""
    with ExitStack() as stack:
        server, zookeeper = stack.enter_context(MySQL()), stack.enter_context(ZooKeeper())
        destinations = dict.fromkeys([f"shop-{number}" for number in range(DESTINATIONS)], follow(server))
        nodes = [
            stack.enter_context(Node(destinations, zk_servers=zookeeper.hosts, name=f"node{number}"))
            for number in range(NODES)
        ]
        url = f"http://{LOOPBACK}:{nodes[0].admin_port}/"
        began = time.monotonic()
        until(lambda: sum(len(node.running()) for node in nodes) == DESTINATIONS, seconds=START_S, what="all run")
        print(f"{DESTINATIONS} destinations run on {NODES} nodes {time.monotonic() - began:.0f} s after these started")

        def look() -> int:
            with urlopen(url) as answer:
                return len(answer.read())

        _report("time", look, time.monotonic, lambda: time.sleep(SHOWN_MOST_S + 1))


def _report(what: str, look: Callable[[], int], clock: Callable[[], float], age: Callable[[], object]) -> None:
    """Look ROUNDS times. clock: seconds. age: makes the picture too old to be shown."""
    new: list[float] = []
    kept: list[float] = []
    size = 0
    for _ in range(ROUNDS):
        age()
        for times in (new, kept):
            began = clock()
            size = look()
            times.append(1000 * (clock() - began))
    for name, times in (("a new picture", new), ("a kept one", kept)):
        print(f"{what} with {name}: median {median(times):.0f} ms, 95th percentile {percentile(times, 0.95):.0f} ms")
    print(f"{DESTINATIONS} destinations, {size} bytes, {ROUNDS} rounds")


def main() -> int:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="on a real cluster")
    (on_a_cluster if parser.parse_args().real else in_memory)()
    return 0


if __name__ == "__main__":
    sys.exit(main())
