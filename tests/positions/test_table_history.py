"""Rows are decoded with the columns that their table had when they were written, wherever a node starts again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row, rows_of
from canal_ha.errors import CanalError
from tests.positions.shapes import Shapes, seen
from tests.real import MariaDB, MySQL, Node, SqlServer, follow
from tests.real.mysql import RowMetadata
from tests.real.ports import LOOPBACK
from tests.waiting import until

Server = Callable[..., SqlServer]
EACH = pytest.mark.parametrize("make", [MySQL, MariaDB])
BOTH = pytest.mark.parametrize("metadata", ["FULL", "MINIMAL"])


def rows(client: SimpleConnector, count: int, *, seconds: float = 30.0) -> list[Row]:
    """Changes of rows, each batch acknowledged, until there are `count`."""
    found: list[Row] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} rows"
        message = client.get_without_ack(1000, 100)
        if message:
            found += (row for row in rows_of(message.entries) if row.after is not None)
            client.ack(message.id)
    return found


@contextmanager
def connected(node: Node, schema: str) -> Iterator[SimpleConnector]:
    """A client of the destination, subscribed to one schema."""
    with SimpleConnector(LOOPBACK, node.port, "example") as client:
        until(lambda: _subscribed(client, schema), what="a node that runs the destination")
        yield client


def _subscribed(client: SimpleConnector, schema: str) -> bool:
    try:
        client.subscribe(rf"{schema}\..*")
    except CanalError:
        client.disconnect()
        client.connect()
        return False
    return True


@pytest.mark.real
@EACH
@BOTH
def test_cold_start_with_ddl_ahead(make: Server, metadata: RowMetadata) -> None:
    """200 statements while the node is down, half of them DDL: every row comes once, with its own table's columns."""
    with make(row_metadata=metadata) as server:
        shapes = Shapes(server, "shop")
        shapes.create()
        node = Node({"example": follow(server)})
        with node, connected(node, "shop") as client:
            shapes.insert_everywhere()
            shapes.change(20)
            assert seen(rows(client, len(shapes.written))) == shapes.written
            client.disconnect()
            node.stop()
            before = len(shapes.written)
            shapes.change(200)
            shapes.insert_everywhere()
            node.start()
            with connected(node, "shop") as again:
                assert seen(rows(again, len(shapes.written) - before)) == shapes.written[before:]
