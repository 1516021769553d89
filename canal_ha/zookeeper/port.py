"""The one live adapter to kazoo. kazoo's threads call in here; every callback leaves through `post`.

`post` runs a call on the owner's thread: callFromThread of a node's reactor, or the queue of a client's thread. No
request blocks; without a connection, ZooKeeperUnavailable comes back at once. kazoo reports a lost session only after
it has connected again, so an owner that is cut off gets SessionSuspended and nothing more, and its lease decides how
long it may act. A separate thread closes the session.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import EventType, KazooState, KeeperState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE, make_acl, make_digest_acl_credential

from canal_ha.config.model import ZooKeeperAccess
from canal_ha.config.private_keys import no_password
from canal_ha.errors import TransactionRefused, ZnodeDenied, ZooKeeperUnavailable
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.connect_string import connect_string
from canal_ha.zookeeper.few_calls import AtOnce, FewCalls
from canal_ha.zookeeper.operations import Check, Create, Delete, Operation, SetData, Watch, Znode
from canal_ha.zookeeper.race_events import SessionEvent, SessionLost, SessionSuspended, SessionUp

REASONS = {
    NodeExistsError: "exists",
    NoNodeError: "missing",
    BadVersionError: "version",
    NotEmptyError: "not empty",
    NoAuthError: "no rights",
}
RECONNECT_MOST_S = 1.0
DELIVERED_AT_ONCE = 16  # answers and watches, before the owner's other work gets its turn
GIVE_UP_SESSIONS = 2.0  # session time-outs without a connection before the port asks for a fresh session

Post = Callable[[Callable[[], None]], None]
Later = Callable[[float, Callable[[], None]], object]


class KazooPort:
    """One ZooKeeper session. The owner's thread calls every method, and every callback runs there.

    servers: as in canal.zkServers.
    timeout_ms: the session time-out to ask for.
    access: how to reach ZooKeeper, and as whom.
    post: runs a call on the owner's thread. Any thread calls it, and it does not block.
    later: runs a call on the owner's thread after that many seconds. The owner's thread calls it.
    changed: called with every change of the session's state. It may send requests.
    log: structlog's.
    """

    def __init__(
        self,
        servers: str,
        *,
        timeout_ms: int,
        access: ZooKeeperAccess,
        post: Post,
        later: Later,
        changed: Callable[[SessionEvent], None],
        log: Any,
    ) -> None:
        self.servers, self._random_order = connect_string(servers)
        self.id = 0  # id of the session; 0 while there is none
        self.timeout_s = timeout_ms / 1000  # as negotiated; as requested before the first connection
        self.connected = False
        self._timeout_ms = timeout_ms
        self._access = access
        self._post = post
        self._later = later
        self._changed = changed
        self._log = log
        self._client: KazooClient | None = None
        self._generation = 0  # number of the kazoo client; callbacks of earlier clients are ignored
        self._down = 0  # number of disconnections, so that an old timer does not end a newer one
        self._negotiated_ms = timeout_ms
        self._watches: dict[Watch, Callable[[WatchedEvent], None]] = {}
        self._gone: set[str] = set()  # watched nodes that did not exist lately
        self._stopped = False
        self._came: deque[Callable[[], None]] = deque()  # for the owner's thread
        self._delivering = False  # whether the owner's thread has been asked to run them

    @property
    def credentials(self) -> tuple[int, bytes] | None:
        """Id and password of the session, with which anybody can close it."""
        return None if self._client is None else self._client.client_id

    # ---- life

    def start(self) -> None:
        """Begin to connect and never give up; returns at once."""
        if self._client is None and not self._stopped:
            self._connect()

    def stop(self) -> Thread:
        """Close the session for good, and its ephemeral nodes with it.

        The returned thread ends once ZooKeeper has answered, at most ten seconds (or a session time-out) later. Join it
        to wait. `changed` is not called any more.
        """
        self._stopped = True
        return self._close(closed=lambda: None)

    def _connect(self) -> None:
        self._generation += 1
        generation = self._generation
        client = KazooClient(
            hosts=self.servers,
            timeout=self._timeout_ms / 1000,
            randomize_hosts=self._random_order,
            handler=FewCalls(),
            **client_options(self._access),
            logger=logging.getLogger("kazoo.client"),
        )
        # kazoo does not publish the negotiated time-out, so read the answer to its connect request
        client._connection._invoke = partial(self._overhear, client._connection._invoke)
        client.add_listener(lambda state: self._pass_on(partial(self._heard, generation, state, client.client_id)))
        self._client = client
        client.start_async()
        self._have_patience()

    def _overhear(self, invoke: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Read the negotiated time-out. Runs on kazoo's thread, before kazoo reports that it is connected."""
        answer = invoke(*args, **kwargs)
        if isinstance(answer, tuple) and hasattr(answer[0], "time_out") and answer[0].time_out > 0:
            self._negotiated_ms = answer[0].time_out
        return answer

    def _close(self, closed: Callable[[], None]) -> Thread:
        client, self._client = self._client, None
        self._generation += 1
        self._down += 1
        self.connected = False
        self._watches.clear()
        thread = Thread(target=self._close_client, args=(client, closed), name="canal-zookeeper-close", daemon=True)
        thread.start()
        return thread

    def _close_client(self, client: KazooClient | None, closed: Callable[[], None]) -> None:
        """Stop kazoo's client. Runs on the closing thread."""
        try:
            if client is not None:
                client.stop()
                client.close()
        except (KazooException, OSError) as error:  # the session then expires on its own
            self._log.warning("zookeeper.not_closed", servers=self.servers, error=repr(error))
        finally:
            self._post(closed)

    def _have_patience(self) -> None:
        """Schedule giving up a session that cannot be resumed.

        An ensemble that came back with older data refuses a client that has seen newer data forever, but it grants that
        client a fresh session. The lease is over by then. A kazoo client that has ended needs a new one.
        """
        self._down += 1
        self._later(GIVE_UP_SESSIONS * self.timeout_s, partial(self._out_of_patience, self._down))

    def _out_of_patience(self, down: int) -> None:
        if down != self._down or self.connected or self._stopped:
            return
        reason = ended(self._client)
        told = {"error": reason} if reason else {}
        self._log.warning("zookeeper.waiting", servers=self.servers, waited_s=GIVE_UP_SESSIONS * self.timeout_s, **told)
        if self.id or reason:
            self._lose()
            self._close(closed=self.start)
        else:
            self._have_patience()  # there was no session yet; kazoo keeps trying

    # ---- states

    def _heard(self, generation: int, state: str, client_id: tuple[int, bytes] | None) -> None:
        if generation != self._generation:
            return
        self._watches.clear()
        self._gone.clear()
        if state == KazooState.CONNECTED and client_id is not None:
            if self.id and client_id[0] != self.id:
                self._lose()
            self._down += 1
            self.id, self.timeout_s, self.connected = client_id[0], self._negotiated_ms / 1000, True
            self._log.info(
                "zookeeper.connected", servers=self.servers, session=f"{self.id:#x}", timeout_s=self.timeout_s
            )
            self._changed(SessionUp(self.id, self.timeout_s))
        elif state == KazooState.SUSPENDED:
            self.connected = False
            self._log.warning("zookeeper.suspended", session=f"{self.id:#x}")
            self._have_patience()
            self._changed(SessionSuspended())
        elif state == KazooState.LOST:
            self._lose()
            self._have_patience()

    def _lose(self) -> None:
        if not self.id:
            return
        self._log.warning("zookeeper.session_lost", session=f"{self.id:#x}")
        self.id, self.connected = 0, False
        self._changed(SessionLost())

    # ---- requests

    def get(
        self, path: str, watch: Watch | None, answer: Callable[[Znode | ZooKeeperUnavailable | None], None]
    ) -> None:
        """Answer the node, or None if it does not exist. The watch is set in both cases.

        A node that was missing is looked for first, because only that sets a watch on a missing one.
        """

        def got(result: Any) -> None:
            if isinstance(result, NoNodeError):
                self._missing(path, watch, partial(self.get, path, watch, answer), answer, None)
            elif isinstance(result, Exception):
                answer(self._unavailable(result))
            else:
                data, stat = result
                answer(Znode(data or b"", stat.version, stat.ephemeralOwner, stat.czxid))

        if watch is not None and path in self._gone:
            self._gone.discard(path)
            self._missing(path, watch, partial(self.get, path, watch, answer), answer, None)
        else:
            self._ask(lambda client: client.get_async(path, self._wrap(watch)), got)

    def exists(self, path: str, watch: Watch | None, answer: Callable[[bool | ZooKeeperUnavailable], None]) -> None:
        """Answer whether the node exists. The watch is set in both cases.

        ZooKeeper answers everybody, but it tells only those who may read a node that it was deleted. So with a watch,
        a node without that right is an error.
        """

        def looked(result: Any) -> None:
            if isinstance(result, Exception):
                answer(self._unavailable(result))
            elif result is None or watch is None:
                answer(result is not None)
            else:
                self.get(path, None, read)

        def read(found: Znode | ZooKeeperUnavailable | None) -> None:
            answer(found if isinstance(found, ZooKeeperUnavailable) else found is not None)

        self._ask(lambda client: client.exists_async(path, self._wrap(watch)), looked)

    def children(
        self, path: str, watch: Watch | None, answer: Callable[[tuple[str, ...] | ZooKeeperUnavailable], None]
    ) -> None:
        """Answer the sorted names of the children; none if the node does not exist. The watch is set in both cases."""

        def got(result: Any) -> None:
            if isinstance(result, NoNodeError):
                self._missing(path, watch, partial(self.children, path, watch, answer), answer, ())
            else:
                answer(self._unavailable(result) if isinstance(result, Exception) else tuple(sorted(result)))

        self._ask(lambda client: client.get_children_async(path, self._wrap(watch)), got)

    def transaction(
        self,
        operations: Sequence[Operation],
        answer: Callable[[tuple[int, ...] | TransactionRefused | ZooKeeperUnavailable], None],
    ) -> None:
        """Do all operations or none, and answer like Znodes.transaction."""

        def done(results: Any) -> None:
            if isinstance(results, Exception):
                answer(self._unavailable(results))
            else:
                answer(versions_after(operations, results))

        self._ask(lambda client: transaction_of(client, operations, self._access).commit_async(), done)

    def ensure(self, path: str, answer: Callable[[ZooKeeperUnavailable | None], None]) -> None:
        """Create the persistent node if it is missing, and its missing parents, including the chroot."""

        def done(result: Any) -> None:
            answer(self._unavailable(result) if isinstance(result, Exception) else None)

        acl = acl_of(path, self._access)
        if acl is None:
            self._ask(lambda client: client.ensure_path_async(path), done)
            return

        def parent_done(error: ZooKeeperUnavailable | None) -> None:
            if error is not None:
                answer(error)
            else:
                self._ask(lambda client: client.ensure_path_async(path, acl), done)

        self.ensure(path.rpartition("/")[0], parent_done)

    def _missing(
        self,
        path: str,
        watch: Watch | None,
        again: Callable[[], None],
        answer: Callable[[Any], None],
        nothing: tuple[()] | None,
    ) -> None:
        """Watch a node that does not exist. again: called if it exists by now; nothing: the answer otherwise."""

        def looked(result: Any) -> None:
            if isinstance(result, Exception):
                answer(self._unavailable(result))
            elif result is None:
                self._gone.add(path)
                answer(nothing)
            else:
                again()

        if watch is None:
            answer(nothing)
        else:
            self._ask(lambda client: client.exists_async(path, self._wrap(watch)), looked)

    def _ask(self, request: Callable[[KazooClient], Any], answer: Callable[[Any], None]) -> None:
        if self._client is None or not self.connected:
            self._post(partial(answer, ZooKeeperUnavailable(f"not connected to ZooKeeper at {self.servers}")))
            return
        request(self._client).rawlink(AtOnce(lambda result: self._pass_on(partial(answer, _outcome(result)))))

    def _pass_on(self, call: Callable[[], None]) -> None:
        """Run a call on the owner's thread, behind those before it. Runs on kazoo's thread."""
        self._came.append(call)
        if not self._delivering:
            self._delivering = True
            self._post(self._deliver)

    def _deliver(self) -> None:
        """Run the calls that have come, some at a time. What comes from now on may be delivered here, too."""
        self._delivering = False
        try:
            for _ in range(min(len(self._came), DELIVERED_AT_ONCE)):
                self._came.popleft()()
        finally:
            if self._came and not self._delivering:
                self._delivering = True
                self._post(self._deliver)

    def _unavailable(self, error: Exception) -> ZooKeeperUnavailable:
        return unavailable(self.servers, error)

    def _wrap(self, watch: Watch | None) -> Callable[[WatchedEvent], None] | None:
        """Return one kazoo callback for each watch, so that kazoo's set of watches holds it once."""
        if watch is None:
            return None
        if watch not in self._watches:
            self._watches[watch] = partial(self._watch_fired, watch)
        return self._watches[watch]

    def _watch_fired(self, watch: Watch, event: WatchedEvent) -> None:
        """Runs on kazoo's thread. An event without a type means that the connection is gone, and the watch with it."""
        if event.type != EventType.NONE:
            self._pass_on(partial(self._tell, watch, event.path, event.type == EventType.DELETED))

    def _tell(self, watch: Watch, path: str, deleted: bool) -> None:
        if deleted:
            self._gone.add(path)
        else:
            self._gone.discard(path)
        watch(deleted)


def ended(client: KazooClient | None) -> str:
    """Return why a client that was started tries to connect no more; "" if it does.

    kazoo takes every end of a connection during a SASL login for a refusal, also if the server has stopped.
    """
    if client is None or client.client_state not in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
        return ""
    return "ZooKeeper has ended the login: check account and password of canal.zookeeper.sasl"


def _outcome(result: Any) -> Any:
    """Return the value of an asynchronous result, or its exception as a value: any, if kazoo cannot read an answer."""
    try:
        return result.get(block=False)
    except Exception as error:
        return error


def unavailable(servers: str, error: Exception) -> ZooKeeperUnavailable:
    """Translate an error of kazoo. servers: where it happened."""
    if isinstance(error, ZooKeeperUnavailable):
        return error
    if isinstance(error, NoAuthError):
        text = f"ZooKeeper at {servers} denies access: set canal.zookeeper.auth or sasl as on the node that made it"
        translated: ZooKeeperUnavailable = ZnodeDenied(text)
    elif isinstance(error, KazooTimeoutError):
        translated = ZooKeeperUnavailable(f"ZooKeeper at {servers} does not answer")
    else:
        translated = ZooKeeperUnavailable(f"ZooKeeper at {servers}: {type(error).__name__} {error}".rstrip())
    translated.__cause__ = error
    return translated


def client_options(access: ZooKeeperAccess) -> dict[str, Any]:
    """Return kazoo's options for credentials, TLS, reconnecting, and the rights on new znodes.

    Our accounts have all rights on them; without an account, everybody has.
    """
    options: dict[str, Any] = {
        "default_acl": _owners(access) if access.closes else None,
        "connection_retry": KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=RECONNECT_MOST_S),
    }
    if access.digests:
        options["auth_data"] = [("digest", each) for each in access.digests]
    if access.sasl:
        user, _, password = access.sasl.partition(":")
        options["sasl_options"] = {"mechanism": "DIGEST-MD5", "username": user, "password": password}
    if access.secured:
        options |= {"use_ssl": True, "verify_certs": True, "check_hostname": True, "ca": access.ca_file or None}
    if access.cert_file:
        options |= {
            "certfile": access.cert_file,
            "keyfile": access.key_file or access.cert_file,
            "keyfile_password": no_password,
        }
    return options


def acl_of(path: str, access: ZooKeeperAccess) -> list[Any] | None:
    """Return the rights on a new znode if they differ from those of `client_options`: everybody may read it."""
    open_to_all = access.closes and access.world_read and tree.tells_who_runs(path)
    return [*_owners(access), *READ_ACL_UNSAFE] if open_to_all else None


def _owners(access: ZooKeeperAccess) -> list[ACL]:
    """Return all rights for our accounts.

    ZooKeeper takes "auth" for all ids of the session, also for the subject of its certificate. So it stands only where
    we do not know the id that ZooKeeper makes: of SASL, and of a digest with other characters than ASCII, which a
    server decodes in the encoding of its own system.
    """
    if access.sasl or not all(each.isascii() for each in access.digests):
        return list(CREATOR_ALL_ACL)
    ids = [make_digest_acl_credential(*each.split(":", 1)) for each in access.digests]
    return [make_acl("digest", each, all=True) for each in ids]


def transaction_of(client: KazooClient, operations: Sequence[Operation], access: ZooKeeperAccess) -> Any:
    """Return kazoo's transaction for these operations, not yet sent."""
    request = client.transaction()
    for operation in operations:
        match operation:
            case Check(path, version):
                request.check(path, version)
            case Create(path, data, ephemeral):
                request.create(path, data, acl=acl_of(path, access), ephemeral=ephemeral)
            case SetData(path, data, version):
                request.set_data(path, data, version)
            case Delete(path, version):
                request.delete(path, version)
    return request


def versions_after(operations: Sequence[Operation], results: Sequence[Any]) -> tuple[int, ...] | TransactionRefused:
    """Read kazoo's list of results. In a refused transaction one error is the reason; the others follow from it."""
    for index, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | RuntimeInconsistency):
            reason = REASONS.get(type(result), type(result).__name__)
            refused = TransactionRefused(index, reason, operations[index].path)
            refused.__cause__ = result
            return refused
    return tuple(
        result.version if isinstance(result, ZnodeStat) else operation.version if isinstance(operation, Check) else 0
        for operation, result in zip(operations, results, strict=True)
    )
