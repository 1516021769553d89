"""One ZooKeeper session for the node. kazoo's threads call in here, and only here; everything leaves by callFromThread.

kazoo never blocks us: every request is asynchronous, its answer a Deferred on the reactor. While there is no connection
requests fail at once instead of queueing for one. kazoo says LOST only after it has reconnected, so a node that is cut
off hears SUSPENDED and nothing more: the lease, not this class, decides how long it may go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL
from twisted.internet.defer import Deferred

from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper.connect_string import connect_string
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Znode

REASONS = {
    NodeExistsError: "exists",
    NoNodeError: "missing",
    BadVersionError: "version",
    NotEmptyError: "not empty",
    NoAuthError: "no rights",
}
RECONNECT_MOST_S = 1.0
GIVE_UP_SESSIONS = 2.0  # session time-outs without a connection before a fresh session is asked for


LOG = structlog.get_logger("canal.cluster")


class SessionState(Enum):
    """What a listener hears."""

    CONNECTED = auto()
    SUSPENDED = auto()
    LOST = auto()


Watch = Callable[[bool], None]  # told whether the node was deleted
Listener = Callable[[SessionState], None]


class ClusterSession(Protocol):
    """What the rest of the room needs of a session; also what the simulation's session offers.

    id: of the current session, 0 while there is none; timeout_s: as negotiated. Requests raise ZooKeeperUnavailable.
    A watch fires once; several requests with the same watch before it fires make one. When the connection goes, watches
    go without firing.
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

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]: ...

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]: ...

    async def ensure(self, path: str) -> None: ...


class Session:
    """kazoo behind ClusterSession. servers: canal.zkServers; auth: user:password for a digest ACL, "" for none."""

    def __init__(
        self,
        servers: str,
        *,
        timeout_ms: int,
        reactor: Any,
        auth: str = "",
        log: Any = LOG,
    ) -> None:
        self._hosts, self._random_order = connect_string(servers)
        self._timeout_ms = timeout_ms
        self._auth = auth
        self._reactor = reactor
        self._log = log
        self._listeners: list[Listener] = []
        self._wrapped: dict[Watch, Callable[[WatchedEvent], None]] = {}
        self._client: KazooClient | None = None
        self._generation = 0  # of the kazoo client: what an earlier one still says is not heard
        self._negotiated_ms = timeout_ms
        self._stopping = False
        self._patience: Any = None
        self.id = 0
        self.timeout_s = timeout_ms / 1000
        self.connected = False

    def listen(self, listener: Listener) -> None:
        """Hear of every change of state, on the reactor thread. A listener may issue requests."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Begin to connect and return at once: a node may come up before ZooKeeper does."""
        if self._client is None:
            self._connect()

    async def stop(self) -> None:
        """Close the session, and its ephemeral nodes with it. Waits for ZooKeeper's answer, not for a connection."""
        self._stopping = True
        self._calm_down()
        await self._discard()
        self.connected = False

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """Id and password of the session; who has them can close it."""
        return None if self._client is None else self._client.client_id

    # ---- kazoo client, its life

    def _connect(self) -> None:
        self._generation += 1
        generation = self._generation
        client = KazooClient(
            hosts=self._hosts,
            timeout=self._timeout_ms / 1000,
            randomize_hosts=self._random_order,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=RECONNECT_MOST_S),
            auth_data=[("digest", self._auth)] if self._auth else None,
            default_acl=CREATOR_ALL_ACL if self._auth else None,
            logger=logging.getLogger("kazoo.client"),
        )
        # kazoo keeps the negotiated time-out to itself: listen in on the connect answer
        invoke = client._connection._invoke
        client._connection._invoke = partial(self._overhear, invoke)
        client.add_listener(lambda state: self._hop(self._state_changed, generation, state, client.client_id))
        self._client = client
        client.start_async()
        self._have_patience()

    def _overhear(self, invoke: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs on kazoo's thread, before it tells anybody that it is connected."""
        answer = invoke(*args, **kwargs)
        if isinstance(answer, tuple) and hasattr(answer[0], "time_out") and answer[0].time_out > 0:
            self._negotiated_ms = answer[0].time_out
        return answer

    async def _discard(self) -> None:
        client, self._client = self._client, None
        self._generation += 1
        if client is not None:
            done: Deferred[None] = Deferred()

            def close() -> None:
                try:
                    client.stop()
                    client.close()
                finally:
                    self._hop(done.callback, None)

            self._reactor.callInThread(close)
            await done

    def _have_patience(self) -> None:
        """Give up a session that cannot be resumed.

        An ensemble that came back with older data refuses a client that has seen newer, for ever; a fresh session is
        let in. By then the lease is over and nothing runs here.
        """
        self._calm_down()
        self._patience = self._reactor.callLater(GIVE_UP_SESSIONS * self.timeout_s, self._out_of_patience)

    def _calm_down(self) -> None:
        if self._patience is not None and self._patience.active():
            self._patience.cancel()
        self._patience = None

    def _out_of_patience(self) -> None:
        self._patience = None
        if self.connected or self._stopping:
            return
        self._log.warning("zookeeper.waiting", servers=self._hosts, waited_s=GIVE_UP_SESSIONS * self.timeout_s)
        if not self.id:
            self._have_patience()  # never had a session: kazoo goes on trying
            return
        self._announce(SessionState.LOST)
        Deferred.fromCoroutine(self._replace())

    async def _replace(self) -> None:
        await self._discard()
        if not self._stopping:
            self._connect()

    # ---- states

    def _state_changed(self, generation: int, state: str, client_id: tuple[int, bytes] | None) -> None:
        if generation != self._generation or self._stopping:
            return
        if state == KazooState.CONNECTED and client_id is not None:
            self._calm_down()
            if self.id and client_id[0] != self.id:
                self._announce(SessionState.LOST)
            self.id, self.timeout_s = client_id[0], self._negotiated_ms / 1000
            self.connected = True
            self._log.info("zookeeper.connected", session=f"{self.id:#x}", timeout_s=self.timeout_s)
            self._announce(SessionState.CONNECTED)
        elif state == KazooState.SUSPENDED:
            self.connected = False
            self._log.warning("zookeeper.suspended", session=f"{self.id:#x}")
            self._have_patience()
            self._announce(SessionState.SUSPENDED)
        elif state == KazooState.LOST:
            self._announce(SessionState.LOST)

    def _announce(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            if not self.id:
                return
            self._log.warning("zookeeper.session_lost", session=f"{self.id:#x}")
            self.id, self.connected = 0, False
        self._wrapped.clear()
        for listener in tuple(self._listeners):
            listener(state)

    def _hop(self, call: Callable[..., object], *args: object) -> None:
        """From any thread to the reactor's."""
        self._reactor.callFromThread(call, *args)

    # ---- requests

    async def get(self, path: str, watch: Watch | None = None) -> Znode | None:
        """The node, None when there is none; the watch is left in both cases."""
        while True:
            try:
                data, stat = await self._ask(lambda client: client.get_async(path, self._wrap(watch)))
                return Znode(data, stat.version, stat.ephemeralOwner)
            except NoNodeError:
                if watch is None:
                    return None
            if await self._ask(lambda client: client.exists_async(path, self._wrap(watch))) is None:
                return None

    async def children(self, path: str, watch: Watch | None = None) -> tuple[str, ...]:
        """Names of the children, sorted; none when there is no such node (then no watch is left)."""
        try:
            return tuple(sorted(await self._ask(lambda client: client.get_children_async(path, self._wrap(watch)))))
        except NoNodeError:
            return ()

    async def transaction(self, operations: Sequence[Operation]) -> tuple[int, ...]:
        """See Znodes.transaction. kazoo returns errors in its list; all but one of them are echoes of that one."""
        results = await self._ask(lambda client: _transaction(client, operations).commit_async())
        for index, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
                reason = REASONS.get(type(result), type(result).__name__)
                raise TransactionRefused(index, reason, operations[index].path) from result
        return tuple(
            result.version
            if isinstance(result, ZnodeStat)
            else operation.version
            if isinstance(operation, Check)
            else 0
            for operation, result in zip(operations, results, strict=True)
        )

    async def ensure(self, path: str) -> None:
        """Create the persistent node and its parents, the chroot among them, where missing."""
        await self._ask(lambda client: client.ensure_path_async(path))

    async def _ask(self, request: Callable[[KazooClient], Any]) -> Any:
        """Send a request; its answer arrives on the reactor. Raises ZooKeeperUnavailable, or kazoo's NoNodeError."""
        if self._client is None or not self.connected:
            raise ZooKeeperUnavailable(f"not connected to ZooKeeper at {self._hosts}")
        answer: Deferred[Any] = Deferred()
        request(self._client).rawlink(lambda result: self._hop(answer.callback, result))
        result = await answer
        try:
            return result.get(block=False)
        except (
            ConnectionLoss,
            ConnectionClosedError,
            SessionExpiredError,
            AuthFailedError,
            KazooTimeoutError,
        ) as error:
            raise ZooKeeperUnavailable(f"ZooKeeper at {self._hosts}: {type(error).__name__}") from error
        except NoNodeError:
            raise
        except KazooException as error:
            raise ZooKeeperUnavailable(f"ZooKeeper at {self._hosts}: {error!r}") from error

    def _wrap(self, watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
        """One kazoo callback per watch, so that kazoo's set of them holds it once. Called on kazoo's thread."""
        if watch is None:
            return None
        if watch not in self._wrapped:
            self._wrapped[watch] = partial(self._watch_fired, watch)
        return self._wrapped[watch]

    def _watch_fired(self, watch: Watch, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:
            self._hop(watch, event.type == EventType.DELETED)


def _transaction(client: KazooClient, operations: Sequence[Operation]) -> Any:
    request = client.transaction()
    for operation in operations:
        match operation:
            case Check(path, version):
                request.check(path, version)
            case Create(path, data, ephemeral):
                request.create(path, data, ephemeral=ephemeral)
            case SetData(path, data, version):
                request.set_data(path, data, version)
            case Delete(path, version):
                request.delete(path, version)
    return request
