"""A changed canal.properties: what a running node takes over from it, and what waits for a restart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from canal_ha.config import keys
from canal_ha.config.keys import Key, KeyFile
from canal_ha.config.listeners import check_listeners
from canal_ha.config.load import FilterCheck, load_again, main_as_loaded
from canal_ha.config.model import CanalConfig
from canal_ha.config.properties import HIDDEN, Layers, Setting
from canal_ha.errors import ConfigError, FileUnusable

DEFAULT = "default"
"""The place of a value that nobody has set."""
TAKEN = (
    "main",
    "layers",
    "listed",
    "warnings",
    "auto_scan_interval_s",
    "login_timeout_s",
    "connections_max",
    "address_connections_max",
    "ahead_bytes",
    "reply_bytes",
)
"""The fields of a configuration that keys.LIVE and the settings of destinations change."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A key with another value in the file than in the node.

    key: its name.
    running: the value that the node uses, for people.
    file: the value in the file, for people.
    line: of the key in canal.properties; 0 if it is not there.
    """

    key: str
    running: str
    file: str
    line: int

    def __str__(self) -> str:
        if HIDDEN in (self.running, self.file):
            return f"{self.key} (changed; its value is secret)"
        return f"{self.key} (running: {self.running or 'blank'}, file: {self.file or 'blank'})"


def as_started(started: CanalConfig, destinations: Iterable[str]) -> bool:
    """Return whether a node that has just started need not read its files again, some milliseconds for each.

    started: its configuration.
    destinations: those that it runs or could run.
    """
    if started.refused or not set(destinations) <= {each.destination for each in started.destinations}:
        return False
    try:
        return main_as_loaded(started)
    except ConfigError:
        return False


def renewed(
    started: CanalConfig,
    running: CanalConfig,
    destinations: Iterable[str],
    environ: Mapping[str, str],
    check_filter: FilterCheck | None,
) -> tuple[CanalConfig, Layers]:
    """Read canal.properties again. Return what the node uses of it without a restart, and all its settings.

    started: the configuration of the node at its start.
    running: the same with what the node has taken over since then.
    destinations: those that it runs or could run.
    environ: the process environment.
    check_filter: checks their table filters.
    Raises ConfigError if the node could not start with the file, or if a line of it makes a destination unusable.
    """
    found = load_again(running, destinations, environ, check_filter)
    if running.main and not found.main:
        raise FileUnusable(str(running.main_file), "is empty: put its text back")
    check_listeners(found)
    for refused in found.refused:
        if refused.error.file == str(running.main_file):
            raise refused.error
    taken = {name: getattr(found, name) for name in TAKEN}
    return replace(running, **{**taken, "main": main_in_use(started, found)}), found.layers


def main_in_use(started: CanalConfig, found: CanalConfig) -> dict[str, Setting]:
    """Return the settings of canal.properties with which a running node loads destinations.

    A key that waits for a restart keeps its value: a node that serves clients must not begin to write to Kafka too.

    started: the configuration of the node at its start.
    found: the configuration in the file.
    """
    main = dict(found.main)
    for each in waiting_for_restart(started.layers, found.layers, scanned=True):
        main.pop(each.key, None)
        kept = started.layers.find(each.key)
        if kept is not None:
            main[each.key] = kept
    return main


def waiting_for_restart(running: Layers, found: Layers, *, scanned: bool) -> list[Difference]:
    """Return the keys of the node that a restart would change, in the order of keys.py.

    running: the settings at the start of the node.
    found: the settings in the file.
    scanned: whether the node takes over the keys of keys.LIVE by itself.
    """
    nodes = (key for key in keys.KEYS if key.place is KeyFile.NODE and not (scanned and key.name in keys.LIVE))
    return [found_one for key in nodes if (found_one := _difference(key, running, found)) is not None]


def _difference(key: Key[Any], running: Layers, found: Layers) -> Difference | None:
    old, new = setting_of(key, running), setting_of(key, found)
    if old.text == new.text or same_value(key, old.text, new.text):
        return None
    return Difference(key.name, old.shown(secret=key.secret), new.shown(secret=key.secret), new.line)


def setting_of(key: Key[Any], layers: Layers) -> Setting:
    """Return the value of a key, with the place that says it; its default with DEFAULT as place."""
    found = layers.find(key.name)
    if found is not None and found.text:
        return found
    return layers.resolved(Setting(key.default, DEFAULT), key.name)


def same_value(key: Key[Any], one: str, other: str) -> bool:
    """Return whether two texts mean the same value of a key."""
    try:
        return bool(key.kind.read(one) == key.kind.read(other))
    except ValueError:
        return False
