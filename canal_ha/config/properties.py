"""Properties files and `${key:default}`: where a value comes from and how it is resolved (docs/protocol.md#lookup)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import javaproperties

from canal_ha.errors import ConfigError, FileUnusable

_REFERENCE = re.compile(r"\$\{([^:{}]+)")
_SERVICE_LINK = re.compile(r"(tcp|udp)://")
_SHOWN_MOST = 300  # characters of a value in a message
_SHALLOW = "fewer placeholders in one value"


@dataclass(frozen=True, slots=True)
class Setting:
    """One value as written. file: its origin for messages (path, `--set`, environment name); line: 0 for none."""

    text: str
    file: str
    line: int = 0

    @property
    def origin(self) -> str:
        """`conf/canal.properties:12`, or the file alone if there is no line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def refusal(self, key: str, expected: str, *, secret: bool = False) -> ConfigError:
        """Return the error that this value of `key` is invalid. secret: hide the value."""
        text = self.text if len(self.text) <= _SHOWN_MOST else self.text[:_SHOWN_MOST] + "..."
        return ConfigError(self.file, key, "***" if secret else text, expected, self.line)


Layer = Callable[[str], Setting | None]


def read(path: Path) -> dict[str, Setting]:
    """Read the settings of one file, in its order; the last line of a key wins.

    The file is read as UTF-8 or, if that fails, as Java's Latin-1.
    Raises ConfigError if the file cannot be read or is not a properties file.
    """
    try:
        raw = path.read_bytes()
    except IsADirectoryError as error:
        raise FileUnusable(str(path), "is a directory; a file is expected") from error
    except OSError as error:
        raise ConfigError(str(path), "(file)", "", f"a readable file ({error.strerror})") from error
    if b"\0" in raw:  # UTF-16, or a damaged file
        raise FileUnusable(str(path), "contains NUL bytes: save it as UTF-8")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    settings: dict[str, Setting] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                settings[element.key.strip()] = Setting(element.value.strip(), str(path), line)
            line += len(re.findall(r"\r\n|\r|\n", element.source))
    except javaproperties.InvalidUEscapeError as error:
        cure = r"write \u and four hexadecimal digits, or \\ for a backslash"
        raise FileUnusable(str(path), f"{error.escape} is incomplete: {cure}", line) from error
    return settings


def from_mapping(settings: Mapping[str, Setting]) -> Layer:
    """Return a layer of the given settings."""
    return settings.get


def from_sets(sets: Sequence[str]) -> dict[str, Setting]:
    """Parse `--set key=value` arguments; the last of a key wins. Raises ConfigError for one without a key or `=`."""
    settings: dict[str, Setting] = {}
    for item in sets:
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ConfigError("--set", key, "", "key=value")
        settings[key.strip()] = Setting(value.strip(), "--set")
    return settings


def from_environment(environ: Mapping[str, str]) -> Layer:
    """Return a layer of the process environment: first the key itself, then the form CANAL_INSTANCE_MASTER_ADDRESS.

    Kubernetes sets CANAL_PORT=tcp://10.0.0.1:11111 in every container if a service is named `canal`. Such service links
    in upper-case names are not settings.
    """

    def lookup(key: str) -> Setting | None:
        if key in environ:
            return Setting(environ[key].strip(), f"environment {key}")
        name = key.upper().replace(".", "_")
        text = environ.get(name, "").strip()
        return None if not text or _SERVICE_LINK.match(text) else Setting(text, f"environment {name}")

    return lookup


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of settings, the strongest first."""

    layers: tuple[Layer, ...]

    def find(self, key: str) -> Setting | None:
        """Return the first non-blank setting of `key` with its placeholders resolved, which can make it blank.

        Raises ConfigError if placeholders form a cycle or are nested too deeply.
        """
        try:
            return self._find(key, ())
        except RecursionError as error:
            raise (self.written(key) or Setting("", "")).refusal(key, _SHALLOW) from error

    def written(self, key: str) -> Setting | None:
        """Return the first setting of `key` as written, blank or not."""
        return next((setting for layer in self.layers if (setting := layer(key)) is not None), None)

    def blank(self, key: str) -> bool:
        """Return whether `key` is set, but blank in every layer."""
        found = self.find(key)
        return (found is None or not found.text) and self.written(key) is not None

    def resolve(self, setting: Setting, key: str) -> str:
        """Return the text of `setting`, a value of `key`, with all `${name}` and `${name:default}` replaced.

        Raises ConfigError like `find`.
        """
        try:
            return self._resolve(setting.text, setting, (key,)).strip()
        except RecursionError as error:
            raise setting.refusal(key, _SHALLOW) from error

    def _find(self, key: str, referrers: tuple[str, ...]) -> Setting | None:
        for layer in self.layers:
            setting = layer(key)
            if setting is not None and setting.text:
                if key in referrers:
                    raise setting.refusal(key, "a value that does not refer to itself")
                return replace(setting, text=self._resolve(setting.text, setting, (*referrers, key)).strip())
        return None

    def _resolve(self, text: str, setting: Setting, referrers: tuple[str, ...]) -> str:
        start = text.find("${")
        if start < 0:
            return text
        end = _closing_brace(text, start + 2)
        if end < 0:  # Spring leaves an unclosed placeholder unchanged
            return text
        name, _, default = text[start + 2 : end].partition(":")
        found = self._find(self._resolve(name, setting, referrers).strip(), referrers)
        value = found.text if found and found.text else self._resolve(default, setting, referrers)
        return text[:start] + value + self._resolve(text[end + 1 :], setting, referrers)


def references(text: str) -> set[str]:
    """Return the names in a value's placeholders."""
    return {name.strip() for name in _REFERENCE.findall(text)}


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    for index in range(start, len(text)):
        if text.startswith("${", index):
            depth += 1
        elif text[index] == "}":
            depth -= 1
            if not depth:
                return index
    return -1
