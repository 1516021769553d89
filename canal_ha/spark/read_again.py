"""Asks the node to read tables again from their first row, into the stream of the query's client id."""

from __future__ import annotations

from collections.abc import Sequence

from canal_ha import logs
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.errors import ConnectionLost, ServerRefused
from canal_ha.model.snapshot import InitialSnapshot
from canal_ha.pipeline.access import private_connector, snapshot_of
from canal_ha.pipeline.options import SourceOptions

log = logs.get(__name__)


def read_again(options: SourceOptions, destination: str, tables: Sequence[str]) -> None:
    """Ask for it. A refusal is only logged, because it would come again: a table may be gone by now.

    options: the query's.
    destination: name of the destination.
    tables: as `schema.table`.
    Raises ConnectionLost, WaitedTooLong: the same request can be made again.
    """
    with private_connector(options, destination) as found:
        node = found.node
    if node is None:
        raise ConnectionLost(f"canal: no connection to a node that runs {destination}")
    client = SimpleConnector(
        *split_address(node),
        destination,
        options.client_id,
        options.user,
        options.password,
        rollback_on_connect=False,
        snapshot=InitialSnapshot(tuple(tables), again=True),
        tls=options.tls,
    )
    with client:
        try:
            state = snapshot_of(client.subscribe("", tell_cursor=True))
            problem = "" if state and set(tables) <= set(state.tables) else "this version of the node cannot read again"
        except ServerRefused as refused:
            problem = str(refused)
    if problem:
        log.warning("spark.not_read_again", destination=destination, tables=",".join(tables), error=problem)
    else:
        log.info("spark.read_again", destination=destination, tables=",".join(tables))
