"""`canal-ha snapshot`: puts the existing rows of tables into a client's stream."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from canal_ha.cli.destination_node import DestinationNode, destination_node_options
from canal_ha.cli.figures import failing_of, snapshot_line, speed_of
from canal_ha.client.snapshots import ClientSnapshot
from canal_ha.config import keys
from canal_ha.errors import NodeUnreachable, SnapshotRefused
from canal_ha.model.excerpt import json_text, printable, some

Command = TypeVar("Command", bound=Callable[..., Any])

LOOK_S = 1.0
LOST_S = 60.0  # how long a watch waits for a node: it may be started again
ENDED = ("done", "failed", "cancelled")


_without_key = click.option(
    "--without-key",
    is_flag=True,
    help="Also read tables without a key, each with one SELECT. Changes wait meanwhile. A fail-over starts it again.",
)
_watch_option = click.option(
    "--watch", is_flag=True, help="Show the progress until the end. The exit code is 1 if not all rows were read."
)


@click.group()
def command() -> None:
    """Read the existing rows of tables into a client's stream, without a lock, while changes keep flowing.

    The node that runs the destination does it. The rows arrive as INSERT entries with the property canal.snapshot.
    A consumer treats them as upserts. Progress is kept with the client's cursor.
    """


def _client_options(command: Command) -> Command:
    """Add the options that say which client's snapshot, and which node to ask."""
    command = destination_node_options(command)
    command = click.option(
        "--client-id",
        type=click.IntRange(-32768, 32767),
        default=1001,
        show_default=True,
        help="Client id whose stream gets the rows.",
    )(command)
    return click.option("--destination", required=True, help="Name of the destination.")(command)


def _reading_options(command: Command) -> Command:
    """Add the options that say what is read, and how."""
    command = click.option(
        "--rows-per-second",
        type=click.IntRange(1, keys.INT32),
        help="Most rows per second, on average.  [default: canal.instance.snapshot.rowsPerSecond]",
    )(command)
    command = click.option(
        "--connections",
        type=click.IntRange(1, keys.SNAPSHOT_CONNECTIONS_MOST),
        help="How many connections read at the same time.  [default: canal.instance.snapshot.connections]",
    )(command)
    command = _without_key(command)
    command = click.option(
        "--where",
        multiple=True,
        metavar="SCHEMA.TABLE=CONDITION",
        help="Read only the rows of a table that meet this SQL condition.",
    )(command)
    return click.option(
        "--table", "tables", multiple=True, required=True, metavar="SCHEMA.TABLE", help="May be repeated."
    )(command)


@command.command()
@_client_options
@_reading_options
@_watch_option
def start(
    tables: tuple[str, ...],
    where: tuple[str, ...],
    without_key: bool,
    connections: int | None,
    rows_per_second: int | None,
    watch: bool,
    **client: Any,
) -> None:
    """Begin a snapshot. The client id must be subscribed."""
    wanted = _wanted(tables, where, without_key, connections, rows_per_second)
    snapshots = _snapshots(**client)
    state = snapshots.start(**wanted)
    click.echo(snapshot_line(state))
    _tell_alone(snapshots, state)
    if watch:
        _watch(snapshots, state)


@command.command()
@_client_options
@_reading_options
def add(
    tables: tuple[str, ...],
    where: tuple[str, ...],
    without_key: bool,
    connections: int | None,
    rows_per_second: int | None,
    **client: Any,
) -> None:
    """Add tables to a snapshot; without one, begin one. A table that is already read is read again.

    A running snapshot reads them after its other tables. It keeps its --connections and --rows-per-second.
    """
    wanted = _wanted(tables, where, without_key, connections, rows_per_second)
    click.echo(snapshot_line(_snapshots(**client).add(**wanted)))


@command.command()
@_client_options
def pause(**client: Any) -> None:
    """Stop reading rows; changes keep flowing."""
    click.echo(snapshot_line(_snapshots(**client).pause()))


@command.command()
@_client_options
@_without_key
@click.option(
    "--leave-out",
    "leave_out",
    multiple=True,
    metavar="SCHEMA.TABLE",
    help="Go on without this table, of which rows are still left to read. May be repeated.",
)
def resume(without_key: bool, leave_out: tuple[str, ...], **client: Any) -> None:
    """Continue a paused or failed snapshot after the last chunk that the client has acknowledged.

    A table without a key is read again from its first row. If a table was renamed, leave its old name out and `add`
    the new one.
    """
    click.echo(snapshot_line(_snapshots(**client).resume(without_key=without_key, leave_out=leave_out)))


@command.command()
@_client_options
def cancel(**client: Any) -> None:
    """End a snapshot. The client keeps the rows that it already has."""
    click.echo(snapshot_line(_snapshots(**client).cancel()))


@command.command()
@_client_options
@_watch_option
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON.")
def status(watch: bool, as_json: bool, **client: Any) -> None:
    """Show how far the client's snapshot has come. The exit code is 1 if it failed."""
    snapshots = _snapshots(**client)
    state = snapshots.state()
    click.echo(json_text(state) if as_json else snapshot_line(state))
    _tell_alone(snapshots, state)
    if watch:
        _watch(snapshots, state)
    if state["phase"] == "failed":
        raise SystemExit(1)


def _wanted(
    tables: Sequence[str],
    where: Sequence[str],
    without_key: bool,
    connections: int | None,
    rows_per_second: int | None,
) -> dict[str, Any]:
    """Return the arguments of ClientSnapshot's start and add for `_reading_options`. Raises UsageError."""
    return {
        "tables": tables,
        "where": _conditions(tables, where),
        "without_key": without_key,
        "connections": connections or 0,
        "rows_per_second": rows_per_second or 0,
    }


def _conditions(tables: Sequence[str], where: Sequence[str]) -> dict[str, str]:
    """Return the conditions by table. A name of a table can have `=` too.

    tables: that are read.
    where: SCHEMA.TABLE=CONDITION each.
    Raises UsageError.
    """
    conditions: dict[str, str] = {}
    for each in where:
        text = each.strip()
        named = [table for table in tables if text.startswith(table) and text[len(table) :].lstrip().startswith("=")]
        if len(named) > 1:
            raise click.UsageError(f"--where {each}: the table is {' or '.join(named)}; read one of them later")
        table = named[0] if named else text.partition("=")[0].strip()
        condition = text[len(table) :].strip().removeprefix("=").strip()
        if not condition:
            raise click.UsageError(f"--where {each}: write SCHEMA.TABLE=CONDITION")
        if table in conditions:
            raise click.UsageError(f"--where {each}: {table} has a condition already; join them with AND or OR")
        conditions[table] = condition
    return conditions


def _snapshots(destination: str, client_id: int, **node: Any) -> ClientSnapshot:
    found = DestinationNode(destination, **node)
    return ClientSnapshot(destination, client_id, url=found.url, access=found.access)


def _tell_alone(snapshots: ClientSnapshot, state: Mapping[str, Any]) -> None:
    """Say that a snapshot waits for its client, if it does."""
    if state["phase"] == "running" and not snapshots.has_reader():
        click.echo(f"No client reads client id {snapshots.client_id} at the moment: the rows wait for one.", err=True)


def _watch(snapshots: ClientSnapshot, state: Mapping[str, Any]) -> None:
    """Show the progress until the end. Raises SystemExit if not all rows are read then.

    state: of the snapshot. A request that adds tables or leaves some out changes its id, but not when it began.
    """
    began_ms = state.get("began_ms")
    with click.progressbar(
        length=max(state["total"], 1), show_pos=True, show_eta=False, item_show_func=lambda text: text or ""
    ) as bar:
        while state["phase"] not in ENDED:
            state = _next(snapshots)
            if state.get("began_ms") != began_ms:
                break
            bar.length = max(state["total"], state["rows"], 1)
            bar.pos = min(state["rows"], bar.length)
            bar.update(0, printable(failing_of(state)) or speed_of(state))
    click.echo(snapshot_line(state))
    if state.get("began_ms") != began_ms:
        click.echo(
            "Another snapshot has replaced the one that was watched. It may have ended before, so it is not known here"
            " whether all its rows came.",
            err=True,
        )
        raise SystemExit(1)
    if state.get("left_out"):
        click.echo(f"Not all rows are read: somebody left out {some(state['left_out'])}.", err=True)
    if state["phase"] == "cancelled":
        click.echo("Somebody cancelled it: the client keeps the rows that it has. The others do not come.", err=True)
    if state["phase"] != "done" or state.get("left_out"):
        raise SystemExit(1)


def _next(snapshots: ClientSnapshot) -> dict[str, Any]:
    """Return the state after a while. Raises NodeUnreachable and SnapshotRefused if the node stays away."""
    until = time.monotonic() + LOST_S
    while True:
        time.sleep(LOOK_S)
        try:
            return snapshots.state()
        except NodeUnreachable as error:
            if time.monotonic() >= until:
                raise NodeUnreachable(
                    f"{error}. The snapshot itself goes on where {snapshots.destination} runs: `canal-ha status --zk`"
                    " names the node; there, `canal-ha snapshot status --watch` goes on"
                ) from error
        except SnapshotRefused:  # the node has not begun yet to run the destination
            if time.monotonic() >= until:
                raise
