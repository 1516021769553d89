"""Keys of canal that do nothing here, and what to say about those that are set, or about keys nobody knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from canal_ha.config.keys import BY_NAME, GROUP, OVERRIDE, KeyFile
from canal_ha.config.properties import Setting


@dataclass(frozen=True, slots=True)
class Part:
    """A part of canal that does not exist here. harmless: values that ask for nothing, in lower case."""

    note: str
    pattern: str
    harmless: frozenset[str] = frozenset()


# The stock files set many of these (docs/protocol.md#keys).
PARTS = (
    Part("message queues are not served here", r"canal\.mq\..*|(kafka|rocketmq|rabbitmq|pulsarmq)\..*"),
    Part(
        "the canal-admin console is not used here, configuration comes from these files",
        r"canal\.admin\.(manager|port|user|passwd|register\..*)"
        r"|canal\.instance\.[^.]+\.(mode|manager\.address)",
        frozenset({"spring"}),
    ),
    Part("cloud backups (RDS, OSS) are not read here", r"canal\.aliyun\..*|canal\.instance\.rds\..*"),
    Part(
        "druid-encrypted passwords are not read here, give canal.instance.dbPassword in plain text",
        r"canal\.instance\.(enableDruid|pwdPublicKey)",
        frozenset({"false"}),
    ),
    Part("PolarDB-X streams are not read here", r"canal\.instance\.multi\.stream\.on", frozenset({"false"})),
    Part(
        "certificates are PEM files here, without store passwords, and TLS versions are the library's",
        r"canal\.instance\.(master|standby)\d*\.(tlsVersions|\w+KeyStorePassword)",
    ),
)

# Tuning of canal's own threads and sockets, and what it ignores itself: true of every installation, worth no warning.
WITHOUT_EFFECT = re.compile(
    r"canal\.id|canal\.socketChannel|canal\.conf"
    r"|canal\.instance\.(memory\.rawEntry|network\.sendBufferSize|parser\.(parallel\w*|needWait)|tsdb\.spring\.xml|destination)"
)
_PARTS = tuple((part, re.compile(part.pattern)) for part in PARTS)
_OVERRIDE = re.compile(OVERRIDE)
_GROUP = re.compile(GROUP)


def warnings(
    where: Path | str,
    settings: Mapping[str, Setting],
    resolve: Callable[[Setting, str], str],
    *,
    instance: bool,
    used: Set[str] = frozenset(),
) -> Iterator[str]:
    """What to tell about the settings of one file, in its order: unknown keys one by one, absent parts together.

    instance: the file is an instance.properties; used: names that placeholders anywhere ask for, which are known then.
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
        part = next((part for part, pattern in _PARTS if pattern.fullmatch(key)), None)
        if part is not None:
            if value.lower() not in part.harmless:
                absent.setdefault(part.note, []).append(key)
        elif not (WITHOUT_EFFECT.fullmatch(key) or (_OVERRIDE.fullmatch(key) and not instance) or key in used):
            near = get_close_matches(key, BY_NAME, n=1, cutoff=0.8)
            yield f"{setting.origin}: unknown key {key}" + (f", did you mean {near[0]}?" if near else "")
    for note, keys in absent.items():
        yield f"{where}: {note}, ignored: {', '.join(keys)}"
