"""Properties files and placeholders: where a value comes from and how it is resolved (docs/protocol.md#lookup).

${key:default}    another setting, or the default
${file:PATH}, ${env:NAME}, ${env:NAME:default}    see outside.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from canal_ha.config.outside import KINDS, outside
from canal_ha.config.secret_names import is_of_canal, is_secret_name, protects
from canal_ha.errors import ConfigError, FileUnusable

_REFERENCE = re.compile(r"\$\{([^:{}]+)")
_LOGIN = re.compile(r"://[^/@\s]*:[^/@\s]*@|[?&;]\w*passw(or)?d=", re.IGNORECASE)  # in a URL
_SURROGATE = re.compile("[\ud800-\udfff]")
_SERVICE_LINK = re.compile(r"(tcp|udp)://")
_SHOWN_MOST = 300  # characters of a value in a message
HIDDEN = "***"
_SHALLOW = "fewer placeholders in one value"
PROGRAM = "settings"  # where a value of a program is, in messages
_MOST_CHARACTERS = 1 << 16  # of a value with its placeholders resolved


@dataclass(frozen=True, slots=True)
class Setting:
    """One value.

    file: its origin for messages (path, `--set`, environment name, PROGRAM).
    line: 0 for none.
    outside: it holds text of a file, of the environment or of a secret key, which messages do not show.
    """

    text: str
    file: str
    line: int = 0
    outside: bool = False

    @property
    def origin(self) -> str:
        """`conf/canal.properties:12`, or the file alone if there is no line."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def shown(self, *, secret: bool = False) -> str:
        """Return the value for people, cut if it is long; HIDDEN if it is secret or a URL with a password.

        A blank value hides nothing.
        """
        if self.text and (secret or self.outside or _LOGIN.search(self.text)):
            return HIDDEN
        return self.text if len(self.text) <= _SHOWN_MOST else self.text[:_SHOWN_MOST] + "..."

    def refusal(self, key: str, expected: str, *, secret: bool = False, why: str = "") -> ConfigError:
        """Return the error that this value of `key` is invalid.

        expected: never quotes the value.
        secret: hide the value.
        why: more about it, which may quote the value; left out if the value is hidden.
        """
        text = HIDDEN if secret or self.outside else self.shown()
        if why and text != HIDDEN:
            expected = f"{expected} ({why})"
        return ConfigError(self.file, key, text, expected, self.line)


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
    return parse(text, str(path))


def parse(text: str, file: str) -> dict[str, Setting]:
    """Return the settings of a text, as `read` does. file: for messages. Raises FileUnusable."""
    import javaproperties  # and with it XML and HTTP, for nothing where no file is read

    settings: dict[str, Setting] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                settings[element.key.strip()] = Setting(element.value.strip(), file, line)
            line += len(re.findall(r"\r\n|\r|\n", element.source))
    except javaproperties.InvalidUEscapeError as error:
        cure = r"write \u and four hexadecimal digits, or \\ for a backslash"
        raise FileUnusable(file, f"{error.escape} is incomplete: {cure}", line) from error
    for key, setting in settings.items():
        if half := _SURROGATE.search(key + setting.text):
            raise FileUnusable(file, rf"\u{ord(half[0]):04x} is half a character: write both halves", setting.line)
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


def from_program(settings: Mapping[str, str]) -> dict[str, Setting]:
    """Return the settings that a program hands over."""
    return {key: Setting(text.strip(), PROGRAM) for key, text in settings.items()}


def from_environment(environ: Mapping[str, str]) -> Layer:
    """Return a layer of the process environment: first the key itself, then the form CANAL_INSTANCE_MASTER_ADDRESS.

    Kubernetes sets CANAL_PORT=tcp://10.0.0.1:11111 in every container if a service is named `canal`. Such service links
    in upper-case names are not settings. Messages do not show the value of a variable whose name is not one of canal's.
    """

    def lookup(key: str) -> Setting | None:
        if key in environ:
            return Setting(environ[key].strip(), f"environment {key}", outside=not is_of_canal(key))
        name = key.upper().replace(".", "_")
        text = environ.get(name, "").strip()
        if not text or _SERVICE_LINK.match(text):
            return None
        return Setting(text, f"environment {name}", outside=not is_of_canal(key))

    return lookup


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers of settings, the strongest first.

    environ: for ${env:NAME}.
    names: of the keys that somebody has written for the node, or for the destination, in order.
    """

    layers: tuple[Layer, ...]
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    names: tuple[str, ...] = ()

    def find(self, key: str) -> Setting | None:
        """Return the first non-blank setting of `key` with its placeholders resolved, which can make it blank.

        Raises ConfigError if placeholders form a cycle, are nested too deeply, resolve to too long a text, or name a
        file or a variable that cannot be read.
        """
        try:
            return _Resolution(self).find(key, ())
        except RecursionError as error:
            written = self.written(key) or Setting("", "")
            raise written.refusal(key, _SHALLOW, secret=is_secret_name(key)) from error

    def written(self, key: str) -> Setting | None:
        """Return the first setting of `key` as written, blank or not."""
        return next((setting for layer in self.layers if (setting := layer(key)) is not None), None)

    def blank(self, key: str) -> bool:
        """Return whether `key` is set, but blank in every layer."""
        found = self.find(key)
        return (found is None or not found.text) and self.written(key) is not None

    def resolve(self, setting: Setting, key: str) -> str:
        """Return the text of `setting`, a value of `key`, with all placeholders replaced. Raises like `find`."""
        return self.resolved(setting, key).text

    def resolved(self, setting: Setting, key: str) -> Setting:
        """Return `setting`, a value of `key`, with all placeholders replaced. Raises like `find`."""
        try:
            return _Resolution(self).resolved(setting, (key,))
        except RecursionError as error:
            raise setting.refusal(key, _SHALLOW, secret=is_secret_name(key)) from error


class _Resolution:
    """Resolves one value. A setting that several placeholders name is resolved once."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._found: dict[str, Setting | None] = {}
        self._outside_used = False

    def find(self, key: str, referrers: tuple[str, ...]) -> Setting | None:
        """Return the resolved setting of a key. referrers: the keys whose values led here."""
        if key not in self._found:
            written = (setting for layer in self._layers.layers if (setting := layer(key)) is not None)
            setting = next((each for each in written if each.text), None)
            if setting is not None:
                if key in referrers:
                    raise _refusal(setting, (key, *referrers), "a value that does not refer to itself")
                setting = self.resolved(setting, (*referrers, key))
            self._found[key] = setting
        return self._found[key]

    def resolved(self, setting: Setting, referrers: tuple[str, ...]) -> Setting:
        """Return a setting with its placeholders replaced. referrers: the keys whose values led here; itself last."""
        if "${" not in setting.text:
            text = setting.text.strip()
            return setting if text == setting.text else replace(setting, text=text)
        before, self._outside_used = self._outside_used, False
        text = self.text(setting.text, setting, referrers).strip()
        setting = replace(setting, text=text, outside=setting.outside or self._outside_used)
        self._outside_used |= before
        return setting

    def text(self, text: str, setting: Setting, referrers: tuple[str, ...]) -> str:
        """Return a text of `setting` with its placeholders replaced."""
        start = text.find("${")
        if start < 0:
            return text
        end = _closing_brace(text, start + 2)
        if end < 0:  # Spring leaves an unclosed placeholder unchanged
            return text
        name, _, default = text[start + 2 : end].partition(":")
        name = self.text(name, setting, referrers).strip()
        if name in KINDS:
            value = self._outside(name, default, setting, referrers)
        else:
            found = self.find(name, referrers)
            value = found.text if found and found.text else self.text(default, setting, referrers)
            self._outside_used |= found is not None and bool(found.text) and (found.outside or is_secret_name(name))
        resolved = text[:start] + value + self.text(text[end + 1 :], setting, referrers)
        if len(resolved) > _MOST_CHARACTERS:
            raise _refusal(setting, referrers, f"at most {_MOST_CHARACTERS} characters once placeholders are resolved")
        return resolved

    def _outside(self, kind: str, name: str, setting: Setting, referrers: tuple[str, ...]) -> str:
        """Return the text of a file, or of a variable of the environment (or its default, NAME:default)."""
        named = self.resolved(replace(setting, text=name), referrers)
        self._outside_used = True
        try:
            directory, free = Path(setting.file).parent, not any(map(protects, referrers))
            return outside(kind, named.text, directory, self._layers.environ, may_be_empty=free)
        except ValueError as error:
            hidden = f"a {'readable file' if kind == 'file' else 'variable that is set'}; its name is a hidden value"
            raise _refusal(setting, referrers, hidden if named.outside else str(error)) from error


def _refusal(setting: Setting, referrers: tuple[str, ...], expected: str) -> ConfigError:
    """Return the error about a setting to which these keys led, as it is written."""
    return setting.refusal(referrers[0], expected, secret=any(map(is_secret_name, referrers)))


def references(text: str) -> set[str]:
    """Return the names in a value's placeholders."""
    return {name.strip() for name in _REFERENCE.findall(text)} - KINDS


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
