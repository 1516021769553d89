"""ClusterConnector: canal's connector that goes on when nodes and clients fail (specification 3.3 to 3.5).

Which node next, and when, is decided in failover.py; who of several processes is active, in running.py. Here requests
are sent on the caller's thread. A second thread, coordination.py's, tells what ZooKeeper says, and closes a connection
that must end while the caller waits on it. `_calling` is held for a whole call; `_lock` guards what both threads use,
and is never held while waiting for a server.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from canal_ha import logs
from canal_ha.client import failover as f
from canal_ha.client.connector import AT_ONCE_MS, SimpleConnector
from canal_ha.client.coordination import (
    BecameActive,
    Broke,
    Coordination,
    LostActivity,
    MembersAre,
    News,
    NobodyRuns,
    RunningIs,
    StandsBy,
)
from canal_ha.client.discovery import Discovered, FixedList, split_address
from canal_ha.client.message import Message
from canal_ha.client.numbering import Numbering
from canal_ha.client.running import TAKEOVER_DELAY_S
from canal_ha.errors import (
    CanalError,
    ConnectionLost,
    ConnectorStopped,
    LocalProtocolError,
    ServerRefused,
    WaitedTooLong,
)
from canal_ha.model.batch import EMPTY_BATCH_ID
from canal_ha.wire.packets import DEFAULT_FETCH_SIZE

CONNECT_TIMEOUT_MS = 3000  # of the network alone; a node that has no power answers nothing
LEASE_LOOK_S = 0.05  # how soon to look again when the lease is over and the other thread has yet to say so

_NOT_THERE = "should start first"  # the destination runs elsewhere, or not yet
_NOT_SUBSCRIBED = "should subscribe first"
_BAD_FILTER = "table filter "  # what our nodes say of a filter that is no regular expression

T = TypeVar("T")
log = logs.get(__name__)


class ClusterConnector:
    """One client of one destination, wherever that runs; `with` connects and disconnects.

    where: ZooKeeper as in canal.zkServers (`host:2181,host:2181/chroot`), or a list of nodes (`["host:11111"]`). With
    ZooKeeper one process per client id is active at a time, and calls of the others wait until it is their turn.

    retry_times: failures in a row after which a call raises the last one, None (or canal's -1) for never; refusals by a
    server are told after a handful all the same, a wrong password or filter at once. The first retry comes at once,
    later ones after up to retry_interval_ms, all of them as soon as ZooKeeper names another node.
    call_timeout_s: how long a call may wait for its turn and a connection before it raises WaitedTooLong.
    filter: preset, so that every connection subscribes with it, as with the filter of the last `subscribe`.
    zk_auth: user:password, where the nodes have canal.zookeeper.auth.

    After a fail-over batches that were not acknowledged come again. An acknowledgement of a batch whose connection is
    gone is dropped, with a line in the log. Batch ids always grow, over fail-overs too.

    Calls of several threads come one after the other. `stop_running`, `interrupt` and `disconnect` end those that wait;
    the first two may come from a signal handler as well.
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
        zk_auth: str = "",
        takeover_delay_s: float = TAKEOVER_DELAY_S,
    ) -> None:
        """Raises ValueError when `where` names nothing that could be connected to."""
        self.destination = destination
        self.client_id = client_id
        self.filter = filter
        self._servers = where if isinstance(where, str) else None
        if self._servers is not None and not self._servers.strip():
            raise ValueError("where: expected ZooKeeper servers, as host:2181,host:2181")
        self._directory: Discovered | FixedList = (
            Discovered(random.shuffle) if isinstance(where, str) else FixedList(where)
        )
        self._username = username
        self._password = password
        self._so_timeout_ms = so_timeout_ms
        self._idle_timeout_ms = idle_timeout_ms
        self._call_timeout_s = call_timeout_s
        self._rollback_on_connect = rollback_on_connect
        self._rollback_on_disconnect = rollback_on_disconnect
        self._zk_session_timeout_ms = zk_session_timeout_ms
        self._zk_auth = zk_auth
        self._takeover_delay_s = takeover_delay_s
        self._failover = f.Failover(
            self._directory,
            retry_times=None if retry_times is None or retry_times < 0 else retry_times,
            interval_s=retry_interval_ms / 1000,
            uniform=random.uniform,
        )
        self._calling = threading.RLock()
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._coordination: Coordination | None = None
        self._numbering = Numbering()
        self._link: SimpleConnector | None = None
        self._link_attempt = 0
        self._busy = False  # the caller's thread works on the link, and closes it when it is done with it
        self._stopped = False
        self._standing_by: str | None = None
        self._error: CanalError | None = None
        self._gave_up_after = 0
        self._broken: Exception | None = None

    # ---- connection

    @property
    def connected(self) -> bool:
        """Whether connect() was called: as in canal this does not mean that it is this process's turn."""
        return self._failover.state is not f.State.CLOSED

    @property
    def active(self) -> bool:
        """Whether it is this process's turn. Without ZooKeeper it always is."""
        return self.connected and (self._coordination is None or self._coordination.active())

    @property
    def node(self) -> str | None:
        """Address of the node that the connection leads to, None while there is none."""
        with self._lock:
            node = self._failover.node
            return node.address if node is not None and self._failover.state is f.State.ONLINE else None

    @property
    def connection(self) -> int:
        """Number of the connection that the last answer came on; after another one batches in flight come again."""
        return self._link_attempt

    @property
    def standing_by(self) -> str | None:
        """Address of the client that is active in our place; None when none is, as far as is known."""
        return self._standing_by

    def check_valid(self) -> bool:
        """Whether there is a connection and it is this process's turn."""
        return self.active and self.node is not None

    def connect(self) -> None:
        """Find the node, connect, subscribe if a filter is known, take back batches in flight.

        Nothing happens when connected. With ZooKeeper it returns as well when another process is active: the next call
        waits. Raises as every call does; not connected then.
        """
        with self._lock:
            if self.connected:
                return
            self._stopped = False
            self._broken = None
            self._standing_by = None
            if self._servers is not None:
                self._coordination = Coordination(
                    self._servers,
                    self.destination,
                    self.client_id,
                    self._told,
                    address=host_address(),
                    timeout_ms=self._zk_session_timeout_ms,
                    auth=self._zk_auth,
                    takeover_delay_s=self._takeover_delay_s,
                )
                self._coordination.start()
            self._feed(f.Open(waits=self._servers is not None))
        try:
            with self._calling:
                self._begin_call()
                if self._ready("connect", self._deadline(), standing_by_will_do=True) is not None:
                    with self._lock:
                        self._busy = False
        except BaseException:
            self.disconnect()
            raise

    def disconnect(self) -> None:
        """Close the connection and let another process have its turn; the server keeps subscription and cursor.

        Calls that wait in other threads raise ConnectorStopped.
        """
        with self._lock:
            self._stopped = True
            link = None if self._busy else self._link
            if link is not None:
                self._link = None
        if link is not None:
            with suppress(CanalError):
                link.disconnect()  # lets the server read the last acknowledgement
        with self._lock:
            self._feed(f.Close())
            coordination, self._coordination = self._coordination, None
            self._changed.notify_all()
        if coordination is not None:
            coordination.stop()

    def stop_running(self) -> None:
        """Make the call that waits, and every later one that would, raise ConnectorStopped, until connect() again.

        Batches that were handed out can still be acknowledged.
        """
        with self._lock:
            self._stopped = True
            if self._busy and self._link is not None:
                self._link.interrupt()
            self._changed.notify_all()

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
        """Become a client of the destination, here and on every later node. None or "" keeps the server's filter."""
        self._call("subscribe", lambda link: link.subscribe(filter))
        self.filter = filter or ""

    def unsubscribe(self) -> None:
        """Stop being one: the server forgets the cursor as well."""
        self._call("unsubscribe", SimpleConnector.unsubscribe)
        self.filter = None

    def get(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """`get_without_ack`, acknowledged before it is returned: what is not worked off is lost."""
        message = self.get_without_ack(batch_size, timeout_ms)
        self.ack(message.id)
        return message

    def get_without_ack(self, batch_size: int = DEFAULT_FETCH_SIZE, timeout_ms: int = AT_ONCE_MS) -> Message:
        """The next batch behind the last one handed out; empty, when nothing came in time.

        After a fail-over: behind the last one acknowledged. Arguments as for SimpleConnector.
        """
        message = self._call("fetch the data", lambda link: link.get_without_ack(batch_size, timeout_ms))
        if message.id != EMPTY_BATCH_ID:
            with self._lock:
                message.id = self._numbering.handed_out(message.id)
        return message

    def ack(self, batch_id: int) -> None:
        """Acknowledge the oldest batch in flight; the id of an empty message is ignored. Waits for no connection.

        Dropped when the connection that brought the batch is gone, or this process's turn is over: it comes again.
        Raises LocalProtocolError for a batch that was never handed out.
        """
        if batch_id == EMPTY_BATCH_ID:
            return
        with self._calling:
            self._ack(batch_id)

    def _ack(self, batch_id: int) -> None:
        with self._lock:
            server_id = self._numbering.server_id(batch_id)
            link, attempt = self._link, self._link_attempt
            if server_id is None or link is None or not self.check_valid():
                self._log_dropped(batch_id)
                return
            self._busy = True
        try:
            link.ack(server_id)
        except CanalError as error:
            self._failed(attempt, link, error)
            self._log_dropped(batch_id)
            return
        with self._lock:
            self._numbering.acknowledged(batch_id)
            self._done_with(attempt, link)

    def rollback(self, batch_id: int = 0) -> None:
        """Have batches in flight handed out again. batch_id: 0 for all, else this one and later ones.

        Nothing is left to do for a batch whose connection is gone.
        """
        with self._lock:
            server_id = self._numbering.server_id(batch_id) if batch_id else 0
        if server_id is None:
            return
        self._call("rollback", lambda link: link.rollback(server_id))
        with self._lock:
            self._numbering.rolled_back(batch_id)

    # ---- a call

    def _call(self, what: str, request: Callable[[SimpleConnector], T]) -> T:
        """Send a request on the connection there is, or the next one, until it is answered."""
        deadline = self._deadline()
        with self._calling:
            self._begin_call()
            while True:
                answer = self._try(what, request, deadline)
                if answer is not None:
                    return answer[0]

    def _try(self, what: str, request: Callable[[SimpleConnector], T], deadline: float | None) -> tuple[T] | None:
        """The answer; None when there was none, or it does not count."""
        ready = self._ready(what, deadline)
        assert ready is not None  # standing by will not do
        attempt, link = ready
        try:
            answer = request(link)
        except CanalError as error:
            self._failed(attempt, link, error)
            return None
        except BaseException as error:
            self._failed(attempt, link, ConnectionLost(f"interrupted by {type(error).__name__}"))
            raise
        return (answer,) if self._answered(attempt, link) else None

    def _deadline(self) -> float | None:
        return None if self._call_timeout_s is None else time.monotonic() + self._call_timeout_s

    def _begin_call(self) -> None:
        with self._lock:
            self._gave_up_after = 0

    def _ready(
        self, what: str, deadline: float | None, *, standing_by_will_do: bool = False
    ) -> tuple[int, SimpleConnector] | None:
        """A connection to work on, made if need be; `_busy` is set. None only when standing by will do.

        Raises ConnectorStopped, WaitedTooLong, LocalProtocolError before connect(), or the last error when retries are
        used up.
        """
        while True:
            with self._changed:
                while True:
                    self._feed(f.Tick())
                    self._raise_what_ends_a_call(what)
                    if self._failover.state is f.State.DIALLING:
                        break
                    if self._failover.state is f.State.ONLINE and self._link is not None and self.active:
                        self._busy = True
                        return self._link_attempt, self._link
                    if standing_by_will_do and self._standing_by is not None:
                        return None
                    self._wait(deadline)
                node, attempt = self._failover.node, self._failover.attempt
                assert node is not None  # DIALLING says so
                link = self._new_link(node.address)
                self._link, self._link_attempt, self._busy = link, attempt, True
            self._dial(attempt, link, node.address)

    def _raise_what_ends_a_call(self, what: str) -> None:
        if self._broken is not None:
            raise ConnectorStopped(f"{self.destination}: {self._broken!r}") from self._broken
        if self._stopped:
            raise ConnectorStopped(f"{self.destination}: stopped")
        if self._failover.state is f.State.CLOSED:
            raise LocalProtocolError("should connect first")
        if self._gave_up_after:
            tries, self._gave_up_after = self._gave_up_after, 0
            raise as_canal_says(what, tries, self._last_error())

    def _wait(self, deadline: float | None) -> None:
        """Until something changes, or is due."""
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise WaitedTooLong(self._what_is_missing())
        due = [deadline, self._failover.wakes_at]
        if self._failover.state is f.State.ONLINE:
            due.append(now + LEASE_LOOK_S)
        moments = [moment for moment in due if moment is not None]
        self._changed.wait(max(0.0, min(moments) - now) if moments else None)

    def _last_error(self) -> CanalError:
        if self._error is None or self._failover.node is None:
            return ConnectionLost(f"no alive canal server for {self.destination}")
        return self._error

    def _what_is_missing(self) -> str:
        if self._failover.state is not f.State.STANDBY:
            return f"{self.destination}: no connection to a node in time: {self._last_error()}"
        if self._standing_by is not None:
            return f"{self.destination}: client {self.client_id} is active at {self._standing_by}"
        return f"{self.destination}: not the active client {self.client_id} yet: is ZooKeeper at {self._servers} there?"

    # ---- connections

    def _new_link(self, address: str) -> SimpleConnector:
        host, port = split_address(address)
        return SimpleConnector(
            host,
            port,
            self.destination,
            self.client_id,
            self._username,
            self._password,
            self._so_timeout_ms,
            self._idle_timeout_ms,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            rollback_on_connect=False,
            rollback_on_disconnect=self._rollback_on_disconnect,
        )

    def _dial(self, attempt: int, link: SimpleConnector, address: str) -> None:
        """Connect, subscribe as before, take back what is in flight. Never raises a CanalError: failover hears it."""
        try:
            try:
                link.connect()
            except ServerRefused as error:
                self._failed(attempt, link, error, f.Kind.FATAL)  # nothing but the authentication
                return
            if self.filter is not None:
                link.subscribe(self.filter)
            if self._rollback_on_connect:
                link.rollback()
            host, port = link.local_address
        except CanalError as error:
            self._failed(attempt, link, error)
            return
        except BaseException:
            self._failed(attempt, link, ConnectionLost("interrupted"))
            raise
        with self._lock:
            self._done_with(attempt, link)
            if attempt != self._failover.attempt or self._link is not link:
                return
            self._numbering.new_connection()
            failures = self._failover.failures
            self._feed(f.Dialled(attempt))
            log.info(
                "client.connected",
                destination=self.destination,
                client_id=self.client_id,
                node=address,
                local=f"{host}:{port}",
                filter=self.filter,
                failures=failures,
            )
            if self._coordination is not None:
                self._coordination.connected_to_node(f"{host}:{port}")

    def _answered(self, attempt: int, link: SimpleConnector) -> bool:
        """Whether the answer counts: not when the connection was ended, or the turn is over, while it was under way."""
        with self._lock:
            self._done_with(attempt, link)
            if self._link is not link or not self.active:
                return False
            if self._failover.failures:
                self._feed(f.Worked(attempt))
            return True

    def _failed(self, attempt: int, link: SimpleConnector, error: CanalError, kind: f.Kind | None = None) -> None:
        with self._lock:
            if self._link is link:
                self._error = error
                if not self._stopped:
                    log.warning(
                        "client.connection_failed",
                        destination=self.destination,
                        client_id=self.client_id,
                        node=f"{link.host}:{link.port}",
                        error=str(error),
                        failures=self._failover.failures + 1,
                    )
                self._feed(f.Failed(attempt, kind or self._kind(error)))
            self._busy = False
            self._changed.notify_all()
        link.abort()
        with suppress(CanalError):
            link.disconnect()

    def _kind(self, error: CanalError) -> f.Kind:
        if isinstance(error, ConnectionLost):
            return f.Kind.LOST
        text = str(error) if isinstance(error, ServerRefused) else ""
        if _NOT_THERE in text:
            return f.Kind.LOST
        if _BAD_FILTER in text or (_NOT_SUBSCRIBED in text and self.filter is None):
            return f.Kind.FATAL
        return f.Kind.REFUSED

    def _done_with(self, attempt: int, link: SimpleConnector) -> None:
        """The caller's thread does not work on the link any more; one that was hung up meanwhile is closed."""
        self._busy = False
        if self._link is not link:
            with suppress(CanalError):
                link.disconnect()

    def _hang_up(self, attempt: int) -> None:
        if self._link is None or self._link_attempt != attempt:
            return
        link, self._link = self._link, None
        link.abort()
        if not self._busy:
            with suppress(CanalError):
                link.disconnect()

    def _log_dropped(self, batch_id: int) -> None:
        log.warning(
            "client.ack_dropped",
            destination=self.destination,
            client_id=self.client_id,
            batch_id=batch_id,
            reason="its connection is gone; the batch comes again",
        )

    # ---- facts

    def _feed(self, event: f.Input) -> None:
        for command in self._failover.step(event, time.monotonic()):
            match command:
                case f.HangUp(attempt):
                    self._hang_up(attempt)
                case f.GiveUp(tries):
                    self._gave_up_after = tries
        if self._failover.node is None and self._failover.failures == 1 and not isinstance(event, f.Tick):
            log.warning("client.no_node", destination=self.destination, client_id=self.client_id)

    def _told(self, news: News) -> None:
        """From the other thread: what ZooKeeper says."""
        with self._changed:
            directory = self._directory
            assert isinstance(directory, Discovered)  # there is no other thread without ZooKeeper
            before = self._failover.node
            match news:
                case BecameActive():
                    self._standing_by = None
                    self._feed(f.Activated())
                case LostActivity():
                    self._feed(f.Deactivated())
                case StandsBy(address):
                    self._standing_by = address
                case RunningIs(address, generation):
                    directory.running_is(address, generation)
                case NobodyRuns():
                    directory.running_is_gone()
                case MembersAre(names):
                    directory.members_are(names)
                case Broke(error):
                    self._broken = error
                    self._feed(f.Deactivated())
            if isinstance(news, RunningIs | NobodyRuns | MembersAre):
                self._feed(f.Moved())
                self._log_moved(news, before.address if before is not None else None)
            self._changed.notify_all()

    def _log_moved(self, news: News, before: str | None) -> None:
        if isinstance(news, RunningIs) and before is not None and news.address != before:
            log.info("client.destination_moved", destination=self.destination, moved_from=before, moved_to=news.address)


def as_canal_says(what: str, tries: int, error: CanalError) -> CanalError:
    """The error a call raises: the last one itself, or, after several tries, its like with canal's text in front."""
    if tries < 2:
        return error
    text = f"failed to {what} after {tries} times retry: {error}"
    raised = ServerRefused(text, error.code) if isinstance(error, ServerRefused) else ConnectionLost(text)
    raised.__cause__ = error
    return raised


def host_address() -> str:
    """The IPv4 address of this host's default route; loopback on a machine without one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: only asks the kernel which way it would go
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
