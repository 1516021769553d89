"""`canal-ha server`: runs one node until SIGTERM."""

from __future__ import annotations

import os
import platform
import sys
from functools import partial
from pathlib import Path

import click

from canal_ha import logs
from canal_ha.config.listeners import check_listeners
from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig
from canal_ha.config.tls import unverified
from canal_ha.decode import kernel
from canal_ha.decode.filters import TableFilter
from canal_ha.errors import CanalError, ConfigError, FileMissing, FilesMissing
from canal_ha.model.excerpt import some
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
    "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a key; overrides the environment and the files."
)
def command(conf_dir: Path, sets: tuple[str, ...]) -> None:
    """Run a node: follow MySQL and serve canal's protocol, until SIGTERM."""
    config = load_checked(conf_dir, sets)
    about_ports = check_listeners(config)
    if config.refused and not config.destinations and not config.auto_scan:
        raise _nothing_runs(config)  # and no scan would read the files again
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
        destinations=some(instance.destination for instance in config.destinations),
    )
    for warning in filter(None, (*config.warnings, about_ports, unverified(config.destinations))):
        log.warning("config.warning", text=warning)
    from canal_ha import node  # installs the reactor, so import it after the configuration is checked

    sys.exit(node.serve(config))


def _nothing_runs(config: CanalConfig) -> CanalError:
    """Return why no destination can run.

    A file that is missing can come back by itself, with a file system that is mounted late. That is no ConfigError,
    whose exit code tells systemd not to try again.
    """
    errors = [each.error for each in config.refused]
    invalid = next((error for error in errors if not isinstance(error, FileMissing)), None)
    return invalid or FilesMissing(
        f"{errors[0]}; restore the file, or remove {config.refused[0].destination} from canal.destinations in"
        f" {config.main_file}"
    )


def load_checked(conf_dir: Path, sets: tuple[str, ...]) -> CanalConfig:
    """Load a node's configuration and compile its table filters. Raises ConfigError for an invalid node value."""
    environ = dict(os.environ)  # which encodes and decodes at each look, some hundred times for each destination
    return load_usable(conf_dir, sets, environ, partial(TableFilter, exclude=""))
