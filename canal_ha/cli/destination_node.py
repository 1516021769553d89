"""The node that runs a destination, for commands that act there: its options, and how to ask it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import click

from canal_ha.admin.address_file import read_address
from canal_ha.cli.access import access_options, first_line, http_access
from canal_ha.cli.profiles import profile_option
from canal_ha.client.http_access import HttpAccess
from canal_ha.client.node_http import DEFAULT_URL, post
from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig
from canal_ha.errors import CanalError

Command = TypeVar("Command", bound=Callable[..., Any])


def destination_node_options(command: Command) -> Command:
    """Add --url, --conf and the options of the login to a command, which passes them to DestinationNode."""
    return _node_options(command, "the node that runs it")


def any_node_options(command: Command) -> Command:
    """Add the same options to a command that any node of the cluster can answer."""
    return _node_options(command, "any node of the cluster")


def each_node_options(command: Command) -> Command:
    """Add the same options to a command that changes each node that it names; --url can be given several times."""
    return _node_options(command, "the node to change; give it for each node", multiple=True)


def _node_options(command: Command, which: str, *, multiple: bool = False) -> Command:
    command = access_options(command)
    command = click.option(
        "--conf",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Configuration directory, as in `canal-ha server`; excludes --url.",
    )(command)
    text = f"Status endpoint of {which}: canal.admin.http.port.  [default: {DEFAULT_URL}]"
    return profile_option(click.option("--url", multiple=multiple, help=text)(command))


def at_home(config: CanalConfig, access: HttpAccess) -> tuple[str, HttpAccess]:
    """Return the status endpoint of the node that runs with a configuration on this machine, and the login there.

    config: of the node.
    access: the login. Without an account, the node's operator logs in. Over TLS, without authorities, the login is for
        the node's own certificate alone.
    Raises OSError; NodeUnreachable if no such node runs: whoever listens on the configured port gets no login.
    """
    if not (access.user or access.token) and config.operator_token_file.is_file():
        access = replace(access, token=first_line(config.operator_token_file))
    url = read_address(config.status_address_file)
    if url.startswith("https://") and config.tls and not access.tls_ca:
        access = replace(access, certificate=config.tls.cert_file)
    return url, access


class DestinationNode:
    """The node that runs a destination. url, access: of its status endpoint."""

    def __init__(
        self,
        destination: str,
        url: str | None,
        conf: Path | None,
        user: str,
        password_file: Path | None,
        token_file: Path | None,
        tls_ca: str,
    ) -> None:
        """Read the options. Raises UsageError, ConfigError, OSError; NodeUnreachable if no node runs with conf.

        destination: its name.
        url, conf: which node; the default address without either. With conf, the node that runs with it here, and
            without an account its operator's token.
        user, password_file, token_file, tls_ca: see access_options.
        """
        if url and conf:
            raise click.UsageError("--url and --conf exclude each other")
        self._destination = destination
        access = http_access(user, password_file, tls_ca, token_file)
        if conf:
            config = load_usable(conf, (), os.environ)
            self.url, self.access = at_home(config, access)
            return
        url = url or DEFAULT_URL
        self.url = url if "://" in url else f"http://{url}"
        self.access = access

    def post(
        self, action: str, body: Any, shape: Mapping[str, Any], refused: type[CanalError], timeout_s: float
    ) -> dict[str, Any]:
        """Ask for an action on the destination, and return the answer; see node_http.post."""
        return post(self.url, self.access, self._destination, action, body, shape, refused, timeout_s)
