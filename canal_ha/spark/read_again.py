"""Asks the node to read tables again from their first row, into the stream of the query's client id."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha.pipeline.access import SourceAccess, private_connector
from canal_ha.pipeline.options import SourceOptions


def read_again(options: SourceOptions, destination: str, tables: Sequence[str], gone: Sequence[str] = ()) -> None:
    """Ask for it. A table that is gone by now is no error.

    options: the query's.
    destination: name of the destination.
    tables: as `schema.table`.
    gone: tables that an unfinished snapshot is to leave out if they are gone.
    Raises SnapshotRefused. Raises ConnectionLost, WaitedTooLong: the same request can be made again.
    """
    with private_connector(options, destination) as found:
        node = found.node
    SourceAccess(destination, options, options.filter).read_again(node, tables, gone)
