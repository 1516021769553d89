"""Access: the connections of a pipeline to one destination."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from canal_ha import logs
from canal_ha.client.cluster import ClusterConnector
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.client.failover import FailureKind
from canal_ha.client.own_snapshot import no_rows, snapshot_of
from canal_ha.client.refusals import kind_of
from canal_ha.decode.kernel.codes import ROWDATA
from canal_ha.errors import ConnectionLost, PositionLost, ServerRefused, SnapshotRefused, TableMissing
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import NO_SNAPSHOT, InitialSnapshot
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.same_binlog import SameBinlog, compare
from canal_ha.wire.client_session import END_OF_RANGE

if TYPE_CHECKING:
    from canal_ha.pipeline.description import Description  # imports all transforms
    from canal_ha.pipeline.progress import Progress

WAIT_S = 10.0  # of a call that finds no node, or another active process
NODE_WAIT_S = 120.0  # of a private read for a node that runs the destination
ASK_MS = 10_000
FETCH_WAIT_MS = 1000
_NO_ANSWER = ("NOT supported", "open streams")  # replies of canal, and of a node without room for another stream
_PLAIN = re.compile(r"[A-Za-z0-9_$.*?-]+")

log = logs.Spared(logs.get(__name__))  # tables and their statements are from outside


class SourceAccess:
    """The connections to one destination.

    destination: its name.
    options: of the source.
    filter: the tables, as regular expressions.
    exact: whether values come in the exact form or in canal's (docs/protocol.md#exact).
    """

    def __init__(self, destination: str, options: SourceOptions, filter: str, *, exact: bool = True) -> None:
        self.destination = destination
        self._options = options
        self._filter = filter
        self._exact = exact

    def client(self, judge: Callable[[LogPosition | None], None]) -> ClusterConnector:
        """Return the connector of the pipeline's client id, not connected. judge: see ClusterConnector."""
        options = self._options
        return ClusterConnector(
            options.zk_servers or list(options.servers),
            self.destination,
            options.client_id,
            options.user,
            options.password,
            filter=self._filter,
            exact=self._exact,
            call_timeout_s=WAIT_S,
            rollback_on_disconnect=True,  # batches in flight go to the next process at once
            zk_session_timeout_ms=options.session_timeout_ms,
            zk_auth=options.zk_access,
            judge=judge,
            snapshot=options.snapshot,
            tls=options.tls,
        )

    def cursor(self, node: str | None) -> LogPosition | None:
        """Return the server's cursor of the client id; None if it is not told. node: where the client is connected."""
        with self._beside(node) as asked:
            return _told(asked)

    def end(self, wait_s: float = NODE_WAIT_S) -> LogPosition | None:
        """Return the present end of the source's binlog; None if the server does not tell it.

        wait_s: for a node that runs the destination.
        Raises WaitedTooLong.
        """
        with private_connector(self._options, self.destination, wait_s=wait_s) as connector:
            return end_of_binlog(connector)

    def changes_between(self, node: str | None, begin: LogPosition, end: LogPosition) -> bool:
        """Return whether there are entries of the pipeline's tables behind `begin`, up to `end`.

        node: where the client is connected.
        Raises PositionLost if the source is another server now.
        """
        if "" not in (begin.server, end.server) and begin.server != end.server:
            raise PositionLost(f"canal: {self.destination} reads from another server now: run the pipeline again")
        if begin.order[:3] >= end.order[:3]:
            return False
        with private_connector(self._options, self.destination, node) as connector:
            begun = connector.read_from(str(begin), str(end), self._filter)
            if begun is not None and "" not in (begun.server, end.server) and begun.server != end.server:
                raise PositionLost(f"canal: {self.destination} reads from another server now: run the pipeline again")
            return has_changes_behind(connector, begin, self._options.fetch_size)

    def same_binlog(self, cursor: LogPosition, progress: Progress) -> SameBinlog:
        """Look for the target's last entry in the source's binlog; see canal_ha.pipeline.same_binlog.

        Raises the errors of a connector.
        """
        with private_connector(self._options, self.destination) as connector:
            try:
                return compare(connector, cursor, progress, self._filter, self._options.fetch_size)
            except ServerRefused as refused:
                if any(text in str(refused) for text in _NO_ANSWER):
                    return SameBinlog.UNASKED
                raise

    def read_again(self, node: str | None, tables: Sequence[str], gone: Sequence[str] = ()) -> None:
        """Ask the node to read tables from their first row, into the stream of the client id.

        node: where the client is connected.
        tables: as `schema.table`. One that is gone meanwhile is left out: its statement follows in the stream.
        gone: tables that an unfinished snapshot is to leave out if they are gone; one that has failed goes on then. A
            node of an earlier version does not leave them out.
        Raises ConnectionLost, and SnapshotRefused if the node refuses.
        """
        if gone:
            with self._beside(node, InitialSnapshot(gone=tuple(gone))) as client:
                try:
                    _told(client)
                except ServerRefused as refused:
                    raise SnapshotRefused(f"canal: {', '.join(gone)} cannot be left out: {refused}") from refused
        for table in tables:
            with self._beside(node, InitialSnapshot((table,), again=True)) as client:
                try:
                    state = snapshot_of(_told(client))
                except ServerRefused as refused:
                    if refused.code != TableMissing.code:
                        raise SnapshotRefused(f"canal: {table} cannot be read again: {refused}") from refused
                    log.warning("pipeline.table_gone", destination=self.destination, table=table)
                    continue
            if state is None or table not in state.tables:
                raise SnapshotRefused(f"canal: {table} cannot be read again: update the node {node}")
            log.info("pipeline.read_again", destination=self.destination, table=table)

    def _beside(self, node: str | None, snapshot: InitialSnapshot = NO_SNAPSHOT) -> SimpleConnector:
        """Return another connection of the client id to the node, not connected. Raises ConnectionLost."""
        if node is None:
            raise ConnectionLost(f"canal: no connection to a node that runs {self.destination}")
        return connector_beside(self._options, self.destination, node, snapshot)


def connector_beside(
    options: SourceOptions, destination: str, node: str, snapshot: InitialSnapshot = NO_SNAPSHOT
) -> SimpleConnector:
    """Return another connection of the client id, not connected, which leaves its batches in flight.

    options: of the source.
    destination: its name.
    node: address of the node.
    snapshot: tables to read from their first row.
    """
    return SimpleConnector(
        *split_address(node),
        destination,
        options.client_id,
        options.user,
        options.password,
        so_timeout_ms=ASK_MS,
        rollback_on_connect=False,
        snapshot=snapshot,
        tls=options.tls,
    )


def end_of_binlog(connector: SimpleConnector | ClusterConnector, filter: str = "") -> LogPosition | None:
    """Return the present end of the source's binlog; None if the server does not tell it.

    connector: connected; it begins a private read.
    filter: of that read.
    Raises the errors of a connector, also if the node does not reach the source.
    """
    try:
        return connector.read_from("latest", filter=filter)
    except ServerRefused as refused:
        if any(text in str(refused) for text in _NO_ANSWER):
            return None
        raise


def has_changes_behind(connector: SimpleConnector | ClusterConnector, begin: LogPosition, fetch_size: int) -> bool:
    """Return whether a private read has a row or a statement behind a position. It is read up to that, or to its end.

    connector: its read may begin with the whole transaction at `begin`.
    begin: in the same binlog.
    fetch_size: of a GET.
    Raises the errors of a connector.
    """
    while True:
        try:
            message = connector.get_without_ack(fetch_size, FETCH_WAIT_MS, eager=True)
        except ServerRefused as refused:
            if END_OF_RANGE in str(refused):
                return False
            raise
        entries = message.walk()
        while entries.next():
            place = LogPosition(entries.text(entries.journal_start, entries.journal_stop), entries.offset)
            if entries.kind == ROWDATA and place.order[:3] > begin.order[:3]:
                return True
        connector.ack(message.id)


def private_connector(
    options: SourceOptions, destination: str, node: str | None = None, *, wait_s: float = NODE_WAIT_S
) -> ClusterConnector:
    """Return a connector, not connected, that needs no client id.

    options: of the source.
    destination: what to read.
    node: which one to ask; None: find it.
    wait_s: for a node that runs the destination.
    """
    return ClusterConnector(
        [node] if node else options.zk_servers or list(options.servers),
        destination,
        options.client_id,
        options.user,
        options.password,
        exact=options.exact,
        call_timeout_s=wait_s,
        zk_session_timeout_ms=options.session_timeout_ms,
        zk_auth=options.zk_access,
        private=True,
        tls=options.tls,
    )


def tell_no_rows(event: str, destination: str, options: SourceOptions, cursor: LogPosition | None) -> None:
    """Log that existing rows do not come, because the client id existed before and never had a snapshot.

    event: of the log.
    destination, options: of the consumer.
    cursor: the server's, before anything is fetched.
    """
    if options.snapshot and cursor is not None and not cursor.snapshot:
        text = no_rows(destination, options.client_id, options.snapshot, None)
        log.warning(event, destination=destination, text=text)


def _told(client: SimpleConnector) -> LogPosition | None:
    """Return the server's cursor. Raises ConnectionLost from a node that has lost the destination."""
    try:
        return client.subscribe("", tell_cursor=True)
    except ServerRefused as refused:
        if kind_of(refused, subscribed=True) is FailureKind.LOST:
            raise ConnectionLost(str(refused)) from refused
        raise


def filter_of(description: Description, options: SourceOptions) -> str:
    """Return the table filter: the option, or regular expressions of the pipeline's tables; "" if these cannot tell."""
    if options.filter or not all(_PLAIN.fullmatch(pattern) for pattern in description.tables):
        return options.filter
    words = {"*": ".*", "?": ".", ".": r"\.", "$": r"\$", "-": r"\-"}
    return ",".join("".join(words.get(letter, letter) for letter in pattern) for pattern in description.tables)
