"""Where a destination's rows come from when that is a server: its master or its standby, and switching between them.

A `Generation` is one server's binlog as this destination sees it. When the server changes, by a switch or because
another one answers under its address, a new generation takes over and every dump is told to ask for its route again;
what still decodes bytes of the old server keeps the old one's table history.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping
from dataclasses import replace

from canal_ha.config.model import InstanceConfig, WhenLost
from canal_ha.decode.decoder import Decoder
from canal_ha.errors import CanalError, LocalProtocolError
from canal_ha.instance.alarms import Outlook
from canal_ha.instance.feed import Feed, FeedRequest, Move
from canal_ha.instance.status import SourceFacts
from canal_ha.model.place import Place
from canal_ha.model.position import LogPosition
from canal_ha.model.segment import Source
from canal_ha.model.tell import Tell
from canal_ha.node.origin import Origin, decoding, report
from canal_ha.source.connection.detecting import Detecting, probe
from canal_ha.source.connection.identity import replica
from canal_ha.source.connection.stop_signal import StopSignal
from canal_ha.source.connection.tables import Tables
from canal_ha.source.history.destination_history import DestinationHistory
from canal_ha.source.history.sql_store import history_store
from canal_ha.source.positions.fingerprints import Recent
from canal_ha.source.server import switch
from canal_ha.source.server.dump import Dump, DumpEvent, SourceMoved, Upstream
from canal_ha.source.server.switch import Role
from canal_ha.source.server.view import View


class Generation:
    """One server, until another one takes its place. Any thread.

    config: its master is this server; server: who answered there, "" before.
    """

    def __init__(self, config: InstanceConfig, tell: Tell, server: str = "") -> None:
        self.config = config
        self.server = server
        self.ending = StopSignal()
        self._tables = Tables(config, opening=self.ending.opened)
        self.view = View(
            config, warn=lambda text: tell("start.replaced", text=text, alarm=True), opening=self.ending.opened
        )
        self.chronicle = DestinationHistory(
            config, self._tables.fetch, history_store(config), tell, opening=self.ending.opened
        )

    @property
    def address(self) -> str:
        """host:port."""
        return f"{self.config.master.host}:{self.config.master.port}"

    def has(self, position: LogPosition) -> bool:
        """Whether a position is one of this server's, as far as that can be told."""
        if position.server and self.server:
            return position.server == self.server
        master = self.config.master
        return not position.address or (position.address, position.port) == (master.host, master.port)

    def close(self) -> None:
        """Interrupt its questions, keep its table history, let go of everything."""
        self.ending.end()
        self.view.close()
        self.chronicle.close()
        self._tables.close()


class Upstreams:
    """See the module. Implements instance.SourceView and instance.SourceSwitch. Calls may come from any thread, and
    block; `facts` does not.
    """

    def __init__(self, config: InstanceConfig, tell: Tell) -> None:
        self._config = config
        self._tell = tell
        self._role = Role.MASTER
        self._now = Generation(config, tell)
        self._changing = threading.Lock()  # one change at a time
        self._dumps: weakref.WeakSet[Dump] = weakref.WeakSet()
        self._failures = switch.Failures(config.detecting_retry_threshold)
        self._switches = 0
        self._closed = False
        self._own = StopSignal()  # connections of the detecting statement
        self._detecting: Detecting | None = None
        self._slave_id_holder: dict[int, int] = {}  # the configured slaveId serves the first stream that opens

    def origin(self) -> Origin:
        """For an instance."""
        return Origin(self, self.open_feed, self.close, self._keep_house, self._outlook, self)

    # ---- SourceView

    @property
    def version(self) -> str:
        """Of the server, "" until it was asked."""
        return self._now.view.version

    def newest(self) -> LogPosition:
        """See View."""
        return self._now.view.newest()

    def start(self, kept: LogPosition | None) -> LogPosition:
        """See View. A kept start of the other server is returned: the stream finds its place."""
        now = self._now
        master = now.config.master
        configured = bool(master.journal or master.timestamp_ms or (master.gtid and now.config.decode.gtid_on))
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

    def begin(self, cursors: tuple[LogPosition, ...]) -> None:
        """The instance starts with these cursors: choose the server, and begin to look whether it lives."""
        config = self._config
        role = switch.first(config, cursors)
        target = switch.server(config, role)
        if role is not self._role and target is not None:
            self._now.close()
            self._role, self._now = role, Generation(replace(config, master=target), self._tell)
        if config.detecting_enable and config.detecting_sql.strip():
            self._detecting = Detecting(
                lambda: self._now.config, self._answered, self._failed, opening=self._own.opened
            )
            self._detecting.start()

    def facts(self) -> SourceFacts:
        """For the status."""
        now = self._now
        return SourceFacts(
            address=now.address,
            role=self._role.value,
            server=now.server,
            switches=self._switches,
            detecting_failures=self._failures.count,
        )

    def switch(self, to: str, reason: str, *, statement: bool = False) -> str:
        """Read from the other server from now on; returns its address. to: master, standby, or other for whichever is
        not read now; statement: it has to answer the detecting one.

        Raises LocalProtocolError where there is nothing to switch to; SourceUnavailable, SourceRefused, with nothing
        changed, when the other server cannot be read.
        """
        with self._changing:
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
            probe(config, statement=statement, opening=self._own.opened)
            new = self._replace(old, config)
            self._role = role
            self._switches += 1
            self._failures.succeeded()
        self._tell("source.switched", old=old.address, new=new.address, role=role.value, reason=reason, alarm=True)
        return new.address

    def remember(self, trail: str) -> Recent:
        """See SourceSwitch."""
        return Recent(trail)

    # ---- feeds

    def open_feed(self, request: FeedRequest) -> Feed:
        """A dump of whatever server is the one to read from."""
        config = self._config
        decode = decoding(config, request)

        def route() -> Upstream:
            now = self._now
            return Upstream(now.config, lambda source, at: decoder(now, source, at), lambda met: self._met(now, met))

        def decoder(now: Generation, source: Source, start: LogPosition) -> Decoder:
            tables_then = now.chronicle.view(start, dump)
            return decode(source, start, tables_then, start.gtid)

        first_stream = not request.read and self._slave_id_holder.setdefault(0, request.client_id) == request.client_id
        dump = Dump(
            config,
            config.master,
            replica=replica(
                config.destination,
                request.client_id,
                server_id=config.server_id if first_stream else 0,
                read=request.read,
            ),
            start=request.start,
            accept=request.accept,
            busy=request.busy,
            report=lambda event: _report(request, event),
            make_decoder=lambda source, at: decoder(self._now, source, at),
            route=route,
            may_move=not request.read,
        )
        self._dumps.add(dump)
        return dump

    def close(self) -> None:
        """The instance stops."""
        self._closed = True
        self._own.end()
        if self._detecting:
            self._detecting.stop()
        with self._changing:
            self._now.close()

    # ---- inside

    def _met(self, now: Generation, server: str) -> bool:
        """A dump was answered by this server. False when its generation is not the one of that server (any more)."""
        with self._changing:
            if now is not self._now:
                return False
            if now.server in ("", server):
                now.server = server
                return True
            new = self._replace(now, now.config)
            new.server = server
            self._switches += 1
        self._tell("source.answered_by_another", address=now.address, old=now.server, new=server, alarm=True)
        return False

    def _replace(self, old: Generation, config: InstanceConfig) -> Generation:
        """Put a new generation in the place of this one; `_changing` is held."""
        if self._closed:
            raise LocalProtocolError(f"{self._config.destination} stops")
        old.close()  # first: both keep their table history in one place
        self._now = Generation(config, self._tell)
        for dump in tuple(self._dumps):
            dump.reroute()
        return self._now

    def _answered(self) -> None:
        if self._failures.succeeded():
            self._tell("source.detected_again", address=self._now.address)

    def _failed(self, error: CanalError) -> None:
        if self._failures.count == 0:
            self._tell("source.detecting_failed", address=self._now.address, error=str(error))
        if not self._failures.failed():
            return
        config = self._config
        old = self._now.address
        if not config.detecting_heartbeat_ha:
            advice = "canal.instance.detecting.heartbeatHaEnable is off"
            self._tell("source.lost", address=old, error=str(error), action=f"none: {advice}", alarm=True)
            return
        if config.standby is None:
            action = f"no standby config, just do nothing, will continue try:{old}"
            self._tell("source.lost", address=old, error=str(error), action=action, alarm=True)
            return
        try:
            self.switch("other", f"it failed: {error}", statement=True)
        except CanalError as refused:
            action = f"none: the other server cannot be read either: {refused}"
            self._tell("source.lost", address=old, error=str(error), action=action, alarm=True)

    def _keep_house(self, oldest: LogPosition | None) -> None:
        now = self._now
        now.chronicle.look(oldest if oldest is not None and now.has(oldest) else None)

    def _outlook(self, cursors: Mapping[int, LogPosition]) -> Mapping[int, Outlook]:
        now = self._now
        own = {client_id: cursor for client_id, cursor in cursors.items() if now.has(cursor)}
        return {client_id: Outlook(*found) for client_id, found in now.view.kept_for(own).items()}


def _report(request: FeedRequest, event: DumpEvent) -> None:
    """Hand on what a dump tells."""
    if not isinstance(event, SourceMoved):
        report(request, event)
        return
    found = event.found
    facts = {"to": event.address, "how": found.how, "not_there": len(found.expected), "may_come_again": found.again}
    if found.reason:
        facts["reason"] = found.reason
    whole = not (found.reason or found.expected or found.lags)
    request.moved(Move(event.before, found.at, whole, facts))


def server(config: InstanceConfig, tell: Tell) -> Origin:
    """A MySQL or MariaDB server, and its standby where there is one."""
    return Upstreams(config, tell).origin()
