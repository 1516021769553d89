"""`canal-ha server`: one node, until it is told to stop."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import click

from canal_ha import logs
from canal_ha.config.load import load
from canal_ha.config.model import CanalConfig
from canal_ha.decode import kernel
from canal_ha.decode.filters import TableFilter
from canal_ha.errors import ConfigError, FilterInvalid
from canal_ha.version import VERSION

log = logs.get(__name__)


@click.command()
@click.option(
    "--conf",
    "conf_dir",
    type=click.Path(path_type=Path),
    default=Path("conf"),
    show_default=True,
    metavar="DIR",
    help="Directory of canal.properties and <destination>/instance.properties.",
)
@click.option(
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key, stronger than environment and files."
)
def command(conf_dir: Path, sets: tuple[str, ...]) -> None:
    """Run a node: follow MySQL and serve canal's protocol, until SIGTERM."""
    config = load(conf_dir, sets, os.environ)
    check_filters(config)
    try:
        logs.setup(config.log_dir, config.log_format)
    except OSError as error:
        raise ConfigError(
            str(config.main_file), "canal.log.dir", str(config.log_dir), f"a directory ({error.strerror})"
        ) from error
    log.info(
        "node.starting",
        version=VERSION,
        kernel=kernel.BUILD,
        python=platform.python_version(),
        conf=config.main_file.parent,
        destinations=",".join(instance.destination for instance in config.destinations),
    )
    for warning in config.warnings:
        log.warning("config.warning", text=warning)
    from canal_ha import node  # installs the reactor: not before the configuration is known to be good

    sys.exit(node.serve(config))


def check_filters(config: CanalConfig) -> None:
    """Compile every table filter; raises ConfigError at start instead of FilterInvalid in a stream."""
    for instance in config.destinations:
        for name, value in (("regex", instance.filter_regex), ("black.regex", instance.filter_black_regex)):
            try:
                TableFilter(value, "")
            except FilterInvalid as error:
                where = config.conf_dir / instance.destination / "instance.properties"
                raise ConfigError(str(where), f"canal.instance.filter.{name}", value, str(error)) from error
