"""`canal-ha debug`: collects what somebody else needs to find out why a node or a cluster misbehaves."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click

from canal_ha.cli.access import access_options, http_access
from canal_ha.cli.bundle import Bundle
from canal_ha.cli.profiles import profile_option, zk_option
from canal_ha.cli.zookeeper_options import zookeeper_options
from canal_ha.config.load import load_usable
from canal_ha.config.model import ZooKeeperAccess
from canal_ha.errors import CanalError
from canal_ha.model.excerpt import message
from canal_ha.model.figures import size


@click.group()
def command() -> None:
    """Collect what somebody else needs to find a fault."""


@command.command(name="bundle")
@profile_option
@click.option(
    "--conf",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Configuration directory of the node on this machine, as in `canal-ha server`; also names its ZooKeeper.",
)
@zk_option("Collect from the cluster below these ZooKeeper servers.")
@zookeeper_options
@click.option("--out", type=click.Path(path_type=Path), help="File to make.  [default: canal-ha-debug-TIME.tar.gz]")
@access_options
def bundle_(
    conf: Path | None,
    zk: str | None,
    zk_access: ZooKeeperAccess,
    out: Path | None,
    user: str,
    password_file: Path | None,
    token_file: Path | None,
    tls_ca: str,
) -> None:
    """Write one tar.gz with status, configuration, logs, znodes, metrics and versions, and print what is in it.

    With --conf: of the node on this machine, and of its cluster if it has one. With --zk: of a cluster. Passwords,
    tokens and keys of the configuration appear as ***, also in logs. It has no rows of tables; filters, names of tables
    and addresses remain, and statements if logs have them. Only you can read the file. What cannot be read is left out,
    and named.

    Exit codes: 0 there is a bundle; 1 there is none, or the configuration could not be loaded, so that the bundle lacks
    the node; 2 wrong usage.
    """
    if conf is None and zk is None:
        raise click.UsageError("give --conf, --zk, or both")
    from canal_ha.cli import bundle_parts

    access = http_access(user, password_file, tls_ca, token_file)
    bundle = Bundle()
    bundle_parts.about(bundle)
    loaded = True
    if conf is not None:
        try:
            config = load_usable(conf, (), os.environ)
        except CanalError as error:
            bundle.problem("configuration", error)
            loaded = False
        else:
            zk = zk or config.zk_servers
            if not (zk_access.named or zk_access.secured):
                zk_access = config.zk_access
            bundle_parts.of_home(bundle, config, access)
    if zk:
        bundle_parts.of_cluster(bundle, zk, zk_access, access)
    path = out or Path(time.strftime("canal-ha-debug-%Y%m%d-%H%M%S.tar.gz"))
    written = bundle.write(path)
    for part in bundle.parts:
        cut = f", without {size(part.left_out)} more" if part.left_out else ""
        click.echo(f"{size(part.size_bytes):>10}  {message(part.name)}{cut}")
    for problem in bundle.problems:
        click.echo(f"   missing  {message(bundle.redacted(problem))}")
    click.echo(f"{path}: {size(written)}. Look through it before you send it to anybody")
    if not loaded:
        click.echo(
            f"canal-ha: {conf} could not be loaded, so the bundle has nothing of the node: correct --conf or the file"
            " above, and make another bundle",
            err=True,
        )
        sys.exit(1)
