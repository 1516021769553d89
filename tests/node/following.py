"""Helpers that follow a destination step by step, for acceptance tests of one node."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row, rows_of
from lab import Node
from lab.ports import LOOPBACK


@contextmanager
def following(
    node: Node, destination: str = "example", client_id: int = 1001, tables: str = "", *, subscribe: bool = True
) -> Iterator[SimpleConnector]:
    """Yield a connected client, subscribed to `tables` (a filter) unless `subscribe` is false."""
    with SimpleConnector(LOOPBACK, node.port, destination, client_id) as client:
        if subscribe:
            client.subscribe(tables)
        yield client


def read(client: SimpleConnector, count: int, *, seconds: float = 20.0, size: int = 1000) -> list[Row]:
    """Read and acknowledge batches until they hold `count` rows and DDL statements of tables; return these.

    Fails after `seconds`. MariaDB's annotations are skipped: entries without a table that hold the statement of the
    rows.
    """
    rows: list[Row] = []
    deadline = time.monotonic() + seconds
    while len(rows) < count:
        assert time.monotonic() < deadline, f"{len(rows)} of {count} rows came within {seconds} s: {rows}"
        message = client.get_without_ack(size, 100)
        if message:
            rows += (row for row in rows_of(message.entries) if row.table)
            client.ack(message.id)
    return rows


def silence(client: SimpleConnector, seconds: float = 1.5) -> None:
    """Check that no row and no DDL statement of a table arrives for `seconds`; acknowledge all other batches."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = client.get_without_ack(1000, 100)
        if message:
            assert not [row for row in rows_of(message.entries) if row.table]
            client.ack(message.id)


def column(rows: Iterable[Row], name: str = "id") -> list[Any]:
    """Return one column of the rows after their change. Rows without an after image are skipped."""
    return [row.after[name] for row in rows if row.after is not None]


def stream_of(node: Node, destination: str, client_id: int = 1001) -> dict[str, Any]:
    """Return one stream of /api/v1/status."""
    streams = destination_of(node, destination)["streams"]
    return next(dict(stream) for stream in streams if stream["client_id"] == client_id)


def destination_of(node: Node, destination: str) -> dict[str, Any]:
    """Return one destination of /api/v1/status."""
    return next(dict(each) for each in node.status()["destinations"] if each["destination"] == destination)
