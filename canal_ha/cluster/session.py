"""The node's ZooKeeper session on the reactor: it returns the port's answers as Deferreds."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog
from twisted.internet.defer import Deferred, FirstError, gatherResults
from twisted.internet.threads import deferToThreadPool

from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import CanalError
from canal_ha.zookeeper.operations import Operation, Watch, Znode
from canal_ha.zookeeper.port import KazooPort
from canal_ha.zookeeper.race_events import SessionEvent

T = TypeVar("T")
Listener = Callable[[SessionEvent], None]


class ClusterSession(Protocol):
    """A ZooKeeper session as the rest of the room uses it. The simulation implements it too.

    id: of the current session; 0 while there is none.
    timeout_s: as negotiated.
    Requests raise ZooKeeperUnavailable. A watch fires once, even if the same watch was set several times. A
    disconnection removes all watches without firing them.
    """

    @property
    def id(self) -> int: ...

    @property
    def timeout_s(self) -> float: ...

    @property
    def connected(self) -> bool: ...

    def listen(self, listener: Listener) -> None: ...

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None: ...

    async def exists(self, path: str, watch: Watch | None = None) -> bool: ...

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]: ...

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]: ...

    async def ensure(self, path: str) -> None: ...


class ZooKeeperSession:
    """A ClusterSession with a real ensemble.

    servers: as in canal.zkServers.
    timeout_ms: the session time-out to ask for.
    reactor: its thread owns the session.
    access: how to reach ZooKeeper, and as whom.
    log: structlog's.
    """

    def __init__(
        self,
        servers: str,
        *,
        timeout_ms: int,
        reactor: Any,
        access: ZooKeeperAccess,
        log: Any = None,
    ) -> None:
        self._reactor = reactor
        self._listeners: list[Listener] = []
        self._port = KazooPort(
            servers,
            timeout_ms=timeout_ms,
            access=access,
            post=reactor.callFromThread,
            later=reactor.callLater,
            changed=self._changed,
            log=log or structlog.get_logger("canal.cluster"),
        )

    @property
    def id(self) -> int:
        """See ClusterSession."""
        return self._port.id

    @property
    def timeout_s(self) -> float:
        """See ClusterSession."""
        return self._port.timeout_s

    @property
    def connected(self) -> bool:
        """See ClusterSession."""
        return self._port.connected

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """Id and password of the session, with which anybody can close it."""
        return self._port.credentials

    def listen(self, listener: Listener) -> None:
        """Call the listener with every change of state, on the reactor's thread. It may send requests."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Begin to connect and return at once, because a node may start before ZooKeeper does."""
        self._port.start()

    async def stop(self) -> None:
        """Close the session, and its ephemeral nodes with it. Waits for ZooKeeper's answer, not for a connection."""
        closing = self._port.stop()
        await deferToThreadPool(self._reactor, self._reactor.getThreadPool(), closing.join)

    def _changed(self, event: SessionEvent) -> None:
        for listener in tuple(self._listeners):
            listener(event)

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """See KazooPort.get."""
        node: Znode | None = await _answer(partial(self._port.get, path, watch))
        return node

    async def exists(self, path: str, watch: Watch | None = None) -> bool:
        """See KazooPort.exists."""
        found: bool = await _answer(partial(self._port.exists, path, watch))
        return found

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        """See KazooPort.children."""
        names: tuple[str, ...] = await _answer(partial(self._port.children, path, watch))
        return names

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See Znodes.transaction."""
        versions: tuple[int, ...] = await _answer(partial(self._port.transaction, operations))
        return versions

    async def ensure(self, path: str) -> None:
        """See KazooPort.ensure."""
        await _answer(partial(self._port.ensure, path))


async def answers_to(requests: Sequence[Coroutine[Deferred[Any], Any, T]]) -> list[T]:
    """Return the answers to requests that are all sent before the first answer. Raises the first error."""
    try:
        return list(await gatherResults([Deferred.fromCoroutine(each) for each in requests], consumeErrors=True))
    except FirstError as error:
        return error.subFailure.raiseException()


def _answer(request: Callable[[Callable[[Any], None]], None]) -> Deferred[Any]:
    """Send a request and return its answer as a Deferred, which fails if the answer is an error."""
    answer: Deferred[Any] = Deferred()
    request(lambda result: (answer.errback if isinstance(result, CanalError) else answer.callback)(result))
    return answer
