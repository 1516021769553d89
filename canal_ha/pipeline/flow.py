"""Flow: moves the changes of one destination into the target, on a thread of its own.

    connector -> Intake -> Portion -> target.commit -> acknowledgements with the progress as mark

Nothing is acknowledged before the target has it. On every connection, before the first fetch, the target's progress is
read and compared with the server's cursor: another process may have been active meanwhile, and a commit whose answer
was lost may have succeeded. `Committed` recognises what the server delivers again. If the target does not answer,
the flow gives its connection up and begins so again, with growing pauses.

Nothing is committed behind a gap: `Committed` would take the rows of the gap for known when they come later. The node
tells a client that knows its cursor if another connection got a batch, and the batch ids of a connection have no gap.

Entries are collected while they come without a pause, up to the limits of a portion, and at most as long as the last
commit took: the more a commit costs, the more rows it has. A pipeline that is behind makes fewer commits, because
it waits longer for a full portion. A node sends no more than its memory for changes holds until they are acknowledged.
So if a node falls silent while the pipeline is behind, the next portions have half of what had come, and grow again:
the node reads on while they are committed.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from canal_ha import logs
from canal_ha.client.own_snapshot import failure, has_failed, snapshot_of
from canal_ha.errors import (
    CanalError,
    ConnectionLost,
    ConnectorStopped,
    DataLoss,
    PipelineFailed,
    PositionLost,
    TargetUnavailable,
    WaitedTooLong,
)
from canal_ha.model import excerpt
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotPhase, SnapshotState
from canal_ha.pipeline.access import tell_no_rows
from canal_ha.pipeline.cursor import begins_anew, judge, may_be_another_binlog, unclear
from canal_ha.pipeline.description import Description
from canal_ha.pipeline.digests import KeptDigests
from canal_ha.pipeline.intake import Intake, SegmentDraft
from canal_ha.pipeline.options import SourceOptions
from canal_ha.pipeline.portion import Portion
from canal_ha.pipeline.progress import Progress
from canal_ha.pipeline.progress_owner import foreign
from canal_ha.pipeline.reading import ChangeReader
from canal_ha.pipeline.redelivery import Committed, server_of, sources_of
from canal_ha.pipeline.refilling import tables_that_may_be_gone, tables_to_read_again
from canal_ha.pipeline.same_binlog import SameBinlog
from canal_ha.pipeline.source import FlowClient, FlowSource
from canal_ha.pipeline.taken import Taken
from canal_ha.pipeline.targets.target import PipelineTarget

if TYPE_CHECKING:
    from canal_ha.client.message import Message

FETCH_WAIT_MS = 100  # of a GET that finds nothing
HELD_MOST_S = 5.0
BEHIND_S = 5.0  # age of the newest change from which on a pipeline is behind
HELD_BEHIND_S = 1.0  # while it is
SMALLER, GROWTH = 4, 16  # smallest share of `segmentBytes` in a portion; what share of itself it grows by
UNFINISHED_S = 1.0  # silence that ends a transaction, if the server sends no transaction ends
OVERDUE_S = 5.0  # silence after which the received part of a transaction is committed
ASK_END_S = 1.0  # between questions whether the end is reached
LOOK_S = 5.0  # how often the server's cursor is read, to notice another client
ROWS_MOST = 100_000  # of a portion, unless the options say otherwise
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 30.0)  # between tries while the target does not answer
STOP_S = 60.0  # for the commit that runs
AHEAD_MS = 60_000  # how far the source's clock may be ahead of this one

log = logs.Spared(logs.get(__name__))  # statements and the messages of servers are from outside


@dataclass(frozen=True, slots=True)
class FlowState:
    """How far a flow is.

    destination: its name.
    progress: of the target; None before it was read.
    commits, rows: since the start.
    lag_s: age of the newest committed change while others wait, s; 0 when all are committed; -1 while unknown.
    waiting: what it waits for; "" while it works.
    standing_by: another process is active; `waiting` names it.
    snapshot: how far the snapshot of existing rows is; "" if none is left to read.
    done: it has reached the end that was asked for.
    """

    destination: str
    progress: Progress | None = None
    commits: int = 0
    rows: int = 0
    lag_s: float = -1.0
    waiting: str = ""
    standing_by: bool = False
    snapshot: str = ""
    done: bool = False

    @property
    def in_charge(self) -> bool:
        """Whether this process moves the changes or knows what stops it; not while it connects first or stands by."""
        return not self.standing_by and (self.progress is not None or bool(self.waiting))


class Flow:
    """The flow of one destination; start() once, stop() from any thread."""

    def __init__(
        self,
        description: Description,
        options: SourceOptions,
        access: FlowSource,
        target: PipelineTarget,
        *,
        once: bool = False,
        ended: Callable[[], None] = lambda: None,
        works: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a flow; nothing is opened yet.

        description: the pipeline.
        options: of its source.
        access: to the destination.
        target: shared by all flows.
        once: end at the end that the source's binlog has at the start.
        ended: called on the flow's thread at its end.
        works: called on the flow's thread on each connection, once the target has committed or has everything.
        """
        self.destination = access.destination
        self.error: CanalError | None = None
        self._description = description
        self._options = options
        self._access = access
        self._target = target
        self._once = once
        self._ended = ended
        self._works = works
        self._works_told = False
        self._where = f"pipeline {description.name}, client id {options.client_id} of {access.destination}"
        self._owner = options.owner(description.name)
        self._reader = ChangeReader(Taken(description), options.time_zone, description.transforms, description.keys)
        self._stopping = threading.Event()
        self._connector: FlowClient | None = None
        self._end: LogPosition | None = None
        self._progress: Progress | None = None
        self._cursor: LogPosition | None = None  # the server's on the newest connection
        self._intake: Intake | None = None
        self._digests = KeptDigests(Path(description.state), access.destination)
        self._failed: tuple[str, LogPosition | None] | None = None
        self._anew = False  # on the newest connection, nothing that comes is known
        self._connection = 0
        self._batch_id = 0  # of the newest batch of the connection; 0 before the first
        self._failures = 0
        self._hold_s = 0.0
        self._portion_bytes = options.segment_bytes
        self._looked_at = self._ask_end_at = 0.0
        self._newest_ms = 0
        self._state = FlowState(self.destination)
        self._thread = threading.Thread(target=self._run, name=f"flow-{self.destination}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Make the flow end after the commit that runs; returns at once. Safe in a signal handler."""
        self._stopping.set()
        connector = self._connector
        if connector is not None:
            connector.stop_running()

    def join(self) -> None:
        """Wait until the flow has released the client id, at most STOP_S."""
        self._thread.join(STOP_S)

    @property
    def running(self) -> bool:
        """Whether the thread works."""
        return self._thread.is_alive()

    @property
    def state(self) -> FlowState:
        """The state now."""
        state = self._state
        return replace(state, lag_s=max(time.time() - self._newest_ms / 1000, 0.0)) if state.lag_s > 0 else state

    # ---- the thread

    def _run(self) -> None:
        try:
            while not self._stopping.is_set() and not self._state.done:
                self._connect_and_follow()
        except ConnectorStopped as stopped:
            self.error = None if self._stopping.is_set() else stopped
        except CanalError as failed:
            self.error = failed
        except Exception as failed:  # unknown error: the flow must not go on
            self.error = PipelineFailed(f"{self._where} failed: {self._description.masked(repr(failed))}")
            self.error.__cause__ = failed
        finally:
            self._ended()

    def _connect_and_follow(self) -> None:
        """Work until the end, or until the target or the node does not answer. Raises what a person has to mend."""
        try:
            if self._once and self._end is None:
                self._end = self._access.end()
            self._connector = connector = self._access.client(self._judge)
            try:
                connector.connect()
                self._follow(connector)
            finally:
                connector.disconnect()
        except TargetUnavailable as error:
            pause_s = PAUSES_S[min(self._failures, len(PAUSES_S) - 1)]
            self._failures += 1
            self._wait_for(f"its target: {str(error).removeprefix('canal: ')}")
            log.warning(
                "pipeline.target_unavailable", destination=self.destination, again_in_s=pause_s, error=str(error)
            )
            self._stopping.wait(pause_s)
        except (ConnectionLost, WaitedTooLong) as error:
            self._wait_for(str(error))
            self._stopping.wait(PAUSES_S[0])

    def _follow(self, connector: FlowClient) -> None:
        held_since = silent_since = time.monotonic()
        self._connection = 0
        while not self._stopping.is_set():
            try:
                message = connector.get_without_ack(self._options.fetch_size, FETCH_WAIT_MS, eager=True)
            except WaitedTooLong:
                other = connector.standing_by
                self._wait_for(f"another process is active: {other}" if other else "a node", standing_by=bool(other))
                continue
            intake = self._intake_of(connector)
            now = time.monotonic()
            if not intake.held_bytes:
                held_since = now
            if message:
                silent_since = now
                self._add(intake, message)
            elif intake.unfinished:
                self._await_end(intake, now - silent_since)
            if not message and self._is_behind(intake):
                self._portion_bytes = max(intake.held_bytes // 2, self._options.segment_bytes // SMALLER)
            if not message or self._is_full(intake) or now - held_since >= self._held_s(intake):
                while not self._stopping.is_set() and (draft := intake.take()) is not None:
                    self._commit(connector, intake, draft)
            self._acknowledge(connector, intake)
            if not message and not intake.held_bytes:
                self._caught_up()
                if self._once and self._asks_for_the_end() and self._reached_end(connector, silent_since):
                    self._state = replace(self._state, done=True)
                    return
            self._look(connector, silent_since)

    def _judge(self, cursor: LogPosition | None) -> None:
        """Read the target's progress and compare it with the server's cursor, before anything is fetched.

        Raises DataLoss, ClientIdTaken, SinkRefused for the progress of another pipeline, and the errors of the target.
        """
        if self._state.standing_by:
            self._state = replace(self._state, waiting="", standing_by=False)
        progress = self._target.progress(self.destination)
        other = foreign(progress, self._owner, self._where, cursor)
        if other is not None:
            raise other
        problem = judge(cursor, progress, self._where)
        if isinstance(problem, DataLoss) and not self._options.fail_on_data_loss:
            log.warning("pipeline.data_loss", destination=self.destination, error=str(problem))
        elif problem is not None:
            raise problem
        self._anew = progress is not None and self._begins_anew(cursor, progress)
        if progress is None or self._anew:
            begin = LogPosition("", 0) if cursor is None else replace(cursor, mark="", snapshot="")
            begun = Progress("", 0, begin, 0) if progress is None else progress
            run, names = secrets.token_hex(8), begun.key_names
            given_up = cursor.mark if problem is not None and cursor is not None else ""
            # with the cursor as its end, a commit that fails between two tables is tried again in the same run
            progress = Progress(run, begun.seq, begin, 0, given_up=given_up, owner=self._owner, key_names=names)
            self._target.commit(Portion(self.destination, b"", progress, 0, True, self._reader))
        newest_ms = _plausible(progress.newest_ms, progress.last)  # an earlier version may have stored another one
        progress = replace(progress, newest_ms=newest_ms, owner=self._owner)  # it may read from other servers now
        if self._progress is None:
            tell_no_rows("pipeline.no_snapshot", self.destination, self._options, cursor)
        self._progress, self._cursor = progress, cursor
        self._state = replace(self._state, progress=progress)

    def _begins_anew(self, cursor: LogPosition | None, progress: Progress) -> bool:
        """Return whether the next commits need a new run's name, and nothing that comes is known.

        Raises DataLoss if it is unclear, and the errors of a connector.
        """
        if cursor is None or not may_be_another_binlog(cursor, progress):
            return begins_anew(cursor, progress)
        found = self._access.same_binlog(cursor, progress)
        if found is SameBinlog.UNASKED:
            return begins_anew(cursor, progress)
        if found is SameBinlog.UNCLEAR:
            error = unclear(cursor, progress, self._where)
            if self._options.fail_on_data_loss:
                raise error
            log.warning("pipeline.data_loss", destination=self.destination, error=str(error))
        elif found is SameBinlog.NO:
            log.warning(
                "pipeline.binlog_began_again",
                destination=self.destination,
                cursor=str(cursor),
                ended=str(progress.last),
            )
        return found is not SameBinlog.YES

    def _intake_of(self, connector: FlowClient) -> Intake:
        """Return the intake of the newest connection, on which everything unacknowledged is delivered again."""
        progress = self._progress
        assert progress is not None  # the judge ran on this connection
        if self._intake is None or connector.connection != self._connection:
            self._connection = connector.connection
            self._batch_id = 0
            self._intake = Intake(self._options.segment_bytes)
            self._intake.connected(server_of(self._cursor), self._committed(progress))
            self._state = replace(self._state, waiting="")
            log.info("pipeline.active", destination=self.destination, node=connector.node, position=str(progress.last))
            self._works_told = False
        return self._intake

    def _committed(self, progress: Progress) -> Committed | None:
        """Return what recognises the entries that the target has; None if it has none of those that come."""
        if self._anew or not progress.seq:
            return None
        digests = frozenset(self._digests.of(progress))
        last, whole, sources = progress.last, progress.whole, progress.sources
        return Committed(last, progress.newest_ms, digests, self._cursor, whole=whole, sources=sources)

    def _add(self, intake: Intake, message: Message) -> None:
        if self._batch_id and message.id != self._batch_id + 1:
            raise ConnectionLost(
                f"{self._where}: batch {message.id} came after batch {self._batch_id}: another connection with this"
                " client id gets changes too, so this one begins again"
            )
        self._batch_id = message.id
        intake.add(message.id, message.walk())
        if not self._state.lag_s > 0:
            self._newest_ms = self._newest_ms or time.time_ns() // 1_000_000
            self._state = replace(self._state, lag_s=1.0)

    def _is_full(self, intake: Intake) -> bool:
        return intake.held_bytes >= self._portion_bytes or intake.held_rows >= self._rows_most

    def _is_behind(self, intake: Intake) -> bool:
        return bool(intake.held_bytes) and time.time() - intake.newest_ms / 1000 > BEHIND_S

    def _held_s(self, intake: Intake) -> float:
        """Return how long entries wait for others, s."""
        return max(self._hold_s, HELD_BEHIND_S) if self._is_behind(intake) else self._hold_s

    @property
    def _rows_most(self) -> int:
        return self._options.max_rows or ROWS_MOST

    def _await_end(self, intake: Intake, silent_s: float) -> None:
        """Handle silence while the end of a transaction is awaited. silent_s: its length, s."""
        if silent_s > UNFINISHED_S:
            intake.quiet()
        if silent_s > OVERDUE_S:
            intake.overdue()
            place = intake.unfinished
            if place is not None:
                self._wait_for(f"the end of the transaction at {place.journal}:{place.offset}")

    def _commit(self, connector: FlowClient, intake: Intake, draft: SegmentDraft) -> None:
        assert self._progress is not None
        assert draft.last is not None
        newest_ms = _plausible(draft.newest_ms, draft.last)
        key_names = self._reader.key_names(draft.frames, self._progress.key_names)
        sources = sources_of(self._cursor)
        progress = self._progress.after(draft.last, newest_ms, whole=draft.whole, key_names=key_names, sources=sources)
        portion = Portion(
            self.destination, draft.frames, progress, sum(draft.rows.values()), draft.closed, self._reader
        )
        begun = time.monotonic()
        self._fill_again(connector, portion)
        self._digests.keep(progress, draft.digests)
        self._target.commit(portion)
        self._hold_s = min(time.monotonic() - begun, HELD_MOST_S)
        self._portion_bytes = min(self._portion_bytes * (GROWTH + 1) // GROWTH, self._options.segment_bytes)
        self._progress = progress
        self._failures = 0
        self._newest_ms = draft.newest_ms
        intake.made_durable(draft)
        state = self._state
        self._state = replace(
            state, progress=progress, commits=state.commits + 1, rows=state.rows + portion.rows, waiting=""
        )
        self._tell_works()
        self._acknowledge(connector, intake)

    def _tell_works(self) -> None:
        if not self._works_told:
            self._works_told = True
            self._works()

    def _acknowledge(self, connector: FlowClient, intake: Intake) -> None:
        assert self._progress is not None
        for batch_id in intake.acknowledged():
            connector.ack(batch_id, self._progress.mark)

    def _fill_again(self, connector: FlowClient, portion: Portion) -> None:
        """Have tables read again that got rows from elsewhere, before the commit: so the request is never lost.

        Tables that are gone are left out of the snapshot, which would fail at them.
        """
        snapshot, target = bool(self._options.snapshot), self._description.target
        tables = tables_to_read_again(portion, target, self._where, snapshot=snapshot)
        gone = tables_that_may_be_gone(portion, target, snapshot=snapshot)
        if tables or gone:
            self._access.read_again(connector.node, tables, gone)

    def _look(self, connector: FlowClient, silent_since: float) -> None:
        """Read the server's cursor again and again: another client with the same id would take rows. Raises.

        A snapshot that has failed is noticed, too.
        """
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        self._looked_at = time.monotonic()
        try:
            cursor = self._access.cursor(connector.node)
        except (CanalError, OSError):
            return  # the next look, or the next connection
        problem = judge(cursor, self._progress, self._where) if cursor is not None and cursor.mark else None
        if problem is not None:
            raise problem
        state = self._snapshot_of(cursor)
        if state is None or not has_failed(state):
            self._failed = None
        elif self._passed_failure(connector, state, silent_since):
            raise failure(self.destination, self._options.client_id, state)

    def _snapshot_of(self, cursor: LogPosition | None) -> SnapshotState | None:
        """Return the last snapshot of the client that has this cursor, and note how far it is."""
        state = snapshot_of(cursor)
        left = state is not None and state.phase in (SnapshotPhase.RUNNING, SnapshotPhase.PAUSED)
        self._state = replace(self._state, snapshot=_how_far(state) if state is not None and left else "")
        return state

    def _passed_failure(self, connector: FlowClient, state: SnapshotState, silent_since: float) -> bool:
        """Return whether the target has everything up to the end that the binlog had when a failure was noticed.

        A statement that drops or renames the table at which the snapshot has failed may come before that, and then the
        pipeline leaves the table out. A pipeline that did not ask for existing rows itself only logs the failure.

        connector: of the flow.
        state: of the snapshot that has failed.
        silent_since: monotonic time of the last batch.
        """
        try:
            if self._failed is None or self._failed[0] != state.id:
                self._failed = (state.id, self._access.end() if self._options.snapshot else None)
                log.warning("pipeline.snapshot_failed", destination=self.destination, error=state.error)
                return False
            return bool(self._options.snapshot) and self._has_all_before(connector, self._failed[1], silent_since)
        except PositionLost:
            self._failed = None  # the source is another server now
        except (CanalError, OSError):
            pass  # the next look, or the next connection
        return False

    def _has_all_before(self, connector: FlowClient, end: LogPosition | None, silent_since: float) -> bool:
        """Return whether the target has everything up to an end of the binlog. None: silence counts."""
        assert self._progress is not None
        last = self._progress.last
        if end is None or end.part or not last.journal:
            return (time.monotonic() - silent_since) * 1000 >= self._options.quiet_ms
        return not self._access.changes_between(connector.node, last, end)

    def _asks_for_the_end(self) -> bool:
        """Return whether it is time to ask, which takes a connection."""
        if time.monotonic() < self._ask_end_at:
            return False
        self._ask_end_at = time.monotonic() + ASK_END_S
        return True

    def _reached_end(self, connector: FlowClient, silent_since: float) -> bool:
        """Return whether the target has everything up to the end. Called in silence. Raises SnapshotRefused."""
        cursor = self._access.cursor(connector.node) if self._options.snapshot else None
        state = self._snapshot_of(cursor)
        if state is not None and has_failed(state):
            if self._passed_failure(connector, state, silent_since):
                raise failure(self.destination, self._options.client_id, state)
            return False
        if state is not None and state.active:
            return False
        return self._has_all_before(connector, self._end, silent_since)

    def _caught_up(self) -> None:
        self._newest_ms = 0
        self._state = replace(self._state, lag_s=0.0, waiting="")
        self._tell_works()

    def _wait_for(self, what: str, *, standing_by: bool = False) -> None:
        what = excerpt.message(what)
        if what != self._state.waiting:
            log.info("pipeline.waiting", destination=self.destination, waits_for=what)
        self._state = replace(self._state, waiting=what, standing_by=standing_by)


def _how_far(state: SnapshotState) -> str:
    """Return for people how far a snapshot is that is not at its end."""
    total = f" of about {state.total:,}" if state.total else ""
    paused = ", paused" if state.phase is SnapshotPhase.PAUSED else ""
    return f"{state.id} has read {state.rows:,}{total} rows{paused}"


def _plausible(newest_ms: int, last: LogPosition) -> int:
    """Return a newest time that tells entries after a reset of the binary logs from those that come again.

    Only times do that if the source's server is unknown, and one SET TIMESTAMP must not end it. Then rows from the
    future can come twice.

    newest_ms: newest time of entries.
    last: the last one's position.
    """
    return newest_ms if last.server else min(newest_ms, time.time_ns() // 1_000_000 + AHEAD_MS)
