"""SnapshotFeed: a dump, and beside it the threads that put the existing rows of some tables into the same stream.

While a snapshot does not run, there are no such threads, but the dump still watches the statements about its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from shlex import quote
from threading import Lock

from canal_ha.config.model import InstanceConfig, SnapshotLimits
from canal_ha.decode.filters import FieldFilter
from canal_ha.decode.privacy import Protection, privacy_of
from canal_ha.errors import CanalError
from canal_ha.instance.feed import Feed, FeedRequest, Move
from canal_ha.model.position import LogPosition
from canal_ha.model.snapshot import SnapshotState
from canal_ha.node.origin import decoding, filter_of
from canal_ha.source.snapshot.junction import Junction
from canal_ha.source.snapshot.progress import SnapshotProgress
from canal_ha.source.snapshot.reader import SnapshotReader, SnapshotRoute
from canal_ha.source.snapshot.source import RESUME
from canal_ha.source.snapshot.watch import StatementWatch

_OF_A_CLIENT = "use a client id and `canal-ha snapshot start --without-key`"  # a private read has no way


class SnapshotFeed:
    """See the module. Implements instance.Feed; its figures are those of the dump."""

    def __init__(
        self,
        config: InstanceConfig,
        request: FeedRequest,
        state: SnapshotState,
        open_dump: Callable[[FeedRequest], Feed],
        route: Callable[[], SnapshotRoute],
        *,
        failing: Callable[[CanalError, float], None],
        begins_again: Callable[[Sequence[str]], None],
        sorts: Callable[[str, Sequence[str]], None],
    ) -> None:
        """Make a feed that waits for `start`.

        config: of the destination.
        request: of the stream.
        state: of its snapshot, as the cursor has it; it is active.
        open_dump: opens the dump.
        route: says which server the snapshot reads.
        failing: called with an error of the snapshot's connection, and the seconds until it tries again.
        begins_again: called with tables that are read again from their first row.
        sorts: see SnapshotReader.
        """
        # a cursor of this server's binlog can have the GTIDs of another server that this one lacks; without GTIDs, all
        # that it lacks comes again behind the cursor
        before = request.start if config.decode.gtid_on else None
        self._junction = junction = Junction(request.accept, lambda: self._dump.decoded, before)
        decode = decoding(config, request)

        def failed(error: CanalError, retry_in_s: float) -> None:
            failing(error, retry_in_s)
            request.snapshot_failing(error, retry_in_s)

        progress = SnapshotProgress(state)
        watch = StatementWatch(progress, junction, begins_again)
        self._reader = SnapshotReader(
            progress,
            route,
            junction,
            lambda source, at, history: decode(source, at, history, at.gtid or None, None),
            kept=_kept(config, request),
            protection=_protection(config, request),
            limits=_limits(config, state),
            failing=failed,
            goes_on=request.snapshot_goes_on,
            ended=lambda ended: request.snapshot_ended(ended.text),
            begins_again=begins_again,
            sorts=sorts,
            await_taken=request.await_taken,
            go_on=partial(_go_on, config.destination, None if request.read else request.client_id),
            advice=_OF_A_CLIENT if request.read else RESUME,
            name=f"snapshot-{config.destination}-{request.client_id}",
        )

        def moved(move: Move) -> None:
            junction.moved(None if move.whole else move.before, move.after.gtid)
            request.moved(move)

        def stream_failed(error: CanalError, retry_in_s: float | None) -> None:
            if retry_in_s is None:
                self._reader.stop()  # no chunk can enter any more, and an open read costs the server
            request.failed(error, retry_in_s)

        # two threads put, so neither may delay the news that there is something to get
        self._dump = open_dump(
            replace(
                request,
                accept=junction.accept,
                room=None,
                moved=moved,
                failed=stream_failed,
                altering=watch.altering,
                busy=lambda busy: None,
            )
        )

    @property
    def received_bytes(self) -> int:
        """See Feed."""
        return self._dump.received_bytes

    @property
    def last_event_ms(self) -> int:
        """See Feed."""
        return self._dump.last_event_ms

    @property
    def idle(self) -> bool:
        """See Feed."""
        return self._dump.idle

    @property
    def shared(self) -> bool:
        """See Feed. The windows of a snapshot need a dump of their own."""
        return False

    @property
    def tap(self) -> str:
        """See Feed."""
        return ""

    @property
    def lent(self) -> bool:
        """See Feed."""
        return False

    @property
    def idle_at(self) -> float:
        """See Feed."""
        return self._dump.idle_at

    @property
    def decoded(self) -> LogPosition | None:
        """See Feed."""
        return self._dump.decoded

    def start(self) -> None:
        """See Feed."""
        self._dump.start()
        self._reader.start()

    def stop(self) -> None:
        """See Feed."""
        self._dump.stop()
        self._reader.stop()


def open_watched(
    request: FeedRequest,
    state: SnapshotState,
    open_dump: Callable[[FeedRequest], Feed],
    begins_again: Callable[[Sequence[str]], None],
) -> Feed:
    """Return a dump for a client whose snapshot does not run now, and may go on later. Arguments: see SnapshotFeed."""
    junction = Junction(request.accept, lambda: dump.decoded)

    def moved(move: Move) -> None:
        junction.moved(None, None)
        request.moved(move)

    watch = StatementWatch(SnapshotProgress(state), junction, begins_again)
    dump = open_dump(replace(request, accept=junction.accept, moved=moved, altering=watch.altering))
    return dump


def _go_on(destination: str, client_id: int | None, table: str, gone: bool) -> str:
    """Return how the snapshot of a client goes on after it has failed at a table. gone: nothing has its name.

    client_id: None for a private read, which cannot go on.
    """
    if client_id is None:
        return ""
    resume = f"canal-ha snapshot resume --destination {quote(destination)} --client-id {client_id}"
    leave_out = f"`{resume} --leave-out {quote(table)}`"
    if gone:
        return (
            f"Once a table has this name again, run `{resume}`. To read the other tables without it, run {leave_out}."
            " If the table was renamed, do that, and then add its new name with `canal-ha snapshot add`"
        )
    return f"Correct this, then run `{resume}`. To read the other tables without this one, run {leave_out}"


def _limits(config: InstanceConfig, state: SnapshotState) -> SnapshotLimits:
    """Return what the snapshot may ask of the server."""
    limits = replace(
        config.snapshot,
        connections=state.connections or config.snapshot.connections,
        rows_per_s=state.rows_per_s_most or config.snapshot.rows_per_s,
    )
    return limits.within(config.buffer_size * config.buffer_mem_unit)


def _kept(config: InstanceConfig, request: FeedRequest) -> Callable[[str, str], bool]:
    """Return a function that tells whether the feed delivers the rows of a table. It raises FilterInvalid."""
    lock = Lock()  # a filter has none, and each connection has a thread
    tables = cache(partial(filter_of, config, request))

    def kept(schema: str, table: str) -> bool:
        with lock:
            return tables().accepts(schema, table)

    return kept


def _protection(config: InstanceConfig, request: FeedRequest) -> Callable[[str, str, str], Protection]:
    """Return a function that tells how a column is kept from the client. It raises FilterInvalid."""
    fields = FieldFilter(config.decode.field_filter, config.decode.field_black_filter)
    privacy = cache(lambda: privacy_of(config.decode, request.within.privacy))

    def protection(schema: str, table: str, column: str) -> Protection:
        if not fields.keeps(schema, table, column):
            return Protection.DROP
        return privacy().columns_of(schema, table).get(column.lower(), Protection.NONE)

    return protection
