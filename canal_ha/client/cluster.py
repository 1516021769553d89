"""ClusterConnector: canal's connector with fail-over (docs/protocol.md#cluster-connector)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from canal_ha.client.async_cluster import AsyncClusterConnector
from canal_ha.client.async_connector import AT_ONCE_MS
from canal_ha.client.message import Message
from canal_ha.client.running import TAKEOVER_DELAY_S
from canal_ha.client.thread_runtime import THREAD, now
from canal_ha.client.tls import ClientTls
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.model.position import LogPosition
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.client.arrow import ArrowMessage


class ClusterConnector:
    """One client of one destination, on whichever node runs it; `with` connects and disconnects.

    where: ZooKeeper servers as in canal.zkServers (`host:2181,host:2181/chroot`), or a list of nodes
        (`["host:11111"]`). With ZooKeeper one process per client id is active; calls of the other processes wait until
        they become active.
    filter: every connection subscribes with it; `subscribe` replaces it. None: connect without a subscription.
    retry_times: consecutive failures after which a call raises the last error; None or -1: retry forever. A server's
        refusal is raised after a few tries anyway, a wrong password or filter at once.
    retry_interval_ms: longest pause between retries. The first retry has no pause, and a node newly named by ZooKeeper
        ends a pause.
    call_timeout_s: longest time a call waits for a connection before it raises WaitedTooLong; None: no limit.
    zk_auth: user:password of ZooKeeper's digest scheme, or a ZooKeeperAccess with SASL or TLS; required if the nodes
        set canal.zookeeper.auth or another key of canal.zookeeper.*.
    judge: called on every connection with the server's cursor and mark, before the connection subscribes, rolls back or
        fetches; gets None from a server that does not send them. Its exception ends the call.
    private: for `read_from`: a private read never waits to become active and never subscribes.
    snapshot, exact, tls: as in SimpleConnector.

    After a fail-over, unacknowledged batches are delivered again. An acknowledgement for a batch of a lost connection
    is dropped with a log line. Batch ids always grow, across fail-overs too.

    Calls of several threads run one after the other. `stop_running`, `interrupt` and `disconnect` end waiting calls;
    the first two are safe in a signal handler.
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
        zk_auth: str | ZooKeeperAccess = "",
        takeover_delay_s: float = TAKEOVER_DELAY_S,
        private: bool = False,
        judge: Callable[[LogPosition | None], None] | None = None,
        snapshot: Sequence[str] = (),
        exact: bool = True,
        tls: ClientTls | None = None,
    ) -> None:
        """Create a connector; see the class. Raises ValueError if `where` names no valid address."""
        self.destination = destination
        self.client_id = client_id
        self._calls = AsyncClusterConnector(
            where,
            destination,
            client_id,
            username,
            password,
            so_timeout_ms,
            idle_timeout_ms,
            filter=filter,
            retry_times=retry_times,
            retry_interval_ms=retry_interval_ms,
            call_timeout_s=call_timeout_s,
            rollback_on_connect=rollback_on_connect,
            rollback_on_disconnect=rollback_on_disconnect,
            zk_session_timeout_ms=zk_session_timeout_ms,
            zk_auth=zk_auth,
            takeover_delay_s=takeover_delay_s,
            private=private,
            judge=judge,
            snapshot=snapshot,
            exact=exact,
            tls=tls,
            runtime=THREAD,
        )

    # ---- connection

    @property
    def filter(self) -> str | None:
        """The filter of the next connection's subscription; None: it does not subscribe."""
        return self._calls.filter

    @property
    def connected(self) -> bool:
        """Whether connect() was called. As in canal, the process need not be active."""
        return self._calls.connected

    @property
    def active(self) -> bool:
        """Whether this process is the active one; without ZooKeeper, whether connect() was called."""
        return self._calls.active

    @property
    def node(self) -> str | None:
        """Address of the connected node; None without a connection."""
        return self._calls.node

    @property
    def connection(self) -> int:
        """Number of the connection of the last reply. A new number means: batches in flight are delivered again."""
        return self._calls.connection

    @property
    def standing_by(self) -> str | None:
        """Address of the active process if it is another one; None if none is known."""
        return self._calls.standing_by

    def check_valid(self) -> bool:
        """Return whether this process is active and connected."""
        return self._calls.check_valid()

    def connect(self) -> None:
        """Find the node, connect, subscribe if there is a filter, and roll back batches in flight.

        Does nothing if connected. With ZooKeeper it also returns while another process is active; the next call then
        waits.
        Raises the same errors as every call; afterwards the connector is not connected.
        """
        now(self._calls.connect())

    def disconnect(self) -> None:
        """Close the connection and let another process become active; the server keeps subscription and cursor.

        Waiting calls of other threads raise ConnectorStopped.
        """
        now(self._calls.disconnect())

    def stop_running(self) -> None:
        """Make waiting calls raise ConnectorStopped, now and until the next connect().

        Delivered batches can still be acknowledged.
        """
        self._calls.stop_running()

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
        """Subscribe on this and every later connection. filter: None or "" keeps the server's."""
        now(self._calls.subscribe(filter))

    def read_from(
        self, start: str, until: str = "", filter: str = "", snapshot: Sequence[str] = ()
    ) -> LogPosition | None:
        """Start a private read, like SimpleConnector.read_from. Requires private=True.

        After a fail-over the read continues at the last acknowledged transaction, which is delivered again; with a
        snapshot it begins again.

        start: position of the first entry.
        until: position of the end; "": none.
        filter: table filter; "" uses the server's.
        snapshot: tables whose existing rows are read; the read ends behind them.
        Raises LocalProtocolError without private=True, and ValueError for an invalid position.
        """
        return now(self._calls.read_from(start, until, filter, snapshot))

    @property
    def read_begun(self) -> LogPosition | None:
        """Where the private read began on the newest connection; None if the server did not say."""
        return self._calls.read_begun

    def unsubscribe(self) -> None:
        """Unsubscribe; the server also deletes the cursor."""
        now(self._calls.unsubscribe())

    def get(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """Get a batch and acknowledge it at once. A crash before it is processed loses it."""
        return now(self._calls.get(batch_size, timeout_ms))

    def get_without_ack(
        self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS, *, eager: bool = False
    ) -> Message:
        """Get the next batch after the last delivered one; empty if none came in time.

        After a fail-over: the next after the last acknowledged one. Arguments as in SimpleConnector.get_without_ack.
        """
        return now(self._calls.get_without_ack(batch_size, timeout_ms, eager=eager))

    def get_arrow(
        self,
        batch_size: int = DEFAULT_FETCH_SIZE,
        timeout_ms: int = AT_ONCE_MS,
        *,
        time_zone: str = "UTC",
        eager: bool = False,
    ) -> ArrowMessage:
        """Get a batch as Arrow record batches; see SimpleConnector.get_arrow."""
        return now(self._calls.get_arrow(batch_size, timeout_ms, time_zone=time_zone, eager=eager))

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Acknowledge the oldest batch in flight; the id of an empty message is ignored. Never waits for a connection.

        The acknowledgement is dropped if the batch's connection is lost or this process is no longer active. The batch
        is then delivered again.

        batch_id: the message's id.
        mark: text to store with the cursor; see SimpleConnector.ack.
        Raises LocalProtocolError for a batch that was never delivered.
        """
        now(self._calls.ack(batch_id, mark))

    def rollback(self, batch_id: int = 0) -> None:
        """Make the server deliver batches in flight again. batch_id: 0 for all, else this one and later ones.

        Does nothing for a batch of a lost connection.
        """
        now(self._calls.rollback(batch_id))
