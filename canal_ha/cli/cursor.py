"""`canal-ha cursor`: shows a client's cursor, or moves it; safe on a running cluster."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

from canal_ha.admin.address_file import read_address
from canal_ha.cli.access import first_line, login_options
from canal_ha.cli.configured import configured
from canal_ha.cli.cursor_node import OwningNode, owner_of
from canal_ha.cli.data_login import ClientLogin
from canal_ha.cli.profiles import profile_option, zk_option
from canal_ha.cli.zookeeper_options import zookeeper_options
from canal_ha.client.tls import client_tls
from canal_ha.cluster.cursors import CursorNodes
from canal_ha.config.model import CanalConfig, CursorPlace, InstanceConfig, ZooKeeperAccess
from canal_ha.errors import CanalError, LocalProtocolError, NodeUnreachable
from canal_ha.meta.offline import CursorFiles
from canal_ha.model.excerpt import message, printable, some
from canal_ha.model.place import FORMS, Place
from canal_ha.model.position import LogPosition
from canal_ha.source.files.view import LocalView, view_of
from canal_ha.source.group import MembersView, as_read, elsewhere, parts
from canal_ha.source.server.view import View
from canal_ha.zookeeper import tree
from canal_ha.zookeeper.reading import BlockingZnodes

T = TypeVar("T")


class Cursors(Protocol):
    """A store of cursors."""

    def read(self, destination: str, client_id: int) -> LogPosition | None: ...

    def servers(self, destination: str) -> tuple[str, ...]: ...

    def change(self, destination: str, client_id: int, moved: Callable[[LogPosition], LogPosition]) -> LogPosition: ...

    def clients(self, destination: str) -> tuple[int, ...]: ...

    def delete(self, destination: str, client_id: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The cursor that the options select.

    destination: name of the destination.
    client_id: the client's id.
    cursors: the store that holds the cursor.
    instance: the destination's configuration; None without --conf.
    file_node: the node whose files hold the cursor; None for cursors in ZooKeeper.
    owner: the node that runs the destination, found in ZooKeeper; None if no node does, and for cursors in files.
    active: returns which process is active with the client id, if ZooKeeper tells; "" if none is.
    """

    destination: str
    client_id: int
    cursors: Cursors
    instance: InstanceConfig | None
    file_node: CanalConfig | None
    owner: OwningNode | None = None
    active: Callable[[], str] = lambda: ""

    def as_read(self, instance: InstanceConfig, cursor: LogPosition) -> InstanceConfig:
        """Return the configuration with the server that a node reads as the master. Raises what the store raises."""
        return as_read(instance, [cursor], self.cursors.servers(self.destination))


def change_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the commands that change something."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Check everything and print what would change; change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask for a confirmation; required without a terminal."),
    ):
        function = option(function)
    return function


@click.group()
def command() -> None:
    """Show cursors of clients, move one, or delete one."""


def options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that all commands share."""
    for option in (
        login_options,
        zookeeper_options,
        zk_option("ZooKeeper servers; used instead of --conf."),
        click.option(
            "--conf",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Configuration directory, as in `canal-ha server`.",
        ),
        click.option(
            "--client-id",
            type=click.IntRange(-(2**15), 2**15 - 1),
            help="Client id of the cursor. Without it, `show` prints all cursors.",
        ),
        click.option("--destination", required=True, help="Name of the destination."),
        profile_option,
    ):
        function = option(function)
    return function


@command.command()
@options
def show(**given: Any) -> None:
    """Print cursors; with --conf also whether their journals exist and how far behind they are."""
    with ExitStack() as stack:
        one = given.pop("client_id")
        chosen = choose(stack, one or 0, **given)
        if one is not None:
            click.echo(describe(chosen, _cursor(chosen)))
            return
        known = chosen.cursors.clients(chosen.destination)
        for each in (replace(chosen, client_id=client_id) for client_id in known):
            cursor = each.cursors.read(each.destination, each.client_id)
            at = describe(each, cursor) if cursor else f"{each.destination}, client {each.client_id}: no cursor yet"
            click.echo(at)
        if not known:
            click.echo(f"no client of {chosen.destination} has subscribed")


@command.command(name="set")
@options
@click.option("--to", "to", required=True, metavar="POSITION", help=FORMS)
@change_options
def set_cursor(to: str, dry_run: bool, yes: bool, **given: Any) -> None:
    """Move the cursor: forward to skip changes, back to read them again; a running destination continues from there.

    With --conf the source is asked for the position. With --zk, the node that runs the destination is asked whether the
    position exists.
    """
    try:
        place = Place.parse(to)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--to") from error
    with ExitStack() as stack:
        chosen = choose_one(stack, **given)
        cursor = _cursor(chosen)
        if place.part and chosen.instance is not None and not chosen.instance.group:
            raise click.UsageError(f"{chosen.destination} has one source: omit {place.part}/")
        if chosen.instance is not None:
            position = _ask_source(chosen.as_read(chosen.instance, cursor), lambda view: view.find(place))
        elif place.journal:  # no server to ask: the node that reads from there finds the event boundary
            source = cursor.of(place.part)
            if source is None:
                raise click.UsageError(
                    f"the cursor is {printable(str(cursor))}: give one source's position as 1/JOURNAL:OFFSET"
                )
            position = LogPosition(
                place.journal, place.offset, address=source.address, port=source.port, part=place.part
            )
            owner = chosen.owner
            unchecked = owner.check(chosen.client_id, to) if owner else f"no node runs {chosen.destination}"
            if unchecked:
                click.echo(
                    f"not checked: whether the source has {place.journal}:{place.offset}: {message(unchecked)}."
                    " With --conf, this command asks the source itself",
                    err=True,
                )
        else:
            raise click.UsageError("without --conf, which names the MySQL server, --to takes only JOURNAL:OFFSET")
        _move(chosen, cursor, position, dry_run=dry_run, yes=yes, one_source=bool(place.part))


@command.command()
@options
@change_options
def reset(dry_run: bool, yes: bool, **given: Any) -> None:
    """Move the cursor to the start of a new client: canal.instance.master.*, else the newest position."""
    with ExitStack() as stack:
        chosen = choose_one(stack, **given)
        if chosen.instance is None:
            raise click.UsageError("reset needs --conf, which names the start of a new client")
        cursor = _cursor(chosen)
        position = _ask_source(chosen.as_read(chosen.instance, cursor), lambda view: view.start(None))
        _move(chosen, cursor, position, dry_run=dry_run, yes=yes)


@command.command()
@options
@change_options
def delete(dry_run: bool, yes: bool, **given: Any) -> None:
    """Delete a client id with its cursor and filter. If it subscribes again, it begins as a new client.

    No process may be connected with the client id. The node that runs the destination deletes it, with its rights; on
    a node with accounts give --user. A node with cursors in files must be stopped.
    """
    with ExitStack() as stack:
        chosen = choose_one(stack, **given)
        if chosen.client_id not in chosen.cursors.clients(chosen.destination):
            raise never_subscribed(chosen)
        _refuse_in_use(chosen)
        cursor = chosen.cursors.read(chosen.destination, chosen.client_id)
        at = printable(f"its cursor {cursor}") if cursor else "it has no cursor"
        if not allowed(chosen, f"delete the client id, {at}", dry_run=dry_run, yes=yes):
            return
        _refuse_in_use(chosen)
        if chosen.owner:
            chosen.owner.forget(chosen.client_id)
        else:
            chosen.cursors.delete(chosen.destination, chosen.client_id)
        click.echo(f"{chosen.destination}, client {chosen.client_id}: deleted, {at}")


def choose_one(stack: ExitStack, client_id: int | None, **given: Any) -> Chosen:
    """Open the store, as `choose` does. Raises click.UsageError with the known client ids if none is given."""
    chosen = choose(stack, client_id or 0, **given)
    if client_id is None:
        raise click.UsageError(f"give --client-id; {_known(chosen)}")
    return chosen


def choose(
    stack: ExitStack,
    client_id: int,
    destination: str,
    conf: Path | None,
    zk: str | None,
    zk_access: ZooKeeperAccess,
    user: str,
    password_file: Path | None,
    tls_ca: str,
) -> Chosen:
    """Open the store that holds the cursor.

    stack: closes the store.
    client_id: the client's id.
    destination: name of the destination.
    conf: configuration directory; None with zk.
    zk: ZooKeeper servers; None with conf.
    zk_access: how to reach ZooKeeper with `zk`, and as whom.
    user, password_file, tls_ca: the login at the node that runs the destination.
    Raises click.UsageError, and LocalProtocolError if the cursor is only in a node's memory.
    """
    if (conf is None) == (zk is None):
        raise click.UsageError("give one of --conf and --zk")
    tls = client_tls(on=False, ca_file=tls_ca, cert_file="", key_file="", server_name="")
    login = ClientLogin(user, first_line(password_file), tls)

    def in_zookeeper(servers: str, access: ZooKeeperAccess, instance: InstanceConfig | None) -> Chosen:
        znodes = stack.enter_context(BlockingZnodes(servers, access, read_only=False))

        def active() -> str:
            running = znodes.get(tree.client_running(destination, client_id))
            return tree.RunningData.from_bytes(running.data).address if running else ""

        owner = owner_of(znodes, destination, login)
        return Chosen(destination, client_id, CursorNodes(znodes), instance, None, owner, active)

    if zk is not None:
        return in_zookeeper(zk, zk_access, None)
    assert conf is not None
    config, instance = configured(conf, destination)
    if instance.cursor_place is CursorPlace.MEMORY:
        raise LocalProtocolError(f"cursors of {destination} exist only in its node's memory (memory-instance)")
    if instance.cursor_place is CursorPlace.ZOOKEEPER:
        access = zk_access if zk_access.named or zk_access.secured else config.zk_access
        return in_zookeeper(config.zk_servers, access, instance)
    return Chosen(destination, client_id, CursorFiles(instance.data_dir), instance, config)


def describe(chosen: Chosen, cursor: LogPosition) -> str:
    """Describe one cursor, one fact a line. Anybody may have written it into ZooKeeper."""
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
        lines.append(f"mark of its client: {cursor.mark}")
    if chosen.instance is not None:
        try:
            read = chosen.as_read(chosen.instance, cursor)
            lines += (elsewhere(read, cursor) or _ask_source(read, lambda view: view.reach(cursor))).split("\n")
        except CanalError as error:
            lines.append(f"the source did not answer: {error}")
    return "\n".join(map(printable, lines))


def _cursor(chosen: Chosen) -> LogPosition:
    cursor = chosen.cursors.read(chosen.destination, chosen.client_id)
    if cursor is None:
        raise never_subscribed(chosen)
    return cursor


def never_subscribed(chosen: Chosen) -> LocalProtocolError:
    """Return the error for a client id without a cursor."""
    return LocalProtocolError(
        f"client {chosen.client_id} of {chosen.destination} has no cursor: it never subscribed; {_known(chosen)}"
    )


def _known(chosen: Chosen) -> str:
    clients = chosen.cursors.clients(chosen.destination)
    return f"clients of {chosen.destination}: {some(map(str, clients)) or 'none'}"


def allowed(chosen: Chosen, change: str, *, dry_run: bool, yes: bool) -> bool:
    """Return whether to make a change. Ask on a terminal. Raises click.UsageError without one, and click.Abort.

    chosen: the cursor.
    change: what happens to it, behind `would`; printable.
    dry_run, yes: as in the options.
    """
    would = f"{chosen.destination}, client {chosen.client_id}: would {change}"
    if dry_run:
        click.echo(would)
        return False
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError(f"{would}. Nothing was changed: without a terminal, confirm with --yes")
        click.echo(would)
        click.confirm("Go on?", abort=True)
    return True


def _refuse_in_use(chosen: Chosen) -> None:
    """Refuse to delete a client id that a process uses, as far as anybody but the owner of the destination knows."""
    if active := chosen.active():
        raise LocalProtocolError(
            f"client {chosen.client_id} of {chosen.destination} is in use by {printable(active)}: stop that process"
            " first"
        )
    _refuse_beside_node(chosen)


def _refuse_beside_node(chosen: Chosen) -> None:
    if chosen.file_node and (where := _running(chosen.file_node)):
        raise LocalProtocolError(
            f"a node runs {where} and would overwrite the change in its files: stop the node first"
        )


def _running(node: CanalConfig) -> str:
    """Return how a node is known to run with this configuration; "" if none is known to."""
    if not node.without_netty and _listens(node.ip or "127.0.0.1", node.port):
        return f"on port {node.port}"
    with suppress(NodeUnreachable):
        return f"with this configuration, at {read_address(node.status_address_file)},"
    return ""


def _move(
    chosen: Chosen, cursor: LogPosition, position: LogPosition, *, dry_run: bool, yes: bool, one_source: bool = False
) -> None:
    """Move a cursor, and keep what the cursor of that moment has beside its position.

    The progress of a snapshot stays, as it does when the node moves the cursor: without it, the rows that the snapshot
    has not read yet would be lost.

    chosen: the cursor.
    cursor: as it was read before.
    position: where to.
    dry_run, yes: as in the options.
    one_source: move the position of this source alone, and keep those of the others.
    """
    _refuse_beside_node(chosen)
    if chosen.instance is not None and not chosen.instance.decode.gtid_on:
        position = replace(position, gtid="")

    def moved(now: LogPosition) -> LogPosition:
        to = position
        if one_source:
            to = position.beside(now.parts if chosen.instance is None else parts(chosen.instance, now))
        return replace(to, snapshot=now.snapshot)

    if not allowed(chosen, printable(f"move from {cursor} to {moved(cursor)}"), dry_run=dry_run, yes=yes):
        return
    _refuse_beside_node(chosen)  # one that was started while the command waited for the answer
    before = chosen.cursors.change(chosen.destination, chosen.client_id, moved)
    way = printable(f"from {before} to {moved(before)}")
    click.echo(f"{chosen.destination}, client {chosen.client_id}: moved {way}")


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
