"""A client that does not read a large reply, and how long a node then takes to release its destination."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Thread

from lab import Node, SqlServer
from tests.server.raw_client import RawClient
from tests.waiting import until


def leave_unread(server: SqlServer, database: str, client: RawClient) -> None:
    """Let a client of the node that follows the server ask for a reply of 20 MB, which it does not read."""
    client.subscribe(rf"{database}\..*")
    assert client.refusal() == (0, "")
    server.execute(f"INSERT INTO {database}.t VALUES (REPEAT('x', 20000000))")
    client.get(timeout=20_000, size=1)
    time.sleep(2)


def released_s(node: Node, stop: Callable[[], object]) -> float:
    """Stop a node, and return the seconds until it has released its destination. stop: returns when it has stopped."""
    stopping = Thread(target=stop)
    began = time.monotonic()
    stopping.start()
    until(lambda: "running.released" in node.log_file(), what="the release")
    took_s = time.monotonic() - began
    stopping.join()
    return took_s
