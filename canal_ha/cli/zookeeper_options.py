"""The options with which commands reach ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from canal_ha.cli.access import first_line
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.config.pem_files import require_regular

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def zookeeper_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --zk-auth-file, --zk-sasl-file and --zk-tls-*. The command gets them as one argument, `zk_access`."""

    @wraps(command)
    def run(
        *args: Any,
        zk_auth_file: Path | None,
        zk_sasl_file: Path | None,
        zk_tls: bool,
        zk_tls_ca: Path | None,
        zk_tls_cert: Path | None,
        zk_tls_key: Path | None,
        **options: Any,
    ) -> None:
        files = str(zk_tls_ca or ""), str(zk_tls_cert or ""), str(zk_tls_key or "")
        require_regular(*files)
        access = ZooKeeperAccess(
            first_line(zk_auth_file),
            first_line(zk_sasl_file),
            zk_tls,
            *files,
        )
        command(*args, zk_access=access, **options)

    made: Callable[..., None] = run
    for option in reversed(
        (
            click.option(
                "--zk-auth-file",
                type=_FILE,
                help="File with user:password in its first line; required if the nodes set canal.zookeeper.auth.",
            ),
            click.option(
                "--zk-sasl-file",
                type=_FILE,
                help="The same for SASL DIGEST-MD5; required if the nodes set canal.zookeeper.sasl.",
            ),
            click.option("--zk-tls", is_flag=True, help="TLS to ZooKeeper, with the authorities of the system."),
            click.option("--zk-tls-ca", type=_FILE, help="TLS to ZooKeeper, with the authorities in this PEM file."),
            click.option("--zk-tls-cert", type=_FILE, help="Own certificate for ZooKeeper, PEM."),
            click.option("--zk-tls-key", type=_FILE, help="Its key, if it is not in the same file."),
        )
    ):
        made = option(made)
    return made
