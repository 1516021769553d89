"""Functions that subscribe to the destination `example` and read its rows."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row, rows_of
from canal_ha.errors import CanalError
from lab import Node
from lab.ports import LOOPBACK
from tests.waiting import until


def rows(client: SimpleConnector | ClusterConnector, count: int, *, seconds: float = 30.0) -> list[Row]:
    """Return at least `count` rows that have an after image; acknowledge each batch."""
    found: list[Row] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} rows: {found[-5:]}"
        message = client.get_without_ack(1000, 100)
        if message:
            found += (row for row in rows_of(message.entries) if row.after is not None)
            client.ack(message.id)
    return found


@contextmanager
def connected(node: Node, schema: str) -> Iterator[SimpleConnector]:
    """Yield a client that is subscribed to one schema."""
    with SimpleConnector(LOOPBACK, node.port, "example") as client:
        until(lambda: subscribed_to(client, schema), what="a node that runs the destination")
        yield client


def subscribed_to(client: SimpleConnector, schema: str) -> bool:
    """Subscribe to a schema. Return False, after a reconnect, if the destination does not run there yet."""
    try:
        client.subscribe(rf"{schema}\..*")
    except CanalError:
        client.disconnect()
        client.connect()
        return False
    return True
