"""Reads a destination for a batch, without a client id: a range of the binlog, or the existing rows of tables.

Both are private reads, so no cursor moves and nothing is left behind on the node.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from canal_ha.client.cluster import ClusterConnector
from canal_ha.errors import ConnectionLost, ServerRefused
from canal_ha.model.snapshot import SnapshotState
from canal_ha.spark.existing import ExistingRows
from canal_ha.spark.intake import Intake
from canal_ha.spark.options import SourceOptions
from canal_ha.wire.client_session import END_OF_RANGE

NODE_WAIT_S = 120.0  # longest wait for a node that runs the destination
FETCH_WAIT_MS = 1000
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What to read. Two reads of it give the same changes.

    destination: its name.
    start, until: bounds of the range; of existing rows "latest" and "".
    """

    destination: str
    start: str
    until: str


def plan(options: SourceOptions, destination: str) -> PlannedRead:
    """Fix the bounds of a read. Raises ServerRefused for a position that the source does not have."""
    if options.snapshot:
        return PlannedRead(destination, LATEST, "")
    start, until = options.starting, options.ending
    with private_connector(options, destination) as connector:
        if not start.startswith("gtid:"):
            start = _position(connector, start)
        if until == LATEST:
            until = _position(connector, LATEST)
    return PlannedRead(destination, start, until)


def frames(options: SourceOptions, read: PlannedRead) -> Iterator[bytes]:
    """Yield the entries of a read, in blocks that end with a transaction, or inside one that is larger than a block.

    Raises the errors of the connector, and those of ExistingRows.
    """
    return _existing(options, read) if options.snapshot else delivered(options, read)


def delivered(options: SourceOptions, read: PlannedRead) -> Iterator[bytes]:
    """Yield the entries of a read as they come; with a snapshot, its rows and the changes beside them."""
    with private_connector(options, read.destination) as connector:
        connector.read_from(read.start, read.until, _filter(options), options.snapshot)
        yield from _blocks(connector, options)


def _existing(options: SourceOptions, read: PlannedRead) -> Iterator[bytes]:
    with private_connector(options, read.destination) as connector:
        while True:
            begun = connector.read_from(read.start, "", _filter(options), options.snapshot)
            state = SnapshotState.from_text(begun.snapshot) if begun else None
            assert state is not None  # read_from has checked it
            with tempfile.TemporaryFile() as file:
                rows = ExistingRows(state.tables, state.id, file)
                try:
                    for block in _blocks(connector, options):
                        rows.add(block)
                except ConnectionLost:
                    continue
                connector.disconnect()
                yield from rows.frames()
                return


def _blocks(connector: ClusterConnector, options: SourceOptions) -> Iterator[bytes]:
    """Yield the entries of the connector's read up to its end. Raises ConnectionLost where a snapshot begins again."""
    intake = Intake(None, 0, options.segment_bytes)
    connection = connector.connection
    reading = True
    while reading:
        try:
            message = connector.get_without_ack(options.fetch_size, FETCH_WAIT_MS)
        except ServerRefused as refused:
            if END_OF_RANGE not in str(refused):
                raise
            reading = False
            intake.ended()
        else:
            if connector.connection != connection:
                if options.snapshot:
                    raise ConnectionLost(f"canal: the snapshot of {connector.destination} has lost its connection")
                connection = connector.connection
                intake.connected(None)
            if message:
                intake.add(message.id, message.walk())
        pieces = []
        while (piece := intake.take()) is not None:
            intake.made_durable(piece)
            pieces.append(piece)
        for batch_id in intake.acknowledged():
            connector.ack(batch_id)
        for piece in pieces:
            yield piece.frames


def private_connector(options: SourceOptions, destination: str) -> ClusterConnector:
    """Return a connector, not connected, that needs no client id."""
    return ClusterConnector(
        options.zk_servers or list(options.servers),
        destination,
        options.client_id,
        options.user,
        options.password,
        call_timeout_s=NODE_WAIT_S,
        zk_session_timeout_ms=options.session_timeout_ms,
        zk_auth=options.zk_access,
        private=True,
        tls=options.tls,
    )


def _position(connector: ClusterConnector, place: str) -> str:
    """Return a position as JOURNAL:OFFSET."""
    found = connector.read_from(place)
    if found is None:
        raise ServerRefused(f"canal: {connector.node} does not say where a read begins: update the node")
    return f"{found.journal}:{found.offset}"


def _filter(options: SourceOptions) -> str:
    """Return the filter; if none is set, one for the tables of the snapshot."""
    if options.filter or options.snapshot == ("*",):
        return options.filter
    return ",".join(map(re.escape, options.snapshot))
