"""SimpleConnector: canal's blocking connector to one server (docs/protocol.md#connector)."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from canal_ha.client.link import Link
from canal_ha.client.message import Message
from canal_ha.decode.kernel.entries import only_frames
from canal_ha.errors import LocalProtocolError, RemoteProtocolError, ServerRefused
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place, end_of_read
from canal_ha.model.position import LogPosition
from canal_ha.wire.client_session import LARGEST_FRAME_BYTES, Accepted, Answer, ClientSession
from canal_ha.wire.messages import Fetched
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

if TYPE_CHECKING:
    from canal_ha.client.arrow import ArrowMessage, Pages

AT_ONCE_MS = -1
WITHOUT_LIMIT_MS = 0


class SimpleConnector:
    """One client of one destination on one server; `with` connects and disconnects.

    password: None sends none; filter: preset, so that connect() subscribes with it; so_timeout_ms: how long a reply
    may take beyond what a GET was told to wait, 0 for ever; connect_timeout_ms: how long the network may take to
    connect, None for so_timeout_ms; idle_timeout_ms: after which silence the server may close.

    read_ahead: when a batch has come, the next one is asked for at once, with the same size and time-out, and is on its
    way while the first is worked on. The server then has one batch more in flight, and hears an acknowledgement when it
    has sent that one. A GET without a limit of time is not sent ahead: it could wait for that acknowledgement, as one
    with a limit does, for as long, behind a batch that filled the server's store. Other requests wait for the GET that
    was sent ahead, and what it brought is handed out even after subscribe() with another filter. Not possible without
    rollback_on_connect: a batch that was on its way when a connection broke would stay in flight, unseen.

    lazy_acks: an acknowledgement travels with the request behind it, in one packet, or alone some 0.2 s later. For who
    asks again at once.

    A connection that fails is closed: connect() starts again. So is one whose replies are out of step, after an error
    that may belong to an earlier ack or rollback. Batches in flight survive at the server; connect() rolls them back.
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
        self._session = ClientSession()
        self._pages: Pages | None = None
        if read_ahead and not rollback_on_connect:
            raise ValueError("read_ahead needs rollback_on_connect")
        self._read_ahead = read_ahead
        self._lazy_acks = lazy_acks
        self._asked: int | None = None  # time-out of a GET that nobody has waited for yet
        self._ahead: Fetched | None = None  # what one brought that nobody has been given yet

    # ---- connection

    @property
    def connected(self) -> bool:
        """Whether there is a connection to work on."""
        return self._link is not None

    @property
    def local_address(self) -> tuple[str, int]:
        """This end of the connection: host, port."""
        return self._linked().local_address

    def connect(self) -> None:
        """Connect and authenticate; subscribe, if a filter was preset; take back batches in flight, unless told not to.

        Nothing happens when connected. Raises ConnectionLost, ServerRefused, RemoteProtocolError: not connected then.
        """
        if self._link is not None:
            return
        self._link = Link(self.host, self.port, self._connect_timeout_ms)
        self._session = ClientSession(max_frame_bytes=self._max_frame_bytes, only_frames=only_frames)
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
            if self._rollback_on_disconnect and self._session.in_step:  # not behind a GET that was sent ahead
                self._linked().send(self._session.rollback(self.identity, 0))
        finally:
            self._drop()

    def interrupt(self) -> None:
        """Make the request that waits, or the next one, raise ConnectionLost. For signal handlers and other threads."""
        link = self._link
        if link is not None:
            link.interrupt()

    def abort(self) -> None:
        """End the connection at once, and with ConnectionLost whatever waits on it. From any thread."""
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
        """Become a client of the destination.

        filter: None or "" keeps the server's
        tell_cursor: return where the server has the client's cursor, and its mark; None from one that cannot tell
        """
        self._settle()
        identity = ClientIdentity(self.identity.destination, self.identity.client_id, filter or "")
        answer = self._ask(self._session.subscribe(identity, tell_cursor=tell_cursor))
        self.identity = identity
        return answer.cursor if isinstance(answer, Accepted) else None

    def read_from(self, start: str, until: str = "", filter: str = "") -> None:
        """Read privately on this connection from now on: no cursor moves, acks only free the server's memory.

        start: as model.place has it; until: JOURNAL:OFFSET or gtid:SET, where GET is refused with `end of range`.
        Another call goes elsewhere. Make the connector with rollback_on_connect=False, or a client of this id is rolled
        back first. Raises ValueError for what is no position.
        """
        place, end = Place.parse(start), end_of_read(until)
        identity = ClientIdentity(self.identity.destination, self.identity.client_id, filter)
        self._settle()
        self._ask(self._session.read_from(identity, place, end))
        self._ahead = None

    def unsubscribe(self) -> None:
        """Stop being one: the server forgets the cursor as well."""
        self._settle()
        self._ask(self._session.unsubscribe(self.identity))
        self._ahead = None

    def get(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """`get_without_ack`, acknowledged before it is returned: what is not worked off is lost."""
        message = self.get_without_ack(batch_size, timeout_ms)
        self.ack(message.id)
        return message

    def get_without_ack(
        self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS, *, eager: bool = False
    ) -> Message:
        """The next batch behind the last one handed out; empty, when nothing came in time.

        batch_size: what the server counts, entries or KiB; timeout_ms: -1 takes what is there, 0 waits without limit
        until `batch_size` is filled; eager: a wait is over as soon as there is anything, which canal's own servers, and
        older nodes, do not know of.
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
        """`get_without_ack` with rows as Arrow record batches, a table each; needs pyarrow. ack(message.id) when done.

        time_zone: of the server's process, in which canal writes TIMESTAMP. Raises SinkRefused as well, for a value
        that its column's type cannot hold: the batch is in flight then.
        """
        from canal_ha.client.arrow import Pages, arrow_message

        self._pages = Pages.kept(self._pages, time_zone)
        return arrow_message(self.get_without_ack(batch_size, timeout_ms, eager=eager), time_zone, self._pages)

    def ack(self, batch_id: int, mark: str = "") -> None:
        """Acknowledge the oldest batch in flight; the id of an empty message is ignored.

        batch_id: of the message
        mark: kept with the cursor until another acknowledgement moves it; at most 200 bytes; a canal server ignores it

        Nothing comes back: an error shows up in the next request.
        """
        if batch_id != EMPTY_BATCH_ID:
            request = self._session.ack(self.identity, batch_id, mark)
            lazy = self._lazy_acks and self._asked is None  # a GET that was sent ahead may wait for its room
            self._linked().send(request, more=lazy)

    def rollback(self, batch_id: int = 0) -> None:
        """Have batches in flight handed out again. batch_id: 0 for all, else the oldest. Nothing comes back."""
        self._settle()
        self._ahead = None  # later batches go with the oldest one
        self._linked().send(self._session.rollback(self.identity, batch_id))

    def check_valid(self) -> bool:
        """Whether this client may work: a simple one always."""
        return True

    # ---- inside

    def _linked(self) -> Link:
        if self._link is None:
            raise LocalProtocolError("should connect first")
        return self._link

    def _settle(self) -> None:
        """Wait for the GET that was sent ahead, if there is one, so that the next reply is the next request's.

        Where it brought nothing, nothing is known of what has come since.
        """
        if self._asked is not None:
            wait_ms, self._asked = self._asked, None
            fetched = self._fetched(self._reply(wait_ms))
            self._ahead = fetched if fetched.batch_id != EMPTY_BATCH_ID else None

    def _fetched(self, answer: Answer) -> Fetched:
        if not isinstance(answer, Fetched):
            raise RemoteProtocolError(f"a GET answered by {type(answer).__name__}")
        return answer

    def _ask(self, request: bytes, wait_ms: int = AT_ONCE_MS) -> Answer:
        """Send a request and wait for its reply. wait_ms: what the server was told to wait, as in GET."""
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
