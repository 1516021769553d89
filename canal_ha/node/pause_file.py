"""The file that keeps a destination stopped on a node without ZooKeeper."""

from __future__ import annotations

from pathlib import Path

from canal_ha.config.model import InstanceConfig


def pause_file(config: InstanceConfig) -> Path:
    """Return its path, beside the cursors of the destination."""
    return config.data_dir / config.destination / "paused"


def is_paused(config: InstanceConfig) -> bool:
    """Return whether the file exists."""
    return pause_file(config).exists()
