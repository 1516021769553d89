"""`canal-ha config`: shows and checks a configuration, and compares it with the one that a node uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from canal_ha.cli.access import access_options, http_access
from canal_ha.cli.check import ports
from canal_ha.cli.destination_node import at_home
from canal_ha.cli.profiles import profile_option
from canal_ha.cli.server import load_checked
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_answer import DESTINATION_CONFIGURATION, NODE_CONFIGURATION
from canal_ha.client.node_http import fetch, path_of
from canal_ha.config.effective import EffectiveValue, compare, of_destination, of_node
from canal_ha.config.keys import BY_NAME, LIVE
from canal_ha.config.live import DEFAULT
from canal_ha.config.model import CanalConfig
from canal_ha.config.tls import unverified
from canal_ha.errors import ConfigError, DestinationUnknown
from canal_ha.model.excerpt import json_text, message, printable, some
from canal_ha.source.checkup import Verdict

Command = TypeVar("Command", bound=Callable[..., Any])
NODE = "node"
REFUSED, UNUSABLE = 1, 2  # exit codes of `validate`
DIFFERENT = 3  # exit code of `diff`; 1 and 2 are errors


def _files(command: Command) -> Command:
    """Add --conf and --set to a command, which passes them on as conf and sets."""
    command = click.option(
        "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key, as in `canal-ha server`."
    )(command)
    return click.option(
        "--conf",
        type=click.Path(path_type=Path),
        default=Path("conf"),
        show_default=True,
        metavar="DIR",
        help="Configuration directory, as in `canal-ha server`.",
    )(command)


@click.group()
def command() -> None:
    """Show and check a configuration, or compare it with the one that a node uses."""


# ---- show


@command.command()
@_files
@click.option("--destination", metavar="NAME", help="Show the keys of this destination only.")
@click.option("--effective", is_flag=True, help="Show the defaults of all other keys too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(conf: Path, sets: tuple[str, ...], destination: str | None, effective: bool, as_json: bool) -> None:
    """Show each key with its value, and where the value comes from: FILE:LINE, --set, the environment, or default.

    Secrets, and values from placeholders of files or of the environment, appear as ***. The exit code is 1 if a
    destination cannot be used.
    """
    config = load_checked(conf, sets)
    shown = {} if destination else {NODE: of_node(config, config)}
    shown |= {f"destination {name}": values for name, values in destinations_of(config, destination).items()}
    if not effective:
        shown = {scope: tuple(each for each in shown[scope] if each.origin != DEFAULT) for scope in shown}
    if as_json:
        click.echo(json_text({scope: [asdict(each) for each in values] for scope, values in shown.items()}, 2))
    else:
        for scope, values in shown.items():
            click.echo(f"# {printable(scope)}")
            for each in values:
                click.echo(f"{each.key} = {printable(each.value)}".ljust(60) + f"  # {printable(each.origin)}")
    for refused in config.refused:
        if destination in (None, refused.destination):
            click.echo(f"canal-ha: {refused.destination} cannot be used: {message(str(refused.error))}", err=True)
            sys.exit(REFUSED)


def destinations_of(config: CanalConfig, only: str | None) -> dict[str, tuple[EffectiveValue, ...]]:
    """Return the settings of the usable destinations, or of one. Raises DestinationUnknown."""
    known = {*(each.destination for each in config.destinations), *(each.destination for each in config.refused)}
    if only and only not in known:
        raise DestinationUnknown(
            f"{config.conf_dir} has no destination {only}; there is {some(sorted(known)) or 'none'}"
        )
    return {
        each.destination: of_destination(config, each)
        for each in config.destinations
        if only in (None, each.destination)
    }


# ---- validate


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a configuration.

    verdict: `FAILED`, or `warning` if a node would start and log it.
    scope: the destination, or `node`.
    text: what is wrong and where.
    file, line, key: where, as far as it is known; "" and 0 otherwise.
    """

    verdict: str
    scope: str
    text: str
    file: str = ""
    line: int = 0
    key: str = ""


@command.command()
@_files
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def validate(conf: Path, sets: tuple[str, ...], as_json: bool) -> None:
    """Check the files as a node does at its start, without asking any server. `canal-ha check` asks the servers too.

    The exit code is 0 if a node would run everything, 1 if it would refuse a destination and run the others, and 2 if
    it would not start. Warnings, for example about unknown keys, do not change the exit code, because a node starts
    with them.
    """
    problems, code, destinations = check(conf, sets)
    if as_json:
        click.echo(json_text({"exit_code": code, "problems": [asdict(each) for each in problems]}, 2))
    else:
        for each in problems:
            click.echo(f"{each.verdict:8} {printable(each.scope):14} {message(each.text)}")
        if not code:
            click.echo(f"{conf}: valid, destinations: {some(destinations) or 'none'}")
    sys.exit(code)


def check(conf: Path, sets: tuple[str, ...]) -> tuple[list[Problem], int, Sequence[str]]:
    """Return the problems, the exit code, and the names of the usable destinations."""
    problems: list[Problem] = []
    names: Sequence[str] = ()
    try:
        config = load_checked(conf, sets)
        names = [each.destination for each in config.destinations]
        problems += _warnings(config)
        problems += [_failed(refused.destination, refused.error) for refused in config.refused]
        for finding in ports(config):
            if finding.verdict is Verdict.WARNING:
                problems.append(Problem(finding.verdict.value, NODE, finding.text))
    except ConfigError as error:
        return [*problems, _failed(NODE, error)], UNUSABLE, names
    return problems, REFUSED if config.refused else 0, names


def _warnings(config: CanalConfig) -> Iterator[Problem]:
    for text in filter(None, (*config.warnings, unverified(config.destinations))):
        yield Problem(Verdict.WARNING.value, NODE, text)
    if not config.destinations and not config.refused:
        yield Problem(Verdict.WARNING.value, NODE, f"{config.conf_dir} configures no destination")


def _failed(scope: str, error: ConfigError) -> Problem:
    return Problem(Verdict.FAILED.value, scope, str(error), error.file, error.line, error.key)


# ---- diff


@command.command()
@profile_option
@_files
@click.option("--destination", metavar="NAME", help="Compare this destination only.")
@click.option("--url", help="Status endpoint of the node; by default the node that runs here with --conf.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@access_options
def diff(
    conf: Path,
    sets: tuple[str, ...],
    destination: str | None,
    url: str | None,
    as_json: bool,
    user: str,
    password_file: Path | None,
    token_file: Path | None,
    tls_ca: str,
) -> None:
    """Compare the files with what a running node uses.

    The node needs the role admin; without accounts, run this beside the node with its --conf. To see what an edit would
    change, give a copy of the directory with --conf, the node with --url, and its token with --token-file. Secrets are
    not compared. The exit code is 0 without a difference, 3 with one, and 1 or 2 after an error.
    """
    config = load_checked(conf, sets)
    access = http_access(user, password_file, tls_ca, token_file)
    if not url:
        url, access = at_home(config, access)
    found = Running(url, access).compared(config, destination)
    changed = [change for change in found if change.change]
    if as_json:
        click.echo(json_text({"changes": [asdict(each) for each in changed], "not_compared": _hidden(found)}, 2))
    else:
        for each in changed:
            click.echo(message(str(each)))
        if hidden := _hidden(found):
            click.echo(f"not compared, because they are secret: {some(hidden)}", err=True)
        if not changed:
            click.echo(f"{url} uses what {conf} says")
    sys.exit(DIFFERENT if changed else 0)


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the files and a node.

    scope: the destination, or `node`.
    change: `cannot be used`, `changed`, `added` (only in the files), `removed` (only in the node); "" for a secret in
        both.
    key: its name; "" for a whole destination.
    running, file: the values with their places; None where there is none.
    restart: whether the node needs a restart to use the file's value.
    reason: why the files cannot be used.
    """

    scope: str
    change: str
    key: str = ""
    running: EffectiveValue | None = None
    file: EffectiveValue | None = None
    restart: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if not self.key:
            return f"{self.scope}: {self.change}{': ' if self.reason else ''}{self.reason}"
        sides = (("running", self.running), ("file", self.file))
        shown = ", ".join(
            f"{side}: {each.value or 'blank'} ({each.origin})" if each else f"{side}: none" for side, each in sides
        )
        return f"{self.scope}: {self.key}: {shown}" + ("; needs a restart" if self.restart else "")


class Running:
    """The configuration that a node uses. url, access: of its status endpoint."""

    def __init__(self, url: str, access: HttpAccess) -> None:
        self._url = url
        self._access = access

    def compared(self, config: CanalConfig, only: str | None) -> list[Change]:
        """Compare a configuration with the node's. only: one destination. Raises NodeUnreachable."""
        node = fetch(self._url, self._access, "/api/v1/config", NODE_CONFIGURATION)
        changes = [] if only else _changes(NODE, _values(node), of_node(config, config))
        files, running = destinations_of(config, None), set(node["destinations"])
        refused = {each.destination: str(each.error) for each in config.refused}
        for name in sorted({*files, *refused, *running} if only is None else {only}):
            if name in refused:
                changes.append(Change(name, "cannot be used", reason=refused[name]))
            elif name not in files:
                changes.append(Change(name, "removed"))
            elif name not in running:
                changes.append(Change(name, "added"))
            else:
                path = f"/api/v1/{path_of(name, 'config')}"
                document = fetch(self._url, self._access, path, DESTINATION_CONFIGURATION)
                changes += _changes(name, _values(document), files[name])
        return changes


def _values(document: Mapping[str, Any]) -> list[EffectiveValue]:
    return [EffectiveValue(each["key"], each["value"], each["origin"]) for each in document["settings"]]


def _changes(scope: str, running: Sequence[EffectiveValue], file: Sequence[EffectiveValue]) -> list[Change]:
    found = compare(running, file)
    changes = []
    for old, new in found.differences:
        key = next(each.key for each in (new, old) if each)
        kind = "added" if old is None else "removed" if new is None else "changed"
        changes.append(Change(scope, kind, key, old, new, scope == NODE and key in BY_NAME and key not in LIVE))
    return [*changes, *(Change(scope, "", key) for key in found.hidden)]


def _hidden(changes: Sequence[Change]) -> list[str]:
    return [f"{each.scope}: {each.key}" for each in changes if not each.change]
