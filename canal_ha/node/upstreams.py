"""Upstreams: a destination whose rows come from a server, its master or its standby, and the switch between them.

A `Generation` is one server's binlog as this destination sees it. The server changes by a switch, or because another
server answers under its address. A new generation takes over then, and every dump asks for its route again. A dump that
still decodes bytes of the old server keeps the table history of the old generation.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from canal_ha.config.model import InstanceConfig, WhenLost
from canal_ha.decode.decoder import Decoder
from canal_ha.decode.history.announced import Altering, AnnouncedHistory
from canal_ha.errors import CanalError, LocalProtocolError, StandbyBehind
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest, Move
from canal_ha.instance.origin import KeepServers
from canal_ha.instance.snapshots import check_inserts
from canal_ha.instance.status import SourceFacts
from canal_ha.model.excerpt import some
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.privacy import Within
from canal_ha.model.segment import Source
from canal_ha.model.snapshot import SnapshotState
from canal_ha.model.tell import Tell
from canal_ha.node.origin import ToDecode, decoding, kept_parts, report
from canal_ha.node.snapshot_feed import SnapshotFeed, open_watched
from canal_ha.source.connection.detecting import Detecting, probe
from canal_ha.source.connection.identity import replica, shared_replica
from canal_ha.source.connection.idle_sessions import YOUNG_S
from canal_ha.source.connection.known_only import NotKnown, known_only
from canal_ha.source.connection.reactor_reads import ReactorReads
from canal_ha.source.connection.recent_answers import RECENT_S
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.connection.tables import Tables
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.history.stores import HistoryClaim, history_store
from canal_ha.source.positions import locate
from canal_ha.source.positions.fingerprints import Recent
from canal_ha.source.positions.locate import BinlogEnd
from canal_ha.source.positions.prepared import PreparedReader, server_journals
from canal_ha.source.server import switch
from canal_ha.source.server.dump import Dump, DumpEvent, DumpFailed, Sharing, SourceMoved, Upstream
from canal_ha.source.server.shared import SharedDump, SharedDumps
from canal_ha.source.server.standing import check_standing
from canal_ha.source.server.switch import Role
from canal_ha.source.server.tap import Taps
from canal_ha.source.server.view import View
from canal_ha.source.snapshot.reader import SnapshotRoute

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kind:
    """What streams have in common if they decode the same entries. Fields: see FeedRequest.

    client_id: of one of them.
    """

    filter: str
    exact: bool
    within: Within
    client_id: int = field(compare=False)
    _hash: int = field(init=False, compare=False, repr=False)  # a dump looks its kind up for each piece

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.filter, self.exact, self.within)))

    def __hash__(self) -> int:
        return self._hash


class Generation:
    """One server, until another one takes its place. Any thread.

    config: of the destination; its master is this server.
    claim: of this node to the destination; None without ZooKeeper.
    server: which server answered there; "" before the first answer.
    older_s: see SourceSessions.

    newest: where its binlog ended when it was asked last; None before that.
    tables: its definitions.
    """

    def __init__(
        self,
        config: InstanceConfig,
        tell: Tell,
        claim: HistoryClaim | None,
        server: str = "",
        older_s: float = 0.0,
    ) -> None:
        self.config = config
        self.server = server
        self.newest: LogPosition | None = None
        self.stop_signal = StopSignal()
        self.tables = Tables(config, stop_signal=self.stop_signal, older_s=older_s)
        self.view = View(
            config,
            warn=lambda text: tell("start.replaced", text=text, alarm=True),
            stop_signal=self.stop_signal,
            older_s=older_s,
        )
        self.history = DestinationHistory(
            config, self.tables.fetch, history_store(config, claim), tell, stop_signal=self.stop_signal, older_s=older_s
        )

    @property
    def address(self) -> str:
        """host:port."""
        return self.config.master.address

    def has(self, position: LogPosition) -> bool:
        """Whether a position is one of this server's binlog, as far as the position tells."""
        if position.server and self.server:
            return position.server == self.server
        master = self.config.master
        return not position.address or (position.address, position.port) == (master.host, master.port)

    def close(self) -> None:
        """Interrupt its questions, save its table history and close its connections."""
        self.stop_signal.end()
        self.view.close()
        self.history.close()
        self.tables.close()


class Upstreams:
    """See the module. Implements instance.Origin, instance.SourceView and instance.SourceSwitch.

    config: of the destination.
    tell: reports events.
    claim: of this node to the destination; None without ZooKeeper.
    reads: the reactor's reads; None: dumps read on threads of their own alone.
    taps: of the node; None: each dump reads from its own connection alone.

    Calls may come from any thread, and block; `facts` does not.
    """

    def __init__(
        self,
        config: InstanceConfig,
        tell: Tell,
        claim: HistoryClaim | None = None,
        reads: ReactorReads | None = None,
        taps: Taps | None = None,
    ) -> None:
        self._config = config
        self._tell = tell
        self._claim = claim
        self._reads = reads if config.stream_reactor else None
        self._taps = taps if config.stream_shared and self._reads else None  # the reactor reads them
        self._role = Role.MASTER
        self._keep: KeepServers | None = None  # None before `begin`
        self._now = Generation(config, tell, claim, older_s=YOUNG_S)
        self._changing = threading.Lock()  # one change at a time
        self._dumps: weakref.WeakSet[Dump] = weakref.WeakSet()
        self._dumps_lock = threading.Lock()  # apart from `_changing`, which is held while a server is asked
        self._failures = switch.Failures(config.detecting_retry_threshold)
        self._standby_behind = False  # whether it was told that the standby was not taken
        self._switches = 0
        self._closed = False
        self._own = StopSignal()  # ends connections of the detecting statement
        self._detecting: Detecting | None = None
        self._shared = SharedDumps(self._shared_dump)
        self._slave_id_holder: dict[int, int] = {}  # the first stream that opens uses the configured slaveId

    # ---- Origin

    @property
    def view(self) -> Upstreams:
        """Answers questions about the server that is read now."""
        return self

    @property
    def source_switch(self) -> Upstreams:
        """Changes the server."""
        return self

    def tables(self) -> Sequence[tuple[str, str]]:
        """See Origin."""
        return self._now.view.tables()

    def definition(self, schema: str, table: str) -> str | None:
        """See Origin."""
        return self._now.tables.fetch(schema, table)

    def keep_house(self, cursors: Collection[LogPosition] | None, *, at_once: bool = False) -> bool:
        """See Origin. A cursor of another server needs nothing of this one's history."""
        now = self._now
        if at_once:
            return now.history.goes_on(now.view.end(RECENT_S))
        now.history.look(None if cursors is None else [cursor for cursor in cursors if now.has(cursor)])
        return True

    def outlook(self, cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        """See Origin. A cursor of another server has no outlook."""
        now = self._now
        own = {client_id: cursor for client_id, cursor in cursors.items() if now.has(cursor)}
        return {client_id: Outlook(*found) for client_id, found in now.view.kept_for(own, RECENT_S).items()}

    def at_once(self, call: Callable[[], T]) -> T | None:
        """See Origin."""
        try:
            with known_only():
                return call()
        except NotKnown:
            return None

    def purged(self, at: LogPosition) -> bool:
        """Whether the server has purged the journal of a position. One of another server counts as there."""
        now = self._now
        return now.has(at) and now.view.kept_for({0: at})[0][0] == 0.0

    def interrupt(self) -> None:
        """See Origin."""
        self._closed = True
        self._shared.end(close=True)
        self._own.end()
        self._now.stop_signal.end()

    def close(self) -> None:
        """See Origin."""
        self.interrupt()
        with self._changing:
            if self._detecting:
                self._detecting.stop()
            self._now.close()

    # ---- SourceView

    @property
    def version(self) -> str:
        """The server's version; "" until the first question."""
        return self._now.view.version

    def newest(self) -> LogPosition:
        """See View. The first look at a server asks for itself; later ones may get an answer of the last second."""
        now = self._now
        now.newest = now.view.end(None if now.newest is None else RECENT_S).newest
        return now.newest

    def start(self, kept: LogPosition | None) -> LogPosition:
        """See View. A kept start may be of the other server: the stream finds its place in this one."""
        now = self._now
        configured = locate.is_configured(now.config, now.config.master)
        if kept is not None and not configured and not now.has(kept):
            return kept
        return now.view.start(kept)

    def find(self, place: Place) -> LogPosition:
        """See View."""
        return self._now.view.find(place)

    def instead(self, cursor: LogPosition, when: WhenLost) -> LogPosition:
        """See View."""
        return self._now.view.instead(cursor, when)

    # ---- SourceSwitch

    def begin(self, cursors: tuple[LogPosition, ...], chosen: tuple[str, ...], keep: KeepServers) -> None:
        """See SourceSwitch. Start the detecting statement.

        A choice that the configuration has overruled is replaced. Raises MetaWriteFailed, Fenced if it cannot be
        written, and LocalProtocolError after `close`: an instance that is given up does not wait for this call.
        """
        config = self._config
        with self._changing:
            self._check_open()
            self._keep = keep
            role = switch.first(config, cursors, chosen[0] if chosen else "")
            target = switch.server(config, role)
            if role is not self._role and target is not None:
                self._now.close()
                self._role, self._now = role, Generation(replace(config, master=target), self._tell, self._claim)
            if any(chosen) and chosen != (self._now.address,):
                keep((self._now.address,))  # else the old choice would count if its server were configured again
            if config.detecting_enable and config.detecting_sql.strip():
                self._detecting = Detecting(
                    lambda: self._now.config, self._answered, self._failed, opening=self._own.opened
                )
                self._detecting.start()

    def facts(self) -> SourceFacts:
        """Return the facts for the status."""
        now = self._now
        return SourceFacts(
            address=now.address,
            role=self._role.value,
            server=now.server,
            switches=self._switches,
            detecting_failures=self._failures.count,
        )

    def switch(self, to: str, reason: str) -> str:
        """Read from the other server from now on, and return its address.

        to: master, standby, or other: the one that is not read now.
        reason: for the log.

        The choice is durable before anything changes, so that the next owner of the destination reads from there, too.
        If the destination stops on this node when it is durable, only the next owner does.

        Raises LocalProtocolError without a server to switch to, and if the destination is stopping. Raises
        SourceUnavailable, SourceRefused when the other server cannot be read, and Fenced when this node does not own
        the destination any more. Nothing has changed then. Raises MetaWriteFailed when the choice cannot be written:
        this node goes on with the old server, but a write without an answer can still be done. The next flush takes it
        back; if there is none, the next owner begins with the new server.
        """
        return self._switch(to, reason)

    def _switch(self, to: str, reason: str, failed: Generation | None = None) -> str:
        """See switch.

        failed: the generation whose detecting statement failed; None when a person asks. If the destination has left
        that generation already, nothing happens; else the other server has to answer the statement first, and to have
        what this generation had. Raises StandbyBehind if it lacks some of it.
        """
        with self._changing:
            if failed is not None and failed is not self._now:
                return self._now.address
            role = self._role.other if to == "other" else Role(to)
            target = switch.server(self._config, role)
            if target is None:
                raise LocalProtocolError(
                    f"{self._config.destination} has no standby: set canal.instance.standby.address"
                )
            old = self._now
            if role is self._role or target == old.config.master:
                raise LocalProtocolError(
                    f"{self._config.destination} reads from its {role.value} {old.address} already"
                )
            config = replace(self._config, master=target)
            probe(config, statement=failed is not None, opening=self._own.opened)
            unknown = (
                check_standing(config, old.newest, self._read(old), self._own.opened) if failed is not None else ""
            )
            self._check_open()
            if self._keep:
                self._keep((target.address,))
            if not self._closed:  # else the choice is for the next owner alone
                self._replace(old, config)
                self._role = role
                self._switches += 1
                self._failures.succeeded()
                self._standby_behind = False
        if unknown:
            self._tell("source.standby_unchecked", address=target.address, error=unknown, alarm=True)
        self._tell("source.switched", old=old.address, new=target.address, role=role.value, reason=reason, alarm=True)
        return target.address

    def remember(self, cursor: LogPosition) -> Recent:
        """See SourceSwitch."""
        return Recent(cursor.trail, cursor.origins)

    # ---- feeds

    def open_feed(self, request: FeedRequest) -> Feed:
        """Return a dump of the server that is read now, not started, with the snapshot of the client. It follows every
        switch. A snapshot that is paused or has failed is watched.
        """
        try:
            snapshot = SnapshotState.from_text(request.start.snapshot)
        except ValueError as error:
            self._tell("snapshot.unreadable", client_id=request.client_id, error=str(error), alarm=True)
            snapshot = None
        if snapshot is None or snapshot.over:
            return self._open_dump(request)

        def begins_again(tables: Sequence[str]) -> None:
            self._tell("snapshot.begins_again", client_id=request.client_id, tables=some(tables))

        if not snapshot.active:
            return open_watched(request, snapshot, self._open_dump, begins_again)

        def route() -> SnapshotRoute:
            check_inserts(self._config)
            now = self._now
            return SnapshotRoute(now.config, now.tables.fetch)

        return SnapshotFeed(
            self._config,
            request,
            snapshot,
            self._open_dump,
            route,
            failing=lambda error, retry_in_s: self._tell(
                "snapshot.failing", client_id=request.client_id, error=str(error), retry_in_s=retry_in_s
            ),
            begins_again=begins_again,
            sorts=lambda table, key: self._tell(
                "snapshot.sorts",
                client_id=request.client_id,
                table=table,
                key=some(key),
                reason="no index orders the rows as they are compared, so each SELECT sorts all that are left",
                action="it may take long; a primary key without ENUM and SET columns, on a visible index, is faster",
                alarm=True,
            ),
        )

    # ---- inside

    def _open_dump(self, request: FeedRequest) -> Dump:
        kind = _Kind(request.filter, request.exact, request.within, request.client_id)
        shares = request.room and not request.altering and self._config.stream_shared
        first_stream = not request.read and self._slave_id_holder.setdefault(0, request.client_id) == request.client_id
        dump = self._dump(
            request,
            replica=replica(
                self._config.destination,
                request.client_id,
                server_id=self._config.server_id if first_stream else 0,
                read=request.read,
            ),
            altering=request.altering,
            start=request.start,
            accept=request.accept,
            await_room=request.await_room,
            busy=request.busy,
            report=lambda event: _report(request, event),
            may_move=not request.read,
            room=request.room,
            sharing=Sharing(self._shared, kind) if shares else None,
        )
        with self._dumps_lock:
            self._dumps.add(dump)
        return dump

    def _shared_dump(self, kind: _Kind, start: LogPosition, shared: SharedDump) -> Dump:
        """Return a dump for all streams of a kind. Streams read for themselves again when it fails."""
        return self._dump(
            kind,
            replica=shared_replica(self._config.destination, uuid4().hex[:8]),
            start=start,
            accept=shared.segment,
            report=lambda event: shared.end() if isinstance(event, DumpFailed) else None,
            may_move=False,
            lead=shared,
        )

    def _dump(self, wanted: ToDecode, altering: Altering | None = None, **options: Any) -> Dump:
        """Return a dump that decodes what is wanted. altering: see FeedRequest. options: of Dump."""
        config = self._config
        decode = decoding(config, wanted)

        def route() -> Upstream:
            now = self._now

            def make_decoder(
                source: Source, start: LogPosition, *, searching: bool = False, end: BinlogEnd | None = None
            ) -> Decoder:
                journals = partial(server_journals, now.config, now.config.master, dump.opened)
                prepared = kept_parts(now.config, PreparedReader(now.address, journals), start)
                known = now.history.view_at_once(start, end, dump) if end else None
                history = known or now.history.view(start, dump, searching=searching, sender=source.server)
                if altering and not searching:
                    history = AnnouncedHistory(history, altering)
                return decode(source, start, history, start.gtid, prepared)

            return Upstream(now.config, make_decoder, lambda identity: self._met(now, identity), now.history.joined)

        dump = Dump(config, route, reads=self._reads, taps=self._taps, **options)
        return dump

    def _met(self, now: Generation, server: str) -> bool:
        """This server answered a dump. Return False if the generation of the dump is not one of this server."""
        with self._changing:
            if now is not self._now:
                return False
            if now.server in ("", server):
                now.server = server
                return True
            self._check_open()
            new = self._replace(now, now.config)
            new.server = server
            self._switches += 1
        self._tell("source.answered_by_another", address=now.address, old=now.server, new=server, alarm=True)
        return False

    def _replace(self, old: Generation, config: InstanceConfig) -> Generation:
        """Put a new generation in the place of this one. The caller holds `_changing`."""
        old.close()  # first, because both keep their table history in one place
        self._now = Generation(config, self._tell, self._claim)
        with self._dumps_lock:
            dumps = tuple(self._dumps)
        self._shared.end()
        for dump in dumps:
            dump.reroute()
        return self._now

    def _read(self, old: Generation) -> list[LogPosition]:
        """Return the positions up to which streams have read a server's binlog."""
        with self._dumps_lock:
            read = [dump.decoded for dump in self._dumps]
        return [at for at in read if at is not None and at.journal and old.has(at)]

    def _check_open(self) -> None:
        if self._closed:
            raise LocalProtocolError(f"{self._config.destination} is stopping")

    def _answered(self) -> None:
        if self._failures.succeeded() or self._standby_behind:
            self._standby_behind = False
            self._tell("source.detected_again", address=self._now.address)

    def _failed(self, config: InstanceConfig, error: CanalError) -> None:
        now = self._now
        if self._closed or now.config is not config:
            return  # the end or a switch interrupted the statement
        if self._failures.count == 0:
            self._tell("source.detecting_failed", address=now.address, error=str(error))
        if not self._failures.failed():
            return
        config, old = self._config, now.address
        if not config.detecting_heartbeat_ha:
            advice = "canal.instance.detecting.heartbeatHaEnable is off"
            self._tell("source.lost", address=old, error=str(error), action=f"none: {advice}", alarm=True)
            return
        if config.standby is None:
            action = f"no standby config, just do nothing, will continue try:{old}"
            self._tell("source.lost", address=old, error=str(error), action=action, alarm=True)
            return
        try:
            # if an operator has just switched, a second switch would lead back to the failed server
            self._switch("other", f"it failed: {error}", failed=now)
        except StandbyBehind as behind:
            if not self._standby_behind:
                self._standby_behind = True
                self._tell("source.standby_behind", address=old, error=str(behind), alarm=True)
        except CanalError as refused:
            action = f"none: the other server cannot be read either: {refused}"
            self._tell("source.lost", address=old, error=str(error), action=action, alarm=True)


def _report(request: FeedRequest, event: DumpEvent) -> None:
    """Pass an event of a dump on to whoever asked for the feed."""
    if not isinstance(event, SourceMoved):
        report(request, event)
        return
    found = event.found
    again = "unknown" if found.again is None else found.again
    facts = {"to": event.address, "how": found.how, "not_there": found.missing, "may_come_again": again}
    if found.reason:
        facts["reason"] = found.reason
    request.moved(Move(event.before, found.at, found.whole, facts, again=found.repeats))
