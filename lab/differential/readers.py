"""Clients that read what the steps wrote, one for each situation of a node."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from canal_ha.client.connector import SimpleConnector
from canal_ha.client.rows import Row, rows_of
from canal_ha.errors import CanalError, ServerRefused
from lab.differential.steps import At
from lab.differential.world import MARK
from lab.node import Node
from lab.ports import LOOPBACK

DESTINATION = "example"
_ROWS = ("INSERT", "UPDATE", "DELETE")
_REFUSED_AT = re.compile(r" at (\S+\.\d+):(\d+) are not known")
_PATIENCE_S = 60.0


class TooLate(Exception):
    """A reader did not get a mark in time."""


@dataclass
class Got:
    """What a reader has received: `rows` in order, and the text of a refusal that ended it."""

    rows: list[Row] = field(default_factory=list)
    refused: str = ""

    @property
    def refused_at(self) -> At | None:
        """Return the position of the refused row; None if the refusal does not say."""
        found = _REFUSED_AT.search(self.refused)
        return (found.group(1), int(found.group(2))) if found else None


def filter_of(schemas: tuple[str, ...]) -> str:
    """Return the filter for all tables of the schemas."""
    return ",".join(rf"{re.escape(schema)}\..*" for schema in schemas)


def subscribed(node: Node, client_id: int, tables: str) -> SimpleConnector:
    """Return a subscribed client; wait until the node runs the destination."""
    return _retried(lambda client: client.subscribe(tables), node, client_id, rollback=True)


def reading_from(node: Node, client_id: int, tables: str, start: str) -> SimpleConnector:
    """Return a client with a private read from a position."""
    return _retried(lambda client: client.read_from(start, filter=tables), node, client_id, rollback=False)


def _retried(
    ask: Callable[[SimpleConnector], object], node: Node, client_id: int, *, rollback: bool
) -> SimpleConnector:
    until = time.monotonic() + _PATIENCE_S
    while True:
        client = SimpleConnector(LOOPBACK, node.port, DESTINATION, client_id, rollback_on_connect=rollback)
        try:
            client.connect()
            ask(client)
            return client
        except CanalError:
            client.disconnect()
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def until_mark(client: SimpleConnector, mark: int) -> Got:
    """Read and acknowledge until a mark or a refusal. Raises TooLate."""
    got = Got()
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        try:
            message = client.get_without_ack(1000, 200, eager=True)
        except ServerRefused as error:
            got.refused = str(error)
            return got
        if message:
            found = [row for row in rows_of(message.entries) if row.type in _ROWS and not row.sql]
            client.ack(message.id)
            got.rows += (row for row in found if row.table != MARK)
            if any(row.table == MARK and row.after and row.after["n"] == mark for row in found):
                return got
            deadline = time.monotonic() + _PATIENCE_S
    raise TooLate(f"mark {mark} did not come within {_PATIENCE_S:g} s, after {len(got.rows)} rows: {got.rows[-1:]}")
