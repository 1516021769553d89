"""Tailer: a driver thread that moves batches from a cluster connector into the spool and then acknowledges them.

It owns connector, intake and spool writer. The reader's thread sees the manifest, errors and the state of silence,
under `_changed`. On a full disk the tailer waits while segments that are no longer needed are removed. At the spool's
size limit it stops fetching, so that the server's ring fills and the source is read no further. While segments wait for
Spark, entries are held for a tenth of that waiting time, so that long micro-batches make no more files than short ones.
Any other failure ends the tailer and the query.

On every connection, before a fetch, the server reports its cursor and the segment that was acknowledged there. If the
spool lacks a part of that, or another spool acknowledged it, the query ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from canal_ha import logs
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.discovery import split_address
from canal_ha.client.message import Message
from canal_ha.errors import (
    CanalError,
    ConnectorStopped,
    DataLoss,
    NoRoom,
    ServerRefused,
    SnapshotRefused,
    SpoolUnusable,
    WaitedTooLong,
)
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.spark import refusals, segments
from canal_ha.spark.cursor import CursorVerdict, judge, mark
from canal_ha.spark.intake import DIGESTS_KEPT, Intake, SegmentDraft, snapshot_digests
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.options import SourceOptions
from canal_ha.spark.spool import SpoolWriter, newest_manifest
from canal_ha.spark.steps import Steps
from canal_ha.spark.storage import Storage

FETCH_WAIT_MS = 100  # longest wait of a GET; limits the latency of a single row
UNFINISHED_S = 1.0  # silence that ends a transaction, if the server sends no transaction ends
OVERDUE_S = 5.0  # silence after which the received part of a transaction is spooled and acknowledged
NO_ROOM_RETRY_S = 1.0
SNAPSHOT_LOOK_S = 1.0
FULL_LOOK_S = 0.1
HELD_MOST_S = 5.0
HELD_MOST_BYTES = 256 << 10  # far less than the server's ring, so that holding does not fill it
STOP_S = 5.0
ASK_MS = 10_000
_NO_ANSWER = ("NOT supported", "open streams")  # replies of canal, and of a node without room for another stream

log = logs.get(__name__)


class Connector(Protocol):
    """The part of ClusterConnector that the tailer uses.

    connection: a new number means that batches in flight are delivered again.
    node: address of the connected node.
    """

    @property
    def connection(self) -> int: ...

    @property
    def node(self) -> str | None: ...

    def connect(self) -> None: ...

    def get_without_ack(self, batch_size: int, timeout_ms: int) -> Message: ...

    def ack(self, batch_id: int, mark: str = "") -> None: ...

    def stop_running(self) -> None: ...

    def disconnect(self) -> None: ...


class Tailer:
    """The tailer of one destination; start() once, stop() from any thread."""

    def __init__(
        self,
        options: SourceOptions,
        destination: str,
        storage: Storage,
        steps: Steps,
        dial: Callable[[Callable[[LogPosition | None], None]], Connector],
    ) -> None:
        """Create a tailer; nothing is opened yet.

        options: the query's.
        destination: name of the destination.
        storage: of its spool.
        steps: called with the name of each step before it happens.
        dial: creates the connector with the given judge; see ClusterConnector.
        """
        self.destination = destination
        self._options = options
        self._storage = storage
        self._steps = steps
        self._dial = dial
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._manifest = newest_manifest(storage)
        self._error: CanalError | None = None
        self._connector: Connector | None = None
        self._writer: SpoolWriter | None = None
        self._intake: Intake | None = None
        self._cursor: LogPosition | None = None  # the server's cursor on the newest connection
        self._snapshot: SnapshotState | None = None  # the client's last one, as the server said last
        self._ask_snapshot_at = 0.0
        self._read_up_to = -1
        self._silent_since: float | None = None  # time of the last batch, or of the connection's first reply
        self._answered_at = 0.0
        self._full = False
        self._trouble = ""
        self._large: int | None = None  # first segment of the latest transaction larger than the limit
        self._holding = False
        self._urgent = False
        self._thread = threading.Thread(target=self._run, name=f"tailer-{destination}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait until it released the client id."""
        self._stopped.set()
        connector = self._connector
        if connector is not None:
            connector.stop_running()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    @property
    def manifest(self) -> Manifest | None:
        """The manifest of the durable segments; None if there is none. Raises the error that ended the tailer."""
        with self._changed:
            if self._error is not None:
                raise self._error
            return self._manifest

    def done_up_to(self, seq: int) -> None:
        """Note that micro-batches up to the one that ended with this segment are done."""
        with self._changed:
            self._read_up_to = max(self._read_up_to, seq)

    def wait_beyond(self, seq: int, timeout_s: float) -> None:
        """Wait for a segment after this one or an error, or until the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._has(seq + 1), timeout_s)

    def caught_up(self, since_ms: int, quiet_ms: int) -> bool:
        """Return whether all changes written to the source before `since_ms` are probably in the spool.

        That is so if the spool has a newer change or is full, or if the server was silent for `quiet_ms` and reaches
        its source. While a snapshot of the client runs, only a full spool counts. After the first call no entries are
        held.

        since_ms: wall clock, ms since 1970.
        quiet_ms: silence that counts as the end, ms.
        Raises the error that ended the tailer, and SnapshotRefused if the client's last snapshot has failed.
        """
        with self._changed:
            self._urgent = True
            if self._error is not None:
                raise self._error
            if self._silent_since is None or self._holding:
                return False
            if self._full:
                return True
        if self._snapshot_runs():
            return False
        with self._changed:
            if self._manifest is not None and self._manifest.newest_ms > since_ms:
                return True
            if (self._answered_at - self._silent_since) * 1000 < quiet_ms:
                return False
        problem = self._source_problem()
        with self._changed:
            self._trouble = problem
        return not problem

    def _source_problem(self) -> str:
        """Return why silence proves nothing; "" if it does. A server without its source is silent too.

        Runs on the caller's thread. It starts a private read, for which a node connects to the source; canal refuses
        private reads, so its silence is trusted.
        """
        asked = self._beside()
        if asked is None:
            return f"no connection to a node that runs {self.destination}"
        try:
            with asked:
                asked.read_from("latest", filter=self._options.filter)
        except ServerRefused as refused:
            return "" if any(text in str(refused) for text in _NO_ANSWER) else str(refused)
        except CanalError as error:
            return str(error)
        return ""

    def _snapshot_runs(self) -> bool:
        """Return whether a snapshot of the client is being read. Runs on the caller's thread.

        The node is asked, because the last row looks like any other. Raises SnapshotRefused.
        """
        with self._changed:
            state = self._snapshot
        if state is not None and state.active and time.monotonic() >= self._ask_snapshot_at:
            self._ask_snapshot_at = time.monotonic() + SNAPSHOT_LOOK_S
            asked = self._beside()
            if asked is not None:
                with suppress(CanalError), asked:
                    state = snapshot_of(asked.subscribe("", tell_cursor=True))
        if state is None:
            return False
        if state.phase is SnapshotPhase.FAILED:
            who = f"--destination {self.destination} --client-id {self._options.client_id}"
            raise SnapshotRefused(
                f"canal: the snapshot of client {self._options.client_id} of {self.destination} has failed:"
                f" {state.error}. Correct the reason and run `canal-ha snapshot resume {who}`, or give the rest of its"
                f" rows up with `canal-ha snapshot cancel {who}`"
            )
        with self._changed:
            self._snapshot = state
            self._trouble = f"the snapshot {state.id} has {state.rows} rows so far" if state.active else ""
        return state.active

    def _beside(self) -> SimpleConnector | None:
        """Return another connection to the tailer's node, not connected; None without a node."""
        options = self._options
        node = self._connector.node if self._connector is not None else None
        if node is None:
            return None
        return SimpleConnector(
            *split_address(node),
            self.destination,
            options.client_id,
            options.user,
            options.password,
            so_timeout_ms=ASK_MS,
            rollback_on_connect=False,
            tls=options.tls,
        )

    @property
    def trouble(self) -> str:
        """What the tailer is waiting for; "" for nothing."""
        with self._changed:
            return self._trouble

    def _has(self, seq: int) -> bool:
        return self._manifest is not None and self._manifest.next_seq > seq

    # ---- the thread

    def _run(self) -> None:
        connector = self._dial(self._judge)
        self._connector = connector
        error: CanalError | None = None
        try:
            self._follow(connector)
        except ConnectorStopped as stopped:
            error = None if self._stopped.is_set() else stopped
        except CanalError as failed:
            error = failed
        except Exception as failed:  # unknown error: the query must not continue
            error = SpoolUnusable(f"canal: the tailer of {self.destination} failed: {failed!r}")
            error.__cause__ = failed
        finally:
            connector.disconnect()
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _follow(self, connector: Connector) -> None:
        if not self._connect_with_retries(connector.connect):
            return
        connection = 0
        silent_since = held_since = time.monotonic()
        while not self._stopped.is_set():
            if self._writer is not None and self._over_budget(self._writer):
                self._stopped.wait(FULL_LOOK_S)
                continue
            try:
                message = connector.get_without_ack(self._options.fetch_size, FETCH_WAIT_MS)
            except WaitedTooLong:
                continue
            writer, intake = self._writer, self._intake
            assert writer is not None  # the judge ran on this connection
            assert intake is not None
            anew = connector.connection != connection
            if anew:
                connection = connector.connection
                intake.connected(self._cursor)
            if not intake.held_bytes:
                held_since = time.monotonic()
            if message:
                silent_since = time.monotonic()
                intake.add(message.id, message.walk())
            elif intake.unfinished:
                self._await_end(intake, time.monotonic() - silent_since)
            if intake.held_bytes >= HELD_MOST_BYTES or time.monotonic() - held_since >= self._hold_s(writer.manifest):
                while (piece := intake.take()) is not None:
                    self._append(writer, piece)
                    intake.made_durable(piece)
                    self._acknowledge(connector, writer, intake)
            self._acknowledge(connector, writer, intake)
            with self._changed:
                self._holding = intake.held_bytes > 0
                self._answered_at = time.monotonic()
                if message or anew:
                    self._silent_since = self._answered_at

    def _await_end(self, intake: Intake, silent_s: float) -> None:
        """Handle silence while the end of a transaction is awaited. silent_s: its length, s."""
        if silent_s > UNFINISHED_S:
            intake.quiet()
        if silent_s > OVERDUE_S:
            intake.overdue()
        place = intake.unfinished
        if place is None or silent_s <= OVERDUE_S:
            return
        trouble = f"the server has not sent the end of the transaction at {place.journal}:{place.offset}"
        if trouble != self._trouble:
            log.warning("spark.transaction_overdue", destination=self.destination, position=str(place))
        with self._changed:
            self._trouble = trouble

    def _connect_with_retries(self, connect: Callable[[], None]) -> bool:
        while not self._stopped.is_set():
            try:
                connect()
            except WaitedTooLong as late:
                log.warning("spark.no_connection", destination=self.destination, error=str(late))
                continue
            return True
        return False

    def _judge(self, cursor: LogPosition | None) -> None:
        """Check the server's cursor against the spool, before anything is fetched.

        cursor: None from a server that does not send it.
        Raises DataLoss and ClientIdTaken.
        """
        if self._writer is None:
            self._writer = self._claim()
            manifest = self._writer.manifest
            digests = self._digests(manifest)
            self._intake = Intake(manifest.last, manifest.newest_ms, self._options.segment_bytes, digests)
        self._cursor = cursor
        with self._changed:
            self._snapshot = snapshot_of(cursor)
        writer, manifest, options = self._writer, self._writer.manifest, self._options
        found = judge(cursor, manifest)
        problem: CanalError | None = None
        if cursor is not None and found is CursorVerdict.FOREIGN:
            problem = refusals.taken(self.destination, options, self._storage.uri, manifest, cursor)
        elif cursor is not None and found is CursorVerdict.LOST:
            problem = refusals.lost(self.destination, options, self._storage.uri, manifest, cursor)
        if isinstance(problem, DataLoss) and not options.fail_on_data_loss:
            log.warning("spark.data_loss", destination=self.destination, error=str(problem))
            found, problem = CursorVerdict.FOLLOWS, None
        writer.follows = found is CursorVerdict.FOLLOWS
        with suppress(NoRoom):
            writer.tell("" if problem is None else str(problem))
        if problem is not None:
            raise problem

    def _digests(self, manifest: Manifest) -> list[bytes]:
        """Return those of the snapshot's entries in the segments that end where the spool ends, oldest first."""
        found: list[bytes] = []
        last = manifest.last
        for segment in reversed(manifest.segments):
            if last is None or (segment.last.journal, segment.last.offset) != (last.journal, last.offset):
                break
            with suppress(FileNotFoundError):
                contents = segments.decode(self._storage.read(segment.name), segment.name)
                found = snapshot_digests(contents.frames) + found
            if len(found) >= DIGESTS_KEPT:
                break
        return found

    def _acknowledge(self, connector: Connector, writer: SpoolWriter, intake: Intake) -> None:
        for batch_id in intake.acknowledged():
            self._steps("ack")
            connector.ack(batch_id, mark(writer.manifest))

    def _claim(self) -> SpoolWriter:
        retain = self._options.retain_batches
        while True:
            try:
                writer = SpoolWriter(self._storage, self.destination, retain, self._steps)
            except NoRoom as full:
                self._wait_for_room(full)
                continue
            self._publish(writer)
            return writer

    def _over_budget(self, writer: SpoolWriter) -> bool:
        """Return whether to stop fetching until Spark has read something.

        A single transaction larger than the limit is fetched to its end, because Spark never reads a part of one.
        """
        self._prune(writer)
        manifest = writer.manifest
        over = manifest.unread_bytes >= self._options.spool_max_bytes
        full = over and manifest.readable
        if over and not full:
            self._report_large(manifest)
        with self._changed:
            self._full = full
        return full

    def _report_large(self, manifest: Manifest) -> None:
        first = manifest.between(manifest.done, manifest.next_seq)[0]
        if self._large != first.seq:
            self._large = first.seq
            log.warning("spark.transaction_large", destination=self.destination, position=str(first.last))
        with self._changed:
            self._trouble = (
                f"the transaction at {first.last} has {manifest.unread_bytes} bytes in the spool so far, more"
                f" than spoolMaxBytes ({self._options.spool_max_bytes}): it is fetched to its end anyway"
            )

    def _append(self, writer: SpoolWriter, piece: SegmentDraft) -> None:
        assert piece.last is not None
        while True:
            try:
                writer.append(
                    piece.frames,
                    piece.rows,
                    piece.last,
                    closed=piece.closed,
                    newest_ms=piece.newest_ms,
                    ddl=piece.ddl,
                )
            except NoRoom as full:
                self._wait_for_room(full)
                self._prune(writer)
                continue
            self._publish(writer)
            return

    def _hold_s(self, manifest: Manifest) -> float:
        return 0.0 if self._urgent else hold_s(manifest, time.time_ns() // 1_000_000)

    def _prune(self, writer: SpoolWriter) -> None:
        """Report read segments to the writer, which removes older ones. On a full disk this is repeated later."""
        with self._changed:
            done = self._read_up_to
        with suppress(NoRoom):
            writer.read_up_to(done)
        with self._changed:
            self._manifest = writer.manifest

    def _wait_for_room(self, full: NoRoom) -> None:
        """Wait before the next try. Raises ConnectorStopped if the query ends meanwhile."""
        log.warning("spark.no_room", destination=self.destination, error=str(full))
        with self._changed:
            self._trouble = str(full)
        if self._stopped.wait(NO_ROOM_RETRY_S):
            raise ConnectorStopped(f"{self.destination}: stopped while the spool had no room") from full

    def _publish(self, writer: SpoolWriter) -> None:
        with self._changed:
            self._trouble = ""
            self._manifest = writer.manifest
            self._changed.notify_all()


def snapshot_of(cursor: LogPosition | None) -> SnapshotState | None:
    """Return the last snapshot of the client that has this cursor; None if there is none."""
    try:
        return SnapshotState.from_text(cursor.snapshot) if cursor is not None else None
    except ValueError:
        return None


def hold_s(manifest: Manifest, now_ms: int) -> float:
    """Return how long entries may be held, s; 0 while Spark waits for them. now_ms: ms since 1970."""
    waiting = manifest.between(manifest.done, manifest.next_seq)
    waited_s = (now_ms - waiting[0].written_ms) / 1000 if waiting else 0.0
    return min(max(waited_s / 10, 0.0), HELD_MOST_S)
