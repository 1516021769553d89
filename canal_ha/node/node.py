"""Node: the ports, the cluster and the configuration directory around what is hosted. Reactor thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred

from canal_ha import logs
from canal_ha.accounts.account import Account
from canal_ha.accounts.parse import of_properties
from canal_ha.admin.address_file import AddressFile
from canal_ha.admin.document import NodeFacts, OwnStatus
from canal_ha.admin.placements import Placements
from canal_ha.alarms.delivery import AlarmDelivery
from canal_ha.alarms.handlers import read_handlers
from canal_ha.alarms.notice import Subject
from canal_ha.cluster.cluster import EVERY_ADDRESS, Cluster, node_address
from canal_ha.cluster.rights import NO_CREDENTIALS, open_znodes
from canal_ha.cluster.session import ZooKeeperSession
from canal_ha.config import alarms
from canal_ha.config.alarms import ConfigAlarm
from canal_ha.config.effective import of_destination, of_node
from canal_ha.config.listeners import admin_port_refusal
from canal_ha.config.model import CanalConfig, InstanceConfig
from canal_ha.decode import kernel
from canal_ha.errors import FileUnusable, LocalProtocolError, ZooKeeperUnavailable
from canal_ha.instance.embedded import Embedded
from canal_ha.instance.status import InstanceStatus
from canal_ha.meta.batch_ids import BatchIds
from canal_ha.model.alarm import NodeAlarm
from canal_ha.model.standing import Standing
from canal_ha.model.unready import Unready
from canal_ha.node import readiness
from canal_ha.node.accounts_file import AccountsFile
from canal_ha.node.admin_console import AdminConsole
from canal_ha.node.admin_port import AdminPort
from canal_ha.node.client_certificates import ClientCertificates
from canal_ha.node.descriptors import raise_limit
from canal_ha.node.destination_files import NodeFiles
from canal_ha.node.hosting import Hosting
from canal_ha.node.lasting import LOGS, NO_RIGHTS
from canal_ha.node.lone_placements import LonePlacements
from canal_ha.node.operator_token import write_token
from canal_ha.node.pause_file import is_paused
from canal_ha.node.processor_wait import ProcessorWait
from canal_ha.node.scanning import Scan
from canal_ha.node.together import together
from canal_ha.node.told_alarms import ToldAlarms, subjects
from canal_ha.server import metrics
from canal_ha.server.admin_service import AdminService
from canal_ha.server.audit import OK, REFUSED, Audit
from canal_ha.server.audit_file import AuditFile
from canal_ha.server.certificates import Certificates
from canal_ha.server.entrance import Entrance
from canal_ha.server.expiry import expiry_alarms, of_ports
from canal_ha.server.heartbeat import Heartbeat
from canal_ha.server.limits import PortLimits
from canal_ha.server.probes import Probes
from canal_ha.server.service import CanalService
from canal_ha.wire.admin_session import AdminRequest
from canal_ha.zookeeper.reading import BlockingZnodes

LOG = logs.get(__name__)


class Node:
    """See the package. Implements NodeServing."""

    def __init__(self, config: CanalConfig, reactor: Any, batch_ids: BatchIds | None = None) -> None:
        """Make a node that waits for `start`.

        config: its configuration.
        reactor: Twisted's.
        batch_ids: of the process, if it runs one node after another.
        """
        self._config = config
        self._reactor = reactor
        self._audit_file = AuditFile(config.audit_file) if config.audit_file else None
        self._audit = Audit(reactor, self._audit_file.write if self._audit_file else None)
        self._audit_failing_since = 0.0
        self._accounts = AccountsFile(config, reactor, self._audit)
        self._entrance = Entrance(lambda: self._accounts.accounts, reactor, self._audit)
        self._certificates = Certificates(config.tls, self._entrance.certificate_refused) if config.tls else None
        self._certificate_alarm: tuple[ConfigAlarm, ...] = ()
        self.embedded = Embedded(
            self._demanded,
            lambda destination: destination in self._hosting.configured,
            batch_ids,
            self._user_of,
        )
        self._hosting = Hosting(config, reactor, self.embedded, self._audit)
        self._client_certificates = ClientCertificates(config.zk_access, self._hosting.configured.values, reactor)
        self._service = CanalService(
            self.embedded,
            reactor,
            host=config.ip,
            port=config.port,
            entrance=self._entrance,
            certificates=self._secured("client"),
            limits=_limits(config),
            max_frame_bytes=config.max_frame_bytes,
        )
        self._admin_port_alarm = _alarm_of_admin_port(config)
        self._admin_service = (
            self._made_admin_service() if config.admin_port > 0 and not self._admin_port_alarm else None
        )
        self._heartbeat = Heartbeat(reactor, ProcessorWait())
        self._ports: list[Any] = []  # IListeningPort
        self._status_port = 0
        self._admin: AdminPort | None = None
        self._address_file = AddressFile(config.status_address_file)
        self._cluster: Cluster | None = None
        if config.zk_servers:
            log = logs.get("canal_ha.cluster")
            session = ZooKeeperSession(
                config.zk_servers,
                timeout_ms=config.zk_session_timeout_ms,
                access=config.zk_access,
                reactor=reactor,
                log=log,
            )
            self._cluster = Cluster(config, reactor, session, self._hosting, self._status_address, log=log)
        self._console = AdminConsole(self, self._placements, self._cluster, config.log_dir)
        self._scan = Scan(config, reactor, self._hosting.configured, self.begin, self.end, self._audit, self._apply)
        handlers = read_handlers(config.alarm_file) if config.alarm_file else {}
        deliveries = [AlarmDelivery(name, handler) for name, handler in handlers.items()]
        self._told = ToldAlarms(node_address(config), reactor, self._subjects, deliveries)
        self._started = self._stopping = False

    # ---- life

    async def start(self) -> None:
        """Open the ports, then run what is configured, or join the race for it. Raises ConfigError for a taken port."""
        self._heartbeat.start()
        self._warn_of_expiry()
        if self._audit_file:
            self._audit_file.start()
        if not self._config.without_netty:
            self._service.start()
        if self._admin_service:
            self._admin_service.start()
        for alarm in self._admin_port_alarm:
            LOG.error("admin_protocol.closed", error=alarm.text)
        # questions to MySQL block a thread each: a server that hangs must not take those of the others
        self._reactor.suggestThreadPoolSize(min(20 + 8 * len(self._config.destinations), 400))
        if self._accounts.accounts.is_open and self._config.admin_http_port >= 0:
            self._entrance.operator_token = write_token(self._config.operator_token_file)
        self._open_side_ports()
        if self._cluster:
            await self._cluster.start()
            self._warn_of_open_znodes()
        await together(*(self.begin(instance) for instance in self._config.destinations))
        if self._stopping:
            return
        self._scan.start(self._config.refused)
        self._accounts.start()
        self._client_certificates.start()
        self._told.start()
        self._started = True

    async def stop(self) -> None:
        """Flush cursors, stop accepting, let go of what runs here, close the ports.

        The first flush comes before anything that a client can delay. The last one has the acknowledgements of the
        batches that were on their way. Slow replies go on leaving while the destinations are released. The handlers of
        alarms come last: a receiver that hangs delays nothing else.
        """
        self._stopping = True
        self._told.stop()
        self._scan.stop()
        self._accounts.stop()
        self._client_certificates.stop()
        if self._admin_service:
            await self._admin_service.stop()
        await self._hosting.flush()
        await self._service.end()
        closed = Deferred.fromCoroutine(self._service.stop())
        if self._cluster:
            await self._cluster.stop()
        await self._hosting.stop_all()
        await closed
        self._address_file.remove()
        if self._admin:
            await self._admin.stop()
        for port in self._ports:
            await maybeDeferred(port.stopListening)
        self._heartbeat.stop()
        self._audit.stop()
        if self._audit_file:
            self._audit_file.close()
        await self._told.close()

    def _warn_of_open_znodes(self) -> None:
        """Warn once if everybody who reaches ZooKeeper may change what the cluster keeps there."""
        log, config = logs.get("canal_ha.cluster"), self._config
        if not config.zk_access.named:
            log.warning("zookeeper.open", servers=config.zk_servers, advice=NO_CREDENTIALS)
            return

        def look() -> None:
            try:
                with BlockingZnodes(config.zk_servers, config.zk_access) as znodes:
                    if warning := open_znodes(znodes, [each.destination for each in config.destinations]):
                        log.warning("zookeeper.open_znodes", advice=warning)
            except ZooKeeperUnavailable as error:
                log.info("zookeeper.rights_not_checked", error=str(error))

        self._reactor.callInThread(look)

    @property
    def reload_certificates(self) -> Callable[[], None] | None:
        """Reads the certificates again; None without TLS."""
        return partial(self._reload, self._certificates) if self._certificates else None

    def _reload(self, certificates: Certificates) -> None:
        error = certificates.reload()
        self._certificate_alarm = (_alarm_of_certificate(error),) if error else ()
        self._warn_of_expiry()
        facts = {"change": "certificates", **({"error": error} if error else {})}
        self._audit.note("configuration", REFUSED if error else OK, details=facts)

    def _secured(self, port: str) -> Certificates | None:
        """Return the certificates if this port speaks TLS. port: client, metrics or admin."""
        return self._certificates if self._config.tls and port in self._config.tls.ports else None

    @property
    def _placements(self) -> Placements:
        return self._cluster.mover if self._cluster else LonePlacements(node_address(self._config), self._hosting)

    def _made_admin_service(self) -> AdminService:
        config, entrance = self._config, self._entrance
        if config.admin_passwd:
            (account,) = of_properties(config.admin_user, config.admin_passwd)
            entrance = entrance.beside(account)

        async def carry_out(request: AdminRequest, who: Account) -> str:
            return await self._console.carry_out(request, who)

        return AdminService(
            carry_out,
            self._reactor,
            entrance,
            host=config.ip,
            port=config.admin_port,
            login_s=config.login_timeout_s,
        )

    def _open_side_ports(self) -> None:
        config, status = self._config, self._status
        probes = Probes(self.unready, self._takes_traffic)
        if config.admin_http_port >= 0:
            facts = NodeFacts(node_address(config), kernel.BUILD, time.time())
            self._admin = AdminPort(
                config,
                self._reactor,
                OwnStatus(facts, status, self.alarms, self.unready),
                self._entrance,
                self.embedded,
                self._cluster,
                self._placements,
                NodeFiles(
                    node_address(config),
                    self._reactor,
                    self._hosting,
                    lambda: self._scan.current,
                    lambda: self._scan.alarms,
                    self._scan.hurry,
                    self._cluster.holders if self._cluster else None,
                ),
                self._secured("admin"),
                self.configuration,
                probes,
            )
            self._status_port = self._admin.start()
            self._address_file.write(self._admin.url)
        collector = metrics.CanalCollector(
            status,
            self._service.counters,
            kernel.BUILD,
            alarms=self.alarms,
            heartbeat=self._heartbeat,
            audit=self._audit_file,
            standing=self.standing,
            lost_notices=lambda: self._told.lost,
            certificate_expires=lambda: self._certificates.expires if self._certificates else None,
            taps=lambda: self._hosting.taps.figures,
        )
        metrics_port = metrics.listen(
            self._reactor,
            config.metrics_port,
            collector,
            self._entrance,
            config.metrics_bind,
            self._secured("metrics"),
            probes,
        )
        if metrics_port:
            self._ports.append(metrics_port)

    def _status(self) -> Sequence[InstanceStatus]:
        """Return the figures of every instance here, with the connections or the queue that take its rows."""
        return [
            replace(
                each,
                readers=self._service.readers(each.destination),
                queue=self._hosting.queues.status(each.destination),
            )
            for each in self.embedded.status()
        ]

    def alarms(self) -> tuple[ConfigAlarm | NodeAlarm, ...]:
        """Return what needs a person here."""
        unwritten = [
            NodeAlarm(LOGS, "", f"{path} {failure.text}", failure.since) for path, failure in logs.failures().items()
        ]
        return (
            *self._accounts.alarms,
            *self._admin_port_alarm,
            *self._scan.alarms,
            *self._about_audit(),
            *unwritten,
            *self._certificate_alarm,
            *self._about_certificates(),
            *self._about_rights(),
            *self._hosting.taps.alarms(time.time()),
            *filter(self._concerns_us, self._hosting.alarms),
        )

    def configuration(self, destination: str) -> dict[str, Any] | None:
        """Return the settings in use, of a destination or, for "", of the node; None for an unknown destination.

        A destination on standby has those with which it would run here.
        """
        current = self._scan.current
        if not destination:
            return {
                "main_file": str(self._config.main_file),
                "destinations": sorted(self._hosting.configured),
                "settings": [asdict(each) for each in of_node(self._config, current)],
            }
        config = self._hosting.configured.get(destination)
        if config is None:
            return None
        settings = [asdict(each) for each in of_destination(current, config)]
        return {"destination": destination, "settings": settings}

    def _subjects(self) -> Iterator[tuple[Subject, str]]:
        return subjects(self.alarms(), self.embedded.status(), self.unready())

    def unready(self) -> tuple[Unready, ...]:
        """Return what this node should do, and does not do now. Lazy destinations start when a client wants them."""
        if self._stopping:
            return (readiness.STOPPING,)
        if not self._started:
            return (readiness.STARTING,)
        if self._hosting.halted:
            return (readiness.HALTED,)
        if self._cluster and not self._cluster.connected:
            return (readiness.NO_ZOOKEEPER,)
        configured, running = self._hosting.configured, frozenset(self.embedded.destinations)
        wanted = [name for name, config in configured.items() if not config.lazy]
        if self._cluster:
            found = readiness.unready_in_cluster(wanted, running, self._cluster.states(), self._cluster.denials.paths)
        else:
            idle = [name for name in wanted if name not in running and not is_paused(configured[name])]
            found = readiness.unready_alone(idle, running)
        return (*found, *readiness.unready_files(self._scan.alarms))

    def _takes_traffic(self, unready: Sequence[Unready]) -> bool:
        """Whether clients may be sent here. In a cluster every destination that could run here counts."""
        able: Collection[str] = self._hosting.configured
        if not self._cluster:
            lazy = [name for name, config in self._hosting.configured.items() if config.lazy and not is_paused(config)]
            able = (*self.embedded.destinations, *lazy)
        return readiness.takes_traffic(unready, able)

    def standing(self) -> Standing:
        """Return this node's part in its cluster."""
        claims = self._hosting.claims
        states = {name: self._state_here(config) for name, config in self._hosting.configured.items()}
        if not self._cluster:
            return Standing(not self.unready(), states=states, claims=claims)
        states |= {name: state.lower() for name, (state, _) in self._cluster.states().items()}
        return Standing(not self.unready(), self._cluster.connected, self._cluster.sessions, states, claims)

    def _state_here(self, config: InstanceConfig) -> str:
        """Return what a destination does that has no race."""
        if self._hosting.runs(config.destination):
            return "running"
        if not self._cluster and is_paused(config):
            return "paused"
        return "lazy" if config.lazy and not self._hosting.halted else "stopped"

    def _concerns_us(self, alarm: NodeAlarm) -> bool:
        """Whether an alarm still counts: a destination that another node runs could be loaded there."""
        if alarm.destination not in self._hosting.configured:
            return False
        return not (self._cluster and self._cluster.states().get(alarm.destination, ("", ""))[1])

    def _about_rights(self) -> Sequence[NodeAlarm]:
        denials = self._cluster.denials if self._cluster else None
        return (NodeAlarm(NO_RIGHTS, "", denials.text, denials.since),) if denials and denials.text else ()

    def _about_certificates(self) -> Sequence[NodeAlarm]:
        known = list(self._client_certificates.known)
        if self._certificates and self._config.tls:
            known.insert(0, of_ports(self._config.tls.cert_file, self._certificates.expires))
        return expiry_alarms(known, time.time())

    def _warn_of_expiry(self) -> None:
        """Log the most urgent alarm about certificates. Status and metrics tell it when it begins later."""
        for alarm in self._about_certificates()[-1:]:
            logs.get("canal_ha.server").warning("tls.expiring", advice=alarm.text)

    def _about_audit(self) -> tuple[ConfigAlarm, ...]:
        audit = self._audit_file
        if not (audit and (audit.problem or audit.unrotated)):
            self._audit_failing_since = 0.0
            return ()
        self._audit_failing_since = self._audit_failing_since or time.time()
        text = f"{audit.unrotated}: the audit log cannot be rotated and grows"
        if audit.problem:
            text = (
                f"{audit.problem}: the audit log cannot be written; {audit.lost} lines are lost; make room, or give the"
                " file to the node's user with mode 0600"
            )
        reason = audit.problem or audit.unrotated
        return (ConfigAlarm(alarms.AUDIT, "", text, True, self._audit_failing_since, str(audit.path), reason=reason),)

    # ---- destinations come and go

    async def begin(self, config: InstanceConfig) -> None:
        """Run a destination, or join the race for it. A lazy one waits for a SUBSCRIBE."""
        self._hosting.configured[config.destination] = config
        if self._hosting.halted:
            return
        if self._cluster:
            self._join(self._cluster, config, race=not config.lazy)
        elif not config.lazy:
            await self._hosting.start_alone(config.destination)

    async def end(self, destination: str) -> None:
        """Undo `begin`, in good order. Unknown destinations are no error."""
        self._hosting.configured.pop(destination, None)
        await self._let_go(destination)

    async def _let_go(self, destination: str) -> None:
        if self._cluster:
            await self._cluster.remove(destination)
        else:
            await self._hosting.stop_alone(destination)

    def _user_of(self, destination: str, client_id: int) -> str:
        """Return who uses a client id on this node; "" if nobody does."""
        return self._service.connected(destination, client_id) or self._hosting.queues.user_of(destination, client_id)

    # ---- the node's part of canal's admin protocol

    @property
    def serving(self) -> bool:
        """See NodeServing."""
        return not (self._hosting.halted or self._stopping)

    @property
    def running(self) -> tuple[str, ...]:
        """See NodeServing."""
        return tuple(sorted(self.embedded.destinations))

    @property
    def configured(self) -> Mapping[str, InstanceConfig]:
        """See NodeServing."""
        return self._hosting.configured

    async def halt(self) -> None:
        """See NodeServing. As in `stop`, slow replies go on leaving while the destinations are released.

        What fails keeps nothing else from ending; it is raised afterwards.
        """
        self._hosting.halted = True
        LOG.warning("node.halted", by="canal's admin protocol")
        await self._hosting.flush()
        try:
            await self._service.end()
        finally:
            await together(self._service.stop(), *(self._let_go(name) for name in tuple(self.configured)))

    async def serve(self) -> None:
        """See NodeServing."""
        if self._stopping:
            raise LocalProtocolError("the node is stopping")
        if not self._config.without_netty:
            self._service.start()
        self._hosting.halted = False
        LOG.info("node.serving", by="canal's admin protocol")
        await together(*(self._begin_again(destination) for destination in tuple(self.configured)))

    async def renew(self, destination: str) -> None:
        """See NodeServing."""
        try:
            await self._let_go(destination)
        finally:
            await self._begin_again(destination)

    async def _begin_again(self, destination: str) -> None:
        """Begin a destination with the configuration of this moment: a scan may have changed or ended it meanwhile."""
        config = self.configured.get(destination)
        if config is not None:
            await self.begin(config)

    def _apply(self, config: CanalConfig) -> None:
        """Use the limits of a changed canal.properties."""
        if config.connections_max > self._config.connections_max:
            raise_limit(config.connections_max)
        self._service.set_limits(_limits(config))
        if self._admin_service:
            self._admin_service.login_s = config.login_timeout_s

    async def _demanded(self, destination: str) -> None:
        """A SUBSCRIBE named a destination that does not run here: a lazy one starts, or joins the race, now."""
        config = self._hosting.configured.get(destination)
        if config is None or not config.lazy or self._hosting.halted:
            return
        if self._cluster:
            self._join(self._cluster, config, race=True)
        else:
            await self._hosting.start_alone(destination)

    def _join(self, cluster: Cluster, config: InstanceConfig, *, race: bool) -> None:
        preferred = set(config.preferred_labels) <= set(self._config.labels)
        cluster.add(config.destination, race=race, preferred=preferred, lazy=config.lazy)

    def _status_address(self) -> str:
        """host:port of the status endpoint as other machines call it, with https:// for TLS; "" without one."""
        if not self._status_port:
            return ""
        bind = self._config.admin_http_bind
        if bind in EVERY_ADDRESS:
            bind = node_address(self._config).rpartition(":")[0]
        scheme = "https://" if self._secured("admin") else ""
        return f"{scheme}{bind}:{self._status_port}"


def _alarm_of_admin_port(config: CanalConfig) -> tuple[ConfigAlarm, ...]:
    """Return the alarm about an admin port that stays closed; an operator wants rows at night, and a reason."""
    error = admin_port_refusal(config)
    if error is None:
        return ()
    text = f"{error}; then restart the node; all else runs"
    return (ConfigAlarm(alarms.CLOSED, "", text, True, time.time(), error.file, error.line, error.key, error.reason),)


def _alarm_of_certificate(error: FileUnusable) -> ConfigAlarm:
    text = f"{error}; the ports go on with the certificate read before; correct the files, then send the node SIGHUP"
    return ConfigAlarm(alarms.CERTIFICATE, "", text, True, time.time(), error.file, reason=error.reason)


def _limits(config: CanalConfig) -> PortLimits:
    return PortLimits(
        config.login_timeout_s,
        config.connections_max,
        config.address_connections_max,
        config.ahead_bytes,
        config.reply_bytes,
    )
