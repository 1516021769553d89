"""A client's ZooKeeper session. kazoo's threads call in here, and only here; everything leaves through `post`.

No request blocks: each is sent, and its answer comes as a call on the owner's thread. Without a connection an answer
comes at once: ZooKeeperUnavailable. kazoo says LOST only after it has reconnected, so a process that is cut off hears
that its session is suspended and nothing more: the lease decides how long it may go on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL

from canal_ha.errors import TransactionRefused, ZooKeeperUnavailable
from canal_ha.zookeeper.connect_string import connect_string
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData
from canal_ha.zookeeper.tree import DESTINATIONS

REASONS = {
    NodeExistsError: "exists",
    NoNodeError: "missing",
    BadVersionError: "version",
    NotEmptyError: "not empty",
}
RECONNECT_MOST_S = 1.0
ANSWER_MOST_S = 10.0

Post = Callable[[Callable[[], None]], None]
Watch = Callable[[bool], None]  # told whether the node was deleted


@dataclass(frozen=True, slots=True)
class Found:
    """A node as read. owner: session id of an ephemeral one, else 0; created: its czxid, which no other node shares."""

    data: bytes
    version: int
    owner: int
    created: int


@dataclass(frozen=True, slots=True)
class Up:
    """Connected. timeout_s: as negotiated."""

    session_id: int
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Suspended:
    """The connection is gone, the session perhaps not."""


@dataclass(frozen=True, slots=True)
class Lost:
    """The session is gone."""


SessionState = Up | Suspended | Lost


class ClientSession:
    """servers: as canal.zkServers; auth: user:password of a digest, "" for none; post: runs a call on the owner's
    thread, from any thread, without blocking; changed: told of every change of state, on the owner's thread.
    """

    def __init__(
        self,
        servers: str,
        *,
        timeout_ms: int,
        auth: str,
        post: Post,
        changed: Callable[[SessionState], None],
    ) -> None:
        self.servers, self._random_order = connect_string(servers)
        self._timeout_ms = timeout_ms
        self._auth = auth
        self._post = post
        self._changed = changed
        self._client: KazooClient | None = None
        self._generation = 0  # of the kazoo client: what an earlier one still says is not heard
        self._negotiated_ms = timeout_ms
        self._watches: dict[Watch, Callable[[WatchedEvent], None]] = {}
        self.connected = False

    @property
    def timeout_s(self) -> float:
        """Of the session, as negotiated; as asked for before there is one."""
        return self._negotiated_ms / 1000

    def start(self) -> None:
        """Begin to connect, and go on for ever; returns at once."""
        self._generation += 1
        generation = self._generation
        client = KazooClient(
            hosts=self.servers,
            timeout=self._timeout_ms / 1000,
            randomize_hosts=self._random_order,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=RECONNECT_MOST_S),
            auth_data=[("digest", self._auth)] if self._auth else None,
            default_acl=CREATOR_ALL_ACL if self._auth else None,
            logger=logging.getLogger("kazoo.client"),
        )
        # kazoo keeps the negotiated time-out to itself: listen in on the connect answer
        client._connection._invoke = partial(self._overhear, client._connection._invoke)
        client.add_listener(lambda state: self._post(partial(self._state_changed, generation, state, client.client_id)))
        self._client = client
        client.start_async()

    def stop(self) -> None:
        """Close the session, and its ephemeral nodes with it. Blocks for the answer, ten seconds at most."""
        client, self._client = self._client, None
        self._generation += 1
        self.connected = False
        self._watches.clear()
        if client is None:
            return
        try:
            client.stop()
            client.close()
        except KazooException:
            return  # its thread would not end in time; the session expires by itself

    def _overhear(self, invoke: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Runs on kazoo's thread, before it tells anybody that it is connected."""
        answer = invoke(*args, **kwargs)
        if isinstance(answer, tuple) and hasattr(answer[0], "time_out") and answer[0].time_out > 0:
            self._negotiated_ms = answer[0].time_out
        return answer

    def _state_changed(self, generation: int, state: str, client_id: tuple[int, bytes] | None) -> None:
        if generation != self._generation:
            return
        self._watches.clear()
        if state == KazooState.CONNECTED and client_id is not None:
            self.connected = True
            self._changed(Up(client_id[0], self.timeout_s))
            return
        self.connected = False
        self._changed(Suspended() if state == KazooState.SUSPENDED else Lost())

    # ---- requests: from the owner's thread

    def get(self, path: str, watch: Watch, answer: Callable[[Found | ZooKeeperUnavailable | None], None]) -> None:
        """Answer the node, or None when there is none; the watch is left in both cases."""

        def got(result: Any) -> None:
            if isinstance(result, NoNodeError):
                self._ask(lambda client: client.exists_async(path, self._wrap(watch)), looked)
            elif isinstance(result, Exception):
                answer(self._unavailable(result))
            else:
                data, stat = result
                answer(Found(data or b"", stat.version, stat.ephemeralOwner, stat.czxid))

        def looked(result: Any) -> None:
            if isinstance(result, Exception):
                answer(self._unavailable(result))
            elif result is None:
                answer(None)
            else:
                self.get(path, watch, answer)  # it came meanwhile

        self._ask(lambda client: client.get_async(path, self._wrap(watch)), got)

    def children(
        self, path: str, watch: Watch, answer: Callable[[tuple[str, ...] | ZooKeeperUnavailable], None]
    ) -> None:
        """Answer the names of the children, sorted; none when there is no such node. The watch is left either way."""

        def got(result: Any) -> None:
            if isinstance(result, NoNodeError):
                self._ask(lambda client: client.exists_async(path, self._wrap(watch)), looked)
            else:
                answer(self._unavailable(result) if isinstance(result, Exception) else tuple(sorted(result)))

        def looked(result: Any) -> None:
            if isinstance(result, Exception):
                answer(self._unavailable(result))
            elif result is None:
                answer(())
            else:
                self.children(path, watch, answer)

        self._ask(lambda client: client.get_children_async(path, self._wrap(watch)), got)

    def transaction(
        self,
        operations: Sequence[Operation],
        answer: Callable[[tuple[int, ...] | TransactionRefused | ZooKeeperUnavailable], None],
    ) -> None:
        """All or nothing. Answer per operation the data version its node has now, 0 for a deleted one.

        After ZooKeeperUnavailable it may be done or not.
        """

        def done(results: Any) -> None:
            answer(self._unavailable(results) if isinstance(results, Exception) else _versions(operations, results))

        self._ask(lambda client: _transaction(client, operations).commit_async(), done)

    def ensure(self, path: str, answer: Callable[[ZooKeeperUnavailable | None], None]) -> None:
        """Create the persistent node and its parents, the chroot among them, where missing."""

        def done(result: Any) -> None:
            answer(self._unavailable(result) if isinstance(result, Exception) else None)

        self._ask(lambda client: client.ensure_path_async(path), done)

    def _ask(self, request: Callable[[KazooClient], Any], answer: Callable[[Any], None]) -> None:
        if self._client is None or not self.connected:
            self._post(partial(answer, ZooKeeperUnavailable(f"not connected to ZooKeeper at {self.servers}")))
            return
        request(self._client).rawlink(lambda result: self._post(partial(answer, _outcome(result))))

    def _unavailable(self, error: Exception) -> ZooKeeperUnavailable:
        if isinstance(error, ZooKeeperUnavailable):
            return error
        unavailable = ZooKeeperUnavailable(f"ZooKeeper at {self.servers}: {type(error).__name__} {error}".rstrip())
        unavailable.__cause__ = error
        return unavailable

    def _wrap(self, watch: Watch) -> Callable[[WatchedEvent], None]:
        """One kazoo callback per watch, so that kazoo's set of them holds it once."""
        if watch not in self._watches:
            self._watches[watch] = partial(self._watch_fired, watch)
        return self._watches[watch]

    def _watch_fired(self, watch: Watch, event: WatchedEvent) -> None:
        if event.type != EventType.NONE:  # that one says the connection went, and the watch with it
            self._post(partial(watch, event.type == EventType.DELETED))


def known_destinations(servers: str) -> tuple[str, ...]:
    """Names of all destinations, sorted; blocks for a session of its own. Raises ZooKeeperUnavailable."""
    hosts, random_order = connect_string(servers)
    client = KazooClient(hosts, randomize_hosts=random_order, read_only=True)
    try:
        client.start(timeout=ANSWER_MOST_S)
        return tuple(sorted(client.get_children(DESTINATIONS)))
    except NoNodeError:
        return ()
    except (KazooTimeoutError, KazooException) as error:
        raise ZooKeeperUnavailable(f"no ZooKeeper answers at {servers}: {error}") from error
    finally:
        client.stop()
        client.close()


def _outcome(result: Any) -> Any:
    """What an asynchronous result holds: its value, or the exception as a value."""
    try:
        return result.get(block=False)
    except (KazooException, KazooTimeoutError) as error:
        return error


def _versions(operations: Sequence[Operation], results: Sequence[Any]) -> tuple[int, ...] | TransactionRefused:
    """kazoo returns errors in its list; all but one of them are echoes of that one."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            reason = REASONS.get(type(result), type(result).__name__)
            return TransactionRefused(index, reason, operations[index].path)
    return tuple(
        result.version if isinstance(result, ZnodeStat) else operation.version if isinstance(operation, Check) else 0
        for operation, result in zip(operations, results, strict=True)
    )


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
