"""`canal-ha check`: checks a configuration and the servers that it names. A node may be running or not."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from socket import AF_INET, AF_INET6, SO_REUSEADDR, SOL_SOCKET, socket

import click

from canal_ha.alarms.handlers import read_handlers
from canal_ha.cli.daemons import in_daemons
from canal_ha.cli.server import load_checked
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.cluster.rights import NO_CREDENTIALS, open_znodes
from canal_ha.config import keys
from canal_ha.config.listeners import admin_port_refusal, check_listeners
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig, QueueConfig
from canal_ha.config.tls import unverified
from canal_ha.errors import CanalError, ConfigError
from canal_ha.meta.offline import CursorFiles
from canal_ha.model.excerpt import message, some
from canal_ha.model.position import LogPosition
from canal_ha.source import checkup
from canal_ha.source.checkup import Finding, Verdict
from canal_ha.source.group import as_read, elsewhere, parts
from canal_ha.zookeeper.reading import BlockingZnodes

AT_ONCE = 8  # destinations that are checked at the same time


@dataclass(frozen=True, slots=True)
class StoredCursors:
    """What is stored of a destination.

    cursors: by client id.
    servers: the servers that it was switched to last; see ServersChosen.
    """

    cursors: Mapping[int, LogPosition] = field(default_factory=dict)
    servers: tuple[str, ...] = ()


@click.command()
@click.option("--conf", type=click.Path(path_type=Path), default=Path("conf"), show_default=True, metavar="DIR")
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key, as in `canal-ha server`.")
@click.option("--strict", is_flag=True, help="Fail also if there is a warning, such as an unknown key.")
def command(conf: Path, sets: tuple[str, ...], strict: bool) -> None:
    """Check everything a node needs, one line each with what to do.

    Exit codes: 0 everything is well; 1 a check fails, or with --strict warns; 2 canal.properties cannot be used.
    """
    config = load_checked(conf, sets)
    failed = False
    for scope, finding in findings(config):
        failed |= finding.verdict is Verdict.FAILED or (strict and finding.verdict is Verdict.WARNING)
        click.echo(f"{finding.verdict.value:8} {scope:14} {finding.what:14} {message(finding.text)}")
    sys.exit(1 if failed else 0)


def findings(config: CanalConfig) -> Iterator[tuple[str, Finding]]:
    """Yield the findings in the order of the checks, each with its destination or `node`."""
    for warning in config.warnings:
        yield "node", Finding(Verdict.WARNING, "configuration", warning)
    if warning := unverified(config.destinations):
        yield "node", Finding(Verdict.WARNING, "TLS", warning)
    for finding in _ports(config):
        yield "node", finding
    for finding in client_certificates_ending(config):
        yield "node", finding
    for refused in config.refused:
        yield refused.destination, Finding(Verdict.FAILED, "configuration", str(refused.error))
    if not config.destinations and not config.refused:
        yield "node", Finding(Verdict.WARNING, "configuration", f"{config.conf_dir} configures no destination")
    kept: dict[str, StoredCursors] = {}
    if config.zk_servers:
        for finding in _zookeeper(config, kept):
            yield "node", finding
    asked = [partial(_of_one, each, kept, bool(config.zk_servers)) for each in config.destinations]
    for instance, found in zip(config.destinations, in_daemons(asked, AT_ONCE), strict=True):
        for finding in found:
            yield instance.destination, finding


def _of_one(instance: InstanceConfig, kept: Mapping[str, StoredCursors], clustered: bool) -> Sequence[Finding]:
    """Check a destination. Blocks for half a minute if its server is connected and does not answer."""
    found = [*_destination(instance, kept.get(instance.destination), clustered=clustered)]
    return found if instance.queue is None else [*found, _queue(instance, instance.queue)]


def _queue(instance: InstanceConfig, queue: QueueConfig) -> Finding:
    """Ask Kafka whether it can take the changes of a destination."""
    from canal_ha.pipeline.queue import described, opened  # needs the library of Kafka, which other nodes do without

    try:
        target = opened(described(instance, queue))
        try:
            return Finding(Verdict.OK, "Kafka", target.check())
        finally:
            target.close()
    except CanalError as error:
        return Finding(Verdict.FAILED, "Kafka", str(error))


def _ports(config: CanalConfig) -> Iterator[Finding]:
    try:
        yield from ports(config)
        yield from _ports_in_use(config)
    except ConfigError as error:
        yield Finding(Verdict.FAILED, "ports", str(error))


def ports(config: CanalConfig) -> Iterator[Finding]:
    """Yield what to know about the node's ports. Raises ConfigError for what keeps the node from opening them."""
    from canal_ha.node.accounts_file import read_accounts  # imports the reactor, which other commands do not need
    from canal_ha.server.certificates import Certificates
    from canal_ha.server.expiry import expiry_alarms, of_ports

    if warning := check_listeners(config):
        yield Finding(Verdict.WARNING, "ports", warning)
    if refusal := admin_port_refusal(config):
        yield Finding(Verdict.FAILED, "ports", str(refusal))
    accounts = read_accounts(config)
    if not accounts.is_open:
        yield Finding(Verdict.OK, "ports", f"{len(accounts)} accounts may log in")
    if config.tls:
        own = of_ports(config.tls.cert_file, Certificates(config.tls).expires)
        for alarm in expiry_alarms([own], time.time())[-1:]:
            yield Finding(Verdict.WARNING, "ports", alarm.text)
        yield Finding(Verdict.OK, "ports", f"TLS with {config.tls.cert_file} on {', '.join(config.tls.ports)}")
    if config.alarm_file:
        yield Finding(Verdict.OK, "alarms", f"go to {', '.join(read_handlers(config.alarm_file))}")


def client_certificates_ending(config: CanalConfig) -> Iterator[Finding]:
    """Yield a warning for each client certificate of the node that ends soon."""
    from canal_ha.node.client_certificates import certificate_uses, read_certificates  # imports the reactor
    from canal_ha.server.expiry import expiry_alarms

    for certificate in read_certificates(certificate_uses(config.zk_access, config.destinations)):
        for alarm in expiry_alarms([certificate], time.time())[-1:]:
            yield Finding(Verdict.WARNING, "TLS", alarm.text)


def _ports_in_use(config: CanalConfig) -> Iterator[Finding]:
    """Yield a warning for each port of the node that a program has now."""
    for key, bind, port in (
        (keys.PORT, config.ip, 0 if config.without_netty else config.port),
        (keys.METRICS_PORT, config.metrics_bind, config.metrics_port),
        (keys.ADMIN_PORT, config.admin_http_bind, config.admin_http_port),
        (keys.CONSOLE_PORT, config.ip, 0 if admin_port_refusal(config) else config.admin_port),
    ):
        if port <= 0:
            continue
        with socket(AF_INET6 if ":" in bind else AF_INET) as probe:
            probe.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)  # as the node does: closed connections keep no port
            try:
                probe.bind((bind, port))
            except OSError as error:
                text = (
                    f"{key.name} = {port} cannot be opened ({error.strerror}): expected while the node runs; otherwise"
                    " stop the program that has the port, or choose another one"
                )
                yield Finding(Verdict.WARNING, "ports", text)


def _zookeeper(config: CanalConfig, kept: dict[str, StoredCursors]) -> Iterator[Finding]:
    try:
        with BlockingZnodes(config.zk_servers, config.zk_access, read_only=False) as znodes:
            nodes = CursorNodes(znodes)
            problems = nodes.problems()
            for problem in problems:
                yield Finding(Verdict.FAILED, "ZooKeeper", problem)
            if not problems:
                yield Finding(Verdict.OK, "ZooKeeper", f"{config.zk_servers} is reachable and writable")
            if not config.zk_access.named:
                yield Finding(Verdict.WARNING, "ZooKeeper", NO_CREDENTIALS)
            elif warning := open_znodes(znodes, [each.destination for each in config.destinations]):
                yield Finding(Verdict.WARNING, "ZooKeeper", warning)
            for instance in config.destinations:
                if instance.cursor_place is CursorPlace.ZOOKEEPER:
                    cursors, unreadable = nodes.read_all(instance.destination)
                    kept[instance.destination] = StoredCursors(cursors, nodes.servers(instance.destination))
                    if unreadable:
                        text = f"cursors that cannot be read: {some(unreadable)}; correct or delete them"
                        yield Finding(Verdict.FAILED, "cursors", text)
    except CanalError as error:
        yield Finding(
            Verdict.FAILED,
            "ZooKeeper",
            f"{error}; look whether it runs, then check canal.zkServers and canal.zookeeper.auth",
        )


def _destination(instance: InstanceConfig, stored: StoredCursors | None, *, clustered: bool) -> Iterator[Finding]:
    kept = stored or StoredCursors()
    if instance.cursor_place is CursorPlace.FILE:
        files = CursorFiles(instance.data_dir)
        try:
            kept = _kept(files, instance.destination)
            yield checkup.storable("cursors", instance.data_dir, "canal.file.data.dir")
        except CanalError as error:
            yield Finding(Verdict.FAILED, "cursors", str(error))
    if instance.local is not None:
        yield from checkup.files(instance, instance.local, kept.cursors)
        return
    read = as_read(instance, kept.cursors.values(), kept.servers)
    if not read.group:
        yield from _servers(read, kept.cursors)
        yield from checkup.history(read, clustered=clustered)
        return
    places = {client_id: parts(instance, cursor) for client_id, cursor in kept.cursors.items()}
    for index, member in enumerate(read.members):
        own = {client_id: at[index] for client_id, at in places.items()}
        for finding in (*_servers(member, own), *checkup.history(member, clustered=clustered)):
            yield replace(finding, text=f"source {index + 1}: {finding.text}")


def _servers(read: InstanceConfig, cursors: Mapping[int, LogPosition]) -> Iterator[Finding]:
    """Check both servers of a source, and the cursors at the one that is read.

    read: the configuration, with the server that is read as its master.
    cursors: by client id.
    """
    notes = {client_id: elsewhere(read, cursor) for client_id, cursor in cursors.items()}
    own = {client_id: cursor for client_id, cursor in cursors.items() if not notes[client_id]}
    yield from checkup.source(read, read.master, own)
    if read.standby is not None:
        yield from checkup.source(read, read.standby, {})
    for client_id, note in notes.items():
        if note:
            yield Finding(Verdict.OK, "position", f"client {client_id} at {cursors[client_id]}: {note}")


def _kept(store: CursorFiles, destination: str) -> StoredCursors:
    found = {client_id: store.read(destination, client_id) for client_id in store.clients(destination)}
    cursors = {client_id: cursor for client_id, cursor in found.items() if cursor is not None}
    return StoredCursors(cursors, store.servers(destination))
