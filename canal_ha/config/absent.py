"""Warnings about canal's keys that have no effect here, and about unknown keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from canal_ha.config import queue
from canal_ha.config.keys import BY_NAME, GROUP, OVERRIDE, KeyFile
from canal_ha.config.properties import Setting


@dataclass(frozen=True, slots=True)
class Part:
    """A feature of canal that does not exist here.

    note: the text of the warning.
    pattern: regular expression of its keys.
    harmless: values, in lower case, that turn the feature off and need no warning.
    needed: what a person has to do, if a destination does not work without the feature; "" if it does.
    """

    note: str
    pattern: str
    harmless: frozenset[str] = frozenset()
    needed: str = ""


_DRUID = "druid-encrypted passwords are not supported, set canal.instance.dbPassword in plain text"

# canal's stock files set many of these keys (docs/protocol.md#keys).
PARTS = (
    Part("RocketMQ, RabbitMQ and Pulsar are not supported", r"(rocketmq|rabbitmq|pulsarmq)\..*"),
    Part(
        "the canal-admin console does not manage the configuration, it comes from these files",
        r"canal\.admin\.(manager|register\..*)"
        r"|canal\.instance\.[^.]+\.(mode|manager\.address)",
        frozenset({"spring"}),
    ),
    Part("cloud backups (RDS, OSS) are not supported", r"canal\.aliyun\..*|canal\.instance\.rds\..*"),
    Part(_DRUID, r"canal\.instance\.pwdPublicKey"),
    Part(
        _DRUID,
        r"canal\.instance\.enableDruid",
        frozenset({"false"}),
        "the password is encrypted with druid, and the key to read it is in the same file. Write"
        " canal.instance.dbPassword = ${file:PATH} with a file that only the node's user can read, and"
        " canal.instance.enableDruid = false; docs/how-to/migrate-from-canal.md says how to get the plain text",
    ),
    Part("PolarDB-X streams are not supported", r"canal\.instance\.multi\.stream\.on", frozenset({"false"})),
    Part(
        "certificates must be PEM files without passwords, and the TLS library chooses TLS versions",
        r"canal\.instance\.(master|standby)\d*\.(tlsVersions|\w+KeyStorePassword)",
    ),
)

# Tuning of canal's threads and sockets, and keys that canal ignores itself. Every installation sets some: no warning.
WITHOUT_EFFECT = re.compile(
    r"canal\.id|canal\.socketChannel|canal\.conf"
    r"|canal\.instance\.(memory\.rawEntry|network\.sendBufferSize|parser\.(parallel\w*|needWait)|tsdb\.spring\.xml|destination)"
)
_PARTS = tuple((part, re.compile(part.pattern)) for part in PARTS)
_OVERRIDE = re.compile(OVERRIDE)
_GROUP = re.compile(GROUP)


def needed(key: str, value: str) -> str:
    """Return what a person has to do about a setting without which its destination does not work; "" if nothing."""
    part = _part(key)
    return part.needed if part and value.lower() not in part.harmless else ""


def has_no_effect(key: str) -> bool:
    """Return whether canal's key tunes something that does not exist here."""
    return bool(WITHOUT_EFFECT.fullmatch(key) or queue.WITHOUT_EFFECT.fullmatch(key))


def _part(key: str) -> Part | None:
    return next((part for part, pattern in _PARTS if pattern.fullmatch(key)), None)


def _is_harmless(key: str) -> bool:
    return queue.of_node(key) or has_no_effect(key)


def warnings(
    where: Path | str,
    settings: Mapping[str, Setting],
    resolve: Callable[[Setting, str], str],
    *,
    instance: bool,
    used: Set[str] = frozenset(),
) -> Iterator[str]:
    """Yield warnings about one file's settings, in its order: each unknown key, then each missing feature.

    where: the file, or `--set`.
    settings: the settings of that file.
    resolve: replaces the placeholders of a setting.
    instance: the file is an instance.properties.
    used: names in placeholders of any file; they count as known.
    """
    absent: dict[str, list[str]] = {}
    for key, setting in settings.items():
        value = resolve(setting, key)
        if not value:
            continue
        numbered = _GROUP.fullmatch(key)
        if numbered and f"canal.instance.{numbered['role']}.{numbered['what']}" in BY_NAME:
            continue
        if key in BY_NAME:
            if instance and BY_NAME[key].place is KeyFile.NODE:
                yield f"{setting.origin}: {key} is read from canal.properties only"
            continue
        if instance and queue.of_node(key):
            yield f"{setting.origin}: {key} is read from canal.properties only"
            continue
        part = _part(key)
        if part is not None:
            if value.lower() not in part.harmless:
                absent.setdefault(part.note, []).append(key)
        elif not (_is_harmless(key) or (_OVERRIDE.fullmatch(key) and not instance) or key in used):
            near = get_close_matches(key, BY_NAME, n=1, cutoff=0.8)
            yield f"{setting.origin}: unknown key {key}" + (f", did you mean {near[0]}?" if near else "")
    for note, keys in absent.items():
        yield f"{where}: {note}, ignored: {', '.join(keys)}"
