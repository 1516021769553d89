"""`canal-ha snapshot`: puts the existing rows of tables into a client's stream."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request

import click

from canal_ha.cli.access import HttpAccess, access_options, http_access
from canal_ha.cli.node_status import DEFAULT_URL, fetch
from canal_ha.config.load import load_usable
from canal_ha.errors import NodeUnreachable, SnapshotRefused

TIMEOUT_S = 30.0
LOOK_S = 1.0
ENDED = ("done", "failed", "cancelled")


@click.group()
def command() -> None:
    """Read the existing rows of tables into a client's stream, without a lock, while changes keep flowing.

    The node that runs the destination does it. The rows arrive as INSERT entries with the property canal.snapshot.
    A consumer treats them as upserts. Progress is kept with the client's cursor.
    """


def _place(function: Callable[..., None]) -> Callable[..., None]:
    for option in reversed(
        (
            click.option("--destination", required=True, help="Name of the destination."),
            click.option("--client-id", type=int, default=1001, show_default=True, help="Whose stream gets the rows."),
            click.option(
                "--url",
                help=f"Status endpoint of the node that runs it: canal.admin.http.port.  [default: {DEFAULT_URL}]",
            ),
            click.option(
                "--conf",
                type=click.Path(path_type=Path),
                metavar="DIR",
                help="Configuration directory, as in `canal-ha server`; excludes --url.",
            ),
            access_options,
        )
    ):
        function = option(function)
    return function


@command.command()
@_place
@click.option("--table", "tables", multiple=True, required=True, metavar="SCHEMA.TABLE", help="May be repeated.")
@click.option(
    "--where", "where", multiple=True, metavar="SCHEMA.TABLE=CONDITION", help="Only these rows of a table, in SQL."
)
@click.option("--watch", is_flag=True, help="Show the progress until the end.")
def start(tables: tuple[str, ...], where: tuple[str, ...], watch: bool, **place: Any) -> None:
    """Begin a snapshot. The client id must be subscribed."""
    conditions = {}
    for each in where:
        table, equals, condition = each.partition("=")
        if not (equals and condition.strip()):
            raise click.UsageError(f"--where {each}: write SCHEMA.TABLE=CONDITION")
        conditions[table.strip()] = condition.strip()
    asked = _Node(**place)
    state = asked.post({"action": "start", "tables": list(tables), "where": conditions})
    click.echo(_line(state))
    if watch:
        asked.watch()


@command.command()
@_place
def pause(**place: Any) -> None:
    """Stop reading rows; changes keep flowing."""
    click.echo(_line(_Node(**place).post({"action": "pause"})))


@command.command()
@_place
def resume(**place: Any) -> None:
    """Continue behind the last acknowledged chunk; also a snapshot that failed."""
    click.echo(_line(_Node(**place).post({"action": "resume"})))


@command.command()
@_place
def cancel(**place: Any) -> None:
    """End a snapshot. The rows that the client has got stay."""
    click.echo(_line(_Node(**place).post({"action": "cancel"})))


@command.command()
@_place
@click.option("--watch", is_flag=True, help="Show the progress until the end.")
@click.option("--json", "as_json", is_flag=True, help="Print the state as JSON.")
def status(watch: bool, as_json: bool, **place: Any) -> None:
    """Show how far the client's snapshot has come. The exit code is 1 if it failed."""
    asked = _Node(**place)
    state = asked.state()
    click.echo(json.dumps(state, ensure_ascii=False) if as_json else _line(state))
    if watch:
        state = asked.watch()
    if state["phase"] == "failed":
        raise SystemExit(1)


class _Node:
    """The node that runs the destination."""

    def __init__(
        self,
        destination: str,
        client_id: int,
        url: str | None,
        conf: Path | None,
        user: str,
        password_file: Path | None,
        token_file: Path | None,
        tls_ca: str,
    ) -> None:
        if url and conf:
            raise click.UsageError("--url and --conf exclude each other")
        if conf:
            config = load_usable(conf, (), os.environ)
            url = f"http://127.0.0.1:{config.admin_http_port}"
            if not (user or token_file) and config.operator_token_file.is_file():
                token_file = config.operator_token_file
        url = url or DEFAULT_URL
        self._url = url if "://" in url else f"http://{url}"
        self._destination = destination
        self._client_id = client_id
        self._access: HttpAccess = http_access(user, password_file, tls_ca, token_file)

    def post(self, body: dict[str, Any]) -> dict[str, Any]:
        """Ask for an action and return the state. Raises SnapshotRefused, NodeUnreachable."""
        address = f"{self._url.rstrip('/')}/api/v1/destinations/{quote(self._destination, safe='')}/snapshot"
        text = json.dumps({"client_id": self._client_id, **body}).encode()
        request = Request(address, text, {"content-type": "application/json"})
        try:
            with self._access.opener().open(request, timeout=TIMEOUT_S) as answer:
                state: dict[str, Any] = json.load(answer)["snapshot"]
                return state
        except HTTPError as error:
            try:
                reason = json.load(error)["error"]
            except (ValueError, KeyError, TypeError):
                reason = f"{address} answered {error.code} {error.reason}"
            raise SnapshotRefused(str(reason)) from error
        except (URLError, OSError, HTTPException) as error:
            raise NodeUnreachable(
                f"no node answers at {self._url} ({getattr(error, 'reason', None) or error}): run this where the node"
                f" that runs {self._destination} listens (canal.log says admin.listening)"
            ) from error

    def state(self) -> dict[str, Any]:
        """Return the state. Raises SnapshotRefused if the client has none."""
        document = fetch(self._url, self._access)
        for each in document["destinations"]:
            for stream in each["streams"] if each["destination"] == self._destination else ():
                if stream["client_id"] == self._client_id and stream.get("snapshot"):
                    state: dict[str, Any] = stream["snapshot"]
                    return state
        raise SnapshotRefused(
            f"{self._destination} has no snapshot of client id {self._client_id} on this node;"
            " `canal-ha status --zk` shows which node runs it"
        )

    def watch(self) -> dict[str, Any]:
        """Show the progress until the end, and return the last state."""
        state = self.state()
        rows, at = state["rows"], time.monotonic()
        with click.progressbar(length=max(state["total"], 1), show_pos=True, item_show_func=_shown) as bar:
            while state["phase"] not in ENDED:
                time.sleep(LOOK_S)
                state = self.state()
                bar.length = max(state["total"], state["rows"], 1)
                now = time.monotonic()
                rate, rows, at = (state["rows"] - rows) / (now - at), state["rows"], now
                bar.pos = min(state["rows"], bar.length)
                bar.update(0, f"{rate:,.0f} rows/s")
        click.echo(_line(state))
        return state


def _shown(text: str | None) -> str:
    return text or ""


def _line(state: dict[str, Any]) -> str:
    tables = len(state["tables"])
    total = f" of about {state['total']:,}" if state["total"] else ""
    text = (
        f"snapshot {state['id']} {state['phase']}: {state['rows']:,}{total} rows, {state['table']} of {tables} tables"
    )
    return f"{text}: {state['error']}" if state["error"] else text
