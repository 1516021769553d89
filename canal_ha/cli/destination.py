"""`canal-ha destination`: shows where destinations run, adds, moves, pauses and removes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click

from canal_ha.cli.destination_node import DestinationNode, any_node_options, each_node_options
from canal_ha.cli.figures import lines
from canal_ha.cli.instance_template import template
from canal_ha.client.node_answer import ADDED, MOVE, PLACED, REMOVED
from canal_ha.client.node_http import ask, path_of
from canal_ha.errors import PlacementRefused
from canal_ha.model.excerpt import json_text, printable

Command = TypeVar("Command", bound=Callable[..., Any])

TIMEOUT_S = 60.0
REBALANCE_TIMEOUT_S = 3600.0  # one move after the other

_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def command() -> None:
    """Show where destinations run; add, move, pause, resume and remove them.

    Any node of the cluster can be asked; only `add` and `remove` change the node that is asked.
    Changes need the role admin; a node without accounts takes its --conf instead.
    """


def _change_options(command: Command, node_options: Callable[[Command], Command] = any_node_options) -> Command:
    """Add the options of every command that changes something."""
    for option in (
        node_options,
        _as_json,
        click.option("--yes", is_flag=True, help="Do not ask for a confirmation."),
        click.option("--dry-run", is_flag=True, help="Only print what would happen."),
    ):
        command = option(command)
    return command


@command.command(name="list")
@_as_json
@any_node_options
def list_(as_json: bool, **node: Any) -> None:
    """Show every destination: where it runs, which nodes stand by, and whether it is paused."""
    asked = DestinationNode("", **node)
    answer = ask(asked.url, asked.access, "destinations", None, {"destinations": [PLACED]}, PlacementRefused, TIMEOUT_S)
    if as_json:
        click.echo(json_text(answer["destinations"], 2))
        return
    rows = [("destination", "runs on", "stands by", "prefers")]
    for each in answer["destinations"]:
        runs_on = "paused" if each["paused"] and not each["runs_on"] else each["runs_on"] or "no owner"
        rows.append((each["destination"], runs_on, ", ".join(each["stand_by"]), _preferred(each)))
    widths = [max(len(printable(row[column])) for row in rows) for column in range(4)]
    for row in rows:
        click.echo("  ".join(printable(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    runs = Counter(each["runs_on"] for each in answer["destinations"])
    nodes = {name for each in answer["destinations"] for name in (each["runs_on"], *each["stand_by"]) if name}
    click.echo("".join(f"\n{printable(name)} runs {runs[name]}" for name in sorted(nodes)))


@command.command()
@click.argument("destination")
@_change_options
def pause(destination: str, **options: Any) -> None:
    """Stop a destination on all nodes, also over restarts, until it is resumed. Clients wait; no row is lost.

    The database must keep its binary logs for as long as the pause lasts.
    """
    _change(
        path_of(destination, "pause"),
        {},
        {"destination": str, "ran_on": str, "dry_run": bool},
        lambda plan: f"{destination} stops{_on(plan['ran_on'])} and stays stopped until `canal-ha destination resume`",
        lambda done: f"{destination}: paused",
        **options,
    )


@command.command()
@click.argument("destination")
@_change_options
def resume(destination: str, **options: Any) -> None:
    """Let the nodes run a paused destination again."""
    _change(
        path_of(destination, "resume"),
        {},
        {"destination": str, "runs_on": str, "dry_run": bool},
        lambda plan: f"{destination} runs again, on the node that claims it first",
        lambda done: f"{destination}: resumed, {_runs(done['runs_on'])}",
        **options,
    )


@command.command()
@click.argument("destination")
@click.option("--to", required=True, metavar="HOST:PORT", help="The node, as `canal-ha destination list` shows it.")
@_change_options
def move(destination: str, to: str, **options: Any) -> None:
    """Hand a destination to another node. Its owner writes the cursors first; clients reconnect by themselves."""
    _change(
        path_of(destination, "move"),
        {"to": to},
        {**MOVE, "dry_run": bool},
        lambda plan: _planned([plan]),
        lambda done: _moved([done]),
        **options,
    )


@command.command()
@_change_options
def rebalance(**options: Any) -> None:
    """Move destinations, one after the other, until all nodes run about as many.

    A destination goes to a node that it prefers (canal.instance.placement.prefer), whatever the numbers are.
    """
    _change(
        "rebalance",
        {},
        {"moves": [MOVE], "dry_run": bool},
        lambda plan: _planned(plan["moves"]),
        lambda done: _moved(done["moves"]),
        needed=lambda plan: bool(plan["moves"]),
        timeout_s=REBALANCE_TIMEOUT_S,
        **options,
    )


@command.command()
@click.argument("destination")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Its instance.properties.  [default: a template with a comment for each key that --set can give]",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="A line to add to the file; can be repeated. Write passwords as '${file:PATH}' of the node, in its"
    " canal.admin.http.secrets.",
)
@partial(_change_options, node_options=each_node_options)
def add(destination: str, file: Path | None, sets: tuple[str, ...], url: tuple[str, ...], **options: Any) -> None:
    """Add a destination to the nodes that are asked, and to no others: each node has files of its own.

    The node checks the file, writes it, and runs the destination or stands by. With canal.auto.scan = false it also
    adds the name to canal.destinations in canal.properties, and needs a restart.
    """
    text = template(file.read_text(encoding="utf-8") if file else None, sets)
    for each in url or (None,):
        _change(
            path_of(destination, "add"),
            {"text": text},
            ADDED,
            lambda plan: f"{plan['node']} gets {plan['file']}{_listed(plan)}{_warned(plan)}{_missing(plan)}",
            lambda done: (
                f"{destination}: {done['node']} has {done['file']} now{_restart(done)}{_warned(done)}{_missing(done)}"
            ),
            url=each,
            **options,
        )


@command.command()
@click.argument("destination")
@click.option("--purge", is_flag=True, help="Also delete cursors, table history and files for ever.")
@partial(_change_options, node_options=each_node_options)
def remove(destination: str, purge: bool, url: tuple[str, ...], **options: Any) -> None:
    """Remove a destination from the nodes that are asked, and from no others.

    If it runs there, it ends in good order, and another node that has it takes it. Cursors and table history are kept,
    and the file as instance.properties.removed. --purge deletes all of them; only the last node that has the
    destination does that.
    """
    for each in url or (None,):
        _change(
            path_of(destination, "remove"),
            {"purge": purge},
            REMOVED,
            lambda plan: f"{destination} is removed from {plan['node']}{_outcome(plan)}",
            lambda done: f"{destination}: removed from {done['node']}{_restart(done)}{_outcome(done)}",
            url=each,
            **options,
        )


def _change(
    path: str,
    body: Mapping[str, Any],
    shape: Mapping[str, Any],
    planned: Callable[[Mapping[str, Any]], str],
    changed: Callable[[Mapping[str, Any]], str],
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    needed: Callable[[Mapping[str, Any]], bool] = lambda plan: True,
    timeout_s: float = TIMEOUT_S,
    **node: Any,
) -> None:
    """Ask a node what would happen, get a confirmation, and let the node do it.

    path: of the request.
    body: of the request, without dry_run.
    shape: of the answer.
    planned, changed: say what would happen, and what has happened.
    dry_run, yes, as_json: as in the options.
    needed: whether there is anything to do.
    timeout_s: for the answer.
    node: which node to ask; see DestinationNode.
    """
    asked = DestinationNode("", **node)
    plan = ask(asked.url, asked.access, path, {**body, "dry_run": True}, shape, PlacementRefused, timeout_s)
    if dry_run or not needed(plan):
        click.echo(json_text(plan, 2) if as_json else lines(planned(plan)))
        return
    if not yes:
        click.echo(lines(planned(plan)), err=as_json)
        click.confirm("Go on?", abort=True, err=as_json)
    done = ask(asked.url, asked.access, path, {**body, "dry_run": False}, shape, PlacementRefused, timeout_s)
    click.echo(json_text(done, 2) if as_json else lines(changed(done)))


def _preferred(placed: Mapping[str, Any]) -> str:
    """Return the nodes that a destination prefers; "-" if it prefers none to the others."""
    if {*placed["preferred"]} < {placed["runs_on"], *placed["stand_by"]} - {""}:
        return ", ".join(placed["preferred"]) or "-"
    return "-"


def _listed(plan: Mapping[str, Any]) -> str:
    return ", and its canal.destinations the name" if plan["listed"] else ""


def _restart(done: Mapping[str, Any]) -> str:
    return "; restart the node for that to take effect, because canal.auto.scan = false" if done["restart"] else ""


def _warned(plan: Mapping[str, Any]) -> str:
    return "".join(f"\nwarning: {each}" for each in plan["warnings"])


def _missing(plan: Mapping[str, Any]) -> str:
    nodes = ", ".join(plan["missing_on"])
    return f"\nnot yet on {nodes}: add it there too, so that they can take over" if nodes else ""


def _outcome(plan: Mapping[str, Any]) -> str:
    still = f"\nstill on {', '.join(plan['still_on'])}" if plan["still_on"] else ""
    kept = "".join(f"\nkept: {each}" for each in plan["kept"])
    return still + kept + "".join(f"\ndeleted: {each}" for each in plan["deleted"])


def _on(node: str) -> str:
    return f" on {node}" if node else ""


def _runs(node: str) -> str:
    return f"runs on {node}" if node else "no owner yet"


def _planned(moves: list[Mapping[str, Any]]) -> str:
    planned = [f"{each['destination']} moves from {each['moved_from']} to {each['moved_to']}" for each in moves]
    return "\n".join(planned) or "nothing to move: all nodes run about as many destinations"


def _moved(moves: list[Mapping[str, Any]]) -> str:
    return "\n".join(
        f"{each['destination']}: moved from {each['moved_from']} to {each['moved_to']} in {each['seconds']:.2f} s"
        for each in moves
    )
