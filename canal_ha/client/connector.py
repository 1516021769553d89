"""SimpleConnector: canal's blocking connector to one server (docs/protocol.md#connector)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from canal_ha.client.link import Link
from canal_ha.client.message import Message
from canal_ha.client.tls import ClientTls
from canal_ha.decode.kernel.entries import only_frames
from canal_ha.errors import LocalProtocolError, RemoteProtocolError, ServerRefused
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place, end_of_read
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import InitialSnapshot
from canal_ha.wire.client_session import LARGEST_FRAME_BYTES, Accepted, Answer, ClientSession
from canal_ha.wire.messages import Fetched
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.client.arrow import ArrowMessage, Pages

AT_ONCE_MS = -1
WITHOUT_LIMIT_MS = 0


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
        self.host = host
        self.port = port
        self.identity = ClientIdentity(destination, client_id, filter or "")
        self.filter = filter
        self._username = username
        self._password = password
        self._so_timeout_ms = so_timeout_ms
        self._connect_timeout_ms = so_timeout_ms if connect_timeout_ms is None else connect_timeout_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._rollback_on_connect = rollback_on_connect
        self._rollback_on_disconnect = rollback_on_disconnect
        self._max_frame_bytes = max_frame_bytes
        self._link: Link | None = None
        if not isinstance(snapshot, InitialSnapshot):
            snapshot = InitialSnapshot(tuple(snapshot), filter or "")
        self._snapshot = snapshot
        self._session = ClientSession(exact=exact, snapshot=self._snapshot)
        self._pages: Pages | None = None
        if read_ahead and not rollback_on_connect:
            raise ValueError("read_ahead needs rollback_on_connect")
        self._read_ahead = read_ahead
        self._lazy_acks = lazy_acks
        self._exact = exact
        self._tls = tls
        self._asked: int | None = None  # timeout of a GET that was sent ahead and has no reply yet
        self._ahead: Fetched | None = None  # the reply to a GET that was sent ahead

    # ---- connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self._link is not None

    @property
    def local_address(self) -> tuple[str, int]:
        """Host and port of this end of the connection."""
        return self._linked().local_address

    def connect(self) -> None:
        """Connect, authenticate, subscribe if there is a filter, and roll back if rollback_on_connect.

        Does nothing if connected. Raises ConnectionLost, ServerRefused or RemoteProtocolError; afterwards the connector
        is not connected.
        """
        if self._link is not None:
            return
        self._link = Link(self.host, self.port, self._connect_timeout_ms, self._tls)
        self._session = ClientSession(
            max_frame_bytes=self._max_frame_bytes, only_frames=only_frames, exact=self._exact, snapshot=self._snapshot
        )
        try:
            self._answer()
            self._ask(self._session.authenticate(self._username, self._password, self._idle_timeout_ms))
            if self.filter is not None:
                self.subscribe(self.filter)
            if self._rollback_on_connect:
                self.rollback()
        except BaseException:
            self._drop()
            raise

    def disconnect(self) -> None:
        """Close the connection; the server keeps subscription, cursor and batches in flight."""
        if self._link is None:
            return
        try:
            if self._rollback_on_disconnect and self._session.in_step:  # does not wait for a GET sent ahead
                self._linked().send(self._session.rollback(self.identity, 0))
        finally:
            self._drop()

    def interrupt(self) -> None:
        """Make the current request, or the next one, raise ConnectionLost. For signal handlers and other threads."""
        link = self._link
        if link is not None:
            link.interrupt()

    def abort(self) -> None:
        """End the connection at once; a waiting request raises ConnectionLost. Callable from any thread."""
        link = self._link
        if link is not None:
            link.abort()

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
        self._settle()
        identity = ClientIdentity(self.identity.destination, self.identity.client_id, filter or "")
        answer = self._ask(self._session.subscribe(identity, tell_cursor=tell_cursor))
        self.identity = identity
        return answer.cursor if isinstance(answer, Accepted) else None

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
        place, end = Place.parse(start), end_of_read(until)
        identity = ClientIdentity(self.identity.destination, self.identity.client_id, filter)
        self._settle()
        answer = self._ask(self._session.read_from(identity, place, end, snapshot))
        self._ahead = None
        begin = answer.cursor if isinstance(answer, Accepted) else None
        if snapshot and not (begin and begin.snapshot):
            raise ServerRefused(f"{self.host}:{self.port}: this version of the node reads no existing rows: update it")
        return begin

    def unsubscribe(self) -> None:
        """Unsubscribe; the server also deletes the cursor."""
        self._settle()
        self._ask(self._session.unsubscribe(self.identity))
        self._ahead = None

    def get(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """Get a batch and acknowledge it at once. A crash before it is processed loses it."""
        message = self.get_without_ack(batch_size, timeout_ms)
        self.ack(message.id)
        return message

    def get_without_ack(
        self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS, *, eager: bool = False
    ) -> Message:
        """Get the next batch after the last delivered one; empty if none came in time.

        batch_size: entries or KiB, as the server counts.
        timeout_ms: longest wait for a full batch; -1: do not wait, 0: no limit.
        eager: end the wait as soon as there is an entry. canal's servers and older nodes ignore this.
        """
        size = batch_size if batch_size > 0 else DEFAULT_FETCH_SIZE
        timeout_ms = max(timeout_ms, AT_ONCE_MS)
        self._settle()
        fetched, self._ahead = self._ahead, None
        if fetched is None:
            request = self._session.get(self.identity, size, timeout_ms, eager=eager)
            fetched = self._fetched(self._ask(request, timeout_ms))
        if self._read_ahead and timeout_ms != WITHOUT_LIMIT_MS and fetched.batch_id != EMPTY_BATCH_ID:
            self._send(self._session.get(self.identity, size, timeout_ms, eager=eager))
            self._asked = timeout_ms
        return Message(fetched)

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
        from canal_ha.client.arrow import Pages, arrow_message

        self._pages = Pages.kept(self._pages, time_zone)
        return arrow_message(self.get_without_ack(batch_size, timeout_ms, eager=eager), time_zone, self._pages)

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Acknowledge the oldest batch in flight; the id of an empty message is ignored.

        batch_id: the message's id.
        mark: text of at most 200 bytes that is stored with the cursor until the next acknowledgement. canal ignores it.

        Success has no reply; a failure appears as an error of the next request.
        """
        if batch_id != EMPTY_BATCH_ID:
            request = self._session.ack(self.identity, batch_id, mark)
            lazy = self._lazy_acks and self._asked is None  # a GET sent ahead may wait for this ack's space
            self._linked().send(request, more=lazy)

    def rollback(self, batch_id: int = 0) -> None:
        """Make the server deliver batches in flight again; there is no reply. batch_id: 0 for all, else the oldest."""
        self._settle()
        self._ahead = None  # a rollback of the oldest batch includes later ones
        self._linked().send(self._session.rollback(self.identity, batch_id))

    def check_valid(self) -> bool:
        """Return True: a simple connector is always active."""
        return True

    # ---- inside

    def _linked(self) -> Link:
        if self._link is None:
            raise LocalProtocolError("should connect first")
        return self._link

    def _settle(self) -> None:
        """Wait for the reply to a GET that was sent ahead, so that the next reply belongs to the next request.

        An empty reply is discarded, because entries may have arrived since.
        """
        if self._asked is not None:
            wait_ms, self._asked = self._asked, None
            fetched = self._fetched(self._reply(wait_ms))
            self._ahead = fetched if fetched.batch_id != EMPTY_BATCH_ID else None

    def _fetched(self, answer: Answer) -> Fetched:
        if not isinstance(answer, Fetched):
            raise RemoteProtocolError(f"unexpected reply to GET: {type(answer).__name__}")
        return answer

    def _ask(self, request: bytes, wait_ms: int = AT_ONCE_MS) -> Answer:
        """Send a request and wait for its reply. wait_ms: the timeout in a GET."""
        self._send(request)
        return self._reply(wait_ms)

    def _send(self, request: bytes) -> None:
        link = self._linked()
        try:
            link.send(request)
        except BaseException:
            self._drop()
            raise

    def _reply(self, wait_ms: int) -> Answer:
        try:
            return self._answer(wait_ms)
        except ServerRefused:
            if not self._session.in_step:
                self._drop()
            raise
        except BaseException:
            self._drop()
            raise

    def _answer(self, wait_ms: int = AT_ONCE_MS) -> Answer:
        link = self._linked()
        endless = wait_ms == WITHOUT_LIMIT_MS or self._so_timeout_ms <= 0
        deadline = None if endless else time.monotonic() + (self._so_timeout_ms + max(wait_ms, 0)) / 1000
        while (answer := self._session.next()) is None:
            self._session.receive(link.receive(deadline, self._session.missing))
        return answer

    def _drop(self) -> None:
        link, self._link = self._link, None
        self._asked = self._ahead = None
        if link is not None:
            link.close(linger=self._session.unconfirmed)
