"""Refuses paths and placeholders in the text of a destination that came over HTTP.

Whoever sends it chooses the server that gets the password, and reads the other values in the status. So it could read
all files and variables of the node. The node opens what a path names, and says what is wrong with it. Pure, but for
links in paths.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path

from canal_ha.config import keys, queue
from canal_ha.config.keys import ADMIN_SECRETS, BY_NAME, KEYS, TSDB_PASSWORD, TSDB_URL, KeyFile
from canal_ha.config.outside import KINDS
from canal_ha.config.properties import HIDDEN, Layers, Setting, from_mapping, parse, references
from canal_ha.config.tls import path_in
from canal_ha.errors import FileUnusable

_WHOLE = re.compile(r"\$\{file:([^${}]+)\}")
_NAME = re.compile(r"\$\{([^:}]*)")
_INSIDE = re.compile(r"\$\{\s*(file|env)\s*:[^}]*\$\{")
_OWN_NAME = "canal.instance.destination"
_SECRETS = " or ".join(sorted(key.name for key in KEYS if key.secret and key.place is not KeyFile.NODE))
_FILE_OF_PRODUCER = re.compile(r".*(location|path|file|librar).*", re.IGNORECASE)
_BY_HAND = "or write the file on the node yourself"


def check_sent(text: str, file: Path, secrets: Path | None, node: Layers, resolved: Callable[[str], Path]) -> None:
    """Check the text of an instance.properties.

    text: of the file.
    file: where it will be; a relative path of a placeholder starts in its directory.
    secrets: directory of the files that it may read, as canal.admin.http.secrets names it; None: it may read none.
    node: the settings of the node; the last layer is canal.properties.
    resolved: returns the file that the path in a value means.
    Raises ConfigError for a path or a placeholder that it may not have.
    """
    own = parse(text, str(file))
    _check_placeholders(own, file, secrets, node)
    for each in own.keys() & _parts_of_paths(node):
        reason = (
            "over HTTP, this key cannot be set, because canal.properties has its value in the name of a file or"
            " variable: write the file on the node yourself"
        )
        raise _refusal(each, own[each], reason)
    name = from_mapping({_OWN_NAME: Setting(file.parent.name, str(file))})
    *strong, main = node.layers
    without = Layers((name, *node.layers), node.environ)
    whole = Layers((name, *strong, from_mapping(own), main), node.environ)
    for each in _path_keys():
        found = whole.find(each)
        if found is not None and found.text and found.text != _text(without, each):
            _check_named(each, own.get(each, found), found.text, secrets, resolved)
    for each, setting in own.items():
        if any(map(_FILE_OF_PRODUCER.fullmatch, queue.named([each]))):
            reason = f"over HTTP, no file of Kafka's producer can be named: set it in canal.properties, {_BY_HAND}"
            raise _refusal(each, setting, reason)
    url = _text(whole, TSDB_URL.name)
    if "mysql:" in url and url != _text(without, TSDB_URL.name) and not _is_own(whole, TSDB_PASSWORD.name, str(file)):
        reason = (
            f"over HTTP, this server would get the {TSDB_PASSWORD.name} of canal.properties: write that key beside it,"
            f" {_BY_HAND}"
        )
        raise _refusal(TSDB_URL.name, own.get(TSDB_URL.name, Setting(url, str(file))), reason)


def _parts_of_paths(node: Layers) -> set[str]:
    """Return the keys whose values are part of the PATH or NAME in a placeholder of the node."""
    texts = {name: setting.text for name in node.names if (setting := node.written(name)) is not None}
    found = {each for text in texts.values() if _INSIDE.search(text) for each in references(text)}
    while more := {each for name in found & texts.keys() for each in references(texts[name])} - found:
        found |= more
    return found - {_OWN_NAME}


def _path_keys() -> Iterator[str]:
    """Yield the keys of a destination that name a file or a directory."""
    yield from (key.name for key in KEYS if key.names_file and key.place is not KeyFile.NODE)
    for number in range(1, keys.GROUP_MOST + 1):
        for names in (keys.numbered(keys.MASTER, number), keys.numbered(keys.STANDBY, number)):
            yield from (key.name for each in fields(names) if (key := getattr(names, each.name)).names_file)


def _text(layers: Layers, key: str) -> str:
    found = layers.find(key)
    return found.text if found else ""


def _is_own(layers: Layers, key: str, file: str) -> bool:
    """Return whether the value of a key comes from this file, or from nowhere."""
    written = (setting for layer in layers.layers if (setting := layer(key)) is not None and setting.text)
    found = next(written, None)
    return found is None or found.file == file


def _check_named(key: str, setting: Setting, value: str, secrets: Path | None, resolved: Callable[[str], Path]) -> None:
    """Check the path that a key has because of the text."""
    path = path_in(value) if key.endswith("StoreUrl") else value
    if secrets is None:
        reason = (
            f"over HTTP, a file or directory needs {ADMIN_SECRETS.name} in canal.properties, the directory that it may"
            f" be in: set that and restart the node, {_BY_HAND}"
        )
        raise _refusal(key, setting, reason)
    if not _is_inside(resolved(path), secrets):
        reason = (
            f"over HTTP, a file or directory can only be in {secrets} ({ADMIN_SECRETS.name}): put it there, {_BY_HAND}"
        )
        raise _refusal(key, setting, reason)


def _is_inside(path: Path, directory: Path) -> bool:
    try:
        return path.resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links, or a character that no path has
        return False


def _check_placeholders(own: Mapping[str, Setting], file: Path, secrets: Path | None, node: Layers) -> None:
    for key, setting in own.items():
        whole = _WHOLE.fullmatch(setting.text)
        if whole and key in BY_NAME and BY_NAME[key].secret:
            _check_path(key, setting, file.parent / whole[1].strip(), secrets)
            continue
        for found in _NAME.finditer(setting.text):
            name = found[1].strip()
            if name in KINDS:
                reason = (
                    f"over HTTP, ${{file:PATH}} can only be the whole value of {_SECRETS}, and there is no"
                    f" ${{env:NAME}}: write the value itself, {_BY_HAND}"
                )
                raise _refusal(key, setting, reason)
            if not _is_shown(name, node):
                reason = (
                    "over HTTP, a placeholder can only name a key of canal-ha whose value is not hidden: write the"
                    f" value itself, {_BY_HAND}"
                )
                raise _refusal(key, setting, reason)


def _check_path(key: str, setting: Setting, path: Path, secrets: Path | None) -> None:
    if secrets is None:
        reason = (
            f"over HTTP, ${{file:PATH}} needs {ADMIN_SECRETS.name} in canal.properties, the directory of the files that"
            f" it may read: set that and restart the node, write the password itself, {_BY_HAND}"
        )
        raise _refusal(key, setting, reason)
    if not _is_inside(path, secrets):
        reason = (
            f"over HTTP, ${{file:PATH}} can only read files in {secrets} ({ADMIN_SECRETS.name}): put the password"
            f" there, {_BY_HAND}"
        )
        raise _refusal(key, setting, reason)


def _is_shown(name: str, node: Layers) -> bool:
    """Return whether people see the value of a key. A name that is no key can be a variable of the environment."""
    if name == _OWN_NAME:
        return True
    if name not in BY_NAME or BY_NAME[name].secret:
        return False
    found = node.find(name)
    return found is None or found.shown() != HIDDEN


def _refusal(key: str, setting: Setting, reason: str) -> FileUnusable:
    return FileUnusable(setting.file, f"{key}: {reason}", setting.line, key)
