"""Tailer: a thread in the driver that moves batches from a cluster connector into the spool, and only then acks them.

It owns connector, intake and spool writer. The reader's thread sees the manifest, an error, and whether all is quiet,
under `_changed`. A full disk is waited for, while segments that are no longer needed go; a full budget stops the
fetching, so that the server's ring fills and the source is read no further. While segments wait for Spark, what comes
is held for a tenth of the time that they have waited: long micro-batches make no more files than short ones. Any other
failure ends the tailer, and the query with it.

At every connection, before anything is taken, the server tells where its cursor is and which segment acknowledged up to
there. A spool that lacks something of that, or is not the one that acknowledged, ends the query.
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
from canal_ha.errors import CanalError, ConnectorStopped, DataLoss, ServerRefused, SpoolUnusable, WaitedTooLong
from canal_ha.model.position import LogPosition
from canal_ha.spark import refusals
from canal_ha.spark.cursor import CursorVerdict, judge, mark
from canal_ha.spark.intake import Intake, SegmentDraft
from canal_ha.spark.manifest import Manifest
from canal_ha.spark.options import SourceOptions
from canal_ha.spark.spool import SpoolWriter, newest_manifest
from canal_ha.spark.steps import Steps
from canal_ha.spark.storage import NoRoom, Storage

FETCH_WAIT_MS = 100  # how long the server may collect; bounds the latency of a single row
UNFINISHED_S = 1.0  # silence after which rows without an end of transaction count as whole, where no ends are sent
OVERDUE_S = 5.0  # silence inside a transaction after which what came of it is spooled and acknowledged
NO_ROOM_RETRY_S = 1.0
FULL_LOOK_S = 0.1
HELD_MOST_S = 5.0
HELD_MOST_BYTES = 256 << 10  # far less than the server's ring: it must not fill because of this
STOP_S = 5.0
ASK_MS = 10_000
_NO_ANSWER = ("NOT supported", "open streams")  # canal; a node that has no room for one more read

log = logs.get(__name__)


class Connector(Protocol):
    """What the tailer needs of a ClusterConnector. connection: changes when batches in flight come again; node: where
    it leads.
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
        """Nothing is opened yet.

        options: the query's
        destination: which one
        storage: of its spool
        steps: told what is about to happen
        dial: makes the connector, with what it is given as ClusterConnector's judge
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
        self._cursor: LogPosition | None = None  # as the server told it at the newest connection
        self._read_up_to = -1
        self._silent_since: float | None = None  # when the server last had something, or this connection first answered
        self._answered_at = 0.0
        self._full = False
        self._trouble = ""
        self._large: int | None = None  # first segment of the latest transaction that outgrew the budget
        self._holding = False
        self._urgent = False
        self._thread = threading.Thread(target=self._run, name=f"tailer-{destination}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Let go of the client's place, and wait for that."""
        self._stopped.set()
        connector = self._connector
        if connector is not None:
            connector.stop_running()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    @property
    def manifest(self) -> Manifest | None:
        """What is durable; None while nothing is known. Raises what ended the tailer."""
        with self._changed:
            if self._error is not None:
                raise self._error
            return self._manifest

    def done_up_to(self, seq: int) -> None:
        """Micro-batches up to the one that ended with this segment are done."""
        with self._changed:
            self._read_up_to = max(self._read_up_to, seq)

    def wait_beyond(self, seq: int, timeout_s: float) -> None:
        """Until there is a segment after this one, or an error, or time is up."""
        with self._changed:
            self._changed.wait_for(lambda: self._error is not None or self._has(seq + 1), timeout_s)

    def caught_up(self, since_ms: int, quiet_ms: int) -> bool:
        """Whether everything written to the source before `since_ms` (wall clock) is in the spool, as far as one can
        tell: something younger is, or the budget is used up, or the server had nothing for `quiet_ms` and reaches its
        source. From the first call on nothing is held.
        """
        with self._changed:
            self._urgent = True
            if self._error is not None:
                raise self._error
            if self._silent_since is None or self._holding:
                return False
            newer = self._manifest is not None and self._manifest.newest_ms > since_ms
            if newer or self._full:
                return True
            if (self._answered_at - self._silent_since) * 1000 < quiet_ms:
                return False
        problem = self._source_problem()
        with self._changed:
            self._trouble = problem
        return not problem

    def _source_problem(self) -> str:
        """Why silence means nothing, "" when it does: a server whose source is away is silent too. On the caller's
        thread: a private read begins with a question to the source. canal knows none, and answers nothing better.
        """
        options = self._options
        node = self._connector.node if self._connector is not None else None
        if node is None:
            return f"no connection to a node that runs {self.destination}"
        try:
            asked = SimpleConnector(
                *split_address(node),
                self.destination,
                options.client_id,
                options.user,
                options.password,
                so_timeout_ms=ASK_MS,
                rollback_on_connect=False,
            )
            with asked:
                asked.read_from("latest", filter=options.filter)
        except ServerRefused as refused:
            return "" if any(text in str(refused) for text in _NO_ANSWER) else str(refused)
        except CanalError as error:
            return str(error)
        return ""

    @property
    def trouble(self) -> str:
        """What is waited for, "" when nothing is."""
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
        except Exception as failed:  # unknown: the query must not go on as if all were well
            error = SpoolUnusable(f"canal: the tailer of {self.destination} failed: {failed!r}")
            error.__cause__ = failed
        finally:
            connector.disconnect()
        with self._changed:
            self._error = error
            self._changed.notify_all()

    def _follow(self, connector: Connector) -> None:
        if not self._until_in_time(connector.connect):
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
            assert writer is not None  # since the judge heard of this connection
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
                self._miss_the_end(intake, time.monotonic() - silent_since)
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

    def _miss_the_end(self, intake: Intake, silent_s: float) -> None:
        """Nothing came for so long while the end of a transaction is awaited."""
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

    def _until_in_time(self, connect: Callable[[], None]) -> bool:
        while not self._stopped.is_set():
            try:
                connect()
            except WaitedTooLong as late:
                log.warning("spark.no_connection", destination=self.destination, error=str(late))
                continue
            return True
        return False

    def _judge(self, cursor: LogPosition | None) -> None:
        """It is our turn, and nothing was taken yet. cursor: None from a server that does not tell.

        Raises DataLoss, ClientIdTaken.
        """
        if self._writer is None:
            self._writer = self._claim()
            manifest = self._writer.manifest
            self._intake = Intake(manifest.last, manifest.newest_ms, self._options.segment_bytes)
        self._cursor = cursor
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
        """Whether to fetch nothing until Spark has read something. A transaction that outgrows the budget alone is
        fetched to its end, because Spark reads no part of one.
        """
        self._prune(writer)
        manifest = writer.manifest
        over = manifest.unread_bytes >= self._options.spool_max_bytes
        full = over and manifest.readable
        if over and not full:
            self._tell_of_large(manifest)
        with self._changed:
            self._full = full
        return full

    def _tell_of_large(self, manifest: Manifest) -> None:
        first = manifest.between(manifest.done, manifest.next_seq)[0]
        if self._large != first.seq:
            self._large = first.seq
            log.warning("spark.transaction_large", destination=self.destination, position=str(first.last))
        with self._changed:
            self._trouble = (
                f"the transaction at {first.last} has {manifest.unread_bytes} bytes in the spool so far, more"
                f" than spoolMaxBytes ({self._options.spool_max_bytes}): it is fetched to its end all the same"
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
        """Tell the writer what is read, so that older segments go. What a full disk prevents is done later."""
        with self._changed:
            done = self._read_up_to
        with suppress(NoRoom):
            writer.read_up_to(done)
        with self._changed:
            self._manifest = writer.manifest

    def _wait_for_room(self, full: NoRoom) -> None:
        """Raises ConnectorStopped when the query ends meanwhile."""
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
    """How long entries may be held, seconds: not at all while Spark waits for them."""
    waiting = manifest.between(manifest.done, manifest.next_seq)
    waited_s = (now_ms - waiting[0].written_ms) / 1000 if waiting else 0.0
    return min(max(waited_s / 10, 0.0), HELD_MOST_S)
