"""`canal-ha source`: switches a running destination to its other server."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

import click

from canal_ha.cli.access import HttpAccess, access_options, http_access
from canal_ha.cli.node_status import DEFAULT_URL, refusal
from canal_ha.config.load import load_usable
from canal_ha.errors import NodeUnreachable, SwitchRefused

TIMEOUT_S = 60.0  # the node checks the other server first


@click.group()
def command() -> None:
    """Switch a destination between canal.instance.master.address and canal.instance.standby.address."""


@command.command()
@click.option("--destination", required=True, help="Name of the destination.")
@click.option("--to", type=click.Choice(["master", "standby", "other"]), default="other", show_default=True)
@click.option(
    "--source", type=click.IntRange(1), metavar="N", help="Number of the source, if the destination has several."
)
@click.option(
    "--url", help=f"Status endpoint of the node that runs it: canal.admin.http.port.  [default: {DEFAULT_URL}]"
)
@click.option(
    "--conf",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Configuration directory, as in `canal-ha server`; excludes --url.",
)
@access_options
def switch(
    destination: str,
    to: str,
    source: int | None,
    url: str | None,
    conf: Path | None,
    user: str,
    password_file: Path | None,
    token_file: Path | None,
    tls_ca: str,
) -> None:
    """Read from the other server. Ask the node that runs the destination; without accounts, with its --conf.

    Clients notice nothing: reading continues after the last delivered transaction. If the other server cannot be read,
    nothing changes.
    """
    if url and conf:
        raise click.UsageError("--url and --conf exclude each other")
    if conf:
        config = load_usable(conf, (), os.environ)
        url = f"http://127.0.0.1:{config.admin_http_port}"
        if not (user or token_file) and config.operator_token_file.is_file():
            token_file = config.operator_token_file
    access = http_access(user, password_file, tls_ca, token_file)
    address = _ask_node(url or DEFAULT_URL, destination, f"{source}/{to}" if source else to, access)
    click.echo(f"{destination}: reads from {address}")


def _ask_node(url: str, destination: str, to: str, access: HttpAccess) -> str:
    url = url if "://" in url else f"http://{url}"
    address = f"{url.rstrip('/')}/api/v1/destinations/{quote(destination, safe='')}/source"
    request = Request(address, json.dumps({"to": to}).encode(), {"content-type": "application/json"})
    try:
        with access.opener().open(request, timeout=TIMEOUT_S) as answer:
            return str(json.load(answer)["source"])
    except HTTPError as error:
        raise SwitchRefused(refusal(error) or f"{address} answered {error.code} {error.reason}") from error
    except (URLError, OSError, HTTPException) as error:
        raise NodeUnreachable(
            f"no node answers at {url} ({getattr(error, 'reason', None) or error}): run this where the node that runs"
            f" {destination} listens (canal.log says admin.listening)"
        ) from error
