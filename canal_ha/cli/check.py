"""`canal-ha check`: checks a configuration and the servers that it names. A node may be running or not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from canal_ha.cli.server import load_checked
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.cluster.rights import NO_CREDENTIALS, open_znodes
from canal_ha.config.listeners import check_listeners
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig
from canal_ha.config.tls import unverified
from canal_ha.errors import CanalError, ConfigError
from canal_ha.meta.offline import CursorFiles
from canal_ha.model.excerpt import some
from canal_ha.model.position import LogPosition
from canal_ha.source import checkup
from canal_ha.source.checkup import Finding, Verdict
from canal_ha.source.group import as_read, elsewhere, parts
from canal_ha.zookeeper.reading import BlockingZnodes


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
def command(conf: Path, sets: tuple[str, ...]) -> None:
    """Check everything a node needs, one line each with what to do. The exit code is 1 if a check fails."""
    config = load_checked(conf, sets)
    failed = False
    for scope, finding in findings(config):
        failed |= finding.verdict is Verdict.FAILED
        click.echo(f"{finding.verdict.value:8} {scope:14} {finding.what:14} {finding.text}")
    sys.exit(1 if failed else 0)


def findings(config: CanalConfig) -> Iterator[tuple[str, Finding]]:
    """Yield the findings in the order of the checks, each with its destination or `node`."""
    for warning in config.warnings:
        yield "node", Finding(Verdict.WARNING, "configuration", warning)
    if warning := unverified(config.destinations):
        yield "node", Finding(Verdict.WARNING, "TLS", warning)
    for finding in _ports(config):
        yield "node", finding
    for refused in config.refused:
        yield refused.destination, Finding(Verdict.FAILED, "configuration", str(refused.error))
    if not config.destinations and not config.refused:
        yield "node", Finding(Verdict.WARNING, "configuration", f"{config.conf_dir} configures no destination")
    kept: dict[str, StoredCursors] = {}
    if config.zk_servers:
        for finding in _zookeeper(config, kept):
            yield "node", finding
    for instance in config.destinations:
        for finding in _destination(instance, kept.get(instance.destination), clustered=bool(config.zk_servers)):
            yield instance.destination, finding


def _ports(config: CanalConfig) -> Iterator[Finding]:
    """Yield what keeps the node from opening its ports, and what to know about them."""
    from canal_ha.node.accounts_file import read_accounts  # imports the reactor, which other commands do not need
    from canal_ha.server.certificates import Certificates

    try:
        if warning := check_listeners(config):
            yield Finding(Verdict.WARNING, "ports", warning)
        accounts = read_accounts(config)
        if not accounts.is_open:
            yield Finding(Verdict.OK, "ports", f"{len(accounts)} accounts may log in")
        if config.tls:
            Certificates(config.tls)
            yield Finding(Verdict.OK, "ports", f"TLS with {config.tls.cert_file} on {', '.join(config.tls.ports)}")
    except ConfigError as error:
        yield Finding(Verdict.FAILED, "ports", str(error))


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
        yield Finding(Verdict.FAILED, "ZooKeeper", f"{error}; check canal.zkServers and canal.zookeeper.auth")


def _destination(instance: InstanceConfig, stored: StoredCursors | None, *, clustered: bool) -> Iterator[Finding]:
    kept = stored or StoredCursors()
    if instance.cursor_place is CursorPlace.FILE:
        files = CursorFiles(instance.data_dir)
        try:
            kept = _kept(files, instance.destination)
            yield _writable(instance.data_dir)
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


def _writable(directory: Path) -> Finding:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    if os.access(existing, os.W_OK):
        return Finding(Verdict.OK, "cursors", f"stored in files below {directory}")
    return Finding(
        Verdict.FAILED, "cursors", f"{existing} is not writable: change its owner, or set canal.file.data.dir"
    )


def _kept(store: CursorFiles, destination: str) -> StoredCursors:
    found = {client_id: store.read(destination, client_id) for client_id in store.clients(destination)}
    cursors = {client_id: cursor for client_id, cursor in found.items() if cursor is not None}
    return StoredCursors(cursors, store.servers(destination))
