"""The settings that a configuration was made of: every key with its value, and the place that says it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from canal_ha.config import keys, queue
from canal_ha.config.keys import Key, KeyFile
from canal_ha.config.live import DEFAULT, same_value, setting_of
from canal_ha.config.model import NOBODY, CanalConfig, CursorPlace, InstanceConfig
from canal_ha.config.properties import HIDDEN, Layers, Setting, parse, references
from canal_ha.config.secret_names import is_of_canal, is_secret_name
from canal_ha.errors import ConfigError

_OF_QUEUE = (*queue.OLD_NAMES, *queue.OLD_NAMES.values(), *queue.OTHER_NAMES.values())
_GROUP = re.compile(keys.GROUP)
_OVERRIDE = re.compile(keys.OVERRIDE)
_PASSWORD_INSIDE = re.compile(
    r"""^[^:/\s]+:([^/\s].*)$|://[^/@\s]*:([^/@\s]*)@|passw(?:or)?d\s*=\s*["']?([^"'&;\s]+)""", re.I
)
"""user:password, a URL with a login, and the text of a JAAS configuration."""


@dataclass(frozen=True, slots=True)
class EffectiveValue:
    """One key.

    key: its name.
    value: for people; `***` if it is secret or comes from a placeholder of a file or of the environment.
    origin: FILE:LINE, `--set`, `environment NAME`, `settings` (of a program) or `default`.
    """

    key: str
    value: str
    origin: str

    @property
    def hidden(self) -> bool:
        """Whether the value is not shown."""
        return self.value == HIDDEN


def of_node(started: CanalConfig, current: CanalConfig) -> tuple[EffectiveValue, ...]:
    """Return the keys of a node, in the order of keys.py, and then the others that somebody has set.

    started: what the node read at its start.
    current: the same with what it has taken over from canal.properties since then.
    """
    nodes = (key for key in keys.KEYS if key.place is KeyFile.NODE)
    known = (_value(key, current.layers if key.name in keys.LIVE else started.layers) for key in nodes)
    others = (name for name in current.layers.names if not (_OVERRIDE.fullmatch(name) or _GROUP.fullmatch(name)))
    return (*known, *_others((*others, *_OF_QUEUE), current.layers))


def of_destination(config: CanalConfig, instance: InstanceConfig) -> tuple[EffectiveValue, ...]:
    """Return the keys of one destination, in the order of keys.py, and then the others that somebody has set.

    config: the node's.
    instance: the destination's, as it was loaded.
    """
    return tuple(_destination(config, instance, instance.layers or config.layers))


def secrets_of(config: CanalConfig) -> frozenset[str]:
    """Return the values that `of_node` and `of_destination` hide, and the passwords inside them, as in user:password.

    config: of a node. Refused destinations count as far as their files can be read. Values of keys that no one can
        read are left out.
    """
    scopes = [(of_node(config, config), config.layers)]
    scopes += [(of_destination(config, each), each.layers or config.layers) for each in config.destinations]
    found: set[str] = {config.zk_access.digest, config.zk_access.sasl}
    for values, layers in scopes:
        for each in values:
            setting = layers.find(each.key) if each.hidden else None
            if setting is not None and (each.key, setting.text) != (keys.ZK_BEFORE.name, NOBODY):
                found.add(setting.text)
    for refused in config.refused:
        found.update(_hidden_in(refused.layers) if refused.layers else ())
    inside = {match[match.lastindex or 0] for text in found for match in _PASSWORD_INSIDE.finditer(text)}
    return frozenset((found | inside) - {""})


def _hidden_in(layers: Layers) -> Iterator[str]:
    """Yield the secret values of a destination that is not loaded."""
    of_destinations = (key.name for key in keys.KEYS if key.place is not KeyFile.NODE)
    for name in dict.fromkeys((*of_destinations, *layers.names)):
        with suppress(ConfigError):  # a placeholder for what cannot be read has no value
            setting = layers.find(name)
            if setting and setting.shown(secret=is_secret(name)) == HIDDEN:
                yield setting.text


def _destination(config: CanalConfig, instance: InstanceConfig, layers: Layers) -> Iterator[EffectiveValue]:
    for shared, word in ((keys.TEMPLATE, "spring.xml"), (keys.LAZY, "lazy")):
        own = replace(shared, name=f"canal.instance.{instance.destination}.{word}")
        found = config.layers.find(own.name)
        yield _value(own if found and found.text else shared, config.layers)
    for key in keys.KEYS:
        if key is keys.TSDB and instance.cursor_place is CursorPlace.MEMORY:
            yield _value(replace(keys.TSDB, default="false"), layers)
        elif key is keys.DB_PASSWORD and layers.blank(key.name):
            yield _shown(key, layers.written(key.name) or Setting("", DEFAULT))
        elif key.place is not KeyFile.NODE:
            yield _value(key, layers)
    for number in range(1, len(instance.group) + 1):
        for names in (keys.numbered(keys.MASTER, number), keys.numbered(keys.STANDBY, number)):
            for each in fields(names):
                key = getattr(names, each.name)
                if layers.find(key.name) is not None:
                    yield _value(key, layers)
    yield from _others((name for name in layers.names if not _GROUP.fullmatch(name)), layers)


def is_secret(name: str) -> bool:
    """Return whether nobody should see the value of a key, known or not."""
    key = keys.BY_NAME.get(name)
    return key.secret if key else not _is_open(name)


def _is_open(name: str) -> bool:
    """Return whether the value of a key that is not in keys.py is shown.

    The value of any key that is not canal's can be part of a password, through a placeholder.
    """
    return is_of_canal(name) and not is_secret_name(name)


def shown_text(text: str) -> str:
    """Return the settings of a properties file for people, a line each, without what is secret. Raises FileUnusable."""
    settings = parse(text, "properties").items()
    return "\n".join(f"{name} = {setting.shown(secret=is_secret(name))}" for name, setting in settings)


def _others(names: Iterable[str], layers: Layers) -> Iterator[EffectiveValue]:
    """Yield the keys that are not in keys.py, such as those of Kafka's producer, if they have a value."""
    for name in dict.fromkeys(names):
        found = None if name in keys.BY_NAME else layers.find(name)
        written = layers.written(name)
        if found and written and found.text:
            secret = not _is_open(name) or bool(references(written.text))
            yield EffectiveValue(name, found.shown(secret=secret), found.origin)


def _value(key: Key[Any], layers: Layers) -> EffectiveValue:
    return _shown(key, setting_of(key, layers))


def _shown(key: Key[Any], setting: Setting) -> EffectiveValue:
    return EffectiveValue(key.name, setting.shown(secret=key.secret), setting.origin)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two lists of settings compared.

    differences: pairs of values of one key; None for a list that does not have the key.
    hidden: keys whose values are secret in both, which nobody can compare.
    """

    differences: tuple[tuple[EffectiveValue | None, EffectiveValue | None], ...]
    hidden: tuple[str, ...]


def compare(running: Sequence[EffectiveValue], file: Sequence[EffectiveValue]) -> Comparison:
    """Compare the settings of a running node or destination with those of files.

    Values that are written differently and mean the same are equal. The order is that of `file`.
    """
    known = {each.key: each for each in running}
    pairs = [(known.pop(each.key, None), each) for each in file]
    differences: list[tuple[EffectiveValue | None, EffectiveValue | None]] = []
    hidden = []
    for old, new in pairs:
        if old and old.hidden and new.hidden:
            hidden.append(new.key)
        elif old is None or not (old.value == new.value or _equal(old, new)):
            differences.append((old, new))
    return Comparison((*differences, *((each, None) for each in known.values())), tuple(hidden))


def _equal(one: EffectiveValue, other: EffectiveValue) -> bool:
    key = keys.BY_NAME.get(one.key)
    return key is not None and not one.hidden and not other.hidden and same_value(key, one.value, other.value)
