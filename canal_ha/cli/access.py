"""The login of commands that ask a node's status endpoint over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from canal_ha.client.http_access import HttpAccess

Command = TypeVar("Command", bound=Callable[..., Any])

USER, PASSWORD_FILE, TLS_CA = "CANAL_HA_USER", "CANAL_HA_PASSWORD_FILE", "CANAL_HA_TLS_CA"
TOKEN_FILE = "CANAL_HA_TOKEN_FILE"  # the name of a variable


def access_options(command: Command) -> Command:
    """Add --user, --password-file, --token-file and --tls-ca to a command, which passes them to `http_access`."""
    command = click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar=TOKEN_FILE,
        help=f"File with an account's bearer token, instead of a password.  [env: {TOKEN_FILE}]",
    )(command)
    return login_options(command)


def login_options(command: Command) -> Command:
    """Add --user, --password-file and --tls-ca to a command."""
    for option in (
        click.option("--user", default="", envvar=USER, help=f"Account, if the nodes have accounts.  [env: {USER}]"),
        click.option(
            "--password-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            envvar=PASSWORD_FILE,
            help=f"File with the account's password in its first line.  [env: {PASSWORD_FILE}]",
        ),
        click.option(
            "--tls-ca",
            default="",
            envvar=TLS_CA,
            metavar="FILE",
            help=f"PEM file of the authorities for TLS; the system's if omitted.  [env: {TLS_CA}]",
        ),
    ):
        command = option(command)
    return command


def http_access(user: str, password_file: Path | None, tls_ca: str = "", token_file: Path | None = None) -> HttpAccess:
    """Return the access of the options. Raises OSError."""
    return HttpAccess(user, first_line(password_file), tls_ca, first_line(token_file))


def first_line(file: Path | None) -> str:
    """Return the first line without its end; "" without a file. Raises OSError."""
    return file.read_text().partition("\n")[0].rstrip("\r") if file else ""


def access_from_environment() -> HttpAccess:
    """Return the access that the environment variables name."""
    password, token = (os.environ.get(name) for name in (PASSWORD_FILE, TOKEN_FILE))
    return http_access(
        os.environ.get(USER, ""),
        Path(password) if password else None,
        os.environ.get(TLS_CA, ""),
        Path(token) if token else None,
    )
