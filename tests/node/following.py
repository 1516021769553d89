"""Following a destination step by step, for acceptance tests of one node."""

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
    """A connected client, subscribed to `tables` (a filter) unless told otherwise."""
    with SimpleConnector(LOOPBACK, node.port, destination, client_id) as client:
        if subscribe:
            client.subscribe(tables)
        yield client


def read(client: SimpleConnector, count: int, *, seconds: float = 20.0, size: int = 1000) -> list[Row]:
    """Rows and DDL of tables, each batch acknowledged, until there are at least `count`; fails when they do not come.

    MariaDB's annotations, the statement behind the rows as an entry without a table, are left out.
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
    """No row and no statement comes for so long; batches without any are acknowledged."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        message = client.get_without_ack(1000, 100)
        if message:
            assert not [row for row in rows_of(message.entries) if row.table]
            client.ack(message.id)


def column(rows: Iterable[Row], name: str = "id") -> list[Any]:
    """One column of the rows as they are after their change; statements are left out."""
    return [row.after[name] for row in rows if row.after is not None]


def stream_of(node: Node, destination: str, client_id: int = 1001) -> dict[str, Any]:
    """What /api/v1/status says of one stream."""
    streams = destination_of(node, destination)["streams"]
    return next(dict(stream) for stream in streams if stream["client_id"] == client_id)


def destination_of(node: Node, destination: str) -> dict[str, Any]:
    """What /api/v1/status says of one destination."""
    return next(dict(each) for each in node.status()["destinations"] if each["destination"] == destination)
