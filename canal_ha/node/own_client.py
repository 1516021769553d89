"""The node's own client: what a flow needs of its source, from the instances of this process, without TCP.

Its calls come on the flow's thread, and block it until the reactor has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import blockingCallFromThread

from canal_ha.client.message import Message, message_of
from canal_ha.errors import BatchNotFirst, BatchUnknown, CanalError, ConnectionLost, CursorReplaced, NotRunningHere
from canal_ha.instance.embedded import Embedded
from canal_ha.model.batch import GetAnswer
from canal_ha.model.get_request import GetRequest
from canal_ha.model.identity import ClientIdentity
from canal_ha.model.position import LogPosition
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.same_binlog import SameBinlog
from canal_ha.pipeline.source import Judge

T = TypeVar("T")
NODE = "this node"


class OwnSource:
    """One client id of a destination that runs on this node. Implements canal_ha.pipeline.source.FlowSource."""

    def __init__(self, embedded: Embedded, reactor: Any, identity: ClientIdentity, *, exact: bool) -> None:
        """Ask nothing yet.

        embedded: the instances of this node.
        reactor: Twisted's.
        identity: whose rows; "" as filter takes what the destination's own filter keeps.
        exact: whether values come in the exact form or in canal's (docs/protocol.md#exact).
        """
        self.destination = identity.destination
        self._embedded = embedded
        self._reactor = reactor
        self._identity = identity
        self._exact = exact

    def client(self, judge: Judge) -> OwnClient:
        """Return the client, not connected."""
        return OwnClient(self, judge)

    def cursor(self, node: str | None) -> LogPosition | None:
        """Return the cursor. Raises ConnectionLost."""
        return self.look()[0]

    def end(self) -> None:
        """Return None: the flow of a node has no end."""

    def changes_between(self, node: str | None, begin: LogPosition, end: LogPosition) -> bool:
        """Return False, because the flow of a node has no end to compare with."""
        return False

    def same_binlog(self, cursor: LogPosition, progress: Progress) -> SameBinlog:
        """Return that it is not asked: the flow compares times."""
        return SameBinlog.UNASKED

    def read_again(self, node: str | None, tables: Sequence[str], gone: Sequence[str] = ()) -> None:
        """Do nothing: only copies of tables need it, and a queue has messages."""

    def look(self) -> tuple[LogPosition | None, object]:
        """Return the cursor, and the era in which it counts; a new client begins. Raises ConnectionLost."""

        async def work() -> tuple[LogPosition | None, object]:
            cursor = await self._embedded.subscribe(self._identity, exact=self._exact, opens=False)
            return cursor, self._embedded.era(self._identity)

        return self._call(work)

    def begin(self) -> None:
        """Open the stream, and take back what was delivered and not acknowledged. Raises ConnectionLost."""

        async def work() -> None:
            await self._embedded.subscribe(self._identity, exact=self._exact)
            await self._embedded.rollback(self._identity, 0)

        self._call(work)

    def give_back(self, era: object) -> None:
        """Take back what was not acknowledged. Raises CursorReplaced in another era, and ConnectionLost."""

        async def work() -> None:
            self._check(era)  # else these batches are those of another flow
            await self._embedded.rollback(self._identity, 0)

        self._call(work)

    def get(self, request: GetRequest, era: object) -> GetAnswer:
        """Return the next batch. Raises CursorReplaced in another era, and ConnectionLost."""

        async def work() -> GetAnswer:
            self._check(era)
            answer = await self._embedded.get(self._identity, request)
            self._check(era)
            return answer

        return self._call(work)

    def ack(self, batch_id: int, mark: str, era: object) -> None:
        """Acknowledge the oldest batch. Raises CursorReplaced in another era, and ConnectionLost."""

        async def work() -> None:
            self._check(era)
            await self._embedded.ack(self._identity, batch_id, mark)

        self._call(work)

    @property
    def exact(self) -> bool:
        """Whether values come in the exact form."""
        return self._exact

    def _check(self, era: object) -> None:
        if self._embedded.era(self._identity) is not era:
            raise CursorReplaced(self._identity.destination, self._identity.client_id)

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        call: Any = lambda: Deferred.fromCoroutine(work())  # noqa: E731 - the stubs know no result of a Deferred
        try:
            answer: T = blockingCallFromThread(self._reactor, call)
        except NotRunningHere as error:
            raise ConnectionLost(str(error)) from error
        return answer


class OwnClient:
    """See the module. Implements canal_ha.pipeline.source.FlowClient."""

    def __init__(self, source: OwnSource, judge: Judge) -> None:
        self.node = NODE
        self.standing_by: str | None = None
        self.connection = 0
        self._source = source
        self._judge = judge
        self._era: object = None  # None: before the next GET, begin again

    def connect(self) -> None:
        """Ask the judge about the cursor, and begin behind it."""
        cursor, era = self._source.look()
        self._judge(cursor)
        self._source.begin()
        self.connection += 1
        self._era = era

    def disconnect(self) -> None:
        """Give batches in flight back, if the stream still is the one of `connect`."""
        try:
            self._source.give_back(self._era)
        except CanalError:
            return  # its next owner delivers them

    def get_without_ack(self, batch_size: int, timeout_ms: int, *, eager: bool) -> Message:
        """Return the next batch; empty if none came in time. Raises ConnectionLost, and the error of the stream."""
        request = GetRequest(batch_size, float(timeout_ms), eager, self._source.exact, one_server=True)
        while True:
            if self._era is None:
                self.connect()
            try:
                return message_of(self._source.get(request, self._era))
            except CursorReplaced:
                self._era = None

    def ack(self, batch_id: int, mark: str) -> None:
        """Acknowledge the oldest batch in flight; ignored if the stream has begun again meanwhile."""
        try:
            self._source.ack(batch_id, mark, self._era)
        except (BatchNotFirst, BatchUnknown, CursorReplaced):
            self._era = None

    def stop_running(self) -> None:
        """Do nothing: no call waits for long."""
