"""Exchange: a connection to the node that runs the destination, replaced when it fails or the destination moves.

failover.py decides which node to try and when; running.py decides which of several processes is active. Requests are
sent where the caller runs: on its thread, or on its event loop (runtime.py). A second thread, coordination.py's,
reports changes in ZooKeeper and closes a connection that must end while the caller waits on it. `_calling` is held
during a whole call; `_lock` guards what both threads use and is never held while waiting for anything.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from asyncio import CancelledError
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeVar

from canal_ha import logs
from canal_ha.client import failover as f
from canal_ha.client.async_connector import AsyncConnector
from canal_ha.client.coordination import (
    BecameActive,
    Broke,
    Coordination,
    LostActivity,
    MembersAre,
    News,
    NobodyRuns,
    NodesHaveOthers,
    RunningIs,
    StandsBy,
)
from canal_ha.client.discovery import Discovered, FixedList, split_address
from canal_ha.client.known_destinations import not_found
from canal_ha.client.refusals import as_canal_says, kind_of
from canal_ha.client.runtime import Runtime
from canal_ha.client.tls import ClientTls
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import (
    Busy,
    CanalError,
    ConnectionLost,
    ConnectorStopped,
    LocalProtocolError,
    ServerRefused,
    WaitedTooLong,
)
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import InitialSnapshot
from canal_ha.wire.client_session import END_OF_RANGE

CONNECT_TIMEOUT_MS = 3000  # of the TCP connection; a node without power does not reply
LEASE_LOOK_S = 0.05  # interval of checks for an expired lease that the other thread has not reported yet

T = TypeVar("T")
log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a destination; see ClusterConnector. servers: ZooKeeper servers; None with a fixed list of nodes."""

    servers: str | None
    nodes: tuple[str, ...]
    destination: str
    client_id: int
    username: str
    password: str | None
    so_timeout_ms: int
    idle_timeout_ms: int
    retry_times: int | None
    retry_interval_ms: int
    call_timeout_s: float | None
    rollback_on_connect: bool
    rollback_on_disconnect: bool
    zk_session_timeout_ms: int
    zk_access: ZooKeeperAccess
    takeover_delay_s: float
    private: bool = False
    exact: bool = True
    tls: ClientTls | None = None
    snapshot: tuple[str, ...] = ()


class _Judged(Exception):
    """The judge's error about a connection; never leaves the module."""

    def __init__(self, error: CanalError) -> None:
        super().__init__(str(error))
        self.error = error


class Exchange:
    """A connection with fail-over, used by one call at a time.

    access: how to reach the destination.
    filter: every connection subscribes with it; None: no subscription.
    on_connected: called in the call that connects, after each new connection; earlier batches are no longer in flight.
    runtime: where the calls run.
    judge: see ClusterConnector.
    greet (attribute): called first on every connection of a private read; None: nothing is called.
    """

    def __init__(
        self,
        access: Access,
        filter: str | None,
        on_connected: Callable[[], None],
        runtime: Runtime,
        judge: Callable[[LogPosition | None], None] | None = None,
    ) -> None:
        """Create an exchange; see the class. Raises ValueError if there is no valid address."""
        self.filter = filter
        self.greet: Callable[[AsyncConnector], Awaitable[None]] | None = None
        self._runtime = runtime
        self._calling = runtime.new_turn()
        self._changes = runtime.new_changes()
        self._access = access
        self._on_connected = on_connected
        self._judge = judge
        self._directory: Discovered | FixedList = (
            FixedList(access.nodes) if access.servers is None else Discovered(random.shuffle)
        )
        retry_times = access.retry_times
        self._failover = f.Failover(
            self._directory,
            retry_times=None if retry_times is None or retry_times < 0 else retry_times,
            interval_s=access.retry_interval_ms / 1000,
            uniform=random.uniform,
        )
        self._lock = threading.RLock()
        self._coordination: Coordination | None = None
        self._link: AsyncConnector | None = None
        self._link_attempt = 0
        self._busy = False  # a call uses the link and will close it if necessary
        self._stopped = False
        self._stay = 0  # how often it was opened; a call belongs to one stay
        self._standing_by: str | None = None
        self._error: CanalError | None = None
        self._gave_up_after = 0
        self._broken: Exception | None = None
        self._others: tuple[str, ...] = ()  # destinations of the cluster, if no node has this one

    # ---- state

    @property
    def is_open(self) -> bool:
        """Whether open() was called, and close() not yet."""
        return self._failover.state is not f.ConnectorState.CLOSED

    @property
    def active(self) -> bool:
        """Whether this process is the active one; without ZooKeeper, whether the exchange is open."""
        coordination = self._coordination  # read once: close() takes it away
        return self.is_open and (coordination is None or coordination.active())

    @property
    def node(self) -> str | None:
        """Address of the connected node; None without a connection."""
        with self._lock:
            node = self._failover.node
            return node.address if node is not None and self._failover.state is f.ConnectorState.ONLINE else None

    @property
    def connection(self) -> int:
        """Number of the newest connection."""
        return self._link_attempt

    @property
    def standing_by(self) -> str | None:
        """Address of the active process if it is another one; None if none is known."""
        return self._standing_by

    # ---- opening and closing

    async def open(self) -> None:
        """Connect, or return while another process is active. Closes and raises on the errors of `call`."""
        access = self._access
        with self._lock:
            if self.is_open:
                return
            self._stopped = False
            self._stay += 1
            stay = self._stay
            self._broken = None
            self._standing_by = None
            if access.servers is not None:
                self._coordination = Coordination(
                    access.servers,
                    access.destination,
                    access.client_id,
                    self._on_news,
                    address=host_address(),
                    timeout_ms=access.zk_session_timeout_ms,
                    access=access.zk_access,
                    takeover_delay_s=access.takeover_delay_s,
                    takes_turns=not access.private,
                )
                self._coordination.start()
            self._feed(f.Open(waits=access.servers is not None))
        try:
            async with self._calling:
                self._begin_call()
                if await self._ready("connect", stay, self._deadline(), accept_standby=True) is not None:
                    with self._lock:
                        self._busy = False
        except BaseException:
            await self._end(stay)
            raise

    async def close(self) -> None:
        """Close the connection and stop being active. Other calls that wait raise ConnectorStopped."""
        await self._end(self._stay)

    async def _end(self, stay: int) -> None:
        """Close, unless another caller has closed and opened again meanwhile."""
        with self._lock:
            if stay != self._stay:
                return
            self._stopped = True
            link = None if self._busy else self._link
            if link is not None:
                self._link = None
        try:
            if link is not None:
                with suppress(CanalError):
                    await link.disconnect()  # linger lets the server read the last acknowledgement
        finally:
            with self._lock:
                self._feed(f.Close())
                coordination, self._coordination = self._coordination, None
                self._changes.notify()
            if coordination is not None:
                await self._runtime.aside(coordination.stop)

    def stop(self) -> None:
        """Make waiting calls raise ConnectorStopped, now and until the next open()."""
        with self._lock:
            self._stopped = True
            if self._busy and self._link is not None:
                self._link.interrupt()
            self._changes.notify()

    # ---- calls

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[int]:
        """Hold the lock of a whole call, and yield its stay, to which its requests belong.

        Raises ConnectorStopped if the stay ends while the call waits for the lock.
        """
        stay = self._stay
        async with self._calling:
            if stay != self._stay:
                raise ConnectorStopped(f"{self._access.destination}: stopped")
            yield stay

    async def call(self, what: str, request: Callable[[AsyncConnector], Awaitable[T]], stay: int) -> T:
        """Send a request on the connection there is, or the next one, until it is answered.

        what: the name of the call, for errors.
        request: sends it, and returns its answer.
        stay: as `calling` yields it.
        """
        deadline = self._deadline()
        self._begin_call()
        while True:
            ready = await self._ready(what, stay, deadline)
            assert ready is not None  # standing by will not do
            answer = await self._send(*ready, request)
            if answer is not None and self._answered(*ready):
                return answer[0]

    async def call_if_connected(self, request: Callable[[AsyncConnector], Awaitable[None]]) -> bool:
        """Send a request without a reply if this process is connected and active; return whether it was sent.

        Its caller is within `calling`.
        """
        with self._lock:
            attempt, link = self._link_attempt, self._link
            if link is None or self.node is None or not self.active:
                return False
            self._busy = True
        if await self._send(attempt, link, request) is None:
            return False
        with self._lock:
            self._release(link)
        return True

    async def _send(
        self, attempt: int, link: AsyncConnector, request: Callable[[AsyncConnector], Awaitable[T]]
    ) -> tuple[T] | None:
        """Return the reply in a tuple; None if the request failed.

        An interrupt ends the link, because half a packet may have been sent on it. A link that stays connected when its
        request is cancelled is in order.
        """
        try:
            return (await request(link),)
        except CanalError as error:
            self._failed(attempt, link, error)
            return None
        except CancelledError:
            if link.connected:
                with self._lock:
                    self._release(link)
            else:
                self._failed(attempt, link, ConnectionLost("cancelled"))
            raise
        except BaseException as error:
            self._failed(attempt, link, ConnectionLost(f"interrupted by {type(error).__name__}"))
            raise

    def _deadline(self) -> float | None:
        timeout_s = self._access.call_timeout_s
        return None if timeout_s is None else time.monotonic() + timeout_s

    def _begin_call(self) -> None:
        with self._lock:
            self._gave_up_after = 0

    async def _ready(
        self, what: str, stay: int, deadline: float | None, *, accept_standby: bool = False
    ) -> tuple[int, AsyncConnector] | None:
        """Return the attempt's number and its connection, made if necessary; sets `_busy`.

        what: the name of the call, for errors.
        stay: the stay to which the call belongs; the call ends with it, even if the next one has begun.
        deadline: of the call, monotonic; None for no limit.
        accept_standby: return None when another client is active, instead of waiting.

        Raises ConnectorStopped, WaitedTooLong, LocalProtocolError before connect(), or the last error when retries are
        used up.
        """
        while True:
            with self._lock:
                seen = self._changes.count
                self._feed(f.Tick())
                self._raise_what_ends_a_call(what, stay)
                if self._failover.state is f.ConnectorState.ONLINE and self._link is not None and self.active:
                    self._busy = True
                    return self._link_attempt, self._link
                dials = self._failover.state is f.ConnectorState.DIALLING and self.active
                attempt = self._new_attempt() if dials else None
                if attempt is None and accept_standby and self._standing_by is not None:
                    return None
                wait_s = self._wait_s(deadline) if attempt is None else None
            if attempt is None:
                await self._changes.wait(seen, wait_s)
            else:
                await self._dial(*attempt)

    def _raise_what_ends_a_call(self, what: str, stay: int) -> None:
        if self._broken is not None:
            raise ConnectorStopped(f"{self._access.destination}: {self._broken!r}") from self._broken
        if self._stopped or stay != self._stay:
            raise ConnectorStopped(f"{self._access.destination}: stopped")
        if self._failover.state is f.ConnectorState.CLOSED:
            raise LocalProtocolError("should connect first")
        if self._gave_up_after:
            tries, self._gave_up_after = self._gave_up_after, 0
            raise as_canal_says(what, tries, self._last_error())

    def _wait_s(self, deadline: float | None) -> float | None:
        """Return how long to wait for a change; None for no limit. Raises WaitedTooLong at the deadline."""
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise WaitedTooLong(self._missing_condition())
        due = [deadline, self._failover.wakes_at]
        if self._failover.state in (f.ConnectorState.ONLINE, f.ConnectorState.DIALLING):
            due.append(now + LEASE_LOOK_S)
        moments = [moment for moment in due if moment is not None]
        return max(0.0, min(moments) - now) if moments else None

    def _last_error(self) -> CanalError:
        if self._error is None or self._failover.node is None:
            advice = f": {self._advice()}" if self._others else ""
            return ConnectionLost(f"no alive canal server for {self._access.destination}{advice}")
        return self._error

    def _advice(self) -> str:
        return not_found(self._access.destination, "ZooKeeper", self._others)

    def _missing_condition(self) -> str:
        access = self._access
        if self._failover.state is not f.ConnectorState.STANDBY:
            return f"{access.destination}: no connection to a node in time: {self._last_error()}"
        if self._standing_by is not None:
            return f"{access.destination}: client {access.client_id} is active at {self._standing_by}"
        return f"{access.destination}: client {access.client_id} is not active yet: check ZooKeeper at {access.servers}"

    # ---- connections

    def _new_attempt(self) -> tuple[int, AsyncConnector, str]:
        """Return the attempt's number, its connector and the node's address, in DIALLING; sets `_busy`."""
        node, attempt = self._failover.node, self._failover.attempt
        assert node is not None  # true in DIALLING
        link = self._new_link(node.address)
        self._link, self._link_attempt, self._busy = link, attempt, True
        return attempt, link, node.address

    def _new_link(self, address: str) -> AsyncConnector:
        host, port = split_address(address)
        return AsyncConnector(
            host,
            port,
            self._access.destination,
            self._access.client_id,
            self._access.username,
            self._access.password,
            self._access.so_timeout_ms,
            self._access.idle_timeout_ms,
            connect_timeout_ms=CONNECT_TIMEOUT_MS,
            rollback_on_connect=False,
            rollback_on_disconnect=self._access.rollback_on_disconnect,
            exact=self._access.exact,
            snapshot=InitialSnapshot(self._access.snapshot, self.filter or ""),
            tls=self._access.tls,
            runtime=self._runtime,
        )

    async def _dial(self, attempt: int, link: AsyncConnector, address: str) -> None:
        """Connect, subscribe as before, and roll back.

        Every CanalError is reported to Failover; only the judge's error is raised.
        """
        try:
            try:
                await link.connect()
            except ServerRefused as error:  # only the authentication refuses a connect()
                busy = error.code == Busy.code
                self._failed(attempt, link, error, f.FailureKind.LOST if busy else f.FailureKind.FATAL)
                return
            self._check_wanted(link)
            if self.greet is not None:
                await self.greet(link)
            if self._judge is not None:
                await self._ask_judge(self._judge, link)
            if self.filter is not None:
                await link.subscribe(self.filter)
            if self._access.rollback_on_connect:
                await link.rollback()
            host, port = link.local_address
        except CanalError as error:
            self._failed(attempt, link, error)
            return
        except _Judged as judged:
            self._failed(attempt, link, ConnectionLost(f"given up: {judged.error}"))
            raise judged.error from None
        except BaseException:
            self._failed(attempt, link, ConnectionLost("interrupted"))
            raise
        with self._lock:
            self._release(link)
            if attempt != self._failover.attempt or self._link is not link:
                return
            self._on_connected()
            failures = self._failover.failures
            self._feed(f.Dialled(attempt))
            log.info(
                "client.connected",
                destination=self._access.destination,
                client_id=self._access.client_id,
                node=address,
                local=f"{host}:{port}",
                filter=self.filter,
                failures=failures,
            )
            if self._coordination is not None:
                self._coordination.connected_to_node(f"{host}:{port}")

    def _check_wanted(self, link: AsyncConnector) -> None:
        """Raise ConnectionLost for a link that was hung up while it connected, when it had no socket to abort.

        Another client may be active by now, and this one must not roll back its batches.
        """
        with self._lock:
            if self._link is not link or not self.active:
                raise ConnectionLost(f"{link.host}:{link.port}: given up while connecting")

    async def _ask_judge(self, judge: Callable[[LogPosition | None], None], link: AsyncConnector) -> None:
        """Call the judge with the server's cursor. The blank filter leaves the server's filter unchanged."""
        cursor = None if self.filter is None else await link.subscribe("", tell_cursor=True)
        try:
            judge(cursor)
        except CanalError as error:
            raise _Judged(error) from error

    def _answered(self, attempt: int, link: AsyncConnector) -> bool:
        """Return whether the answer counts. It does not if the connection or this process's turn has ended meanwhile.

        Then the connection ends too: a batch in the answer is in flight there, and only the next connection rolls it
        back.
        """
        with self._lock:
            if self._link is link and self.active:
                self._release(link)
                if self._failover.failures:
                    self._feed(f.Worked(attempt))
                return True
        over = ConnectionLost("its turn was over when the answer came")
        self._failed(attempt, link, over, f.FailureKind.TURN_OVER)
        return False

    def _failed(self, attempt: int, link: AsyncConnector, error: CanalError, kind: f.FailureKind | None = None) -> None:
        with self._lock:
            if self._link is link:
                self._error = error
                if not self._stopped and END_OF_RANGE not in str(error):  # a private read ends with its connection
                    log.warning(
                        "client.connection_failed",
                        destination=self._access.destination,
                        client_id=self._access.client_id,
                        node=f"{link.host}:{link.port}",
                        error=str(error),
                        failures=self._failover.failures + (kind is not f.FailureKind.TURN_OVER),
                    )
                self._feed(f.Failed(attempt, kind or kind_of(error, subscribed=self.filter is not None)))
            self._busy = False
            self._changes.notify()
        link.discard()  # disconnect() could send a ROLLBACK for batches that another client has in flight

    def _release(self, link: AsyncConnector) -> None:
        """Mark the link as unused by a call; close it if it was hung up meanwhile."""
        self._busy = False
        if self._link is not link:
            link.discard()

    def _hang_up(self, attempt: int) -> None:
        if self._link is None or self._link_attempt != attempt:
            return
        link, self._link = self._link, None
        link.abort()
        if not self._busy:
            link.discard()

    # ---- events

    def _feed(self, event: f.Input) -> None:
        for command in self._failover.step(event, time.monotonic()):
            match command:
                case f.HangUp(attempt):
                    self._hang_up(attempt)
                case f.GiveUp(tries):
                    self._gave_up_after = tries
        if self._failover.node is None and self._failover.failures == 1 and not isinstance(event, f.Tick):
            log.warning("client.no_node", destination=self._access.destination, client_id=self._access.client_id)

    def _on_news(self, news: News) -> None:
        """Handle news from ZooKeeper. Called on the other thread."""
        with self._lock:
            directory = self._directory
            assert isinstance(directory, Discovered)  # the other thread exists only with ZooKeeper
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
                    self._others = ()
                    directory.running_is(address, generation)
                case NobodyRuns():
                    directory.running_is_gone()
                case MembersAre(names):
                    directory.members_are(names)
                    self._others = self._others if not names else ()
                case NodesHaveOthers(names):
                    self._others = names
                    log.warning(
                        "client.destination_unknown",
                        destination=self._access.destination,
                        client_id=self._access.client_id,
                        reason=self._advice(),
                    )
                case Broke(error):
                    self._broken = error
                    self._feed(f.Deactivated())
            if isinstance(news, RunningIs | NobodyRuns | MembersAre):
                self._feed(f.Moved())
                self._log_moved(news, before.address if before is not None else None)
            self._changes.notify()

    def _log_moved(self, news: News, before: str | None) -> None:
        if isinstance(news, RunningIs) and before is not None and news.address != before:
            log.info(
                "client.destination_moved",
                destination=self._access.destination,
                moved_from=before,
                moved_to=news.address,
            )


def host_address() -> str:
    """Return the IPv4 address of this host's default route, or loopback without one. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: only asks the kernel for the route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
