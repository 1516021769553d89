"""Reads a destination for a batch, without a client id: a range of the binlog, or the existing rows of tables.

Both are private reads, so no cursor moves and nothing is left behind on the node.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace

from canal_ha.client.cluster import ClusterConnector
from canal_ha.errors import ConnectionLost, PositionLost, ServerRefused
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotState
from canal_ha.pipeline.access import private_connector
from canal_ha.pipeline.intake import Intake
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.redelivery import UpTo
from canal_ha.spark.existing import ExistingRows
from canal_ha.wire.client_session import END_OF_RANGE

FETCH_WAIT_MS = 1000
BEGINNINGS = 10  # of one read of existing rows: each lost connection begins it again, from the first row
LATEST = "latest"


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """What to read. Two reads of it give the same changes.

    destination: its name.
    start, until: bounds of the range; of existing rows "latest" and "".
    server: in whose binlog the bounds are, see LogPosition; "" if they are of no server, or of an unknown one.
    """

    destination: str
    start: str
    until: str
    server: str = ""


def plan(options: SourceOptions, destination: str) -> PlannedRead:
    """Fix the bounds of a read. Raises ServerRefused for a position that the source does not have, and PositionLost."""
    planned = PlannedRead(destination, options.starting, options.ending)
    if options.snapshot:
        return replace(planned, start=LATEST, until="")
    with private_connector(options, destination) as connector:
        if not planned.start.startswith("gtid:"):
            start = _position(connector, planned.start)
            planned = replace(planned, start=_text(start), server=start.server)
        if planned.until == LATEST:
            until = _position(connector, LATEST)
            _check_server(planned, until)
            planned = replace(planned, until=_text(until), server=until.server)
    return planned


def frames(options: SourceOptions, read: PlannedRead) -> Iterator[bytes]:
    """Yield the entries of a read, in blocks that end with a transaction, or inside one that is larger than a block.

    Raises the errors of the connector, and those of ExistingRows.
    """
    return _existing(options, read) if options.snapshot else delivered(options, read)


def delivered(options: SourceOptions, read: PlannedRead) -> Iterator[bytes]:
    """Yield the entries of a read as they come; with a snapshot, its rows and the changes beside them."""
    with private_connector(options, read.destination) as connector:
        _check_server(read, connector.read_from(read.start, read.until, filter_of(options), options.snapshot))
        yield from _blocks(connector, options, read)


def _existing(options: SourceOptions, read: PlannedRead) -> Iterator[bytes]:
    with private_connector(options, read.destination) as connector:
        for left in reversed(range(BEGINNINGS)):
            begun = connector.read_from(read.start, "", filter_of(options), options.snapshot)
            state = SnapshotState.from_text(begun.snapshot) if begun else None
            assert state is not None  # read_from has checked it
            with tempfile.TemporaryFile() as file:
                rows = ExistingRows(state.tables, state.id, file)
                try:
                    for block in _blocks(connector, options, read):
                        rows.add(block)
                except ConnectionLost as lost:
                    if left:
                        continue
                    raise ConnectionLost(f"{lost}, {BEGINNINGS} times: the warnings before this say why") from lost
                connector.disconnect()
                yield from rows.frames()
                return


def _blocks(connector: ClusterConnector, options: SourceOptions, read: PlannedRead) -> Iterator[bytes]:
    """Yield the entries of the connector's read up to its end.

    Raises ConnectionLost where a snapshot begins again, and PositionLost where a range cannot go on.
    """
    intake = Intake(options.segment_bytes)
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
                _check_server(read, connector.read_begun)
                intake.connected(again=UpTo(intake.durable))
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


def _position(connector: ClusterConnector, place: str) -> LogPosition:
    """Return the position for a place."""
    found = connector.read_from(place)
    if found is None:
        raise ServerRefused(f"canal: {connector.node} does not say where a read begins: update the node")
    return found


def _text(at: LogPosition) -> str:
    return f"{at.journal}:{at.offset}"


def _check_server(read: PlannedRead, begun: LogPosition | None) -> None:
    """Raise PositionLost if the destination reads another server than that of the bounds."""
    if begun is not None and "" not in (read.server, begun.server) and begun.server != read.server:
        raise PositionLost(
            f"canal: {read.destination} reads from another server now, in whose binlog {read.start} and {read.until}"
            " are other places: run the query again"
        )


def filter_of(options: SourceOptions) -> str:
    """Return the filter; if none is set, one for the tables of the snapshot."""
    if options.filter or options.snapshot == ("*",):
        return options.filter
    return ",".join(map(re.escape, options.snapshot))
