"""`canal-ha cursor`: shows a client's cursor, or moves it; safe on a running cluster."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from canal_ha.cli.configured import configured
from canal_ha.cli.profiles import profile_option, zk_option
from canal_ha.cli.zookeeper_options import zookeeper_options
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig, ZooKeeperAccess
from canal_ha.errors import CanalError, LocalProtocolError
from canal_ha.meta.offline import CursorFiles
from canal_ha.model.excerpt import printable
from canal_ha.model.place import FORMS, Place
from canal_ha.model.position import LogPosition
from canal_ha.source.files.view import LocalView, view_of
from canal_ha.source.group import MembersView, as_read, elsewhere, parts
from canal_ha.source.server.view import View
from canal_ha.zookeeper.reading import BlockingZnodes

T = TypeVar("T")


class Cursors(Protocol):
    """A store of cursors."""

    def read(self, destination: str, client_id: int) -> LogPosition | None: ...

    def servers(self, destination: str) -> tuple[str, ...]: ...

    def write(self, destination: str, client_id: int, position: LogPosition) -> None: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The cursor that the options select.

    destination: name of the destination.
    client_id: the client's id.
    cursors: the store that holds the cursor.
    instance: the destination's configuration; None without --conf.
    file_node: the node whose files hold the cursor; None for cursors in ZooKeeper.
    """

    destination: str
    client_id: int
    cursors: Cursors
    instance: InstanceConfig | None
    file_node: CanalConfig | None

    def as_read(self, instance: InstanceConfig, cursor: LogPosition) -> InstanceConfig:
        """Return the configuration with the server that a node reads as the master. Raises what the store raises."""
        return as_read(instance, [cursor], self.cursors.servers(self.destination))


DRY_RUN = click.option("--dry-run", is_flag=True, help="Check everything and print what would change; change nothing.")


@click.group()
def command() -> None:
    """Show a client's cursor, or move it: forward to skip changes, back to read them again."""


def options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all three commands share."""
    for option in (
        zookeeper_options,
        zk_option("ZooKeeper servers; used instead of --conf."),
        click.option(
            "--conf",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Configuration directory, as in `canal-ha server`.",
        ),
        click.option("--client-id", type=click.IntRange(-(2**15), 2**15 - 1), default=1001, show_default=True),
        click.option("--destination", required=True, help="Name of the destination."),
        profile_option,
    ):
        function = option(function)
    return function


@command.command()
@options
def show(**given: Any) -> None:
    """Print the cursor; with --conf also whether its journal exists and how far behind it is."""
    with ExitStack() as stack:
        chosen = choose(stack, **given)
        click.echo(describe(chosen, _cursor(chosen)))


@command.command(name="set")
@options
@click.option("--to", "to", required=True, metavar="POSITION", help=FORMS)
@DRY_RUN
def set_cursor(to: str, dry_run: bool, **given: Any) -> None:
    """Move the cursor; a running destination continues from there."""
    try:
        place = Place.parse(to)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error
    with ExitStack() as stack:
        chosen = choose(stack, **given)
        cursor = _cursor(chosen)
        if place.part and chosen.instance is not None and not chosen.instance.group:
            raise click.UsageError(f"{chosen.destination} has one source: omit {place.part}/")
        if chosen.instance is not None:
            position = _ask_source(chosen.as_read(chosen.instance, cursor), lambda view: view.find(place))
            if place.part:
                position = position.beside(parts(chosen.instance, cursor))
        elif place.journal:  # no server to ask: the node that reads from there finds the event boundary
            source = cursor.of(place.part)
            if source is None:
                raise click.UsageError(f"the cursor is {cursor}: give one source's position as 1/JOURNAL:OFFSET")
            position = LogPosition(
                place.journal, place.offset, address=source.address, port=source.port, part=place.part
            )
            position = position.beside(cursor.parts) if place.part else position
        else:
            raise click.UsageError("without --conf, which names the MySQL server, --to takes only JOURNAL:OFFSET")
        _move(chosen, cursor, position, dry_run=dry_run)


@command.command()
@options
@DRY_RUN
def reset(dry_run: bool, **given: Any) -> None:
    """Move the cursor to the start of a new client: canal.instance.master.*, else the newest position."""
    with ExitStack() as stack:
        chosen = choose(stack, **given)
        if chosen.instance is None:
            raise click.UsageError("reset needs --conf, which names the start of a new client")
        cursor = _cursor(chosen)
        position = _ask_source(chosen.as_read(chosen.instance, cursor), lambda view: view.start(None))
        _move(chosen, cursor, position, dry_run=dry_run)


def choose(
    stack: ExitStack, destination: str, client_id: int, conf: Path | None, zk: str | None, zk_access: ZooKeeperAccess
) -> Chosen:
    """Open the store that holds the cursor.

    stack: closes the store.
    destination: name of the destination.
    client_id: the client's id.
    conf: configuration directory; None with zk.
    zk: ZooKeeper servers; None with conf.
    zk_access: how to reach ZooKeeper with `zk`, and as whom.
    Raises click.UsageError, and LocalProtocolError if the cursor is only in a node's memory.
    """
    if (conf is None) == (zk is None):
        raise click.UsageError("give one of --conf and --zk")
    if zk is not None:
        znodes = stack.enter_context(BlockingZnodes(zk, zk_access, read_only=False))
        return Chosen(destination, client_id, CursorNodes(znodes), None, None)
    assert conf is not None
    config, instance = configured(conf, destination)
    if instance.cursor_place is CursorPlace.MEMORY:
        raise LocalProtocolError(f"cursors of {destination} exist only in its node's memory (memory-instance)")
    if instance.cursor_place is CursorPlace.ZOOKEEPER:
        access = zk_access if zk_access.named or zk_access.secured else config.zk_access
        znodes = stack.enter_context(BlockingZnodes(config.zk_servers, access, read_only=False))
        return Chosen(destination, client_id, CursorNodes(znodes), instance, None)
    return Chosen(destination, client_id, CursorFiles(instance.data_dir), instance, config)


def describe(chosen: Chosen, cursor: LogPosition) -> str:
    """Describe one cursor, one fact a line."""
    lines = [f"{chosen.destination}, client {chosen.client_id}: {cursor}"]
    for each in cursor.parts:
        source = f"{each.part}, {each.address}:{each.port}: " if each.part else ""
        if each.consumed:
            lines.append(f"{source}already acknowledged; reading resumes after it")
        if each.timestamp_ms:
            age_s = max(0, int(time.time() - each.timestamp_ms / 1000))
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.timestamp_ms / 1000))
            lines.append(f"{source}written at {when}, {age_s} s ago")
        if each.gtid:
            lines.append(f"{source}GTID set {each.gtid}")
    if cursor.mark:
        lines.append(f"mark of its client: {printable(cursor.mark)}")
    if chosen.instance is not None:
        try:
            read = chosen.as_read(chosen.instance, cursor)
            lines.append(elsewhere(read, cursor) or _ask_source(read, lambda view: view.reach(cursor)))
        except CanalError as error:
            lines.append(f"the source did not answer: {error}")
    return "\n".join(lines)


def _cursor(chosen: Chosen) -> LogPosition:
    cursor = chosen.cursors.read(chosen.destination, chosen.client_id)
    if cursor is None:
        raise LocalProtocolError(
            f"client {chosen.client_id} of {chosen.destination} has no cursor: it never subscribed"
        )
    return cursor


def _move(chosen: Chosen, cursor: LogPosition, position: LogPosition, *, dry_run: bool) -> None:
    node = chosen.file_node
    if node is not None and _listens(node.ip or "127.0.0.1", node.port):
        raise LocalProtocolError(
            f"a node runs on port {node.port} and would overwrite the change in its files: stop the node first"
        )
    if chosen.instance is not None and not chosen.instance.decode.gtid_on:
        position = replace(position, gtid="")
    if dry_run:
        click.echo(f"{chosen.destination}, client {chosen.client_id}: would move from {cursor} to {position}")
        return
    chosen.cursors.write(chosen.destination, chosen.client_id, position)
    click.echo(f"{chosen.destination}, client {chosen.client_id}: moved from {cursor} to {position}")


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def _ask_source(instance: InstanceConfig, question: Callable[[View | LocalView | MembersView], T]) -> T:
    view = view_of(instance)
    try:
        return question(view)
    finally:
        view.close()
