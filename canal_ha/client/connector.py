"""SimpleConnector: canal's blocking connector to one server (docs/protocol.md#connector)."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from canal_ha.client.async_connector import AT_ONCE_MS, AsyncConnector
from canal_ha.client.message import Message
from canal_ha.client.thread_runtime import THREAD, now
from canal_ha.client.tls import ClientTls
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import InitialSnapshot
from canal_ha.wire.client_session import LARGEST_FRAME_BYTES
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.client.arrow import ArrowMessage


class SimpleConnector:
    """One client of one destination on one server; `with` connects and disconnects.

    password: None sends none.
    so_timeout_ms: longest time for a reply, in addition to the wait of a GET; 0: no limit.
    idle_timeout_ms: the server may close the connection after this time without a request.
    connect_timeout_ms: longest time for the TCP connection; None: so_timeout_ms.
    filter: connect() subscribes with it; None: it does not subscribe.
    rollback_on_connect: connect() makes the server deliver batches in flight again.
    max_frame_bytes: largest frame accepted from the server.
    read_ahead: after each batch, request the next one with the same size and timeout while the caller works on the
        first. The server has one more batch in flight and reads an acknowledgement only after it sent that batch. A GET
        without a time limit is not sent ahead: if the batch filled the server's store, that GET would wait for an
        acknowledgement that the server has not read. Other requests wait for the GET sent ahead; its batch is delivered
        even after subscribe() with another filter. Requires rollback_on_connect: after a lost connection, a batch under
        way would otherwise stay in flight unseen.
    lazy_acks: send an acknowledgement in one packet with the next request, or alone after about 0.2 s. For callers
        that request the next batch at once.
    snapshot: tables, as `schema.table`, whose existing rows come first, if the subscription creates the cursor; `*`
        alone: all tables that the filter keeps. canal's servers ignore this.
    exact: ask for values in the exact form, as SELECT gives them in utf8mb4 (docs/protocol.md#exact). canal's servers
        and older nodes ignore this. False: canal's form, which loses what canal loses; see `rows_of`.
    tls: TLS to the server; None: a plain connection, as canal's.

    A failed connection is closed; call connect() again. The same holds for a session that is out of step, after an
    error that may belong to an earlier ack or rollback. Batches in flight survive at the server; connect() rolls them
    back.
    """

    def __init__(
        self,
        host: str,
        port: int,
        destination: str,
        client_id: int = 1001,
        username: str = "",
        password: str | None = "",
        so_timeout_ms: int = 60_000,
        idle_timeout_ms: int = 3_600_000,
        *,
        connect_timeout_ms: int | None = None,
        filter: str | None = None,
        rollback_on_connect: bool = True,
        rollback_on_disconnect: bool = False,
        max_frame_bytes: int = LARGEST_FRAME_BYTES,
        read_ahead: bool = False,
        lazy_acks: bool = False,
        snapshot: Sequence[str] | InitialSnapshot = (),
        exact: bool = True,
        tls: ClientTls | None = None,
    ) -> None:
        self._calls = AsyncConnector(
            host,
            port,
            destination,
            client_id,
            username,
            password,
            so_timeout_ms,
            idle_timeout_ms,
            connect_timeout_ms=connect_timeout_ms,
            filter=filter,
            rollback_on_connect=rollback_on_connect,
            rollback_on_disconnect=rollback_on_disconnect,
            max_frame_bytes=max_frame_bytes,
            read_ahead=read_ahead,
            lazy_acks=lazy_acks,
            snapshot=snapshot,
            exact=exact,
            tls=tls,
            runtime=THREAD,
        )

    @property
    def host(self) -> str:
        """The server's host."""
        return self._calls.host

    @property
    def port(self) -> int:
        """The server's port."""
        return self._calls.port

    @property
    def identity(self) -> ClientIdentity:
        """Destination, client id, and the filter of the last subscription."""
        return self._calls.identity

    @property
    def filter(self) -> str | None:
        """The filter that connect() subscribes with."""
        return self._calls.filter

    # ---- connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._calls.connected

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end of the connection."""
        return self._calls.local_address

    def connect(self) -> None:
        """Connect, authenticate, subscribe if there is a filter, and roll back if rollback_on_connect.

        Does nothing if connected. Raises ConnectionLost, ServerRefused or RemoteProtocolError; afterwards the connector
        is not connected.
        """
        now(self._calls.connect())

    def disconnect(self) -> None:
        """Close the connection; the server keeps subscription, cursor and batches in flight."""
        now(self._calls.disconnect())

    def interrupt(self) -> None:
        """Make the current request, or the next one, raise ConnectionLost. For signal handlers and other threads."""
        self._calls.interrupt()

    def abort(self) -> None:
        """End the connection at once; a waiting request raises ConnectionLost. Callable from any thread."""
        self._calls.abort()

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    # ---- requests

    def subscribe(self, filter: str | None = None, *, tell_cursor: bool = False) -> LogPosition | None:
        """Subscribe to the destination.

        filter: table filter; None or "" keeps the server's.
        tell_cursor: return the server's cursor of this client, with its mark; None if the server does not send it.
        """
        return now(self._calls.subscribe(filter, tell_cursor=tell_cursor))

    def read_from(
        self, start: str, until: str = "", filter: str = "", snapshot: Sequence[str] = ()
    ) -> LogPosition | None:
        """Start a private read on this connection. No cursor moves; acks only free the server's memory.

        Returns the position where it begins; None from a server that does not send it.

        Call it again to read elsewhere. Create the connector with rollback_on_connect=False, or connect() rolls back
        the batches of the client with this id.

        start: position in a form of model.place.
        until: end position as JOURNAL:OFFSET or gtid:SET; a GET there is refused with `end of range`. "": none.
        filter: table filter; "" uses the server's.
        snapshot: tables, as `schema.table`, whose existing rows are read beside the changes; `*` alone: all that the
            filter keeps. Behind the last of these rows a GET is refused with `end of range`.
        Raises ValueError for an invalid position, and ServerRefused from a node that reads no snapshots like this.
        """
        return now(self._calls.read_from(start, until, filter, snapshot))

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

        batch_size: entries or KiB, as the server counts.
        timeout_ms: longest wait for a full batch; -1: do not wait, 0: no limit.
        eager: end the wait as soon as there is an entry. canal's servers and older nodes ignore this.
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
        """Get a batch as Arrow record batches, each of one table; requires pyarrow. Call ack(message.id) later.

        batch_size, timeout_ms, eager: as in get_without_ack.
        time_zone: time zone of a server process that ignores `exact`: it writes TIMESTAMP values in its own zone.
        Also raises SinkRefused for a value that does not fit its column's type; the batch then stays in flight.
        """
        return now(self._calls.get_arrow(batch_size, timeout_ms, time_zone=time_zone, eager=eager))

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Acknowledge the oldest batch in flight; the id of an empty message is ignored.

        batch_id: the message's id.
        mark: text of at most 200 bytes that is stored with the cursor until the next acknowledgement. canal ignores it.

        Success has no reply; a failure appears as an error of the next request.
        """
        now(self._calls.ack(batch_id, mark))

    def rollback(self, batch_id: int = 0) -> None:
        """Make the server deliver batches in flight again; there is no reply. batch_id: 0 for all, else the oldest."""
        now(self._calls.rollback(batch_id))

    def check_valid(self) -> bool:
        """Return True: a simple connector is always active."""
        return self._calls.check_valid()
