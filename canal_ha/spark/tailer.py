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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from canal_ha import logs
from canal_ha.client.connector import SimpleConnector
from canal_ha.client.message import Message
from canal_ha.client.own_snapshot import failure, has_failed, snapshot_of
from canal_ha.errors import (
    CanalError,
    ConnectorStopped,
    DataLoss,
    NoRoom,
    SpoolUnusable,
    WaitedTooLong,
)
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.pipeline.access import connector_beside, tell_no_rows
from canal_ha.pipeline.intake import Intake, Redelivery, SegmentDraft
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.redelivery import Spooled, ends_whole, server_of
from canal_ha.spark import refusals, segments, waits
from canal_ha.spark.cursor import CursorVerdict, judge, mark
from canal_ha.spark.end_of_run import EndOfRun
from canal_ha.spark.manifest import Manifest, SegmentInfo
from canal_ha.spark.snapshot_failure import SnapshotFailure
from canal_ha.spark.spool import SpoolWriter, newest_manifest
from canal_ha.spark.steps import Steps
from canal_ha.spark.storage import Storage

FETCH_WAIT_MS = 100  # longest wait of a GET; limits the latency of a single row
UNFINISHED_S = 1.0  # silence that ends a transaction, if the server sends no transaction ends
OVERDUE_S = 5.0  # silence after which the received part of a transaction is spooled and acknowledged
NO_ROOM_RETRY_S = 1.0
SNAPSHOT_LOOK_S = 1.0
FAILED_LOOK_S = 5.0
FULL_LOOK_S = 0.1
HELD_MOST_S = 5.0
HELD_MOST_BYTES = 256 << 10  # far less than the server's ring, so that holding does not fill it
STOP_S = 5.0
ASK_AGAIN_S = 1.0

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
        *,
        until_now: bool = False,
    ) -> None:
        """Create a tailer; nothing is opened yet.

        options: the query's.
        destination: name of the destination.
        storage: of its spool.
        steps: called with the name of each step before it happens.
        dial: creates the connector with the given judge; see ClusterConnector.
        until_now: the query ends by itself, at the end of the source's binlog; see `complete`.
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
        self._told_failed = self._told_paused = ""  # ids of snapshots
        self._failure: SnapshotFailure | None = None
        self._read_up_to = -1
        self._silent_since: float | None = None  # time of the last batch, or of the connection's first reply
        self._answered_at = 0.0
        self._end = EndOfRun(self._beside, options.filter) if until_now else None
        self._end_moves = False  # a snapshot runs: the end is where it ends
        self._last_wanted: int | None = None  # None: not known yet
        self._is_cut = False  # a segment ends at the end of the run
        self._ask_end_at = 0.0
        self._created_ms = time.time_ns() // 1_000_000
        self._trouble = ""
        self._told_wait = ""
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

    @property
    def wanted(self) -> int:
        """The last segment that a query that ends by itself reads; -1 for none. More may come before `complete`."""
        with self._changed:
            if self._last_wanted is not None:
                return self._last_wanted
            return self._manifest.next_seq - 1 if self._manifest is not None else -1

    def complete(self) -> bool:
        """Return whether all changes before the end of the run are in the spool; see EndOfRun.

        While a snapshot of the client runs, they are not; it moves the end to where it ends. If several sources are
        merged, changes are complete when a cursor has reached the end or the server is silent. canal's own server
        does not tell the end: there silence counts, or a change that was written after the tailer was created. After
        the first call no entries are held.

        Raises the error that ended the tailer, and SnapshotRefused if the client's last snapshot has failed.
        """
        assert self._end is not None
        with self._changed:
            self._urgent = True
            if self._error is not None:
                raise self._error
            if self._silent_since is None or self._holding:
                return False
            if self._last_wanted is not None:
                return True
            last = self._manifest.last if self._manifest is not None else None
            silent_ms = (self._answered_at - self._silent_since) * 1000
        if self._snapshot_runs():
            self._end_moves = True
            return False
        if time.monotonic() < self._ask_end_at:
            return False
        problem = ""
        try:
            if self._end_moves:
                self._end.find()
                self._end_moves = self._is_cut = False
            done = self._is_complete(self._end, last or self._cursor, silent_ms)
        except CanalError as error:
            done, problem = False, str(error)
        self._ask_end_at = time.monotonic() + ASK_AGAIN_S
        with self._changed:
            self._trouble = problem
            if done and self._last_wanted is None:
                self._last_wanted = self._manifest.next_seq - 1 if self._manifest is not None else -1
        return done

    def _is_complete(self, end: EndOfRun, last: LogPosition | None, silent_ms: float) -> bool:
        """Runs on the caller's thread. Raises the errors of a connector."""
        silent = silent_ms >= self._options.quiet_ms
        if end.at is None:
            return silent or (last is not None and last.timestamp_ms > self._created_ms)
        if last is not None and end.is_on(last.server):
            return silent_ms > 0 and end.nothing_behind(last)
        if silent:
            end.check()
            return True
        asked = self._beside() if end.at.part else None
        if asked is None:
            return False
        with asked:
            return end.covered_by(asked.subscribe("", tell_cursor=True))

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
        if has_failed(state):
            if self._options.snapshot:
                raise failure(self.destination, self._options.client_id, state)
            if state.id != self._told_failed:  # an operator has asked for the rows, and the log is enough
                self._told_failed = state.id
                log.warning("spark.snapshot_failed", destination=self.destination, error=state.error)
        if state.phase is SnapshotPhase.PAUSED and state.id != self._told_paused:
            self._told_paused = state.id
            log.warning("spark.snapshot_paused", destination=self.destination, snapshot=state.id, rows=state.rows)
        with self._changed:
            self._snapshot = state
            self._trouble = f"the snapshot {state.id} has {state.rows} rows so far" if state.active else ""
        return state.active

    def _beside(self) -> SimpleConnector | None:
        """Return another connection to the tailer's node, not connected; None without a node."""
        node = self._connector.node if self._connector is not None else None
        return None if node is None else connector_beside(self._options, self.destination, node)

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
            except WaitedTooLong as late:
                self._waits(str(late))
                continue
            self._waits("")
            writer, intake = self._writer, self._intake
            assert writer is not None  # the judge ran on this connection
            assert intake is not None
            anew = connector.connection != connection
            if anew:
                connection = connector.connection
                intake.connected(*self._comes_again(writer.manifest))
                self._find_end(intake)
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
            if self._end is None:  # else `complete` looks
                self._look_at_snapshot(writer.manifest)
            with self._changed:
                self._holding = intake.held_bytes > 0
                self._answered_at = time.monotonic()
                if message or anew:
                    self._silent_since = self._answered_at

    def _look_at_snapshot(self, manifest: Manifest) -> None:
        """Ask now and then whether the snapshot has failed. Raises SnapshotRefused; see SnapshotFailure."""
        state, now = self._snapshot, time.monotonic()
        if state is None or not (state.active or has_failed(state)) or now < self._ask_snapshot_at:
            return
        self._ask_snapshot_at = now + FAILED_LOOK_S
        try:
            asked = self._beside()
            if asked is None:
                return
            with asked:
                state = snapshot_of(asked.subscribe("", tell_cursor=True))
            with self._changed:
                self._snapshot, read_up_to = state, self._read_up_to
            if state is None or not has_failed(state):
                self._failure = None
                return
            if self._failure is None or self._failure.snapshot != state.id:
                log.warning("spark.snapshot_failed", destination=self.destination, error=state.error)
                self._failure = SnapshotFailure(state.id, EndOfRun(self._beside, self._options.filter))
            asks = bool(self._options.snapshot)  # else an operator has asked for the rows, and the log is enough
            passed = asks and self._failure.passed(manifest, self._cursor, read_up_to)
        except CanalError:
            return  # the next look, or the next connection
        if passed:
            raise failure(self.destination, self._options.client_id, state)

    def _find_end(self, intake: Intake) -> None:
        """Wait until the node tells the end of the run, before anything of the connection is taken."""
        end = self._end
        if end is None or (self._snapshot is not None and self._snapshot.active):
            return
        server = self._cursor.server if self._cursor is not None else ""
        while not self._stopped.is_set() and not (end.is_on(server) or (end.at is not None and end.at.part)):
            try:
                end.find()
                break
            except CanalError as error:
                with self._changed:
                    self._trouble = str(error)
                self._stopped.wait(ASK_AGAIN_S)
        self._steps("end")
        self._is_cut = end.is_on(server)
        if self._is_cut and end.at is not None:
            intake.cut_at(end.at)

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
                self._waits(str(late))
                continue
            return True
        return False

    def _waits(self, why: str) -> None:
        """Tell what the connector waits for, for example that another driver is active; "" when it is connected."""
        if not why and not self._told_wait:
            return
        if why and why != self._told_wait:
            log.warning("spark.no_connection", destination=self.destination, error=why)
        self._told_wait = why
        with self._changed:
            self._trouble = why
        with suppress(SpoolUnusable):  # the spool itself says so elsewhere
            if why:
                waits.tell(self._storage, why, time.time_ns() // 1_000_000)
            else:
                self._storage.delete([waits.FILE])

    def _judge(self, cursor: LogPosition | None) -> None:
        """Check the server's cursor against the spool, before anything is fetched.

        cursor: None from a server that does not send it.
        Raises DataLoss and ClientIdTaken.
        """
        if self._writer is None:
            self._writer = self._claim()
            self._intake = Intake(self._options.segment_bytes)
            tell_no_rows("spark.no_snapshot", self.destination, self._options, cursor)
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

    def _comes_again(self, manifest: Manifest) -> tuple[str, Redelivery | None]:
        """Return the server whose binlog this connection reads, and what recognises the spool's entries in it."""
        last, cursor = manifest.last, self._cursor
        server = server_of(cursor)
        if last is None:
            return server, None
        # without the spool's mark, the cursor may be in binary logs that were reset, with GTIDs that began again
        is_marked = cursor is not None and bool(cursor.mark)
        gtids = last.gtid or "" if is_marked and manifest.segments[-1].closed else ""
        whole = bool(gtids) and ends_whole(next(self._frames(manifest.segments[-1:]), b""))
        again = self._frames(manifest.may_come_again(server))
        return server, Spooled(again, cursor, gtids if whole else "")

    def _frames(self, files: Sequence[SegmentInfo]) -> Iterator[bytes]:
        """Yield the frames of segments, newest first, as far as they exist."""
        for segment in reversed(files):
            with suppress(FileNotFoundError):
                yield segments.decode(self._storage.read(segment.name), segment.name).frames

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
        with self._changed:
            if self._last_wanted is None and self._end is not None and self._end.reached_by(piece.last):
                self._last_wanted = writer.manifest.next_seq - self._is_cut
        while True:
            try:
                writer.append(
                    piece.views,
                    piece.rows,
                    piece.last,
                    closed=piece.closed,
                    ddl=piece.ddl,
                    statements=piece.statements,
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


def hold_s(manifest: Manifest, now_ms: int) -> float:
    """Return how long entries may be held, s; 0 while Spark waits for them. now_ms: ms since 1970."""
    waiting = manifest.between(manifest.done, manifest.next_seq)
    waited_s = (now_ms - waiting[0].written_ms) / 1000 if waiting else 0.0
    return min(max(waited_s / 10, 0.0), HELD_MOST_S)
