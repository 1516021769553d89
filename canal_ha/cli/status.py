"""`canal-ha status`: shows the state of a node or of a cluster, as a table or as JSON."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from canal_ha.cli.access import access_options, http_access
from canal_ha.cli.figures import lines, position, queue_line, queue_problems, snapshot_line, too_late
from canal_ha.cli.profiles import profile_option, zk_option
from canal_ha.cli.zookeeper_options import zookeeper_options
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import DEFAULT_URL, fetch
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import CanalError
from canal_ha.instance.alarms import MEANINGS
from canal_ha.model.alarm import SOURCE
from canal_ha.model.excerpt import json_text
from canal_ha.model.figures import duration, size

if TYPE_CHECKING:
    from rich.console import Console

WATCH_S = 2.0
PROBLEM = 3  # exit code: the state was read, and it is not well
WIDTH_ELSEWHERE = 240  # columns, without a terminal; journal and offset fit on one line

T = TypeVar("T")


@click.command()
@profile_option
@click.option("--url", help=f"Status endpoint of one node: canal.admin.http.port.  [default: {DEFAULT_URL}]")
@zk_option("Show the whole cluster, found through ZooKeeper; excludes --url.")
@zookeeper_options
@click.option(
    "--max-lag",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Count a client, or Kafka, that is farther behind its source as a problem.",
)
@click.option("--forget", metavar="NODE", help="With --zk: no longer show this node as missing, and end.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch one line per refresh.")
@click.option("--watch", is_flag=True, help=f"Refresh every {WATCH_S:.0f} s until interrupted.")
@access_options
def command(
    url: str | None,
    zk: str | None,
    zk_access: ZooKeeperAccess,
    max_lag: float | None,
    forget: str | None,
    as_json: bool,
    watch: bool,
    user: str,
    password_file: Path | None,
    token_file: Path | None,
    tls_ca: str,
) -> None:
    """Show destinations, their owners, their clients and their lag.

    Exit codes: 0 no problem; 1 no node answers, or ZooKeeper does not, or a login is refused; 2 wrong usage; 3 there is
    a problem below the tables, such as a destination without an owner, a missing node, a failing source or an alarm.
    """
    if url and zk:
        raise click.UsageError("--url and --zk exclude each other")
    if forget:
        if not zk:
            raise click.UsageError("--forget needs --zk")
        forget_node(zk, zk_access, forget)
        return
    access = http_access(user, password_file, tls_ca, token_file)
    limit = math.inf if max_lag is None else max_lag
    found: Sequence[str] = ()
    with suppress(KeyboardInterrupt):
        if zk:
            found = show_cluster(zk, zk_access, access, limit, as_json=as_json, watch=watch)
        else:
            document = repeat(
                lambda: fetch(url or DEFAULT_URL, access), partial(show, max_lag=limit), as_json=as_json, watch=watch
            )
            found = problems(document, limit)
    if found:
        sys.exit(PROBLEM)


def forget_node(zk: str, zk_access: ZooKeeperAccess, node: str) -> None:
    """Let a node that is gone for good be missing no more. Raises ZooKeeperUnavailable, ZnodeDenied.

    zk: ZooKeeper servers, with an optional chroot.
    zk_access: how to reach it, and as whom.
    node: registerIp:port.
    """
    from canal_ha.zookeeper import tree
    from canal_ha.zookeeper.operations import Delete
    from canal_ha.zookeeper.reading import BlockingZnodes

    with BlockingZnodes(zk, zk_access, read_only=False) as znodes:
        if node in znodes.children(tree.CLUSTER):
            raise click.UsageError(f"{node} is alive")
        if node not in znodes.children(tree.NODES):
            raise click.UsageError(f"no node {node} is missing")
        znodes.transaction([Delete(tree.known_node(node))])


def show_cluster(
    zk: str, zk_access: ZooKeeperAccess, access: HttpAccess, max_lag: float, *, as_json: bool, watch: bool
) -> Sequence[str]:
    """Show the cluster through one ZooKeeper session, and return its problems.

    zk: ZooKeeper servers, with an optional chroot.
    zk_access: how to reach it, and as whom.
    access: the login at the nodes.
    max_lag: seconds behind its source from which a client is a problem.
    as_json: print JSON instead of tables.
    watch: refresh until interrupted.
    Raises NodeUnreachable if no node is alive.
    """
    from canal_ha.cli import overview
    from canal_ha.zookeeper.reading import BlockingZnodes

    with BlockingZnodes(zk, zk_access) as znodes:
        seen = repeat(
            partial(overview.look, znodes, access),
            partial(overview.show, max_lag=max_lag),
            as_json=as_json,
            watch=watch,
            document=overview.document_of,
        )
    if all(node.missing for node in seen.nodes):
        raise overview.nobody(zk, seen)
    return list(overview.problems(seen, max_lag))


def repeat(
    look: Callable[[], T],
    show: Callable[[T, Console], None],
    *,
    as_json: bool,
    watch: bool,
    document: Callable[[T], Any] = lambda seen: seen,
) -> T:
    """Show the state once and return it, or refresh it until interrupted; print a failed refresh and go on.

    look: reads the state.
    show: prints the state on a console.
    as_json: print JSON instead of calling `show`.
    watch: refresh until interrupted.
    document: returns the state as JSON has it.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_ELSEWHERE
    seen = look()
    while True:
        if as_json:
            click.echo(json_text(document(seen), None if watch else 2))
        else:
            if watch and console.is_terminal:
                console.clear()
            show(seen, console)
        if not watch:
            return seen
        while True:
            time.sleep(WATCH_S)
            try:
                seen = look()
                break
            except CanalError as error:
                click.echo(f"canal-ha: {error}", err=True)


def show(document: dict[str, Any], console: Console, max_lag: float = math.inf) -> None:
    """Print the document as a table, then the problems. max_lag: see `problems`."""
    node = document["node"]
    up = duration(node["uptime_s"])
    text = f"node {node['address']}   canal-ha {node['version']}, {node['kernel']} kernel   up {up}"
    console.print(lines(text), markup=False)
    if document["destinations"]:
        _print_destinations(document, console)
    else:
        console.print("no destination runs here")
    for problem in problems(document, max_lag):
        console.print(lines(problem), markup=False, style="red")


def _print_destinations(document: dict[str, Any], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text  # cells are texts: rich reads brackets in a plain string as markup

    table = Table()
    for name in ("destination", "source", "client", "state", "cursor", "decoded"):
        table.add_column(name, overflow="fold")
    for name in ("ring", "batches", "unacked", "behind", "bytes behind"):
        table.add_column(name, justify="right")
    for destination in document["destinations"]:
        standby = " (standby)" if destination.get("source_role") == "standby" else ""
        head = [destination["destination"], destination["source_address"] + standby]
        if not destination["streams"]:
            table.add_row(*map(Text, map(lines, head)), "none")
        for stream in destination["streams"]:
            table.add_row(*map(Text, map(lines, (*head, *cells(stream)))))
            head = ["", ""]
    console.print(table)
    for destination in document["destinations"]:
        if queue := destination.get("queue"):
            console.print(lines(queue_line(destination["destination"], queue)), markup=False)
        for reader in destination.get("readers", ()):
            console.print(lines(_reader(destination["destination"], reader)), markup=False)
        for stream in destination["streams"]:
            if (snapshot := stream.get("snapshot")) and snapshot["phase"] in ("running", "paused"):
                client = f"{destination['destination']}, client {stream['client_id']}"
                console.print(lines(f"{client}: {snapshot_line(snapshot)}"), markup=False)


def _reader(destination: str, reader: dict[str, Any]) -> str:
    account = f"account {reader['account']} at " if reader["account"] else ""
    way = "from a position" if reader["private"] else f"client {reader['client_id']}"
    return f"{destination}, {way}: read by {account}{reader['address']}"


def problems(document: dict[str, Any], max_lag: float = math.inf) -> list[str]:
    """Return one line for each problem of a node.

    document: its status.
    max_lag: seconds behind its source from which a client, or Kafka, is one.
    """
    found = [each["text"] for each in document.get("unready", ())]
    found += (each["text"] for each in document.get("alarms", ()) if each.get("alarm") != SOURCE)
    for destination in document["destinations"]:
        name = destination["destination"]
        if destination["source_error"]:
            found.append(f"{name}: {destination['source_error']}")
        if destination.get("detecting_failures"):
            found.append(f"{name}: no answer from its source {destination['detecting_failures']} times in a row")
        if queue := destination.get("queue"):
            found += queue_problems(name, queue, max_lag)
        for stream in destination["streams"]:
            found += (f"{name}, client {stream['client_id']}: {text}" for text in _problems_of(stream, max_lag))
    return found


def _problems_of(stream: dict[str, Any], max_lag: float) -> Iterator[str]:
    if stream["error"]:
        yield stream["error"]
    if (snapshot := stream.get("snapshot")) and snapshot["phase"] == "failed":
        yield snapshot_line(snapshot)
    for alarm in stream.get("alarms", ()):
        yield MEANINGS.get(alarm, alarm)
    for part in stream.get("parts", ()):
        if part["left_behind"]:
            yield f"{part['source_address']} is left behind"
    if stream["seconds_behind"] > max_lag:
        yield too_late(stream["seconds_behind"], max_lag)


def cells(stream: dict[str, Any]) -> tuple[str, ...]:
    """Return one stream's cells of a row; `-` for an unknown or inapplicable value."""
    entries, capacity = stream["ring_entries"], stream["ring_capacity"]
    return (
        str(stream["client_id"]),
        stream["state"],
        position(stream["cursor"]),
        position(stream["decoded"]),
        f"{entries} of {capacity} ({100 * entries // capacity} %)" if capacity else "-",
        str(len(stream["batches"])),
        duration(stream["oldest_unacked_s"]),
        duration(stream["seconds_behind"]),
        size(stream["bytes_behind"]),
    )
