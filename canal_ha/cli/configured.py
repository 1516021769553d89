"""One destination of a configuration directory, for commands."""

from __future__ import annotations

import os
from pathlib import Path

import click

from canal_ha.config.load import load_usable
from canal_ha.config.model import CanalConfig, InstanceConfig


def configured(conf: Path, destination: str) -> tuple[CanalConfig, InstanceConfig]:
    """Return the configuration of a node and of one of its destinations. Raises ConfigError, UsageError.

    conf: directory of canal.properties.
    destination: name of the destination.
    """
    config = load_usable(conf, (), os.environ)
    for refused in config.refused:
        if refused.destination == destination:
            raise refused.error
    known = {each.destination: each for each in config.destinations}
    if destination not in known:
        names = ", ".join(known) or "none"
        raise click.UsageError(f"{conf} configures no destination {destination}; its destinations: {names}")
    return config, known[destination]
