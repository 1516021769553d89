"""ClusterConnector: canal's connector that goes on when nodes and clients fail (docs/protocol.md#cluster-connector)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from canal_ha import logs
from canal_ha.client.connector import AT_ONCE_MS, SimpleConnector
from canal_ha.client.exchange import Access, Exchange
from canal_ha.client.message import Message
from canal_ha.client.numbering import Numbering
from canal_ha.client.reading import Reading
from canal_ha.client.running import TAKEOVER_DELAY_S
from canal_ha.errors import LocalProtocolError
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.place import Place, end_of_read
from canal_ha.model.position import LogPosition
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.client.arrow import ArrowMessage, Pages

log = logs.get(__name__)


class ClusterConnector:
    """One client of one destination, wherever that runs; `with` connects and disconnects.

    where: ZooKeeper as in canal.zkServers (`host:2181,host:2181/chroot`), or a list of nodes (`["host:11111"]`). With
    ZooKeeper one process per client id is active at a time, and calls of the others wait until it is their turn.

    retry_times: failures in a row after which a call raises the last one, None (or canal's -1) for never; refusals by a
    server are told after a handful all the same, a wrong password or filter at once. The first retry comes at once,
    later ones after up to retry_interval_ms, all of them as soon as ZooKeeper names another node.
    call_timeout_s: how long a call may wait for its turn and a connection before it raises WaitedTooLong.
    filter: preset, so that every connection subscribes with it, as with the filter of the last `subscribe`.
    zk_auth: user:password, where the nodes have canal.zookeeper.auth.
    judge: hears at every connection where the server has the cursor, and its mark, before the filter is set, batches in
    flight are taken back, or anything is fetched; None from a server that does not tell. What it raises ends the call.
    private: for `read_from`, beside every client and out of turn; such a connector subscribes to nothing.

    After a fail-over batches that were not acknowledged come again. An acknowledgement of a batch whose connection is
    gone is dropped, with a line in the log. Batch ids always grow, over fail-overs too.

    Calls of several threads come one after the other. `stop_running`, `interrupt` and `disconnect` end those that wait;
    the first two may come from a signal handler as well.
    """

    def __init__(
        self,
        where: str | Sequence[str],
        destination: str,
        client_id: int = 1001,
        username: str = "",
        password: str | None = "",
        so_timeout_ms: int = 60_000,
        idle_timeout_ms: int = 3_600_000,
        *,
        filter: str | None = None,
        retry_times: int | None = None,
        retry_interval_ms: int = 5000,
        call_timeout_s: float | None = None,
        rollback_on_connect: bool = True,
        rollback_on_disconnect: bool = False,
        zk_session_timeout_ms: int = 6000,
        zk_auth: str = "",
        takeover_delay_s: float = TAKEOVER_DELAY_S,
        private: bool = False,
        judge: Callable[[LogPosition | None], None] | None = None,
    ) -> None:
        """Raises ValueError when `where` names nothing that could be connected to."""
        servers = where if isinstance(where, str) else None
        if servers is not None and not servers.strip():
            raise ValueError("where: expected ZooKeeper servers, as host:2181,host:2181")
        self.destination = destination
        self.client_id = client_id
        self._numbering = Numbering()
        self._pages: Pages | None = None
        self._private = private
        self._reading = Reading()
        self._exchange = Exchange(
            Access(
                servers,
                () if isinstance(where, str) else tuple(where),
                destination,
                client_id,
                username,
                password,
                so_timeout_ms,
                idle_timeout_ms,
                retry_times,
                retry_interval_ms,
                call_timeout_s,
                rollback_on_connect and not private,
                rollback_on_disconnect and not private,
                zk_session_timeout_ms,
                zk_auth,
                takeover_delay_s,
                private,
            ),
            filter,
            self._numbering.new_connection,
            judge,
        )

    # ---- connection

    @property
    def filter(self) -> str | None:
        """What the next connection subscribes with; None: it does not subscribe."""
        return self._exchange.filter

    @property
    def connected(self) -> bool:
        """Whether connect() was called: as in canal this does not mean that it is this process's turn."""
        return self._exchange.is_open

    @property
    def active(self) -> bool:
        """Whether it is this process's turn. Without ZooKeeper it always is."""
        return self._exchange.active

    @property
    def node(self) -> str | None:
        """Address of the node that the connection leads to, None while there is none."""
        return self._exchange.node

    @property
    def connection(self) -> int:
        """Number of the connection that the last answer came on; after another one batches in flight come again."""
        return self._exchange.connection

    @property
    def standing_by(self) -> str | None:
        """Address of the client that is active in our place; None when none is, as far as is known."""
        return self._exchange.standing_by

    def check_valid(self) -> bool:
        """Whether there is a connection and it is this process's turn."""
        return self.active and self.node is not None

    def connect(self) -> None:
        """Find the node, connect, subscribe if a filter is known, take back batches in flight.

        Nothing happens when connected. With ZooKeeper it returns as well when another process is active: the next call
        waits. Raises as every call does; not connected then.
        """
        self._exchange.open()

    def disconnect(self) -> None:
        """Close the connection and let another process have its turn; the server keeps subscription and cursor.

        Calls that wait in other threads raise ConnectorStopped.
        """
        self._exchange.close()

    def stop_running(self) -> None:
        """Make the call that waits, and every later one that would, raise ConnectorStopped, until connect() again.

        Batches that were handed out can still be acknowledged.
        """
        self._exchange.stop()

    interrupt = stop_running

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    # ---- requests

    def subscribe(self, filter: str | None = None) -> None:
        """Become a client of the destination, here and on every later node. None or "" keeps the server's filter."""
        if self._private:
            raise LocalProtocolError("this connector reads privately: use another one to subscribe")
        self._exchange.call("subscribe", lambda link: link.subscribe(filter))
        self._exchange.filter = filter or ""

    def read_from(self, start: str, until: str = "", filter: str = "") -> None:
        """Read privately from now on, as SimpleConnector.read_from has it. Needs `private`.

        After a fail-over reading goes on at the last transaction that was acknowledged, which comes again.
        """
        if not self._private:
            raise LocalProtocolError("make the connector with private=True to read from a position")
        Place.parse(start), end_of_read(until)
        with self._exchange.calling:
            self._reading = Reading(start, until, filter)
            self._exchange.greet = None
            self._exchange.call("read", self._reading.begin)
            self._exchange.greet = self._reading.begin

    def unsubscribe(self) -> None:
        """Stop being one: the server forgets the cursor as well."""
        self._exchange.call("unsubscribe", SimpleConnector.unsubscribe)
        self._exchange.filter = None

    def get(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """`get_without_ack`, acknowledged before it is returned: what is not worked off is lost."""
        message = self.get_without_ack(batch_size, timeout_ms)
        self.ack(message.id)
        return message

    def get_without_ack(
        self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS, *, eager: bool = False
    ) -> Message:
        """The next batch behind the last one handed out; empty, when nothing came in time.

        After a fail-over: behind the last one acknowledged. Arguments as for SimpleConnector.
        """
        with self._exchange.calling:
            message = self._exchange.call(
                "fetch the data", lambda link: link.get_without_ack(batch_size, timeout_ms, eager=eager)
            )
            if message.id != EMPTY_BATCH_ID:
                message.id = self._numbering.handed_out(message.id)
                if self._private:
                    self._reading.handed_out(message)
            return message

    def get_arrow(
        self,
        batch_size: int = DEFAULT_FETCH_SIZE,
        timeout_ms: int = AT_ONCE_MS,
        *,
        time_zone: str = "UTC",
        eager: bool = False,
    ) -> ArrowMessage:
        """`get_without_ack` with rows as Arrow record batches, as SimpleConnector's."""
        from canal_ha.client.arrow import Pages, arrow_message

        with self._exchange.calling:  # for the pages too, which batches are built in
            self._pages = Pages.kept(self._pages, time_zone)
            return arrow_message(self.get_without_ack(batch_size, timeout_ms, eager=eager), time_zone, self._pages)

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Acknowledge the oldest batch in flight; the id of an empty message is ignored. Waits for no connection.

        batch_id: of the message
        mark: kept with the cursor, as SimpleConnector.ack has it

        Dropped when the connection that brought the batch is gone, or this process's turn is over: it comes again.
        Raises LocalProtocolError for a batch that was never handed out.
        """
        if batch_id == EMPTY_BATCH_ID:
            return
        with self._exchange.calling:
            server_id = self._numbering.server_id(batch_id)
            if server_id is not None and self._exchange.call_if_connected(lambda link: link.ack(server_id, mark)):
                self._numbering.acknowledged(batch_id)
                self._reading.acknowledged(batch_id)
                return
        log.warning(
            "client.ack_dropped",
            destination=self.destination,
            client_id=self.client_id,
            batch_id=batch_id,
            reason="its connection is gone; the batch comes again",
        )

    def rollback(self, batch_id: int = 0) -> None:
        """Have batches in flight handed out again. batch_id: 0 for all, else this one and later ones.

        Nothing is left to do for a batch whose connection is gone.
        """

        def roll_back(link: SimpleConnector) -> bool:
            server_id = self._numbering.server_id(batch_id) if batch_id else 0
            if server_id is None:
                return False
            link.rollback(server_id)
            return True

        with self._exchange.calling:
            if self._exchange.call("rollback", roll_back):
                self._numbering.rolled_back(batch_id)
