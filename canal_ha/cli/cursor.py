"""`canal-ha cursor`: where a client stands, and moving it: the operator's edit, safe on a running cluster."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from canal_ha.cli.client import first_line
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig
from canal_ha.errors import CanalError, LocalProtocolError
from canal_ha.meta.offline import CursorFiles
from canal_ha.model.place import FORMS, Place
from canal_ha.model.position import LogPosition
from canal_ha.source.files.view import LocalView, view_of
from canal_ha.source.group import MembersView, parts
from canal_ha.source.server import switch
from canal_ha.source.server.view import View
from canal_ha.zookeeper.reading import BlockingZnodes

T = TypeVar("T")


class Cursors(Protocol):
    """Where cursors are kept."""

    def read(self, destination: str, client_id: int) -> LogPosition | None: ...

    def write(self, destination: str, client_id: int, position: LogPosition) -> None: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the options name. instance: None without --conf; file_node: the node whose files hold the cursor."""

    destination: str
    client_id: int
    cursors: Cursors
    instance: InstanceConfig | None
    file_node: CanalConfig | None


@click.group()
def command() -> None:
    """Show a client's cursor, or move it: forwards to skip, backwards to read again."""


def options(function: Callable[..., None]) -> Callable[..., None]:
    """The options that all three have in common."""
    for option in (
        click.option("--zk-auth-file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
        click.option("--zk", metavar="HOST:PORT[,...][/CHROOT]", help="ZooKeeper, without a configuration."),
        click.option("--conf", type=click.Path(path_type=Path), metavar="DIR", help="As of `canal-ha server`."),
        click.option("--client-id", type=click.IntRange(-(2**15), 2**15 - 1), default=1001, show_default=True),
        click.option("--destination", required=True, help="Name of the destination."),
    ):
        function = option(function)
    return function


@command.command()
@options
def show(**given: Any) -> None:
    """Print the cursor; with --conf also whether its journal exists and how far it is from the newest."""
    with ExitStack() as stack:
        chosen = choose(stack, **given)
        click.echo(describe(chosen, _cursor(chosen)))


@command.command(name="set")
@options
@click.option("--to", "to", required=True, metavar="POSITION", help=FORMS)
def set_cursor(to: str, **given: Any) -> None:
    """Move the cursor; what runs the destination goes on from there."""
    try:
        place = Place.parse(to)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error
    with ExitStack() as stack:
        chosen = choose(stack, **given)
        cursor = _cursor(chosen)
        if place.part and chosen.instance is not None and not chosen.instance.group:
            raise click.UsageError(f"{chosen.destination} has one source: leave {place.part}/ away")
        if chosen.instance is not None:
            position = _asked(switch.as_read(chosen.instance, [cursor]), lambda view: view.find(place))
            if place.part:
                position = position.beside(parts(chosen.instance, cursor))
        elif place.journal:  # nobody to ask: who dumps there finds the boundary
            stood = cursor.of(place.part)
            if stood is None:
                raise click.UsageError(f"the cursor is {cursor}: give one source's place as 1/JOURNAL:OFFSET")
            position = LogPosition(place.journal, place.offset, address=stood.address, port=stood.port, part=place.part)
            position = position.beside(cursor.parts) if place.part else position
        else:
            raise click.UsageError("only JOURNAL:OFFSET can be set without --conf, which says where MySQL is")
        _move(chosen, cursor, position)


@command.command()
@options
def reset(**given: Any) -> None:
    """Move the cursor to where a new client would begin: canal.instance.master.*, else the newest position."""
    with ExitStack() as stack:
        chosen = choose(stack, **given)
        if chosen.instance is None:
            raise click.UsageError("reset needs --conf, which says where a new client begins")
        cursor = _cursor(chosen)
        position = _asked(switch.as_read(chosen.instance, [cursor]), lambda view: view.start(None))
        _move(chosen, cursor, position)


def choose(
    stack: ExitStack, destination: str, client_id: int, conf: Path | None, zk: str | None, zk_auth_file: Path | None
) -> Chosen:
    """Open what holds the cursor."""
    if (conf is None) == (zk is None):
        raise click.UsageError("give one of --conf and --zk")
    auth = first_line(zk_auth_file) if zk_auth_file else ""
    if zk is not None:
        znodes = stack.enter_context(BlockingZnodes(zk, auth, read_only=False))
        return Chosen(destination, client_id, CursorNodes(znodes), None, None)
    assert conf is not None
    config = load_usable(conf, (), os.environ)
    for refused in config.refused:
        if refused.destination == destination:
            raise refused.error
    instance = next((each for each in config.destinations if each.destination == destination), None)
    if instance is None:
        raise click.UsageError(f"{conf} configures no destination {destination}")
    if instance.cursor_place is CursorPlace.MEMORY:
        raise LocalProtocolError(f"cursors of {destination} live in its node's memory alone (memory-instance)")
    if instance.cursor_place is CursorPlace.ZOOKEEPER:
        znodes = stack.enter_context(BlockingZnodes(config.zk_servers, auth or config.zk_auth, read_only=False))
        return Chosen(destination, client_id, CursorNodes(znodes), instance, None)
    return Chosen(destination, client_id, CursorFiles(instance.data_dir), instance, config)


def describe(chosen: Chosen, cursor: LogPosition) -> str:
    """One cursor in words, a line per fact."""
    lines = [f"{chosen.destination}, client {chosen.client_id}: {cursor}"]
    for each in cursor.parts:
        source = f"{each.part}, {each.address}:{each.port}: " if each.part else ""
        if each.consumed:
            lines.append(f"{source}the event there is done with")
        if each.timestamp_ms:
            age_s = max(0, int(time.time() - each.timestamp_ms / 1000))
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.timestamp_ms / 1000))
            lines.append(f"{source}written at {when}, {age_s} s ago")
        if each.gtid:
            lines.append(f"{source}GTID set {each.gtid}")
    if cursor.mark:
        lines.append(f"its client said: {cursor.mark}")
    if chosen.instance is not None:
        try:
            lines.append(_asked(switch.as_read(chosen.instance, [cursor]), lambda view: view.reach(cursor)))
        except CanalError as error:
            lines.append(f"cannot ask the source: {error}")
    return "\n".join(lines)


def _cursor(chosen: Chosen) -> LogPosition:
    cursor = chosen.cursors.read(chosen.destination, chosen.client_id)
    if cursor is None:
        raise LocalProtocolError(
            f"client {chosen.client_id} of {chosen.destination} has no cursor: it never subscribed"
        )
    return cursor


def _move(chosen: Chosen, cursor: LogPosition, position: LogPosition) -> None:
    node = chosen.file_node
    if node is not None and _listens(node.ip or "127.0.0.1", node.port):
        raise LocalProtocolError(
            f"a node runs on port {node.port} and would write over what is changed in its files: stop it first"
        )
    if chosen.instance is not None and not chosen.instance.decode.gtid_on:
        position = replace(position, gtid="")
    chosen.cursors.write(chosen.destination, chosen.client_id, position)
    click.echo(f"{chosen.destination}, client {chosen.client_id}: moved from {cursor} to {position}")


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=2).close()
    except OSError:
        return False
    return True


def _asked(instance: InstanceConfig, question: Callable[[View | LocalView | MembersView], T]) -> T:
    view = view_of(instance)
    try:
        return question(view)
    finally:
        view.close()
