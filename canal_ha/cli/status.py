"""`canal-ha status`: shows the state of a node or of a cluster, as a table or as JSON."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from canal_ha.cli.access import access_options, http_access
from canal_ha.cli.figures import duration, lines, size, snapshot_line
from canal_ha.cli.zookeeper_options import zookeeper_options
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import DEFAULT_URL, fetch
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import CanalError
from canal_ha.instance.alarms import MEANINGS
from canal_ha.model.excerpt import json_text

if TYPE_CHECKING:
    from rich.console import Console

WATCH_S = 2.0
WIDTH_ELSEWHERE = 240  # columns, without a terminal; journal and offset fit on one line

T = TypeVar("T")


@click.command()
@click.option("--url", help=f"Status endpoint of one node: canal.admin.http.port.  [default: {DEFAULT_URL}]")
@click.option(
    "--zk", metavar="HOST:PORT[,...][/CHROOT]", help="Show the whole cluster, found through ZooKeeper; excludes --url."
)
@zookeeper_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON; with --watch one line per refresh.")
@click.option("--watch", is_flag=True, help=f"Refresh every {WATCH_S:.0f} s until interrupted.")
@access_options
def command(
    url: str | None,
    zk: str | None,
    zk_access: ZooKeeperAccess,
    as_json: bool,
    watch: bool,
    user: str,
    password_file: Path | None,
    token_file: Path | None,
    tls_ca: str,
) -> None:
    """Show destinations, their owners, their clients and their lag."""
    if url and zk:
        raise click.UsageError("--url and --zk exclude each other")
    access = http_access(user, password_file, tls_ca, token_file)
    with suppress(KeyboardInterrupt):
        if zk:
            show_cluster(zk, zk_access, access, as_json=as_json, watch=watch)
        else:
            repeat(lambda: fetch(url or DEFAULT_URL, access), show, as_json=as_json, watch=watch)


def show_cluster(zk: str, zk_access: ZooKeeperAccess, access: HttpAccess, *, as_json: bool, watch: bool) -> None:
    """Show the cluster through one ZooKeeper session.

    zk: ZooKeeper servers, with an optional chroot.
    zk_access: how to reach it, and as whom.
    access: the login at the nodes.
    as_json: print JSON instead of tables.
    watch: refresh until interrupted.
    """
    from canal_ha.cli import overview
    from canal_ha.zookeeper.reading import BlockingZnodes

    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # errors that matter are raised
    with BlockingZnodes(zk, zk_access) as znodes:
        seen = partial(overview.look, znodes, access)
        if as_json:
            document = repeat(
                lambda: overview.document_of(seen()), lambda document, console: None, as_json=True, watch=watch
            )
            nodes, destinations = document["nodes"], document["destinations"]
        else:
            last = repeat(seen, overview.show, as_json=False, watch=watch)
            nodes, destinations = last.nodes, last.destinations
    if not nodes:
        raise overview.nobody(zk, len(destinations))


def repeat(look: Callable[[], T], show: Callable[[T, Console], None], *, as_json: bool, watch: bool) -> T:
    """Show the state once and return it, or refresh it until interrupted; print a failed refresh and go on.

    look: reads the state.
    show: prints the state on a console.
    as_json: print JSON instead of calling `show`.
    watch: refresh until interrupted.
    """
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_ELSEWHERE
    seen = look()
    while True:
        if as_json:
            click.echo(json_text(seen, None if watch else 2))
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


def show(document: dict[str, Any], console: Console) -> None:
    """Print the document as a table, then the problems."""
    from rich.table import Table
    from rich.text import Text  # cells are texts: rich reads brackets in a plain string as markup

    node = document["node"]
    up = duration(node["uptime_s"])
    text = f"node {node['address']}   canal-ha {node['version']}, {node['kernel']} kernel   up {up}"
    console.print(lines(text), markup=False)
    alarms = [alarm["text"] for alarm in document.get("alarms", ())]
    if not document["destinations"]:
        console.print("no destination runs here")
        _problems(alarms, console)
        return
    table = Table()
    for name in ("destination", "source", "client", "state", "cursor", "decoded"):
        table.add_column(name, overflow="fold")
    for name in ("ring", "batches", "unacked", "behind", "bytes behind"):
        table.add_column(name, justify="right")
    problems = alarms
    for destination in document["destinations"]:
        standby = " (standby)" if destination.get("source_role") == "standby" else ""
        head = [destination["destination"], destination["source_address"] + standby]
        if destination["source_error"]:
            problems.append(f"{head[0]}: {destination['source_error']}")
        if destination.get("detecting_failures"):
            problems.append(f"{head[0]}: no answer from its source {destination['detecting_failures']} times in a row")
        if not destination["streams"]:
            table.add_row(*map(Text, map(lines, head)), "none")
        for stream in destination["streams"]:
            table.add_row(*map(Text, map(lines, (*head, *cells(stream)))))
            head = ["", ""]
            client = f"{destination['destination']}, client {stream['client_id']}"
            if stream["error"]:
                problems.append(f"{client}: {stream['error']}")
            if (snapshot := stream.get("snapshot")) and snapshot["phase"] == "failed":
                problems.append(f"{client}: {snapshot_line(snapshot)}")
            problems += [f"{client}: {MEANINGS.get(alarm, alarm)}" for alarm in stream.get("alarms", ())]
            problems += [
                f"{client}: {part['source_address']} is left behind"
                for part in stream.get("parts", ())
                if part["left_behind"]
            ]
    console.print(table)
    for destination in document["destinations"]:
        for reader in destination.get("readers", ()):
            console.print(lines(_reader(destination["destination"], reader)), markup=False)
        for stream in destination["streams"]:
            if (snapshot := stream.get("snapshot")) and snapshot["phase"] in ("running", "paused"):
                client = f"{destination['destination']}, client {stream['client_id']}"
                console.print(lines(f"{client}: {snapshot_line(snapshot)}"), markup=False)
    _problems(problems, console)


def _reader(destination: str, reader: dict[str, Any]) -> str:
    account = f"account {reader['account']} at " if reader["account"] else ""
    way = "from a position" if reader["private"] else f"client {reader['client_id']}"
    return f"{destination}, {way}: read by {account}{reader['address']}"


def _problems(problems: Sequence[str], console: Console) -> None:
    for problem in problems:
        console.print(lines(problem), markup=False, style="red")


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


def position(value: dict[str, Any] | None) -> str:
    """Format journal:offset; with several sources, one for each with its number as prefix."""
    if not value:
        return "-"
    if not value.get("part"):
        return f"{value['journal']}:{value['offset']}"
    parts = sorted((value, *value.get("others", ())), key=lambda each: int(each["part"]))
    return ", ".join(f"{each['part']}/{each['journal']}:{each['offset']}" for each in parts)
