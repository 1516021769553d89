"""Refuses placeholders in the text of a destination that came over HTTP.

Whoever sends it chooses the server that gets the password, and reads the other values in the status. So it could read
all files and variables of the node. Pure, but for links in paths.
"""

from __future__ import annotations

import re
from pathlib import Path

from canal_ha.config.keys import ADMIN_SECRETS, BY_NAME, KEYS, KeyFile
from canal_ha.config.outside import KINDS
from canal_ha.config.properties import Layers, Setting, parse
from canal_ha.errors import FileUnusable

_WHOLE = re.compile(r"\$\{file:([^${}]+)\}")
_NAME = re.compile(r"\$\{([^:}]*)")
_OWN_NAME = "canal.instance.destination"
_SECRETS = " or ".join(sorted(key.name for key in KEYS if key.secret and key.place is not KeyFile.NODE))
_BY_HAND = "or write the file on the node yourself"


def check_sent(text: str, file: Path, secrets: Path | None, node: Layers) -> None:
    """Check the text of an instance.properties.

    text: of the file.
    file: where it will be; a relative path of a placeholder starts in its directory.
    secrets: directory of the files that it may read, as canal.admin.http.secrets names it; None: it may read none.
    node: the settings of the node.
    Raises ConfigError for a placeholder that it may not have.
    """
    for key, setting in parse(text, str(file)).items():
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
    if not path.resolve().is_relative_to(secrets.resolve()):
        reason = (
            f"over HTTP, ${{file:PATH}} can only read files in {secrets} ({ADMIN_SECRETS.name}): put the password"
            f" there, {_BY_HAND}"
        )
        raise _refusal(key, setting, reason)


def _is_shown(name: str, node: Layers) -> bool:
    """Return whether the value of a key is no secret. A name that is no key can be a variable of the environment."""
    if name == _OWN_NAME:
        return True
    if name not in BY_NAME or BY_NAME[name].secret:
        return False
    found = node.find(name)
    return found is None or not found.outside


def _refusal(key: str, setting: Setting, reason: str) -> FileUnusable:
    return FileUnusable(setting.file, f"{key}: {reason}", setting.line, key)
