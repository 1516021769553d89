"""A real server on a loopback port: service, embedded server and instance, with entries from the test.

Twisted's reactor runs in its own thread; a test uses the port.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread

from canal_ha.accounts.account import Accounts
from canal_ha.accounts.parse import of_properties
from canal_ha.config.model import InstanceConfig, SourceConfig, WhenLost
from canal_ha.errors import RingClosed
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.feed import Feed, FeedRequest
from canal_ha.instance.instance import Instance
from canal_ha.instance.wake import Awaited
from canal_ha.meta.memory import MemoryBackend
from canal_ha.meta.repository import Snapshot
from canal_ha.meta.write_behind import Meta
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import EntryKind, Segment
from canal_ha.node.claims import UndisputedClaim
from canal_ha.server.destinations import Destinations
from canal_ha.server.entrance import Entrance
from canal_ha.server.service import CanalService
from canal_ha.wire.proto import entry_protocol_pb2 as pb
from tests.instance.origin import PlainOrigin
from tests.running_reactor import running_reactor
from tests.segments import Item, segment

T = TypeVar("T")
LOOPBACK = "127.0.0.1"
JOURNAL = "mysql-bin.000001"
DDL = {pb.CREATE, pb.ALTER, pb.ERASE, pb.TRUNCATE, pb.RENAME, pb.CINDEX, pb.DINDEX}
reactor: Any = global_reactor


def on_reactor(work: Callable[[], Coroutine[Any, Any, T]], timeout_s: float = 20.0) -> T:
    """Run a coroutine on the reactor, which is started if necessary, and return the result."""
    running_reactor()

    def begun() -> Deferred[T]:
        return Deferred.fromCoroutine(work()).addTimeout(timeout_s, reactor)

    result: T = blockingCallFromThread(reactor, begun)  # type: ignore[arg-type]  # Twisted leaves the type open
    return result


class PushedFeed:
    """A feed of the segments that the test pushes."""

    def __init__(self, request: FeedRequest) -> None:
        self.request = request
        self.decoded: LogPosition | None = None
        self.received_bytes = 0
        self.last_event_ms = 0
        self.idle = False
        self.idle_at = 0.0
        self.shared = self.lent = False
        self.tap = ""
        self.started = False

    def start(self) -> None:
        self.started = True
        self.request.connected("pushed")

    def stop(self) -> None:
        pass


class QuietSource:
    """A source without new rows."""

    version = "test"

    def newest(self) -> LogPosition:
        return LogPosition(JOURNAL, 4)

    def start(self, kept: LogPosition | None) -> LogPosition:
        return kept or self.newest()

    def find(self, place: Place) -> LogPosition:
        """See SourceView."""
        return self.newest()

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        return self.newest()


class Silent:
    """A listener that logs nothing."""

    def event(self, destination: str, name: str, /, **facts: object) -> None:
        pass

    def cursor_persisted(self, destination: str, client_id: int, cursor: LogPosition) -> None:
        pass


class Hurried:
    """Destinations whose GETs wait a hundredth of the requested time. A GET without limit keeps no limit."""

    def __init__(self, inner: Destinations) -> None:
        self._inner = inner
        self.knows, self.era, self.cursor = inner.knows, inner.era, inner.cursor
        self.subscribe, self.unsubscribe = inner.subscribe, inner.unsubscribe
        self.ack, self.rollback, self.read_from = inner.ack, inner.rollback, inner.read_from
        self.in_flight, self.entries_in_flight = inner.in_flight, inner.entries_in_flight

    async def get(
        self,
        identity: ClientIdentity,
        request: GetRequest,
        check: Callable[[], None],
        awaited: Callable[[], Awaited],
    ) -> GetAnswer:
        hurried = replace(request, wait_ms=request.wait_ms and request.wait_ms / 100)
        return await self._inner.get(identity, hurried, check, awaited)


class Served:
    """One server with the destination `example`. push() delivers its source's next rows to every client's stream."""

    def __init__(
        self,
        *,
        destination: str = "example",
        hurried: bool = False,
        config: dict[str, Any] | None = None,
        user: str = "",
        passwd: str = "",
        **service: Any,
    ) -> None:
        self.destination = destination
        self.embedded = Embedded(connected=lambda *client: self.service.connected(*client))
        self.feeds: list[PushedFeed] = []
        self._backend = MemoryBackend()
        self._config = InstanceConfig(destination, SourceConfig(LOOPBACK), **(config or {}))
        served: Destinations = Hurried(self.embedded) if hurried else self.embedded
        self.accounts = Accounts(of_properties(user, passwd))
        self.entrance = Entrance(lambda: self.accounts, reactor)
        service = {"entrance": self.entrance, **service}
        self.service = CanalService(served, reactor, **{"host": LOOPBACK, "port": 0, **service})

    def __enter__(self) -> Served:
        on_reactor(self._start)
        return self

    def __exit__(self, *_: object) -> None:
        on_reactor(self._stop)

    @property
    def port(self) -> int:
        return self.service.port

    @property
    def meta(self) -> Meta:
        """The cursors of the running instance."""
        running = self.embedded.running(self.destination)
        assert running is not None
        return running.meta

    def push(self, made: Segment) -> None:
        """Put a segment into the ring of every open stream."""
        latest = {feed.request.client_id: feed for feed in self.feeds}
        for feed in latest.values():
            with suppress(RingClosed):
                feed.request.accept(made)

    def durable(self) -> Snapshot:
        """Return what a node that starts now would load."""
        return on_reactor(self._backend.load)

    def lose_and_regain(self) -> None:
        """Stop the destination without a flush and start it again, like a node whose lease was over for a moment.

        Connections stay, and cursors are the flushed ones.
        """
        on_reactor(self._lose_and_regain)

    def connect(self, timeout_s: float = 10.0) -> socket.socket:
        return socket.create_connection((LOOPBACK, self.port), timeout_s)

    async def _start(self) -> None:
        await self.embedded.start(self._instance())
        self.service.start()

    async def _lose_and_regain(self) -> None:
        await self.embedded.stop(self.destination, flush=False)
        await self.embedded.start(self._instance())

    def _instance(self) -> Instance:
        return Instance(
            self._config,
            PlainOrigin(QuietSource(), self._open),
            lambda edits: self._backend,
            UndisputedClaim(lambda error: None),
            reactor,
            run_blocking=_at_once,
            log=Silent(),
            flush_period_ms=1000,
            batch_ids=self.embedded.batch_ids,
        )

    async def _stop(self) -> None:
        await self.service.stop(grace_s=1.0)
        await self.embedded.stop(self.destination)

    def _open(self, request: FeedRequest) -> Feed:
        self.feeds.append(PushedFeed(request))
        return self.feeds[-1]


async def _at_once(work: Callable[[], T]) -> T:
    return work()


def entries_segment(bodies: Sequence[bytes]) -> Segment:
    """Return a segment of serialized entries, with arrays from their headers."""
    return segment([_item(body) for body in bodies], journal=pb.Entry.FromString(bodies[0]).header.logfileName)


def _item(body: bytes) -> Item:
    entry = pb.Entry.FromString(body)
    header = entry.header
    rows = next((int(prop.value) for prop in header.props if prop.key == "rowsCount"), 0)
    return Item(header.logfileOffset, _kind(entry), body, timestamp_ms=header.executeTime, rows=rows)


def _kind(entry: pb.Entry) -> EntryKind:
    if entry.entryType == pb.TRANSACTIONBEGIN:
        return EntryKind.BEGIN
    if entry.entryType == pb.TRANSACTIONEND:
        return EntryKind.END
    if entry.header.eventType in DDL:
        return EntryKind.DDL
    return EntryKind.ROWS if entry.header.eventType in (pb.INSERT, pb.UPDATE, pb.DELETE) else EntryKind.QUERY


def transaction(number: int, *, rows: int = 1, value: str = "x", snapshot: str = "") -> list[bytes]:
    """Return begin, one event with `rows` inserted rows (id, v), and end. A transaction has 1000 bytes of JOURNAL.

    snapshot: the rows are those of this snapshot.
    """
    offset = 1000 + number * 1000
    row_datas = [_inserted(number * rows + row, value) for row in range(rows)]
    change = pb.RowChange(tableId=1, eventType=pb.INSERT, isDdl=False, rowDatas=row_datas)
    props = [pb.Pair(key="rowsCount", value=str(rows))]
    if snapshot:
        props.append(pb.Pair(key="canal.snapshot", value=snapshot))
    return [
        entry(offset, pb.TRANSACTIONBEGIN, pb.TransactionBegin(threadId=7).SerializeToString()),
        entry(
            offset + 100, pb.ROWDATA, change.SerializeToString(), eventType=pb.INSERT, schemaName="shop", tableName="t",
            props=props,
        ),
        entry(offset + 900, pb.TRANSACTIONEND, pb.TransactionEnd(transactionId=str(number)).SerializeToString()),
    ]  # fmt: skip


def _inserted(number: int, value: str) -> pb.RowData:
    common: dict[str, Any] = {"updated": True, "isNull": False}
    key = pb.Column(index=0, sqlType=-5, name="id", isKey=True, value=str(number), mysqlType="bigint(20)", **common)
    text = pb.Column(index=1, sqlType=12, name="v", isKey=False, value=value, mysqlType="varchar(20)", **common)
    return pb.RowData(afterColumns=[key, text])


def entry(offset: int, entry_type: pb.EntryType.ValueType, value: bytes, **header: Any) -> bytes:
    """Return one serialized Entry as the server writes it."""
    head: dict[str, Any] = {"schemaName": "", "tableName": "", **header}
    return pb.Entry(
        header=pb.Header(
            version=1,
            logfileName=JOURNAL,
            logfileOffset=offset,
            serverId=1,
            serverenCode="UTF-8",
            executeTime=1_700_000_000_000 + offset,
            sourceType=pb.MYSQL,
            eventLength=100,
            **head,
        ),
        entryType=entry_type,
        storeValue=value,
    ).SerializeToString()


def read_frame(sock: socket.socket) -> bytes | None:
    """Return one frame with its length, or None at the end of the stream."""
    head = _read(sock, 4)
    if head is None:
        return None
    body = _read(sock, int.from_bytes(head, "big"))
    assert body is not None, "a frame cut short"
    return head + body


def _read(sock: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        try:
            more = sock.recv(size - len(data))
        except ConnectionResetError:
            more = b""
        if not more:
            assert not data, "a frame cut short"
            return None
        data += more
    return data
