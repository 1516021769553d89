"""`canal-ha status`: what a node says of itself, as a table or as JSON."""

from __future__ import annotations

import json
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, build_opener

import click

from canal_ha.errors import CanalError

TIMEOUT_S = 5.0
WIDTH_ELSEWHERE = 160  # columns, where there is no terminal


class NodeUnreachable(CanalError):
    """No node answered with a status."""


@click.command()
@click.option(
    "--url", default="http://127.0.0.1:8089", show_default=True, help="Status endpoint: canal.admin.http.port."
)
@click.option("--json", "as_json", is_flag=True, help="Print what the node says, unchanged in content.")
def command(url: str, as_json: bool) -> None:
    """Show the destinations of a node, their clients and how far behind they are."""
    document = fetch(url)
    if as_json:
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        show(document)


def fetch(url: str) -> dict[str, Any]:
    """The status document of the node at this URL. Raises NodeUnreachable saying what to look at."""
    opener = build_opener(ProxyHandler({}))  # a node on loopback is not behind the proxy of the environment
    url = url if "://" in url else f"http://{url}"
    address = url.rstrip("/") + "/api/v1/status"
    try:
        with opener.open(address, timeout=TIMEOUT_S) as answer:
            document = json.load(answer)
    except HTTPError as error:
        raise NodeUnreachable(f"{address} answered {error.code} {error.reason}: is this a canal-ha node?") from error
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise NodeUnreachable(
            f"no node answers at {url} ({reason}): is `canal-ha server` running there, and what is its"
            " canal.admin.http.port? (canal.log says admin.listening)"
        ) from error
    except ValueError as error:
        raise NodeUnreachable(f"{address} is no status of a canal-ha node: {error}") from error
    if not isinstance(document, dict) or not {"node", "destinations"} <= document.keys():
        raise NodeUnreachable(f"{address} is no status of a canal-ha node")
    return document


def show(document: dict[str, Any]) -> None:
    """Print the document as a table, and below it what is wrong."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text  # cells are texts: rich reads brackets in a plain string as markup

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_ELSEWHERE
    node = document["node"]
    up = duration(node["uptime_s"])
    console.print(
        f"node {node['address']}   canal-ha {node['version']}, {node['kernel']} kernel   up {up}", markup=False
    )
    if not document["destinations"]:
        console.print("no destination runs here")
        return
    table = Table()
    for name in ("destination", "source", "client", "state", "cursor", "decoded"):
        table.add_column(name, overflow="fold")
    for name in ("ring", "batches", "unacked", "behind", "bytes behind"):
        table.add_column(name, justify="right")
    problems = []
    for destination in document["destinations"]:
        head = [destination["destination"], destination["source_address"]]
        if destination["source_error"]:
            problems.append(f"{head[0]}: {destination['source_error']}")
        if not destination["streams"]:
            table.add_row(*map(Text, head), "none")
        for stream in destination["streams"]:
            table.add_row(*map(Text, (*head, *cells(stream))))
            head = ["", ""]
            if stream["error"]:
                problems.append(f"{destination['destination']}, client {stream['client_id']}: {stream['error']}")
    console.print(table)
    for problem in problems:
        console.print(problem, markup=False, style="red")


def cells(stream: dict[str, Any]) -> tuple[str, ...]:
    """One stream's part of a row; `-` for what is unknown or does not apply."""
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
    """journal:offset."""
    return f"{value['journal']}:{value['offset']}" if value else "-"


def duration(seconds: float) -> str:
    """Two units at most, from tenths of a second to days."""
    if seconds < 0:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    if hours < 1:
        return f"{minutes} min {int(seconds) % 60} s"
    return f"{hours} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def size(count: int) -> str:
    """Bytes in binary units."""
    if count < 0:
        return "-"
    value, unit = float(count), 0
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    while value >= 1024 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {units[unit]}"
